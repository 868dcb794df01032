# about: the chat of examples/llm: its parts, and a real model against the Python packages of others
# inputs: examples/llm tests/llm include
# seconds: 190
# when: changed
. ./examples/llm/chat.sh
built release tests/llm/all metal-marlin-chat
programs build/release llm
one_at_a_time fetch_chat_model || { left_out "${chat_model##*/} is not to be had: $(tail -n 1 build/chat.log)"; exit 0; }
one_at_a_time environment llm || { left_out "$(why_not llm)"; exit 0; }
for each in tests/llm/*_test.py; do script build/env/llm/bin/python "$each" "$chat" "$chat_model"; done
[ -n "${METAL_MARLIN_WHOLE:-}" ] || exit 0
choose_chat_model gemma3
one_at_a_time fetch_chat_model || { left_out "${chat_model##*/} is not to be had: $(tail -n 1 build/chat.log)"; exit 0; }
script build/env/llm/bin/python tests/llm/gemma3.py "$chat" "$chat_model"
