// Canonical weights: the codes, scales and zeros of a matrix, independent of the layout of any file
// or device. A WeightSource returns them a stripe of rows at a time, so that packing a layer never
// holds a second copy of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

/// u4 to s8 are two-level scales: a small integer for each group, in a byte of its own, times
/// a float16 factor that 256 elements share (the K-quants of GGUF). The names say how many bits the
/// integers need, unsigned or in two's complement.
///
/// `nested` is a byte for each group (the double quantization of bitsandbytes). With byte b, the
/// scale is scale_map[b] times the float32 factor of the group plus the float32 offset of the row.
/// This real number is the scale: it is not rounded.
enum class ScaleType : uint8_t { f32, f16, bf16, e8m0, e4m3, u4, u6, s6, s8, nested };
constexpr bool is_two_level(ScaleType t) noexcept {
  return t >= ScaleType::u4 && t <= ScaleType::s8;
}
/// Bytes of one canonical scale.
constexpr size_t scale_bytes(ScaleType t) noexcept {
  if (t == ScaleType::f32) return 4;
  return t == ScaleType::f16 || t == ScaleType::bf16 ? 2 : 1;
}
inline constexpr int64_t kFactorSpan = 256;  ///< elements of k that share a factor
inline constexpr size_t kFactorBytes = 2;    ///< of a factor
inline constexpr size_t kScaleMapEntries = 256;

enum class ZeroKind : uint8_t {
  none,      ///< INT2 to INT6, UINT8: zero point 2^(bits - 1); INT8: 0; others have none
  integer,   ///< INT2 to INT6: value = (q - zero) * scale, zero 0..2^bits; UINT8: zero 0..255
  additive,  ///< integers: value = q * scale + zero, rounded once; q counts from 0, but for INT8
};

/// Rows from first_row on (up to the first_row of the next entry) have this factor in addition to
/// their group scales.
struct TensorScale {
  int64_t first_row = 0;
  float value = 1;
  bool divide = false;  ///< the file stores the reciprocal: weight / value
  float divisor = 1;    ///< of a value that multiplies: weight * value / divisor; NVFP4 only
};

/// Everything about a matrix W[n, k] except its elements.
struct WeightMeta {
  marlin_format format = MARLIN_FORMAT_NONE;
  int64_t n = 0, k = 0;
  int64_t group_size = 0;  ///< elements of k that share a scale; k when one scale spans the row
  int64_t groups = 0;      ///< scales per row: ceil(k / group_size), or the bound of group_index
  ScaleType scale_type = ScaleType::f16;
  ZeroKind zero_kind = ZeroKind::none;
  /// Of additive zeros: f32, f16 or bf16; or a two-level type, whose products are subtracted.
  ScaleType zero_type = ScaleType::f16;
  std::vector<int32_t> group_index;  ///< [k] in [0, groups), or empty: k / group_size
  std::vector<float> codebook;       ///< [16] of CODEBOOK4, else empty
  std::vector<float> scale_map;      ///< [256] of nested scales, else empty
  /// Of nested scales without a group index: every run of so many groups, from the first of a row
  /// on, has one factor. At least 1.
  int64_t factor_groups = 0;
  std::vector<TensorScale> tensor_scales;  ///< empty: 1; else ascending, the first at row 0
  bool gate_up_interleaved = false;        ///< rows alternate gate, up
  bool sparse = false;  ///< 2:4: two of every 4 elements along k are kept, the others are 0
  /// For pruned weights: the sums of w^2 over all elements and over the kept ones, of the whole
  /// layer even in a shard. Both are 0 if nothing was pruned.
  double squared_norm = 0, kept_norm = 0;

  bool has_two_level_scales() const noexcept { return is_two_level(scale_type); }
  bool has_nested_scales() const noexcept { return scale_type == ScaleType::nested; }
  bool has_two_level_zeros() const noexcept {
    return zero_kind == ZeroKind::additive && is_two_level(zero_type);
  }
  /// Factors of a row, for two-level scales.
  int64_t factors() const { return (k + kFactorSpan - 1) / kFactorSpan; }
};

/// Some whole rows of canonical weights.
struct Stripe {
  /// [rows][k], one byte per code: 0..2^bits - 1, or the bits of an int8 or E4M3; undefined for
  /// elements that are not kept. Floats of 2 or 4 bytes are their own codes (code_bytes in
  /// format_table.h).
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;  ///< [rows][groups], little-endian, of meta.scale_type
  std::vector<uint8_t>
      zeros;  ///< [rows][groups]: bytes (integer) or of meta.zero_type (additive); or empty
  /// [rows][factors()] float16, if the scales (or the additive zeros) are two-level. Nested scales
  /// have scale_factors [rows][groups] float32. Else empty.
  std::vector<uint8_t> scale_factors, zero_factors;
  std::vector<uint8_t> scale_offsets;  ///< [rows] float32 of nested scales, else empty
  /// [rows][k / 4] if meta.sparse, else empty. Bit i of byte j says that element 4 j + i is kept
  /// (its value may be 0). Exactly two bits are set. An element that is not kept is exactly +0.0,
  /// whatever its code, scale and zero are.
  std::vector<uint8_t> kept;
};
/// Whether element i is kept. `kept` is the beginning of the masks of a row or of all rows, because
/// rows are whole blocks of four.
inline bool is_kept(const uint8_t* kept, int64_t i) { return (kept[i / 4] >> (i % 4) & 1) != 0; }

/// A matrix that can be read by rows. Reading is const, and several threads may read at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  const WeightMeta& meta() const { return meta_; }
  /// A warning for the host's log about a reading of this matrix that the file left open, or "".
  const std::string& warning() const { return warning_; }
  /// Fills `out` with rows [first, first + count), which lie inside [0, n). Resizes `out` and
  /// reuses its memory.
  virtual Status read(int64_t first, int64_t count, Stripe& out) const = 0;

  /// Columns that can only be read together; 0: all of a row, and then nobody calls narrow().
  virtual int64_t column_unit() const { return 0; }
  /// From now on this is a source of columns [first, first + count) alone, and reads the bytes of
  /// no others. To be called before threads share the source. Both borders lie at multiples of
  /// column_unit() and of whatever shares a scale or a factor (or at k), as column_border() gives
  /// them (format_table.h).
  virtual void narrow(int64_t first, int64_t count) { (void)first, (void)count; }

 protected:
  WeightMeta meta_;
  std::string warning_;
};

/// A source that gives what another gives, but for what a derived class adds.
class WrappedSource : public WeightSource {
 public:
  explicit WrappedSource(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {
    meta_ = source_->meta();
    warning_ = source_->warning();
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    return source_->read(first, count, out);
  }
  int64_t column_unit() const override { return source_->column_unit(); }
  void narrow(int64_t first, int64_t count) override {
    source_->narrow(first, count);
    meta_ = source_->meta();
  }

 protected:
  const std::unique_ptr<WeightSource> source_;
};

}  // namespace metal_marlin
