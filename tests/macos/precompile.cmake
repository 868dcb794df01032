# For the tree ios of the suite macos, which compiles what the tree macos has compiled already, for the sake of availability and
# of linking. Precompiled headers could hide missing ones; the tree macos has none of them in the library.
cmake_language(DEFER CALL target_precompile_headers metal_marlin_objects PRIVATE
               "$<$<COMPILE_LANGUAGE:CXX>:<algorithm$<ANGLE-R>>" "$<$<COMPILE_LANGUAGE:CXX>:<atomic$<ANGLE-R>>"
               "$<$<COMPILE_LANGUAGE:CXX>:<cmath$<ANGLE-R>>" "$<$<COMPILE_LANGUAGE:CXX>:<filesystem$<ANGLE-R>>"
               "$<$<COMPILE_LANGUAGE:CXX>:<functional$<ANGLE-R>>" "$<$<COMPILE_LANGUAGE:CXX>:<map$<ANGLE-R>>"
               "$<$<COMPILE_LANGUAGE:CXX>:<memory$<ANGLE-R>>" "$<$<COMPILE_LANGUAGE:CXX>:<nlohmann/json.hpp$<ANGLE-R>>"
               "$<$<COMPILE_LANGUAGE:CXX>:<string$<ANGLE-R>>" "$<$<COMPILE_LANGUAGE:CXX>:<vector$<ANGLE-R>>")
