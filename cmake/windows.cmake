# Toolchain of the preset windows: for Windows on x86-64, from Linux, by the clang of the Python package ziglang, which brings the
# headers of mingw-w64 along. What it links needs the DLLs of Windows 10 and no others: libc++ is inside. (Debian's g++ for Windows
# keeps vectors of 64 bytes at addresses of 16.) MARLIN_ZIG is the program zig.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MARLIN_ZIG)
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
file(GLOB in_package LIST_DIRECTORIES true ${CMAKE_CURRENT_LIST_DIR}/../build/env/zig/lib/python3*/site-packages/ziglang)
find_program(MARLIN_ZIG zig HINTS ${in_package} NO_CMAKE_FIND_ROOT_PATH REQUIRED)
# CMake wants programs, not modes of one.
set(programs ${CMAKE_CURRENT_LIST_DIR}/../build/windows-zig)
foreach(mode cc c++ ar ranlib)
  set(arguments ${mode})
  if(mode MATCHES "^c")
    set(arguments "${mode} -target x86_64-windows-gnu -fno-sanitize=all")
  endif()
  file(CONFIGURE OUTPUT ${programs}/${mode} CONTENT "#!/bin/sh
# Made by cmake/windows.cmake.
exec '${MARLIN_ZIG}' ${arguments} \"$@\"
" @ONLY)
  file(CHMOD ${programs}/${mode} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER ${programs}/cc)
set(CMAKE_CXX_COMPILER ${programs}/c++)
set(CMAKE_AR ${programs}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${programs}/ranlib CACHE FILEPATH "")
find_program(CMAKE_RC_COMPILER NAMES llvm-windres llvm-windres-19 REQUIRED)
find_program(CMAKE_CROSSCOMPILING_EMULATOR NAMES wine64 wine HINTS /usr/lib/wine)
# Libraries of headers alone are those of this system, in a folder without its C library.
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE NEVER)
set(MARLIN_HEADERS ${programs}/include)
file(MAKE_DIRECTORY ${MARLIN_HEADERS})
foreach(library nlohmann CLI fmt)
  file(CREATE_LINK /usr/include/${library} ${MARLIN_HEADERS}/${library} SYMBOLIC)
endforeach()
set(CMAKE_PREFIX_PATH ${CMAKE_CURRENT_LIST_DIR}/../tests/macos/packages)
