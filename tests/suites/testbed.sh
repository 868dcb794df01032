# about: the shader test-bed itself: Metal shaders run and checked on the CPU; its page
# inputs: tests/metal_on_cpu/shaders tests/metal_on_cpu/tests tests/metal_on_cpu/README.md
# seconds: 160
# when: changed
# packages: testbed
keep_images
built release tests/metal_on_cpu/shaders/all tests/metal_on_cpu/tests/all
programs build/release/tests/metal_on_cpu/shaders ".*"
programs build/release/tests/metal_on_cpu/tests ".*"
