# about: the chat on several ranks over MPI: one process's answers, ranks that die, hang or have another model
# inputs: examples/distributed examples/llm tests/distributed include
# seconds: 120
# when: changed
# packages: mpi
[ -z "$(missing_packages mpi)" ] || { left_out "the packages of group mpi cannot be installed"; exit 0; }
built release tests/distributed/all metal-marlin metal-marlin-chat metal-marlin-chat-mpi
programs build/release distributed
one_at_a_time environment llm || { left_out "$(why_not llm)"; exit 0; }
script build/env/llm/bin/python -B tests/distributed/scaling_model_test.py
script build/env/llm/bin/python -B tests/distributed/distributed_test.py "$chat" "$chat_mpi" "$marlin"
