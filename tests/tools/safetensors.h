// Reads float32 .safetensors files for comparison, sharing no code with the library.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace metal_marlin::test {

struct FloatTensor {
  std::vector<int64_t> shape;
  std::string bytes;  ///< as stored, so that comparing them compares bits
  bool operator==(const FloatTensor&) const = default;
};

/// Throws on anything that is not a well-formed file of F32 tensors.
std::map<std::string, FloatTensor> read_safetensors(const std::string& path);

}  // namespace metal_marlin::test
