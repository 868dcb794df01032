// TorchAO's Int4Tensor (packing "plain"): qdata I8 [N, K / 2], the low nibble first, in two's
// complement; scales and zeros [K / G, N], which are transposed. A zero is the value of code 0, so
// that W = q * scale + zero with q = -8..7. Codes are q + 8 here, and zeros are zero - 8 * scale.
#include <cinttypes>
#include <cmath>
#include <optional>

#include "base/bits.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "layouts/layout_table.h"
#include "layouts/nibbles.h"

namespace metal_marlin {
namespace {

class TorchaoSource final : public WeightSource {
 public:
  TorchaoSource(const LayoutOperands& o, WeightMeta meta, ScaleType stored_zero)
      : codes_(o.values.data),
        scales_(o.scales.data),
        zeros_(o.zeros.data),
        code_stride_(o.k / 2),
        stored_zero_(stored_zero) {
    meta_ = std::move(meta);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const size_t size = scale_bytes(meta_.scale_type);
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    out.scales.resize(static_cast<size_t>(count * meta_.groups) * size);
    out.zeros.resize(static_cast<size_t>(count * meta_.groups) * sizeof(float));
    uint8_t *scale = out.scales.data(), *zero = out.zeros.data();
    for (int64_t n = first; n < first + count; ++n) {
      unpack_nibbles(codes_ + n * code_stride_, meta_.k, out.codes.data() + (n - first) * meta_.k);
      for (int64_t g = 0; g < meta_.groups; ++g, scale += size, zero += sizeof(float)) {
        std::memcpy(scale, scales_ + place(n, g) * static_cast<int64_t>(size), size);
        store(zero, static_cast<float>(zero_of_code(n, g)));
      }
    }
    for (uint8_t& code : out.codes) code ^= 8u;
    out.kept.clear();
    return {};
  }
  int64_t column_unit() const override { return 8; }
  void narrow(int64_t first, int64_t count) override {
    codes_ += first / 2;
    first_group_ += narrow_columns(meta_, first, count);
  }

  /// The first row and group whose zero float32 does not hold.
  std::optional<std::pair<int64_t, int64_t>> find_inexact_zero() const {
    for (int64_t g = 0; g < meta_.groups; ++g)
      for (int64_t n = 0; n < meta_.n; ++n) {
        const double zero = zero_of_code(n, g);
        if (!std::isnan(zero) && static_cast<double>(static_cast<float>(zero)) != zero)
          return std::pair(n, g);
      }
    return std::nullopt;
  }

 private:
  int64_t place(int64_t n, int64_t g) const { return (first_group_ + g) * meta_.n + n; }
  /// The zero of codes that count from 0. Exact in float64 unless the exponents of a float16 or
  /// bfloat16 scale and zero are 40 or more apart; float32 does not hold such a sum, either.
  double zero_of_code(int64_t n, int64_t g) const {
    return value(stored_zero_, zeros_, place(n, g)) -
           8 * value(meta_.scale_type, scales_, place(n, g));
  }
  static double value(ScaleType type, const std::byte* from, int64_t i) {
    return f32_to_f64(decode_scale(type, reinterpret_cast<const uint8_t*>(from) +
                                             i * static_cast<int64_t>(scale_bytes(type))));
  }

  const std::byte *codes_, *scales_, *zeros_;
  int64_t code_stride_, first_group_ = 0;
  ScaleType stored_zero_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> read_torchao(const LayoutOperands& o, Depth depth) {
  MARLIN_ASSIGN(WeightMeta meta, begin_meta(o, 0, depth));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I8}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, ceil_div(o.k, 2)));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, meta.groups, o.n));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, meta.groups, o.n));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16}));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_F16, MARLIN_BF16}));
  MARLIN_ASSIGN(const ScaleType stored_zero, float_type(o.zeros));
  meta.zero_kind = ZeroKind::additive;
  meta.zero_type = ScaleType::f32;
  MARLIN_RETURN_IF_ERROR(check_source_meta(meta, o, depth));
  auto source = std::make_unique<TorchaoSource>(o, std::move(meta), stored_zero);
  if (depth == Depth::full) {
    if (const auto at = source->find_inexact_zero()) {
      return view_error(o.zeros, MARLIN_E_UNSUPPORTED,
                        "row %" PRId64 ", group %" PRId64
                        ": zero - 8 * scale is not exact in float32",
                        at->first, at->second);
    }
  }
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace metal_marlin
