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

/// The form of zeros: a byte or float each, [N][groups]; or codes in 32-bit words, either along N
/// (each column of words holds the zeros of a group, packed as the codes of a row are:
/// compressed-tensors) or along K (word [n][g / 8], nibble g % 8: AWQ "gemv").
enum class ZeroForm : uint8_t { plain, words_along_n, words_along_k };

/// The form of the codes of a row: nibbles or bytes, as ROWS has them; one stream without gaps, in
/// which code i has the bits [i * bits, i * bits + bits), from the lowest bit of the first byte on;
/// or 32-bit words of as many whole codes as fit, whose upper bits are unused.
enum class CodeForm : uint8_t { rows, stream, padded_words };

/// The places of the operands. Strides are bytes between rows of W. All memory is borrowed.
struct RowsOperands {
  WeightMeta meta;  ///< checked
  const std::byte* codes = nullptr;
  int64_t code_stride = 0;
  CodeForm code_form = CodeForm::rows;
  /// Codes of 8 bits and their integer zeros are 128 more (INT8 from 0 on) or less (UINT8 in I8)
  /// than canonical ones: their upper bit is flipped.
  bool flips_sign = false;
  const std::byte* scales = nullptr;
  int64_t scale_stride = 0;
  int64_t scale_rows = 1;  ///< rows of W that share a row of scales
  /// The float16 or bfloat16 (meta.scale_type) of each scale byte, for files whose bytes have a
  /// meaning that no canonical byte has. Null: scales are stored in meta.scale_type.
  const std::array<uint16_t, 256>* scale_meaning = nullptr;
  const std::byte* zeros = nullptr;  ///< null when meta.zero_kind is none
  int64_t zero_stride = 0;           ///< words_along_n: between the words of a column
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
