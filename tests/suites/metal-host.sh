# about: the host of the Metal backend in Objective-C++, on a Metal and Foundation for Linux, under sanitizers; on it the model of the chat
# inputs: src/backends/metal src/backends/gpu shaders tests/metal_host tests/metal_on_cpu
# seconds: 200
# when: changed
# packages: testbed framework
. ./examples/llm/chat.sh
[ -z "$(missing_packages framework)" ] || { left_out "the packages of group framework cannot be installed"; exit 0; }
keep_images
! one_at_a_time fetch_chat_model || export METAL_MARLIN_CHAT_MODEL=$PWD/$chat_model  # what needs it skips itself
built release tests/metal_host/all tests/metal_on_cpu/framework/all
programs build/release "metal_host"
programs build/release/tests/metal_on_cpu/framework ".*"
# All of it has to be of one compiler, and Objective-C is clang's.
own_tree metal-host-asan tests/metal_host all -DCMAKE_CXX_COMPILER=clang++-19 -DMETAL_FRAMEWORK_SANITIZE=address,undefined
one_at_a_time build_tree metal-host-asan framework/all
programs build/metal-host-asan ".*"
