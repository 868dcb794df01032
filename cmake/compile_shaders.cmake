# metal_marlin_compile_shaders(FOLDER OUT): each .metal file of FOLDER/metal and FOLDER/metal4, compiled for the system that the build
# is for; OUT is the folder where NAME.metallib of each is to be, or empty where xcrun has no compiler of Metal's. What Metal compiles at
# run time, the text, is in the library anyway (src/backends/metal/embedded_shaders.cc).
#
# Run as a script (cmake -P) it compiles SOURCE to OUTPUT by METAL. OUTPUT is empty if the compiler refuses: then the text serves.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  cmake_minimum_required(VERSION 3.22)
  file(WRITE ${OUTPUT} "")
  if("${METAL}" STREQUAL "")
    return()
  endif()
  separate_arguments(command UNIX_COMMAND "${METAL}")
  execute_process(COMMAND ${command} ${SOURCE} -o ${OUTPUT} RESULT_VARIABLE failed ERROR_VARIABLE said)
  if(NOT failed EQUAL 0)
    message(WARNING "${SOURCE} does not compile and stays text, which Metal compiles at run time:\n${said}")
    file(WRITE ${OUTPUT} "")
  endif()
  return()
endif()

# What xcrun calls the SDK of the system, and the option that names the oldest version. None for a simulator: there the library says that
# there is no device.
function(metal_marlin_metal_target sdk oldest macos ios)
  set(${sdk} "" PARENT_SCOPE)
  if(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
    set(${sdk} macosx PARENT_SCOPE)
    set(${oldest} -mmacosx-version-min=${macos} PARENT_SCOPE)
  elseif(CMAKE_SYSTEM_NAME STREQUAL "iOS" AND NOT CMAKE_OSX_SYSROOT MATCHES "[Ss]imulator")
    set(${sdk} iphoneos PARENT_SCOPE)
    set(${oldest} -mios-version-min=${ios} PARENT_SCOPE)
  endif()
endfunction()

# The command that compiles a language for the oldest systems that have it, if it takes a probe of one header; else empty.
function(metal_marlin_find_metal out language macos ios header)
  set(${out} "" PARENT_SCOPE)
  metal_marlin_metal_target(sdk oldest ${macos} ${ios})
  set(why "it has no compiler for ${CMAKE_SYSTEM_NAME} ${CMAKE_OSX_SYSROOT}")
  if(sdk)
    # Fast math need not keep NaN, infinities and the sign of zero.
    set(command xcrun -sdk ${sdk} metal -std=${language} ${oldest} -O2 -fno-fast-math)
    set(probe ${CMAKE_CURRENT_BINARY_DIR}/metal_probe)
    file(WRITE ${probe}.metal "#include <${header}>\nkernel void probe() {}\n")
    execute_process(COMMAND ${command} -c ${probe}.metal -o ${probe}.air RESULT_VARIABLE failed OUTPUT_VARIABLE why ERROR_VARIABLE why)
    if(failed EQUAL 0)
      list(JOIN command " " command)
      message(STATUS "Shaders of ${language}: ${command}")
      set(${out} "${command}" PARENT_SCOPE)
      return()
    endif()
  endif()
  string(REGEX MATCH "[^\n]+" why "${failed} ${why}")
  message(STATUS "Shaders of ${language}: text, which Metal compiles at run time; xcrun: ${why}")
endfunction()

set(metal_marlin_compile_script ${CMAKE_CURRENT_LIST_FILE})
function(metal_marlin_compile_shaders folder out)
  # 3.1 is the first language with bfloat, 4.0 that with tensors.
  metal_marlin_find_metal(metal metal3.1 14.0 17.0 metal_stdlib)
  metal_marlin_find_metal(metal4 metal4.0 26.0 26.0 MetalPerformancePrimitives/MetalPerformancePrimitives.h)
  set(${out} "" PARENT_SCOPE)
  if(NOT metal AND NOT metal4)
    return()
  endif()
  set(to ${CMAKE_CURRENT_BINARY_DIR}/shaders)
  file(MAKE_DIRECTORY ${to})
  file(GLOB needed CONFIGURE_DEPENDS ${folder}/metal/* ${folder}/metal4/* ${folder}/common/*)
  foreach(part metal metal4)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/${part}/*.metal)
    foreach(file IN LISTS files)
      get_filename_component(name ${file} NAME_WE)
      # Without a command it is as if the compiler had refused.
      add_custom_command(OUTPUT ${to}/${name}.metallib
        COMMAND ${CMAKE_COMMAND} "-DMETAL=${${part}}" -DSOURCE=${file} -DOUTPUT=${to}/${name}.metallib -P ${metal_marlin_compile_script}
        DEPENDS ${needed} ${metal_marlin_compile_script} VERBATIM)
    endforeach()
  endforeach()
  set(${out} ${to} PARENT_SCOPE)
endfunction()
