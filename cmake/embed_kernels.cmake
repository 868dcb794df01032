# metal_marlin_embed_kernels(OUTPUT FOLDER): compiles FOLDER/cuda and makes OUTPUT, a C++ source that defines
# cuda::embedded_kernels(). Each image holds machine code for Ampere (which Ada runs, too) and Hopper, and PTX
# for what is newer.

set(METAL_MARLIN_CUDA_TARGETS sm_80 sm_90a compute_100 CACHE STRING "Machine code (sm_*) and PTX (compute_*) to embed")
set(METAL_MARLIN_NVCC_FLAGS "" CACHE STRING "More flags for nvcc")

function(metal_marlin_compile_kernels image source sources)
  set(targets "")
  foreach(target IN LISTS METAL_MARLIN_CUDA_TARGETS)
    string(REPLACE sm_ compute_ virtual ${target})
    list(APPEND targets -gencode arch=${virtual},code=${target})
  endforeach()
  separate_arguments(more UNIX_COMMAND "${METAL_MARLIN_NVCC_FLAGS}")
  add_custom_command(OUTPUT ${image}
    COMMAND ${METAL_MARLIN_NVCC} -std=c++20 -O3 -fatbin --compress-mode=size ${targets} ${more} ${ARGN} -o ${image} ${source}
    DEPENDS ${sources} COMMENT "Compiling CUDA kernels: ${image}" VERBATIM)
endfunction()

# The products of one kind of codes and one type of activations. The types of 16 bits have kernels for forms of weights, too, and
# floats of 16 bits have them for activations of the same type.
function(metal_marlin_compile_products image source sources codes activation)
  set(forms "")
  if((activation MATCHES "16$" AND codes MATCHES "^(fp4|u4|i8|e4m3|lut4)") OR (codes MATCHES "16$" AND codes STREQUAL activation))
    set(forms -DMARLIN_HAS_FORMS)
  elseif(activation STREQUAL i8 AND codes MATCHES "^(u4|i8)$")
    set(forms -DMARLIN_HAS_BYTE_TILES)
  elseif(activation STREQUAL e4m3)
    set(forms -DMARLIN_HAS_BYTE_TILES -DMARLIN_TILES_ALONE)
  endif()
  metal_marlin_compile_kernels(${image} ${source} "${sources}" -DMARLIN_CODES=${codes} -DMARLIN_ACTIVATION=${activation} ${forms}
                               ${ARGN})
endfunction()

function(metal_marlin_embed_kernels output folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/cuda/* ${folder}/common/*)
  get_filename_component(place ${output} DIRECTORY)
  set(names "")
  # Modules of kernels that round weights come first: their names contain those of the others.
  foreach(codes u4 i8 e4m3 lut4)
    foreach(activation f16 bf16)
      list(APPEND names w16_${codes}_${activation})
      metal_marlin_compile_products(${place}/w16_${codes}_${activation}.fatbin ${folder}/cuda/products.cu "${sources}" ${codes}
                                    ${activation} -DMARLIN_ROUNDS)
    endforeach()
  endforeach()
  foreach(codes fp4 u4 i8 fp4_sparse u4_sparse u8 e4m3 lut4 f32 f16 bf16)
    set(activations f32 f16 bf16)
    if(codes MATCHES "^(fp4|[ui][48])")
      list(APPEND activations i8)
    elseif(codes STREQUAL e4m3)
      list(APPEND activations e4m3)
    endif()
    foreach(activation IN LISTS activations)
      list(APPEND names ${codes}_${activation})
      metal_marlin_compile_products(${place}/${codes}_${activation}.fatbin ${folder}/cuda/products.cu "${sources}" ${codes}
                                    ${activation})
    endforeach()
  endforeach()
  list(APPEND names helpers)  # last: it has the kernels that no other module has
  metal_marlin_compile_kernels(${place}/helpers.fatbin ${folder}/cuda/helpers.cu "${sources}")

  set(assembly "")
  set(symbols "")
  set(modules "")
  set(images "")
  foreach(name ${names})
    list(APPEND images ${place}/${name}.fatbin)
    string(APPEND assembly "    \".balign 64\\n\"
    \"marlin_cuda_${name}: .incbin \\\"${place}/${name}.fatbin\\\"\\n\"
    \"marlin_cuda_${name}_end:\\n\"\n")
    string(APPEND symbols "extern const std::byte marlin_cuda_${name}[], marlin_cuda_${name}_end[];\n")
    string(APPEND modules "      {\"${name}\", {marlin_cuda_${name}, marlin_cuda_${name}_end}},\n")
  endforeach()
  string(REGEX REPLACE "([0-9]+)\\..*" "\\1000" version ${METAL_MARLIN_NVCC_VERSION})
  file(GENERATE OUTPUT ${output} CONTENT "// Made by cmake/embed_kernels.cmake.
#include \"backends/cuda/cuda_device.h\"

#if defined(_WIN32)
#define MARLIN_CONSTANTS \".section .rdata,\\\"dr\\\"\\n\"
#define MARLIN_AFTER_CONSTANTS \".text\\n\"
#else
#define MARLIN_CONSTANTS \".pushsection .rodata\\n\"
#define MARLIN_AFTER_CONSTANTS \".popsection\\n\"
#endif
asm(MARLIN_CONSTANTS
${assembly}    MARLIN_AFTER_CONSTANTS);

extern \"C\" {
${symbols}}

namespace metal_marlin::cuda {

Kernels embedded_kernels() {
  static const KernelModule kModules[] = {
${modules}  };
  // Drivers of the compiler's major version run its machine code.
  return {kModules, ${version}};
}

}  // namespace metal_marlin::cuda
")
  # The objects are a target of another folder, which knows nothing of the commands of this one.
  add_custom_target(metal_marlin_kernels DEPENDS ${images})
  add_dependencies(metal_marlin_objects metal_marlin_kernels)
  # Alone, because CMake drops the dependencies of an object of several sources.
  set_source_files_properties(${output} TARGET_DIRECTORY metal_marlin_objects PROPERTIES GENERATED TRUE OBJECT_DEPENDS "${images}"
                                                                                         SKIP_UNITY_BUILD_INCLUSION TRUE)
endfunction()
