// What the tests of this component share.
#pragma once

#include <metal_on_cpu/metal_on_cpu.h>

#include <map>
#include <string>

namespace metal_on_cpu {

inline std::string shader_path(const std::string& name) { return std::string(METAL_ON_CPU_SHADERS) + "/" + name; }

/// One Library a file for the whole test program.
inline const Result<Library>& library_of(const std::string& name) {
  static std::map<std::string, Result<Library>> libraries;
  auto found = libraries.find(name);
  if (found == libraries.end()) found = libraries.emplace(name, Library::from_file(shader_path(name))).first;
  return found->second;
}

}  // namespace metal_on_cpu
