// AutoAWQ "gemm": words of eight codes along N, [K, N / 8], in the order that the fast unpacking of
// its kernel needs. Zeros have the same layout.
#include <algorithm>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/columns.h"
#include "layouts/layout_table.h"
#include "layouts/nibbles.h"

namespace metal_marlin {
namespace {

/// Column 8 c + j is this nibble of word c.
constexpr uint8_t kNibbleOf[8] = {0, 4, 1, 5, 2, 6, 3, 7};

struct AwqOperands {
  WeightMeta meta;
  const std::byte *words = nullptr, *scales = nullptr, *zeros = nullptr;
};

class AwqSource final : public WeightSource {
 public:
  explicit AwqSource(AwqOperands parts) : parts_(std::move(parts)), words_(parts_.meta.n / 8) {
    meta_ = parts_.meta;
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    for (int64_t word = first / 8; word < ceil_div(first + count, 8); word += 2) {
      for (int64_t k = 0; k < meta_.k; k += 8) read_tile(word, k, first, count, out.codes.data());
    }
    gather_columns(parts_.scales, meta_.n, scale_bytes(meta_.scale_type), meta_.groups, first,
                   count, out.scales);
    if (meta_.zero_kind == ZeroKind::none) {
      out.zeros.clear();
    } else {
      gather_packed_columns(parts_.zeros, words_, kNibbleOf, meta_.groups, first, count, out.zeros);
    }
    return {};
  }
  int64_t column_unit() const override { return 1; }
  void narrow(int64_t first, int64_t count) override {
    parts_.words += first * words_ * 4;
    const int64_t group = narrow_columns(meta_, first, count);
    parts_.scales += group * meta_.n * static_cast<int64_t>(scale_bytes(meta_.scale_type));
    if (meta_.zero_kind != ZeroKind::none) parts_.zeros += group * words_ * 4;
  }

 private:
  /// Reads the codes of columns 8 word .. 8 word + 15 and of k .. k + 7, as far as they exist and
  /// the caller needs them.
  void read_tile(int64_t word, int64_t k, int64_t first, int64_t count, uint8_t* out) const {
    const int64_t depth = std::min<int64_t>(8, meta_.k - k);
    const bool both = word + 1 < words_;
    uint64_t tile[8] = {};
    for (int64_t i = 0; i < depth; ++i) {
      const std::byte* from = parts_.words + ((k + i) * words_ + word) * 4;
      tile[i] = both ? load<uint64_t>(from) : load<uint32_t>(from);
    }
    transpose_nibbles(tile);
    for (int64_t j = 0; j < (both ? 16 : 8); ++j) {
      const int64_t row = 8 * word + j - first;
      if (row < 0 || row >= count) continue;
      const uint64_t codes =
          spread_nibbles(static_cast<uint32_t>(tile[kNibbleOf[j % 8]] >> j / 8 * 32));
      uint8_t* to = out + row * meta_.k + k;
      if (depth == 8) {
        store(to, codes);
      } else {
        std::memcpy(to, &codes, static_cast<size_t>(depth));
      }
    }
  }

  AwqOperands parts_;
  int64_t words_;  // of a row
};

}  // namespace

Result<std::unique_ptr<WeightSource>> read_awq(const LayoutOperands& o, Depth depth) {
  AwqOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, rows_of(o.scales), depth));
  if (o.n % 8 != 0) {
    return view_error(o.values, MARLIN_E_SHAPE, "n: AWQ packs multiples of 8 columns, found %lld",
                      static_cast<long long>(o.n));
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.k, o.n / 8));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16, MARLIN_F32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, parts.meta.groups, o.n));
  parts.words = o.values.data;
  parts.scales = o.scales.data;
  if (present(o.zeros)) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_I32, MARLIN_U32}));
    MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, parts.meta.groups, o.n / 8));
    parts.zeros = o.zeros.data;
    parts.meta.zero_kind = ZeroKind::integer;
  }
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  return std::unique_ptr<WeightSource>(std::make_unique<AwqSource>(std::move(parts)));
}

}  // namespace metal_marlin
