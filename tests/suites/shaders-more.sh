# about: the Metal shaders on the CPU: more pairs of choices, experts, row-invariant products, exact values, the C ABI and the command on them
# inputs: src/backends/gpu src/backends/metal shaders/metal shaders/common tests/gpu tests/problem tests/shaders tests/metal_on_cpu
# seconds: 340
# when: changed
# packages: testbed
# data: shaders
keep_images
built release tests/gpu/all tests/shaders/all
programs build/release "gpu|shaders" --but 'gpu_(shaders|mock|memory|forced_kernel)_test|^(product|mutations|prepare|names|layout)_test|counters|decoding'
