// MLX: `weight` words of codes along K, a stream of 2 to 8 bits a code (4 bits, as bytes: low
// nibble = even k), `scales`, and `biases` in the affine mode.
#include <algorithm>
#include <cinttypes>
#include <iterator>

#include "formats/format_table.h"
#include "formats/quantize.h"
#include "layouts/encoder.h"
#include "layouts/layout_table.h"
#include "layouts/nibbles.h"
#include "layouts/nonstandard_scales.h"
#include "layouts/rows.h"

namespace metal_marlin {
namespace {

bool any_byte(const RowsOperands& parts, uint8_t a, uint8_t b) {
  for (int64_t n = 0; n < parts.meta.n; ++n) {
    const std::byte* row = parts.scales + n * parts.scale_stride;
    const bool found = std::any_of(row, row + parts.meta.groups, [&](std::byte s) {
      return std::to_integer<uint8_t>(s) == a || std::to_integer<uint8_t>(s) == b;
    });
    if (found) return true;
  }
  return false;
}

// --- writing: the affine mode
// ---------------------------------------------------------------------

constexpr int64_t kGroupSizes[] = {128, 64, 32};
constexpr marlin_format kAffine[] = {MARLIN_FORMAT_INT2, MARLIN_FORMAT_INT3, MARLIN_FORMAT_INT4,
                                     MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT6, MARLIN_FORMAT_UINT8};

class MlxEncoder final : public Encoder {
 public:
  explicit MlxEncoder(const WeightMeta& meta)
      : meta_(meta), bits_(format_row(meta.format)->code_bits) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count,
                const TensorWriter& out) override {
    const int64_t row = meta_.k * bits_ / 8;
    std::vector<std::byte> bytes(static_cast<size_t>(count * row));
    for (int64_t r = 0; r < count; ++r)
      pack_stream(stripe.codes.data() + r * meta_.k, bits_, meta_.k, bytes.data() + r * row);
    MARLIN_RETURN_IF_ERROR(out(0, static_cast<uint64_t>(first * row), bytes));
    const auto scales = static_cast<int64_t>(scale_bytes(meta_.scale_type));
    const auto at = static_cast<uint64_t>(first * meta_.groups * scales);
    MARLIN_RETURN_IF_ERROR(out(1, at, bytes_of(stripe.scales)));
    return out(2, at, bytes_of(stripe.zeros));
  }
  Status finish(const TensorWriter&) override { return {}; }

 private:
  WeightMeta meta_;
  int bits_;
};

Status check_affine(const WeightMeta& meta) {
  const bool affine =
      std::find(std::begin(kAffine), std::end(kAffine), meta.format) != std::end(kAffine) &&
      meta.zero_kind == ZeroKind::additive && meta.zero_type == meta.scale_type &&
      !meta.has_two_level_scales() && !meta.sparse;
  if (affine) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "MLX: expected dense codes of 2 to 6 or 8 bits from 0 on (INT2 to INT6, "
                       "UINT8) with additive zeros, found %s",
                       format_name(meta.format));
}

Result<std::vector<EncodedTensor>> affine_tensors(const WeightMeta& meta, uint32_t) {
  const int bits = format_row(meta.format)->code_bits;
  if (std::find(std::begin(kGroupSizes), std::end(kGroupSizes), meta.group_size) ==
      std::end(kGroupSizes)) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: MLX has groups of 32, 64 and 128, found %" PRId64,
                         meta.group_size);
  }
  if (meta.k % meta.group_size != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "k: MLX wants whole groups of %" PRId64 ", found rows of %" PRId64,
                         meta.group_size, meta.k);
  }
  const char* const type = scale_type_name(meta.scale_type);
  return std::vector<EncodedTensor>{{TensorRole::values, "U32", {meta.n, meta.k * bits / 32}},
                                    {TensorRole::scales, type, {meta.n, meta.groups}},
                                    {TensorRole::zeros, type, {meta.n, meta.groups}}};
}

std::vector<WeightMeta> affine_kinds(int64_t n, int64_t k) {
  std::vector<WeightMeta> all;
  for (const marlin_format format : kAffine) {
    for (const ScaleType type : {ScaleType::f16, ScaleType::bf16, ScaleType::f32}) {
      for (const int64_t size : kGroupSizes) {
        if (k % size != 0) continue;
        WeightMeta meta;
        meta.format = format;
        meta.n = n;
        meta.k = k;
        meta.group_size = size;
        meta.groups = k / size;
        meta.scale_type = meta.zero_type = type;
        meta.zero_kind = ZeroKind::additive;
        all.push_back(meta);
      }
    }
  }
  const auto bits = [](const WeightMeta& meta) {
    return format_row(meta.format)->code_bits +
           16.0 * static_cast<double>(scale_bytes(meta.scale_type)) /
               static_cast<double>(meta.group_size);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const WeightMeta& a, const WeightMeta& b) { return bits(a) < bits(b); });
  return all;
}

}  // namespace

LayoutEncoder mlx_encoder() {
  return {check_affine, affine_tensors,
          [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
            return std::make_unique<MlxEncoder>(meta);
          },
          affine_kinds};
}

Result<std::unique_ptr<WeightSource>> read_mlx(const LayoutOperands& operands, Depth depth) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(operands.values, {MARLIN_U32}));
  LayoutOperands rows = operands;
  rows.values.dtype = MARLIN_U8;
  // Words to bytes. Rows that are too long for a layer stay so.
  for (int64_t* const length : {&rows.values.dims.back(), &rows.values.row_stride})
    *length = std::min<int64_t>(*length, INT32_MAX) * 4;
  MARLIN_ASSIGN(RowsOperands parts, check_rows(rows, depth, CodeForm::stream));
  // `global_scale` is the largest weight, for which the largest code and scale stand.
  constexpr auto kLargest = static_cast<float>(kE4m3Max * kE2m1Max);
  for (TensorScale& scale : parts.meta.tensor_scales) scale.divisor = kLargest;
  if (depth == Depth::full && parts.meta.scale_type == ScaleType::e8m0 &&
      any_byte(parts, 0xff, 0xff)) {
    parts.meta.scale_type = ScaleType::bf16;
    parts.scale_meaning = &kMlxE8m0;
  } else if (depth == Depth::full && parts.meta.scale_type == ScaleType::e4m3 &&
             any_byte(parts, 0x7f, 0xff)) {
    parts.meta.scale_type = ScaleType::f16;
    parts.scale_meaning = &kMlxE4m3;
  }
  return make_rows_source(std::move(parts));
}

}  // namespace metal_marlin
