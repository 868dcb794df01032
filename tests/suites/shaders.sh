# about: the GPU backend with the real Metal shaders on the CPU, and each of its kernels against the oracle
# inputs: src include shaders tests/gpu tests/shaders tests/metal_on_cpu
# seconds: 250
# when: core
# packages: testbed
# data: shaders
keep_images
built release tests/gpu/all tests/shaders/all
programs build/release "gpu|shaders" --but 'gpu_(mock|memory|forced_kernel)_test|counters_test|decoding_work|documentation'
