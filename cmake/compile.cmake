# Flags that hold for everything built here. Instruction sets are no flags: each kernel carries its own target attribute.
set(metal_marlin_warnings -Wall -Wextra)
# Out of a precompiled header, GCC 12 sees mistakes in std::string that are none.
set(metal_marlin_precompiled_warnings ${metal_marlin_warnings})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND metal_marlin_precompiled_warnings -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(METAL_MARLIN_SANITIZE)
  # Debug information without variables keeps the objects a third as large and the reports with file and line.
  add_compile_options(-fsanitize=${METAL_MARLIN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${METAL_MARLIN_SANITIZE})
endif()
if(METAL_MARLIN_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

# Leaves only the symbols of a version script visible, and lets no symbol stay undefined.
function(metal_marlin_limit_exports target script)
  if(APPLE OR WIN32)
    return()  # hidden visibility does it there
  endif()
  if(EXISTS ${script})
    target_link_options(${target} PRIVATE LINKER:--version-script=${script})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
  endif()
  if(NOT METAL_MARLIN_SANITIZE)  # a sanitizer's symbols come from the program
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
endfunction()
