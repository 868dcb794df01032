// The types of a GGUF's tensors, by ggml's numbers: the only list of them, for reading and for
// writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "formats/weights.h"
#include "layouts/operands.h"
#include "layouts/tensor_view.h"

namespace metal_marlin {

/// How the blocks of one type are read and written.
struct GgufBlock {
  marlin_format format;
  ScaleType scales;
  bool additive;  ///< holds additive zeros, too
  int64_t group;  ///< elements that share a scale
  /// A source of these operands; `meta` lacks no more than the check of the whole.
  Result<std::unique_ptr<WeightSource>> (*read)(WeightMeta meta, const LayoutOperands& operands,
                                                Depth depth);
  /// Makes `count` blocks of canonical codes and scales; null: the type is not written.
  void (*write)(const uint8_t* codes, const uint8_t* scales, int64_t count, std::byte* blocks);
  uint32_t file_type;  ///< llama.cpp's number for a file that is mostly of this type; 0: none
};

struct GgufType {
  ElementType element;               ///< name null: a number never used or withdrawn
  const GgufBlock* block = nullptr;  ///< null: it is no type of blocks that are read
};

/// Indexed by ggml's number.
std::span<const GgufType> gguf_types();
/// Null when there is none of this name.
const GgufType* gguf_type(std::string_view name);
int32_t gguf_number(const GgufType& type);

}  // namespace metal_marlin
