// What the tests of this component share, the headers of the standard library included.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <metal_on_cpu/metal_on_cpu.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace metal_on_cpu {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

/// The value of a result. Where there is none, the test fails with the message and ends.
template <class T>
T must(Result<T> result, std::source_location place = std::source_location::current()) {
  if (result.ok()) return result.take();
  ADD_FAILURE_AT(place.file_name(), static_cast<int>(place.line())) << result.message();
  throw std::runtime_error("nothing to go on with");
}

inline std::string shader_path(const std::string& name) { return std::string(METAL_ON_CPU_SHADERS) + "/" + name; }

/// One Library a file for the whole test program. That of tensor.metal is of Metal 4.
inline const Library& library_of(const std::string& name) {
  static std::map<std::string, Library> libraries;
  auto found = libraries.find(name);
  if (found == libraries.end()) {
    CompileOptions options;
    if (name.ends_with("/tensor.metal")) options.language = 17;
    found = libraries.emplace(name, must(Library::from_file(shader_path(name), options))).first;
  }
  return found->second;
}

}  // namespace metal_on_cpu
