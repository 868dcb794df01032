// Importance matrices of llama.cpp in the binary form that it wrote before they were GGUF files.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace metal_marlin::tools {

/// Sums of the squares of each column's activations, times a number that a layer's columns share,
/// by the names of tensors in GGUF. A stack of experts has one vector after the other.
using ImportanceSums = std::map<std::string, std::vector<float>, std::less<>>;

/// Failure with the byte at which a file is not of this form.
ImportanceSums read_imatrix(const std::string& path);

}  // namespace metal_marlin::tools
