# about: the chat of examples/llm: its parts, and a real model against the Python packages of others
# inputs: examples/llm tests/llm include tests/told.py
# seconds: 190
# when: changed
. ./examples/llm/chat.sh
built tests tests/llm/all metal-marlin-chat
programs build/release llm
needs fetch_chat_model
needs environment llm
for each in tests/llm/*_test.py; do build/env/llm/bin/python "$each" "$chat" "$chat_model"; done
[ -n "${METAL_MARLIN_WHOLE:-}" ] || exit 0
choose_chat_model gemma3
needs fetch_chat_model
build/env/llm/bin/python tests/llm/gemma3.py "$chat" "$chat_model"
