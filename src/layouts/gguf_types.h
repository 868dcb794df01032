// The types of GGUF tensors, by ggml's numbers. This is the only list, for reading and for writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  std::optional<ScaleType> zeros;  ///< of additive zeros, if it holds them
  int64_t group;                   ///< elements that share a scale
  /// A source of these operands. `meta` is complete, but not yet checked as a whole.
  Result<std::unique_ptr<WeightSource>> (*read)(WeightMeta meta, const LayoutOperands& operands,
                                                Depth depth);
  /// Makes `count` blocks of canonical codes and scales; null: the type is not written.
  void (*write)(const uint8_t* codes, const uint8_t* scales, int64_t count, std::byte* blocks);
  uint32_t file_type;  ///< llama.cpp's number for a file that is mostly of this type; 0: none

  bool two_level() const { return is_two_level(scales); }
};

struct GgufType {
  ElementType element;               ///< name null: the number was never used or was withdrawn
  const GgufBlock* block = nullptr;  ///< null: the library does not read it as blocks
};

/// Indexed by ggml's number.
std::span<const GgufType> gguf_types();
/// Null if no type has this name.
const GgufType* gguf_type(std::string_view name);
int32_t gguf_number(const GgufType& type);

}  // namespace metal_marlin
