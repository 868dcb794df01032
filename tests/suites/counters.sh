# about: the work of the Metal shaders, counted
# inputs: shaders/metal shaders/common tests/problem tests/shaders tests/metal_on_cpu
# seconds: 500
# when: changed
# packages: testbed
# data: shaders docs
built tests marlin_tests_shaders_counted
programs build/release shaders_counted
