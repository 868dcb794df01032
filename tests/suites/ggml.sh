# about: the plugin for ggml, in the ggml of a Python wheel, against that one's CPU backend; in llama.cpp, if it is compiled here
# inputs: bindings/ggml include src/api
# seconds: 50
# when: changed
. ./tools/races/compare.sh
. ./examples/llm/chat.sh
built release all
environment ggml || { left_out "$(why_not ggml)"; exit 0; }
python3 -B tests/readme.py blocks bindings/ggml/README.md sh >"$results/ggml.sh"  # the commands of its page, at most four
[ "$(wc -l <"$results/ggml.sh")" -le 4 ]
grep -qF "$(grep -v '^#' packaging/requirements/ggml.txt)" "$results/ggml.sh"
quietly build-ggml sh -e "$results/ggml.sh"
programs build/ggml ggml
llama_is_here || { left_out "llama.cpp is not compiled here; ./dev chat --compare or ./dev test whole ggml compiles it"; exit 0; }
one_at_a_time fetch_chat_model || { left_out "${chat_model##*/} is not to be had: $(tail -n 1 build/chat.log)"; exit 0; }
script "$compare_env/bin/python" -B bindings/ggml/tests/llama_test.py build/compare/llama build/ggml/libggml-metal-marlin.so "$chat_model"
