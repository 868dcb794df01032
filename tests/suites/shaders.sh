# about: the Metal shaders on the CPU: each kernel, kind of weights and planted mistake, and the first rows of pairs of choices
# inputs: src include shaders tests/gpu tests/shaders tests/metal_on_cpu
# seconds: 260
# when: core
# packages: testbed
# data: shaders
keep_images
built release tests/gpu/all tests/shaders/all
programs build/release "gpu|shaders" --only 'gpu_(products|mixtures|shaders)_test|^(product|mutations|prepare|names|layout)_test'
