# about: the Metal shaders on the CPU: experts, large and row-invariant products, exact values, the C ABI and the command on them
# inputs: src/backends/gpu src/backends/metal shaders/metal shaders/common tests/gpu tests/problem tests/shaders tests/metal_on_cpu
# seconds: 200
# when: changed
# packages: testbed
# data: shaders
built tests marlin_tests_shaders_more
programs build/release shaders_more
