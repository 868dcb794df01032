#include "formats/recode.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

/// The integers that codes stand for, before a zero is subtracted.
struct Integers {
  int first, last;                  ///< the smallest and the largest of them
  const float* codebook = nullptr;  ///< else they ascend with their codes from `first` on
  bool twos_complement = false;

  int of(uint8_t code) const {
    if (codebook != nullptr) return static_cast<int>(codebook[code]);
    return twos_complement ? static_cast<int8_t>(code) : code + first;
  }
};

std::optional<Integers> integers_of(const FormatRow& row) {
  if (row.codebook == kIq4) return Integers{-127, 113, kIq4, false};
  if (row.numbers == CodeNumbers::twos_signed) return Integers{-128, 127, nullptr, true};
  if (row.numbers == CodeNumbers::from_zero)
    return Integers{0, (1 << row.code_bits) - 1, nullptr, false};
  return std::nullopt;
}

bool same_kind(const WeightMeta& from, const WeightMeta& to) {
  return from.format == to.format && from.scale_type == to.scale_type &&
         from.zero_kind == to.zero_kind && from.group_size == to.group_size &&
         (from.zero_kind != ZeroKind::additive || from.zero_type == to.zero_type);
}

bool is_float(ScaleType type) {
  return type == ScaleType::f32 || type == ScaleType::f16 || type == ScaleType::bf16;
}

/// x as a stored float of this type; false if it would be rounded.
bool store_exactly(ScaleType type, double x, uint8_t* to) {
  const float stored = round_scale_to(type, x);
  if (f32_to_f64(stored) != x) return false;
  encode_scale(type, stored, to);
  return true;
}

/// Recodes one group after another.
class Recoder {
 public:
  /// may_recode has found the integers of both. NOLINTBEGIN(bugprone-unchecked-optional-access)
  Recoder(const WeightMeta& from, const WeightMeta& to)
      : from_(from),
        to_(to),
        read_(*integers_of(*format_row(from.format))),
        written_(*integers_of(*format_row(to.format))),
        zero_point_(format_row(to.format)->zero_point()) {}
  // NOLINTEND(bugprone-unchecked-optional-access)

  bool rows(const Stripe& in, int64_t rows, Stripe& out) const {
    const auto k = static_cast<size_t>(to_.k), groups = static_cast<size_t>(to_.groups);
    const auto size = static_cast<size_t>(to_.group_size);
    const size_t scale = scale_bytes(to_.scale_type), zero = scale_bytes(to_.zero_type);
    const bool additive = to_.zero_kind == ZeroKind::additive;
    out = {};
    out.codes.resize(static_cast<size_t>(rows) * k);
    out.scales.resize(static_cast<size_t>(rows) * groups * scale);
    out.zeros.resize(additive ? static_cast<size_t>(rows) * groups * zero : 0);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      for (size_t g = 0; g < groups; ++g) {
        const size_t begin = g * size, length = std::min(size, k - begin), at = r * groups + g;
        const GroupScale decoded = decode_group(from_, in, static_cast<int64_t>(r),
                                                static_cast<int64_t>(begin) / from_.group_size);
        if (!store_exactly(to_.scale_type, f32_to_f64(decoded.scale), &out.scales[at * scale]))
          return false;
        int shift = 0;
        if (!shift_of(decoded, additive ? &out.zeros[at * zero] : nullptr, shift)) return false;
        if (!codes(&in.codes[r * k + begin], length, shift, &out.codes[r * k + begin]))
          return false;
      }
    }
    return true;
  }

 private:
  /// What is added to the integers of a group. Stores the additive zero, if there are zeros.
  bool shift_of(GroupScale group, uint8_t* zero, int& shift) const {
    const bool additive = from_.zero_kind == ZeroKind::additive;
    const int point = additive ? 0 : static_cast<int>(group.zero);
    if (zero == nullptr) {
      shift = -point;
      return true;
    }
    shift = -read_.first;
    const double moved = (read_.first - point) * f32_to_f64(group.scale);
    const double whole = additive ? f32_to_f64(group.zero) : moved;
    return store_exactly(to_.zero_type, whole == 0 ? 0 : whole, zero);
  }

  bool codes(const uint8_t* from, size_t count, int shift, uint8_t* to) const {
    const bool additive = to_.zero_kind == ZeroKind::additive;
    const int first = additive ? 0 : written_.first - zero_point_;
    const int last = additive ? written_.last : written_.last - zero_point_;
    bool fits = true;
    for (size_t i = 0; i < count; ++i) {
      const int integer = read_.of(from[i]) + shift;
      fits = fits && integer >= first && integer <= last;
      to[i] = static_cast<uint8_t>(additive ? integer : integer + zero_point_);
    }
    return fits;
  }

  const WeightMeta &from_, &to_;
  Integers read_, written_;
  int zero_point_;
};

class RecodedSource final : public WeightSource {
 public:
  RecodedSource(std::unique_ptr<WeightSource> source, const WeightMeta& to)
      : source_(std::move(source)) {
    meta_ = to;
    warning_ = source_->warning();
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    Stripe in;
    MARLIN_RETURN_IF_ERROR(source_->read(first, count, in));
    if (recode(source_->meta(), in, meta_, count, out)) return {};
    return Status::error(MARLIN_E_INTERNAL,
                         "a stripe fitted when it was checked, and now does not");
  }

 private:
  std::unique_ptr<WeightSource> source_;
};

}  // namespace

bool may_recode(const WeightMeta& from, const WeightMeta& to) {
  if (from.n != to.n || from.k != to.k || from.sparse || to.sparse || !from.group_index.empty() ||
      from.gate_up_interleaved)
    return false;
  if (same_kind(from, to)) return true;
  const auto read = integers_of(*format_row(from.format)),
             written = integers_of(*format_row(to.format));
  if (!read || !written || written->codebook != nullptr || !from.tensor_scales.empty())
    return false;
  if (!is_float(to.scale_type) || to.zero_kind == ZeroKind::integer) return false;
  if (from.zero_kind == ZeroKind::additive && (to.zero_kind == ZeroKind::none || read->first != 0))
    return false;
  // Additive zeros count codes from 0, but those of INT8 do not.
  if (to.zero_kind == ZeroKind::additive && written->first != 0) return false;
  return from.groups == 1 || from.group_size % to.group_size == 0;
}

bool recode(const WeightMeta& from, const Stripe& in, const WeightMeta& to, int64_t rows,
            Stripe& out) {
  if (!same_kind(from, to)) return Recoder(from, to).rows(in, rows, out);
  out = in;
  return true;
}

std::unique_ptr<WeightSource> make_recoded(std::unique_ptr<WeightSource> source,
                                           const WeightMeta& to) {
  return std::make_unique<RecodedSource>(std::move(source), to);
}

}  // namespace metal_marlin
