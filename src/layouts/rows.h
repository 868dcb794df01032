// The reader of every layout that keeps a row of W together: codes along K, low nibble first, and a
// row of scales. The differences between files (the meaning of scale bytes, the place of zeros) are
// data here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "formats/weights.h"
#include "layouts/operands.h"

namespace metal_marlin {

/// The form of zeros: a byte or float each, [N][groups]; or nibbles of 32-bit words, either along N
/// (word [n / 8][g], nibble n % 8: compressed-tensors) or along K (word [n][g / 8], nibble g % 8:
/// AWQ "gemv").
enum class ZeroForm : uint8_t { plain, words_along_n, words_along_k };

/// The form of the codes of a row: nibbles or bytes, as ROWS has them, or one stream without gaps,
/// in which code i has the bits [i * bits, i * bits + bits), from the lowest bit of the first byte
/// on.
enum class CodeForm : uint8_t { rows, stream };

/// The places of the operands. Strides are bytes between rows of W. All memory is borrowed.
struct RowsOperands {
  WeightMeta meta;  ///< checked
  const std::byte* codes = nullptr;
  int64_t code_stride = 0;
  CodeForm code_form = CodeForm::rows;
  const std::byte* scales = nullptr;
  int64_t scale_stride = 0;
  /// The float16 or bfloat16 (meta.scale_type) of each scale byte, for files whose bytes have a
  /// meaning that no canonical byte has. Null: scales are stored in meta.scale_type.
  const std::array<uint16_t, 256>* scale_meaning = nullptr;
  const std::byte* zeros = nullptr;  ///< null when meta.zero_kind is none
  int64_t zero_stride = 0;           ///< words_along_n: between words of n and n + 8
  ZeroForm zero_form = ZeroForm::plain;
  TensorView sparse_meta;  ///< if meta.sparse: as check_row_meta takes it; rows hold the K / 2
                           ///< kept codes
};
std::unique_ptr<WeightSource> make_rows_source(RowsOperands parts);
/// Operands in the layout ROWS, checked; with CodeForm::stream, values are the bytes of the
/// streams.
Result<RowsOperands> check_rows(const LayoutOperands& operands, Depth depth,
                                CodeForm form = CodeForm::rows);

}  // namespace metal_marlin
