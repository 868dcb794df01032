# CMake asks this system for its version of macOS to know whether there are run paths. There have been since 10.5.
set(CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG "-Wl,-rpath,")
