// The names of all tensors of a model, which the library's interface gives one by one and not as a
// list.
#pragma once

#include <string>
#include <vector>

namespace llm {

/// Of a GGUF file, of all parts of a split one, or of a folder of safetensors. The library has
/// opened it before. std::runtime_error: it cannot be read, or has no such form.
std::vector<std::string> tensor_names(const std::string& path);

}  // namespace llm
