# Whether the kernels for NVIDIA GPUs are built in (METAL_MARLIN_CUDA), and by which nvcc (METAL_MARLIN_NVCC). The host's part of the
# backend is always built.
find_program(METAL_MARLIN_NVCC nvcc DOC "CUDA's compiler, 12.8 or newer")
set(cuda_default OFF)
set(METAL_MARLIN_NVCC_VERSION "")
if(METAL_MARLIN_NVCC)
  execute_process(COMMAND ${METAL_MARLIN_NVCC} --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(METAL_MARLIN_NVCC_VERSION ${CMAKE_MATCH_1})
  endif()
  # 12.8 is the first that knows sm_100. The images are embedded by an assembler for ELF or for Windows' COFF.
  if(METAL_MARLIN_NVCC_VERSION VERSION_GREATER_EQUAL 12.8 AND NOT APPLE)
    set(cuda_default ON)
  endif()
endif()
option(METAL_MARLIN_CUDA "Build the kernels for NVIDIA GPUs in, which needs nvcc" ${cuda_default})
if(METAL_MARLIN_CUDA AND NOT cuda_default)
  message(FATAL_ERROR "METAL_MARLIN_CUDA needs nvcc 12.8 or newer, on Linux or for Windows; found: \
${METAL_MARLIN_NVCC} ${METAL_MARLIN_NVCC_VERSION}")
endif()
if(METAL_MARLIN_CUDA)
  include(${CMAKE_CURRENT_LIST_DIR}/embed_kernels.cmake)
endif()
