// The operands of a layout, the checks of each operand, and the properties of the matrix that
// follow from them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/status.h"
#include "formats/weights.h"
#include "layouts/tensor_view.h"

namespace metal_marlin {

/// Scales in bytes, with a float32 of their own for every `span` of them: the scale with byte b and
/// number i is map[b] * absmax[i / span] + offset (bitsandbytes' "double quantization").
struct NestedScales {
  TensorView map, absmax;  ///< [256] and [scales / span] float32; absent: scales are not nested
  int64_t span = 0;
  float offset = 0;
};

/// The operands of one matrix in some layout, from a marlin_pack_desc or collected by a recognizer
/// from a file.
struct LayoutOperands {
  marlin_layout layout = MARLIN_LAYOUT_ROWS;
  marlin_format format = MARLIN_FORMAT_NONE;
  int64_t n = 0, k = 0, group_size = 0;  ///< group_size 0: the format's own
  uint32_t flags = 0;                    ///< MARLIN_PACK_*
  int64_t flat_block = 0;  ///< bitsandbytes: elements that share a scale, counted across rows
  int64_t scale_rows = 1;  ///< rows of W that share a row of scales; more only with ROWS
  marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO;  ///< GPTQ v1
  bool symmetric =
      false;  ///< GPTQ of a file that calls itself so: zeros that are all 8 are dropped
  TensorView values, scales, zeros, group_index, tensor_scale;  ///< data == nullptr: absent
  TensorView sparse_meta;               ///< 2:4: values hold the kept elements only
  TensorView codebook;                  ///< CODEBOOK4: 16 float32
  NestedScales nested;                  ///< bitsandbytes
  std::span<const float> column_norms;  ///< for MARLIN_PACK_PRUNE_2_4: as SparseRule has them
};

/// How far a source is built. `header` checks shapes and types and reads no data. It finds out
/// whether a layer of a file would load; the source must not be read. `full` also reads and checks
/// group indices and zeros.
enum class Depth { header, full };

/// MARLIN_E_ARGUMENT if the view is absent, MARLIN_E_SHAPE unless it is [rows, cols]. With
/// `strided` there may be gaps between rows.
Status expect_shape(const TensorView& view, int64_t rows, int64_t cols,
                    bool strided = false) noexcept;
Status expect_dtype(const TensorView& view, std::initializer_list<marlin_dtype> allowed) noexcept;
/// F32, F16 or BF16; MARLIN_E_UNSUPPORTED otherwise.
Result<ScaleType> float_type(const TensorView& view) noexcept;
/// MARLIN_E_ARGUMENT if this operand, which the layout does not have, is given.
Status expect_absent(const TensorView& view) noexcept;

/// The meta that follows from format, sizes, type of scales, group_index, tensor_scale and flags,
/// without zeros. With a group index that is not k / group_size, `groups` comes from
/// `groups_in_scales`; otherwise it comes from k and the group size.
Result<WeightMeta> begin_meta(const LayoutOperands& operands, int64_t groups_in_scales,
                              Depth depth);

/// Runs check_meta as far as this depth allows: at Depth::header, the group index is not known.
Status check_source_meta(const WeightMeta& meta, const LayoutOperands& operands, Depth depth);

/// One matrix of operands whose first dimension is the expert.
LayoutOperands expert_slice(const LayoutOperands& operands, int64_t expert, int64_t experts);

}  // namespace metal_marlin
