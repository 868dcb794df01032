// Tensors in memory or in a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

/// How the elements of a tensor lie in a file: `block` of them take `bytes` bytes.
struct ElementType {
  const char* name;
  uint16_t block, bytes;
  marlin_dtype dtype;  ///< 0: the C ABI has no name for it
};

/// The place and meaning of the bytes of a tensor. The data of a tensor in a file are mapped and
/// read-only.
struct TensorView {
  std::string_view name;     ///< for messages; "values" etc. for operands given by pointer
  std::string_view file;     ///< for messages; empty for operands
  uint64_t file_offset = 0;  ///< for messages
  marlin_dtype dtype = 0;    ///< 0: a type the C ABI has no name for (see type_name)
  std::string_view type_name;
  std::vector<int64_t> dims;  ///< outermost first; the last is contiguous
  int64_t row_stride = 0;  ///< elements between rows of the last dimension; the last dim unless an
                           ///< operand is strided
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

inline bool present(const TensorView& view) noexcept { return view.data != nullptr; }
bool is_float(marlin_dtype dtype) noexcept;
/// The number of rows: the product of all dimensions except the last. [] and [c] are one row.
/// Strides follow view.row_stride.
int64_t rows_of(const TensorView& view) noexcept;
int64_t cols_of(const TensorView& view) noexcept;

/// An error about one operand: "FILE: byte N: tensor 'NAME': ..." or "NAME: ...".
[[gnu::format(printf, 3, 4)]] Status view_error(const TensorView& view, marlin_status code,
                                                const char* format, ...) noexcept;

}  // namespace metal_marlin
