# metal_marlin_embed_shaders(OUTPUT FOLDER): OUTPUT is a C++ source that defines metal::embedded_shaders(): all .metal files of
# FOLDER/metal, and apart from them of FOLDER/metal4, compiled where a compiler of theirs is at hand, else as text, in which each
# #include "..." is replaced by the file, once a .metal file.
#
# Run as a script (cmake -P) it does the replacing: FOLDER, OUTPUT, and LIBRARY and TENSOR_LIBRARY, each a .metallib, or nothing.

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.22)
endif()

function(metal_marlin_flatten file out)
  get_filename_component(path ${file} ABSOLUTE)
  get_property(seen GLOBAL PROPERTY metal_marlin_seen)
  if(path IN_LIST seen)
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY metal_marlin_seen ${path})
  get_filename_component(folder ${path} DIRECTORY)
  get_filename_component(name ${path} NAME)
  file(READ ${path} rest)
  set(text "#line 1 \"${name}\"\n")
  set(line 1)
  while(rest MATCHES "(^|\n)#include \"([^\"\n]+)\"[^\n]*\n")
    set(match "${CMAKE_MATCH_0}")
    set(included ${CMAKE_MATCH_2})
    string(FIND "${rest}" "${match}" at)
    string(SUBSTRING "${rest}" 0 ${at} before)
    string(LENGTH "${match}" length)
    math(EXPR after "${at} + ${length}")
    string(SUBSTRING "${rest}" ${after} -1 rest)
    string(REGEX MATCHALL "\n" newlines "${before}${match}")
    list(LENGTH newlines count)
    math(EXPR line "${line} + ${count}")
    metal_marlin_flatten(${folder}/${included} inner)
    string(APPEND text "${before}\n${inner}#line ${line} \"${name}\"\n")
  endwhile()
  string(REPLACE "#pragma once\n" "\n" text "${text}${rest}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# The .metal files of a folder as the elements of an array of strings, or the bytes that they were compiled to.
function(metal_marlin_as_text folder library sources bytes)
  set(text "")
  set(hex "")
  if(library)
    file(READ ${library} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  endif()
  file(GLOB files ${folder}/*.metal)
  if(library)
    set(files "")
  endif()
  foreach(file IN LISTS files)
    set_property(GLOBAL PROPERTY metal_marlin_seen "")
    metal_marlin_flatten(${file} flat)
    string(APPEND text "    R\"MARLIN(${flat})MARLIN\",\n")
  endforeach()
  set(${sources} "${text}" PARENT_SCOPE)
  set(${bytes} "${hex}" PARENT_SCOPE)
endfunction()

function(metal_marlin_write_shaders)
  metal_marlin_as_text(${FOLDER}/metal "${LIBRARY}" sources bytes)
  metal_marlin_as_text(${FOLDER}/metal4 "${TENSOR_LIBRARY}" tensor_sources tensor_bytes)
  file(WRITE ${OUTPUT}.part "// Made by cmake/embed_shaders.cmake.
#include \"backends/metal/metal_device.h\"

namespace metal_marlin::metal {
namespace {

alignas(16) constexpr unsigned char kLibrary[] = {${bytes}0};
constexpr std::string_view kSources[] = {
${sources}    \"\"};
alignas(16) constexpr unsigned char kTensorLibrary[] = {${tensor_bytes}0};
constexpr std::string_view kTensorSources[] = {
${tensor_sources}    \"\"};

// An array ends with something that is not counted, as none may be empty.
template <class T, size_t N>
std::span<const T> counted(const T (&array)[N]) {
  return std::span(array).first(N - 1);
}

}  // namespace

Shaders embedded_shaders() {
  return {std::as_bytes(counted(kLibrary)), counted(kSources), std::as_bytes(counted(kTensorLibrary)), counted(kTensorSources)};
}

}  // namespace metal_marlin::metal
")
  file(RENAME ${OUTPUT}.part ${OUTPUT})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  metal_marlin_write_shaders()
  return()
endif()

# Whether xcrun has a compiler for Metal, which newer Xcodes fetch apart, that takes these flags and includes a header.
function(metal_marlin_find_metal out flags header)
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/metal_probe)
  file(WRITE ${probe}.metal "#include <${header}>\nkernel void probe() {}\n")
  execute_process(COMMAND xcrun -sdk macosx metal ${flags} -c ${probe}.metal -o ${probe}.air RESULT_VARIABLE failed OUTPUT_QUIET
                  ERROR_QUIET)
  if(failed EQUAL 0)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Compiles the .metal files of a folder: `out` is the library, or empty.
function(metal_marlin_compile_shaders out folder library flags header headers)
  set(${out} "" PARENT_SCOPE)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.metal)
  if(NOT APPLE OR NOT files)
    return()
  endif()
  metal_marlin_find_metal(has_metal "${flags}" ${header})
  if(NOT has_metal)
    return()
  endif()
  # Fast math need not keep NaN, infinities and the sign of zero.
  add_custom_command(OUTPUT ${library} COMMAND xcrun -sdk macosx metal ${flags} -O2 -fno-fast-math ${files} -o ${library}
                     DEPENDS ${files} ${headers} VERBATIM)
  set(${out} ${library} PARENT_SCOPE)
endfunction()

set(metal_marlin_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(metal_marlin_embed_shaders output folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/metal/* ${folder}/metal4/* ${folder}/common/*)
  # 3.1 is the first language with bfloat, 4.0 that with tensors.
  metal_marlin_compile_shaders(library ${folder}/metal ${output}.metallib "-std=metal3.1;-mmacosx-version-min=14.0" metal_stdlib
                               "${files}")
  metal_marlin_compile_shaders(tensor_library ${folder}/metal4 ${output}_tensor.metallib
                               "-std=metal4.0;-mmacosx-version-min=26.0" MetalPerformancePrimitives/MetalPerformancePrimitives.h
                               "${files}")
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DOUTPUT=${output} -DLIBRARY=${library} -DTENSOR_LIBRARY=${tensor_library}
            -P ${metal_marlin_embed_script}
    DEPENDS ${files} ${library} ${tensor_library} ${metal_marlin_embed_script} VERBATIM)
endfunction()
