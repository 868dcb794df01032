# about: the chat on several ranks over MPI: one process's answers, ranks that die, hang or have another model
# inputs: examples/distributed examples/llm tests/distributed include tests/told.py
# seconds: 120
# when: changed
# packages: mpi
. ./examples/llm/chat.sh
needs packages mpi
built tests tests/distributed/all metal-marlin metal-marlin-chat metal-marlin-chat-mpi
programs build/release distributed
needs environment llm
build/env/llm/bin/python -B tests/distributed/distributed_test.py "$chat" "$chat_mpi" "$marlin"
