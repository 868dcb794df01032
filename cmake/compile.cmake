# Flags that hold for everything built here. Instruction sets are no flags: each kernel carries its own target attribute.
set(metal_marlin_warnings -Wall -Wextra)
# Of tests. Out of a precompiled header, GCC 12 sees mistakes in std::string that are none. GoogleTest's checks end in an else that
# an if around them cannot take, which clang sees and GCC does not.
set(metal_marlin_test_warnings ${metal_marlin_warnings})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND metal_marlin_test_warnings -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-dangling-else)
endif()
if(METAL_MARLIN_SANITIZE)
  # Debug information without variables keeps the objects a third as large and the reports with file and line.
  add_compile_options(-fsanitize=${METAL_MARLIN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${METAL_MARLIN_SANITIZE})
  # In instrumented code, GCC takes members of the standard library for uninitialized that are not; the other trees keep the warning.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  if(METAL_MARLIN_SANITIZE_BUT)
    add_compile_options(-fno-sanitize=${METAL_MARLIN_SANITIZE_BUT})
  endif()
endif()
if(METAL_MARLIN_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
# metal_marlin_plain_for_fuzzing(sources...): of a file that computes, a fuzz target needs to see where it goes, but not each pair of
# numbers that it compares: the note of such pairs is half of the time of an input.
function(metal_marlin_plain_for_fuzzing)
  if(METAL_MARLIN_FUZZ)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY metal_marlin_objects PROPERTIES
                                COMPILE_OPTIONS "-O2;-fno-sanitize-coverage=trace-cmp")
  endif()
endfunction()
if(METAL_MARLIN_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

# metal_marlin_group_by_folder(target [but]): makes the sources of each folder of the target one group of a unity build, without
# those whose names a regular expression matches.
function(metal_marlin_group_by_folder target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT ARGV1 OR NOT source MATCHES "${ARGV1}")
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(GET folder FILENAME folder)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP "${folder}")
    endif()
  endforeach()
endfunction()

# Linkers of Apple and Windows want the symbols of a version script as a list of their own. Hidden visibility is not enough on Apple's
# systems: weak symbols of the C++ library, such as operator new, would still be exported.
function(metal_marlin_list_exports target script)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
  file(STRINGS ${script} symbols REGEX "^ +[a-z_0-9]+;$")
  list(TRANSFORM symbols REPLACE "^ +([a-z_0-9]+);$" "\\1")
  if(WIN32)
    string(JOIN "\n  " symbols EXPORTS ${symbols})
    set(list ${CMAKE_CURRENT_BINARY_DIR}/${target}.def)
    target_sources(${target} PRIVATE ${list})
  else()
    list(TRANSFORM symbols PREPEND _)
    string(JOIN "\n" symbols ${symbols})
    set(list ${CMAKE_CURRENT_BINARY_DIR}/${target}.exports)
    target_link_options(${target} PRIVATE LINKER:-exported_symbols_list,${list})
  endif()
  file(CONFIGURE OUTPUT ${list} CONTENT "${symbols}\n" @ONLY)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${list})
endfunction()

# Leaves only the symbols of a version script visible, and lets no symbol stay undefined.
function(metal_marlin_limit_exports target script)
  if(APPLE OR WIN32)  # where no symbol may stay undefined anyway
    if(EXISTS ${script})
      metal_marlin_list_exports(${target} ${script})
    endif()
    return()
  endif()
  if(EXISTS ${script})
    target_link_options(${target} PRIVATE LINKER:--version-script=${script})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  endif()
  if(NOT METAL_MARLIN_SANITIZE)  # a sanitizer's symbols come from the program
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
endfunction()

# Kernels that are not optimized are up to a hundred times slower. A project that adds this one may have no build type, which is
# CMake's default, or Debug for its own code: the library is optimized all the same, unless the project's own flags say how.
# metal_marlin_optimize(target result): sets `result` to whether the target is optimized in all configurations.
function(metal_marlin_optimize target result)
  set(configurations "${CMAKE_CONFIGURATION_TYPES}")
  if(NOT configurations)
    set(configurations "${CMAKE_BUILD_TYPE}-")  # a list has no empty element
  endif()
  set(${result} ON PARENT_SCOPE)
  foreach(configuration IN LISTS configurations)
    string(REPLACE "-" "" configuration "${configuration}")
    string(TOUPPER "${configuration}" upper)
    if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${upper}}" MATCHES "-O([1-9sgz]|fast)")
      continue()
    endif()
    if(PROJECT_IS_TOP_LEVEL)
      set(${result} OFF PARENT_SCOPE)
    else()
      target_compile_options(${target} PRIVATE "$<$<STREQUAL:$<CONFIG>,${configuration}>:-O3>")
    endif()
  endforeach()
endfunction()
