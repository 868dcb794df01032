# metal_marlin_embed_shaders(OUTPUT FOLDER): OUTPUT is a C++ source that defines metal::embedded_shaders(): all .metal files of
# FOLDER, compiled where Metal's compiler is at hand, else as text, in which each #include "..." is replaced by the file, once a
# .metal file.
#
# Run as a script (cmake -P) it does the replacing: FOLDER, OUTPUT, and LIBRARY, a .metallib, or nothing.

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

function(metal_marlin_write_shaders)
  set(sources "")
  set(array "")
  file(GLOB files ${FOLDER}/*.metal)
  if(LIBRARY)
    file(READ ${LIBRARY} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," array "${bytes}")
    set(files "")
  endif()
  foreach(file IN LISTS files)
    set_property(GLOBAL PROPERTY metal_marlin_seen "")
    metal_marlin_flatten(${file} text)
    string(APPEND sources "    R\"MARLIN(${text})MARLIN\",\n")
  endforeach()
  file(WRITE ${OUTPUT}.part "// Made by cmake/embed_shaders.cmake.
#include \"backends/metal/metal_device.h\"

namespace metal_marlin::metal {
namespace {

alignas(16) constexpr unsigned char kLibrary[] = {${array}0};
constexpr std::string_view kSources[] = {
${sources}    \"\"};

}  // namespace

// Both arrays end with something that is not counted, as none may be empty.
Shaders embedded_shaders() {
  return {std::as_bytes(std::span(kLibrary)).first(sizeof kLibrary - 1), std::span(kSources).first(std::size(kSources) - 1)};
}

}  // namespace metal_marlin::metal
")
  file(RENAME ${OUTPUT}.part ${OUTPUT})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  metal_marlin_write_shaders()
  return()
endif()

# Whether xcrun has a compiler for Metal, which newer Xcodes fetch apart.
function(metal_marlin_find_metal out)
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/metal_probe)
  file(WRITE ${probe}.metal "kernel void probe() {}\n")
  execute_process(COMMAND xcrun -sdk macosx metal -c ${probe}.metal -o ${probe}.air RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

set(metal_marlin_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(metal_marlin_embed_shaders output folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.metal)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h ${folder}/../common/*.h)
  set(library "")
  set(has_metal FALSE)
  if(APPLE AND files)
    metal_marlin_find_metal(has_metal)
  endif()
  if(has_metal)
    set(library ${output}.metallib)
    # Fast math need not keep NaN, infinities and the sign of zero; 3.1 is the first language with bfloat.
    add_custom_command(OUTPUT ${library}
      COMMAND xcrun -sdk macosx metal -std=metal3.1 -mmacosx-version-min=14.0 -O2 -fno-fast-math ${files} -o ${library}
      DEPENDS ${files} ${headers} VERBATIM)
  endif()
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DOUTPUT=${output} -DLIBRARY=${library} -P ${metal_marlin_embed_script}
    DEPENDS ${files} ${headers} ${library} ${metal_marlin_embed_script} VERBATIM)
endfunction()
