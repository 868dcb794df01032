# about: the CUDA kernels compiled without spills; products, where there is an NVIDIA GPU
# inputs: shaders/cuda shaders/common src/backends/cuda tests/cuda
# seconds: 250
# when: changed
needs environment nvcc
# Where there is no GPU to run the kernels, Hopper's machine code stands for all targets in the short form, and a part of the kernels
# for all (tests/cuda/few_products.cu). The long form compiles all kernels to machine code; as PTX, which has no registers to spill,
# that part stands for all again. Under sanitizers, the core tests the host's part, which needs no compiler of CUDA.
if [ -e /dev/nvidiactl ]; then
  built cuda cuda_tests
  programs build/cuda cuda
elif [ -n "${METAL_MARLIN_WHOLE:-}" ]; then
  with_kernels
  check "all kernels, in the library" built cuda-long metal_marlin
  check "a part of them, as PTX" built cuda-long metal_marlin_few_kernels
else
  check "a part of the kernels, for Hopper" built cuda-short metal_marlin_few_kernels
fi
