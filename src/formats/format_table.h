// The table of formats: one row per format, with its facts and no algorithms. Importers, packers,
// the command and the tests take limits and names from here.
//
// How later formats fit:
// - 16-entry codebooks (NF4, IQ4_NL) need a row with their `codebook`. Decoding already computes
//   codebook[code] * scale.
// - Two-level scales (Q4_K) have a 6-bit scale and minimum for each group of 32, and two float16
//   factors for each 256. The products d * scale and dmin * min have 17 bits, so float32 scales
//   with float32 additive zeros hold such a matrix exactly today. A ScaleType of its own, decoded
//   in decode_group, will hold it in the size of its file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

struct FormatRow {
  marlin_format format;
  const char* name;  ///< "MXFP4"
  int code_bits;     ///< 4 or 8
  const float*
      codebook;  ///< the value of each code in units of its scale; null: codes are integers
  int64_t default_group;   ///< also the only one when fixed_group
  bool fixed_group;        ///< part of the format's definition
  ScaleType default_type;  ///< of scales that the quantizer writes
  uint32_t scale_types;    ///< bit (1 << ScaleType): allowed
  uint32_t zero_kinds;     ///< bit (1 << ZeroKind): allowed

  bool allows(ScaleType type) const { return (scale_types >> static_cast<int>(type) & 1u) != 0; }
  bool allows(ZeroKind kind) const { return (zero_kinds >> static_cast<int>(kind) & 1u) != 0; }
};

/// All rows, in the order of their numbers.
std::span<const FormatRow> format_table();
/// Null for a number that is no format (MARLIN_FORMAT_NONE too).
const FormatRow* format_row(marlin_format format);
/// The format's name, or "unknown"; for messages.
const char* format_name(marlin_format format);

/// "F16", ...; and conversions between ScaleType and marlin_dtype. U8 is not a scale type: the
/// caller must know whether it means E8M0.
const char* scale_type_name(ScaleType type);
marlin_dtype scale_dtype(ScaleType type);
std::optional<ScaleType> scale_type_of(marlin_dtype dtype);

/// The group size that a request means for rows of k (>= 1) elements: 0 means the default of the
/// format, and >= k means the whole row. A size is 16, 32, 64, 128, another multiple of 128, or the
/// row; any other size is MARLIN_E_UNSUPPORTED. A format with a fixed group takes no other size.
Result<int64_t> resolve_group_size(const FormatRow& row, int64_t requested, int64_t k);

/// Checks everything that code may rely on in a WeightMeta. Code that makes a WeightMeta calls this
/// function before it reads or allocates anything by it.
/// - The format is in the table. n and k are in 1..2^31-1. With gate_up_interleaved, n is even.
/// - group_size is as in resolve_group_size (a fixed group may exceed k). groups = ceil(k /
///   group_size); with a group_index, groups is in 1..2^31-1, and the index has k entries inside
///   [0, groups).
/// - The format allows the type of the scales and the kind and type of the zeros. Tensor scales
///   begin at row 0 and ascend inside [0, n).
/// - With sparse, the format has 4-bit codes, k is a multiple of 4, and there is no group_index.
/// - There is no tensor scale together with additive zeros: no file has both, and decode_value
///   could not round once.
Status check_meta(const WeightMeta& meta);

}  // namespace metal_marlin
