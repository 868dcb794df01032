// Blocks of ggml become packed weights of the library, and come back from them.
#pragma once

#include <metal_marlin/metal_marlin.hpp>

#include <algorithm>
#include <compare>
#include <memory>

#include "ggml_interface.h"

namespace marlin_ggml {

/// W[n, k] in blocks, rows `row_stride` bytes apart.
struct Matrix {
  const char* data;
  ggml_type type;
  int64_t n, k;
  size_t row_stride;
  auto operator<=>(const Matrix&) const = default;
  size_t row_bytes() const { return ggml_row_size(type, k); }
  bool is_whole() const { return row_stride == row_bytes(); }
  const char* end() const {
    return data + (n - 1) * static_cast<int64_t>(row_stride) + row_bytes();
  }
};

/// Blocks that marlin_weights_pack takes as they are.
struct BlockType {
  ggml_type type;
  marlin_format format;
  uint32_t flags;
  int64_t elements;
  size_t bytes;
};
inline constexpr uint32_t kAdditive = MARLIN_PACK_ADDITIVE_ZEROS;
inline constexpr uint32_t kTwoLevel = MARLIN_PACK_TWO_LEVEL_SCALES;
inline constexpr BlockType kBlockTypes[] = {
    {GGML_TYPE_Q4_0, MARLIN_FORMAT_INT4, 0, 32, 18},
    {GGML_TYPE_Q4_1, MARLIN_FORMAT_INT4, kAdditive, 32, 20},
    {GGML_TYPE_Q5_0, MARLIN_FORMAT_INT5, 0, 32, 22},
    {GGML_TYPE_Q5_1, MARLIN_FORMAT_INT5, kAdditive, 32, 24},
    {GGML_TYPE_Q8_0, MARLIN_FORMAT_INT8, 0, 32, 34},
    {GGML_TYPE_Q2_K, MARLIN_FORMAT_INT2, kAdditive | kTwoLevel, 256, 84},
    {GGML_TYPE_Q3_K, MARLIN_FORMAT_INT3, kTwoLevel, 256, 110},
    {GGML_TYPE_Q4_K, MARLIN_FORMAT_INT4, kAdditive | kTwoLevel, 256, 144},
    {GGML_TYPE_Q5_K, MARLIN_FORMAT_INT5, kAdditive | kTwoLevel, 256, 176},
    {GGML_TYPE_Q6_K, MARLIN_FORMAT_INT6, kTwoLevel, 256, 210},
    {GGML_TYPE_IQ4_NL, MARLIN_FORMAT_IQ4, 0, 32, 18},
    {GGML_TYPE_IQ4_XS, MARLIN_FORMAT_IQ4, kTwoLevel, 256, 136},
    {GGML_TYPE_MXFP4, MARLIN_FORMAT_MXFP4, 0, 32, 17},
    {GGML_TYPE_NVFP4, MARLIN_FORMAT_NVFP4, 0, 64, 36}};
/// NULL for all other types.
const BlockType* block_type(ggml_type type);

/// Large matrices are packed in pieces of whole rows, so that the bytes that are packed may leave
/// memory before the next ones come.
inline constexpr size_t kPieceBytes = size_t{32} << 20;

/// Calls use(piece, its first row) for the pieces of the matrix at [i3][i2] of a tensor of blocks,
/// until it is false. Whether it never was.
template <typename Use>
bool for_each_piece(const ggml_tensor& tensor, int64_t i2, int64_t i3, const Use& use) {
  constexpr int64_t kPanel = 64;  // the library packs as many rows together
  const auto row_stride = static_cast<int64_t>(tensor.nb[1]);
  const char* data = static_cast<const char*>(tensor.data) +
                     i2 * static_cast<int64_t>(tensor.nb[2]) +
                     i3 * static_cast<int64_t>(tensor.nb[3]);
  const int64_t n = tensor.ne[1],
                panels = static_cast<int64_t>(kPieceBytes) / (row_stride * kPanel),
                rows = std::max<int64_t>(panels, 1) * kPanel;
  for (int64_t first = 0; first < n; first += rows) {
    const Matrix piece{data + first * row_stride, tensor.type, std::min(rows, n - first),
                       tensor.ne[0], tensor.nb[1]};
    if (!use(piece, first)) return false;
  }
  return true;
}

using Weights = std::shared_ptr<marlin_weights>;

/// Packs a matrix of one of kBlockTypes. May throw std::bad_alloc.
marlin_status pack_matrix(marlin_context* context, const Matrix& matrix, Weights& out,
                          marlin_error& error);
/// Rows [first, first + count) of the blocks that `weights` were packed from, which have the shape
/// of `matrix`, one after another into `out`. False if the library cannot tell them any more.
bool unpack_rows(const marlin_weights& weights, const Matrix& matrix, int64_t first, int64_t count,
                 char* out);
/// Whether unpack_rows gives exactly the bytes of `matrix`, which has no gaps.
bool holds_all(const marlin_weights& weights, const Matrix& matrix);

/// Pages of a file that is mapped read-only and shared with the system's cache.
struct FilePages {
  void* begin = nullptr;
  size_t size = 0;
  /// Takes them out of this process. They stay in the cache, and come back when they are read.
  /// False if there are none.
  bool let_go() const;
};
/// The pages that hold this memory; none if it is any other memory, or too little to matter. Reads
/// a list of all mappings of the process.
FilePages file_pages(const void* data, size_t size);

}  // namespace marlin_ggml
