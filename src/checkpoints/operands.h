// What all importers share: checking the operands of a layer, and what they say about the matrix as
// a whole.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "formats/weights.h"

namespace metal_marlin {

/// How far a source is built: `header` checks shapes and types and reads no data (the source may
/// not be read), which tells whether a layer of a file would load; `full` reads and checks group
/// indices and zeros too.
enum class Depth { header, full };

/// Builds the source of one layout.
using SourceMaker = Result<std::unique_ptr<WeightSource>> (*)(const LayoutOperands& operands,
                                                              Depth depth);

/// An error about one operand: "FILE: byte N: tensor 'NAME': ..." or "NAME: ...".
[[gnu::format(printf, 3, 4)]] Status view_error(const TensorView& view, marlin_status code,
                                                const char* format, ...);

inline bool present(const TensorView& view) { return view.data != nullptr; }
bool is_float(marlin_dtype dtype);
/// All dimensions but the last as rows, and the last: [] and [c] are one row. Strides follow
/// view.row_stride.
int64_t rows_of(const TensorView& view);
int64_t cols_of(const TensorView& view);

/// MARLIN_E_ARGUMENT when absent, MARLIN_E_SHAPE unless it is [rows, cols]. `strided`: rows may lie
/// apart.
Status expect_shape(const TensorView& view, int64_t rows, int64_t cols, bool strided = false);
Status expect_dtype(const TensorView& view, std::initializer_list<marlin_dtype> allowed);
/// F32, F16 or BF16; MARLIN_E_UNSUPPORTED otherwise.
Result<ScaleType> float_type(const TensorView& view);
/// MARLIN_E_ARGUMENT when the layout has no place for this operand and it is given.
Status expect_absent(const TensorView& view);

/// The meta that follows from format, sizes, scales' type, group_index, tensor_scale and flags; no
/// zeros yet. groups comes from `groups_in_scales` when there is a group index that is not k /
/// group_size, else from k and the group size.
Result<WeightMeta> begin_meta(const LayoutOperands& operands, int64_t groups_in_scales,
                              Depth depth);

/// check_meta, as far as this depth allows: at Depth::header a group index has not been read.
Status check_source_meta(const WeightMeta& meta, const LayoutOperands& operands, Depth depth);

/// One matrix of operands whose first dimension is the expert.
LayoutOperands expert_slice(const LayoutOperands& operands, int64_t expert, int64_t experts);

/// The layouts' readers, each in its own file.
Result<std::unique_ptr<WeightSource>> make_rows(const LayoutOperands& operands, Depth depth);
Result<std::unique_ptr<WeightSource>> make_k8n(const LayoutOperands& operands, Depth depth);
/// GPTQ v1 and v2, by operands.layout.
Result<std::unique_ptr<WeightSource>> make_gptq(const LayoutOperands& operands, Depth depth);
/// The same for files that call themselves symmetric: zeros that are all 8 are dropped.
Result<std::unique_ptr<WeightSource>> make_gptq_symmetric(const LayoutOperands& operands,
                                                          Depth depth);
Result<std::unique_ptr<WeightSource>> make_awq(const LayoutOperands& operands, Depth depth);
Result<std::unique_ptr<WeightSource>> make_awq_gemv(const LayoutOperands& operands, Depth depth);
/// Zeros are additive, with or without MARLIN_PACK_ADDITIVE_ZEROS.
Result<std::unique_ptr<WeightSource>> make_awq_gemv_fast(const LayoutOperands& operands,
                                                         Depth depth);
/// Groups of a row to which the two above pad, with zeros: a multiple of 8. Nothing for a group
/// size that their writer has not.
std::optional<int64_t> awq_gemv_groups(int64_t k, int64_t group_size);
/// IST Marlin; its 2:4 form with metadata [n, k / 16]; compressed-tensors' marlin-24 with metadata
/// [k / 32, 2 n]. The last two also differ in when their scales are permuted.
Result<std::unique_ptr<WeightSource>> make_marlin(const LayoutOperands& operands, Depth depth);
Result<std::unique_ptr<WeightSource>> make_layer_24(const LayoutOperands& operands, Depth depth);
Result<std::unique_ptr<WeightSource>> make_marlin_24(const LayoutOperands& operands, Depth depth);
Result<std::unique_ptr<WeightSource>> make_gguf(const LayoutOperands& operands, Depth depth);
/// As make_rows, with MLX's meaning of scale bytes.
Result<std::unique_ptr<WeightSource>> make_mlx(const LayoutOperands& operands, Depth depth);
/// pack-quantized: as make_rows, with words of 32 bits and zeros packed along N.
Result<std::unique_ptr<WeightSource>> make_compressed_tensors(const LayoutOperands& operands,
                                                              Depth depth);

/// Floats [n, k] with any row stride, quantized as they are read; with sparse_meta (as in ROWS) the
/// kept ones, [n, k / 2].
Result<std::unique_ptr<WeightSource>> quantize_floats(const LayoutOperands& operands,
                                                      const SourceOptions& options);

}  // namespace metal_marlin
