# about: the host of the Metal backend in Objective-C++, on a Metal and Foundation for Linux, under sanitizers; on it the model of the chat
# inputs: src/backends/metal src/backends/gpu shaders tests/metal_host tests/metal_on_cpu
# seconds: 200
# when: changed
# packages: testbed framework
. ./examples/llm/chat.sh
needs packages framework
! one_at_a_time fetch_chat_model || export METAL_MARLIN_CHAT_MODEL=$PWD/$chat_model  # what needs it skips itself
built tests tests/metal_host/all tests/metal_on_cpu/framework/all
programs build/release "metal_host"
programs build/release/tests/metal_on_cpu/framework ".*"
# All of it has to be of one compiler, and Objective-C is clang's.
cmake -G Ninja -S tests/metal_host -B build/metal-host-asan -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_CXX_COMPILER=clang++-19 -DMETAL_FRAMEWORK_SANITIZE=address,undefined
one_at_a_time cmake --build build/metal-host-asan -j "$jobs" --target all framework/all
programs build/metal-host-asan ".*"
