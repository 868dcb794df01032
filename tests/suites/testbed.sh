# about: the shader test-bed itself: Metal shaders run and checked on the CPU
# inputs: tests/metal_on_cpu/shaders tests/metal_on_cpu/CMakeLists.txt
# seconds: 160
# when: changed
# packages: testbed
built tests tests/metal_on_cpu/shaders/all
programs build/release/tests/metal_on_cpu/shaders ".*"
