// The types of GGUF tensors, by ggml's numbers. This is the only list of the library, for reading
// and for writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/weights.h"
#include "layouts/operands.h"
#include "layouts/tensor_view.h"

namespace metal_marlin {

inline constexpr size_t kMaxGgufRank = 4;   ///< of a tensor
inline constexpr size_t kMaxGgufName = 63;  ///< of a tensor that is written, for ggml's 64 bytes

/// How the blocks of one type are read and written.
struct GgufBlock {
  marlin_format format;
  ScaleType scales;
  std::optional<ScaleType> zeros;  ///< of additive zeros, if it holds them
  bool integer_zeros;              ///< it has integer zeros; then it cannot be written
  int64_t group;                   ///< elements that share a scale
  /// A source of these operands. `meta` is complete, but not yet checked as a whole.
  Result<std::unique_ptr<WeightSource>> (*read)(WeightMeta meta, const LayoutOperands& operands,
                                                Depth depth);
  /// Makes `count` blocks of a stripe of this meta, whatever its codes are. Null: a type that can
  /// only be read, because its blocks hold not all codes of the format, or zeros of their own.
  void (*write)(const WeightMeta& meta, const Stripe& stripe, int64_t count, std::byte* blocks);
  uint32_t file_type;        ///< llama.cpp's number for a file of this type
  uint32_t mixed_file_type;  ///< of a file that is mostly of this type, beside other blocks

  bool two_level() const { return is_two_level(scales); }
  bool is_written() const { return write != nullptr; }
  /// Whether any canonical weights of this kind are these blocks, but for the sizes of their rows.
  bool holds(const WeightMeta& meta) const {
    return is_written() && format == meta.format && two_level() == meta.has_two_level_scales() &&
           meta.zero_kind == (zeros ? ZeroKind::additive : ZeroKind::none);
  }
};

struct GgufType {
  ElementType element;               ///< name null: the number was never used or was withdrawn
  const GgufBlock* block = nullptr;  ///< null: the library does not read it as blocks
};

/// Indexed by ggml's number.
std::span<const GgufType> gguf_types();
/// Null if no type has this name.
const GgufType* gguf_type(std::string_view name);
/// The meta of a matrix of this type, which has blocks.
WeightMeta gguf_meta(const GgufType& type, int64_t n, int64_t k);
/// The names of all types that can be written, for messages.
std::string gguf_block_names();
int32_t gguf_number(const GgufType& type);

}  // namespace metal_marlin
