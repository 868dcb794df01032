# about: the Metal shaders on the CPU: each kernel, kind of weights and planted mistake, and the first rows of pairs of choices
# inputs: src include shaders tests/gpu tests/problem tests/shaders tests/metal_on_cpu
# seconds: 390
# when: core
# packages: testbed
# data: shaders
built tests marlin_tests_shaders_core
programs build/release shaders_core
