#include "formats/widen.h"

#include <utility>

#include "base/bits.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

marlin_format widened(marlin_format format) {
  switch (format) {
    case MARLIN_FORMAT_INT2:
    case MARLIN_FORMAT_INT3:
      return MARLIN_FORMAT_INT4;
    case MARLIN_FORMAT_INT5:
    case MARLIN_FORMAT_INT6:
    case MARLIN_FORMAT_IQ4:
      return MARLIN_FORMAT_INT8;
    default:
      return format;
  }
}

bool has_factors(const WeightMeta& meta) {
  return meta.has_two_level_scales() || meta.has_nested_scales();
}

}  // namespace

bool is_narrow(const WeightMeta& meta) {
  return widened(meta.format) != meta.format || has_factors(meta);
}

WidenedSource::WidenedSource(const WeightSource& source) : source_(source) {
  meta_ = source.meta();
  warning_ = source.warning();
  meta_.format = widened(meta_.format);
  if (meta_.format == MARLIN_FORMAT_INT8 && meta_.zero_kind == ZeroKind::integer)
    meta_.zero_kind = ZeroKind::none;
  if (meta_.has_two_level_zeros()) meta_.zero_type = ScaleType::f32;
  if (has_factors(meta_)) meta_.scale_type = ScaleType::f32;
  meta_.scale_map = {};
  meta_.factor_groups = 0;
}

Status WidenedSource::read(int64_t first, int64_t count, Stripe& out) const {
  Stripe narrow;
  MARLIN_RETURN_IF_ERROR(source_.read(first, count, narrow));
  if (meta_.format != source_.meta().format) widen_codes(narrow, count);
  if (has_factors(source_.meta()))
    widen_scales(narrow, count, out);
  else
    std::swap(out.scales, narrow.scales);
  if (!source_.meta().has_two_level_zeros()) std::swap(out.zeros, narrow.zeros);
  if (meta_.zero_kind == ZeroKind::none) out.zeros.clear();
  std::swap(out.codes, narrow.codes);
  std::swap(out.kept, narrow.kept);
  return {};
}

void WidenedSource::widen_codes(Stripe& stripe, int64_t rows) const {
  const WeightMeta& narrow = source_.meta();
  if (narrow.format == MARLIN_FORMAT_IQ4) {
    for (uint8_t& code : stripe.codes)
      code = static_cast<uint8_t>(static_cast<int>(kIq4[code & 15]));
    return;
  }
  if (narrow.zero_kind == ZeroKind::additive) return;
  const bool bytes = meta_.format == MARLIN_FORMAT_INT8;
  if (!bytes && narrow.zero_kind == ZeroKind::integer) return;
  const int zero_point = format_row(narrow.format)->zero_point(), to = bytes ? 0 : 8;
  uint8_t* code = stripe.codes.data();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < narrow.k; ++k, ++code) {
      int zero = zero_point;
      if (narrow.zero_kind == ZeroKind::integer) {
        const int64_t group = narrow.group_index.empty()
                                  ? k / narrow.group_size
                                  : narrow.group_index[static_cast<size_t>(k)];
        zero = stripe.zeros[static_cast<size_t>(r * narrow.groups + group)];
      }
      *code = static_cast<uint8_t>(*code - zero + to);
    }
}

void WidenedSource::widen_scales(const Stripe& narrow, int64_t rows, Stripe& out) const {
  const auto groups = static_cast<size_t>(meta_.groups);
  const bool zeros = source_.meta().has_two_level_zeros();
  out.scales.resize(static_cast<size_t>(rows) * groups * sizeof(float));
  if (zeros) out.zeros.resize(out.scales.size());
  for (int64_t r = 0; r < rows; ++r)
    for (size_t g = 0; g < groups; ++g) {
      const GroupScale group = decode_group(source_.meta(), narrow, r, static_cast<int64_t>(g));
      const size_t at = (static_cast<size_t>(r) * groups + g) * sizeof(float);
      store(out.scales.data() + at, group.scale);
      if (zeros) store(out.zeros.data() + at, group.zero);
    }
}

}  // namespace metal_marlin
