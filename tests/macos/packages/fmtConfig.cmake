# The headers of this system, for toolchain.cmake.
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_include_directories(fmt::fmt SYSTEM INTERFACE ${MARLIN_HEADERS})
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
endif()
