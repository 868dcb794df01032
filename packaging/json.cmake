# For xcframework.sh: the headers of nlohmann-json are the same for every system, but CMake would not look for them outside of an SDK.
if(NOT TARGET nlohmann_json::nlohmann_json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
  target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${MARLIN_JSON_INCLUDE})
endif()
