// Reads the header of a GGUF file, versions 2 and 3, little-endian.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/tensor_table.h"

namespace metal_marlin {

/// Adds the tensors of one file in its order, dimensions outermost first (the file has them
/// innermost first). Reads only the header. The only key-values that matter are general.alignment
/// and those of a split model, whose parts are MARLIN_E_UNSUPPORTED. Every count is bounded by the
/// remaining bytes before anything is allocated.
Status read_gguf(const std::string& name, std::span<const std::byte> bytes, TensorTable& table);

/// One key-value of the file; `bytes` are its key, type and value.
struct GgufKeyValue {
  std::string_view key;
  std::span<const std::byte> bytes;
};
/// All key-values, in the order of the file.
Result<std::vector<GgufKeyValue>> gguf_key_values(const std::string& name,
                                                  std::span<const std::byte> bytes);

}  // namespace metal_marlin
