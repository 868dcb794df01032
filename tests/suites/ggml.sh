# about: the plugin for ggml, in the ggml of a Python wheel, against that one's CPU backend; in llama.cpp, if it is compiled here
# inputs: bindings/ggml include src/api
# seconds: 50
# when: changed
. ./tools/races/compare.sh
. ./examples/llm/chat.sh
built tests all
needs environment ggml
python3 -B tests/readme.py blocks bindings/ggml/README.md sh >build/ggml.sh  # the commands of its page, at most four
[ "$(wc -l <build/ggml.sh)" -le 4 ]
grep -qF "$(grep -v '^#' packaging/requirements/ggml.txt)" build/ggml.sh
sh -e build/ggml.sh
programs build/ggml ggml
llama_is_here || left_out "llama.cpp is not compiled here; ./dev chat --compare or ./dev test whole ggml compiles it"
needs fetch_chat_model
"$compare_env/bin/python" -B bindings/ggml/tests/llama_test.py build/compare/llama build/ggml/libggml-metal-marlin.so "$chat_model"
