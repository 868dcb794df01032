// What the tests of this component share.
#pragma once

#include <metal_on_cpu/metal_on_cpu.h>

#include <map>
#include <string>

namespace metal_on_cpu {

inline std::string shader_path(const std::string& name) { return std::string(METAL_ON_CPU_SHADERS) + "/" + name; }

/// One Library a file for the whole test program. That of tensor.metal is of Metal 4.
inline const Result<Library>& library_of(const std::string& name) {
  static std::map<std::string, Result<Library>> libraries;
  auto found = libraries.find(name);
  if (found == libraries.end()) {
    CompileOptions options;
    if (name.ends_with("/tensor.metal")) options.language = 17;
    found = libraries.emplace(name, Library::from_file(shader_path(name), options)).first;
  }
  return found->second;
}

}  // namespace metal_on_cpu
