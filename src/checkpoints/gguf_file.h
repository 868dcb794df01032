// Reads the header of a GGUF file, versions 2 and 3, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/value_table.h"

namespace metal_marlin {

/// What a file says about its part of a split model.
struct GgufSplit {
  std::optional<uint64_t> number, count, tensors;  ///< the first part has the number 0
};

/// What the header of one file says. Keeps the places of the tensors and not the tensors.
struct GgufHeader {
  std::string name;
  std::span<const std::byte> bytes;  ///< of the whole file
  GgufSplit split;
  uint64_t tensor_count = 0;
  uint64_t tensors_begin = 0;  ///< where the first of them is described
  size_t pool_bytes = 0;       ///< TensorTable::pool_bytes of all tensors
  uint32_t alignment = 32;
};
/// Reads only the header. The only key-values that matter are general.alignment and those of a
/// split model. Every count is bounded by the remaining bytes before anything is allocated.
/// `values` receives the key-values.
Result<GgufHeader> read_gguf_header(const std::string& name, std::span<const std::byte> bytes,
                                    ValueTable& values);
/// Adds the tensors of one file in its order, dimensions outermost first (the file has them
/// innermost first).
Status add_gguf_tensors(const GgufHeader& header, TensorTable& table);

}  // namespace metal_marlin
