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
/// innermost first). Reads the header only; of the key-values it heeds general.alignment and those
/// of a split model, whose parts are MARLIN_E_UNSUPPORTED. Every count is bounded by the bytes left
/// before anything is allocated.
Status read_gguf(const std::string& name, std::span<const std::byte> bytes, TensorTable& table);

/// One key-value as the file has it: key, type and value are `bytes`.
struct GgufKeyValue {
  std::string_view key;
  std::span<const std::byte> bytes;
};
/// All of them, in the file's order.
Result<std::vector<GgufKeyValue>> gguf_key_values(const std::string& name,
                                                  std::span<const std::byte> bytes);

}  // namespace metal_marlin
