#include "backends/gpu/pack.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "backends/gpu/code_words.h"
#include "base/checked.h"
#include "core/parallel.h"
#include "core/slots.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"
#include "formats/prune.h"

namespace metal_marlin::gpu {
namespace {

constexpr uint8_t kNanExponent = 255, kNanE5m3 = 255;
constexpr int64_t kPaddingRow = -1;

/// Padding codes and scales decode to 0, and never to NaN.
uint8_t padding_code(const WeightMeta& meta) {
  if (!meta.codebook.empty()) {  // whose numbers may be infinite
    const auto finite = std::find_if(meta.codebook.begin(), meta.codebook.end(),
                                     [](float number) { return std::isfinite(number); });
    return static_cast<uint8_t>((finite - meta.codebook.begin()) % 16);
  }
  return static_cast<uint8_t>(
      meta.zero_kind == ZeroKind::none ? format_row(meta.format)->zero_point() : 0);
}
uint8_t padding_scale_byte(ScaleType type) { return type == ScaleType::e8m0 ? 127 : 0; }

/// The shift of stored exponents, unless a row has larger ones than it leaves room for.
int usual_shift(const RowBlockLayout& layout) {
  if (layout.order == SlotOrder::mma) return kMmaExponent;
  if (are_floats(layout.codes)) return 0;
  return layout.code_form == kFormE4m3 ? kE4m3Exponent : kFp4Exponent;
}

/// The shift that turns the exponents of a row, which span lo..hi, into the stored bytes; nothing
/// if they do not fit. The smallest code other than 0 is 2^smallest.
std::optional<int> exponent_shift(int lo, int hi, int usual, int smallest) {
  const int shift = std::min<int>(usual, kLargestExponent - hi);
  if (lo + shift < 1) return std::nullopt;  // a byte 0 is NaN
  // If the shift is less than usual, a weight of 2^(e - 127 + smallest) is 2^(usual - shift) less
  // to the kernels. It is a normal float, from 2^-126 on, if e + shift >= usual + 1 - smallest.
  return shift == usual || lo + shift >= usual + 1 - smallest ? std::optional(shift) : std::nullopt;
}

/// The factor and origin that the scales of one row require.
struct RowScaling {
  RowFactor factor{1, 1};
  RowOrigin origin{1, 0, 0};
};

/// `scales` are the scales of the row in the type of the file, `groups` of them; `nan` says that a
/// code is NaN. Nothing if the exponents do not fit bytes.
std::optional<RowScaling> scaling_of(const PackPlan& plan, const uint8_t* scales,
                                     const TensorScale* tensor, bool nan) {
  RowScaling out;
  const ScaleType type = plan.meta.scale_type;
  int lo = kNanExponent, hi = -1;
  for (const int32_t group : plan.groups) {
    if (group < 0) continue;
    const uint8_t* const at = scales + static_cast<size_t>(group) * scale_bytes(type);
    if (std::isnan(decode_scale(type, at))) {
      nan = true;
    } else if (type == ScaleType::e8m0) {
      lo = std::min<int>(lo, *at);
      hi = std::max<int>(hi, *at);
    }
  }
  if (plan.layout.scale_type == ScaleType::e8m0 && hi >= 0) {
    const int usual = usual_shift(plan.layout);
    const std::optional<int> shift =
        exponent_shift(lo, hi, usual, plan.layout.code_form == kFormE4m3 ? -9 : -1);
    if (!shift) return std::nullopt;
    out.origin.shift = *shift;
    out.factor.multiplier = std::ldexp(1.0f, usual - *shift);
  }
  if (tensor != nullptr) {
    out.origin.tensor = tensor->value;
    out.origin.divide = tensor->divide ? 1 : 0;
    if (tensor->divide) {
      out.factor.divisor = tensor->value;
    } else {
      const bool moved = out.factor.multiplier != 1;
      out.factor.multiplier *= tensor->value;
      // A power of two is exact unless the product leaves the normal numbers.
      if (moved && !std::isnormal(out.factor.multiplier)) return std::nullopt;
    }
  }
  if (nan) out.factor.multiplier = std::numeric_limits<float>::quiet_NaN();
  return out;
}

/// Packs row blocks one after another. Each thread has one packer.
class RowBlockPacker {
 public:
  RowBlockPacker(const WeightSource& source, const PackPlan& plan, std::byte* to,
                 std::atomic<bool>& too_wide)
      : source_(source),
        plan_(plan),
        layout_(plan.layout),
        to_(to),
        too_wide_(too_wide),
        code_bytes_(static_cast<int64_t>(format_row(plan.meta.format)->code_bytes())),
        codes_(static_cast<size_t>(layout_.slots * code_bytes_)),
        kept_(layout_.sparse() ? static_cast<size_t>(layout_.slots / 4) : 0) {}

  Status operator()(int64_t row_block) {
    const int64_t first = row_block * kRowBlock,
                  rows = std::min<int64_t>(kRowBlock, layout_.n - first);
    MARLIN_RETURN_IF_ERROR(source_.read(first, rows, stripe_));
    if (layout_.sparse()) MARLIN_RETURN_IF_ERROR(check_kept(plan_.meta, stripe_, first, rows));
    for (int in_block = 0; in_block < kRowBlock; ++in_block) {
      const int64_t row = in_block < rows ? in_block : kPaddingRow;
      order_codes(row);
      if (layout_.order == SlotOrder::mma) {
        if (row != kPaddingRow && layout_.scale_type == ScaleType::e4m3) take_signs(row);
        if (layout_.sparse()) {
          write_mma_kept(row_block, in_block);
        } else {
          write_mma_codes(row_block, in_block);
        }
      } else {
        write_codes(row_block, in_block);
      }
      const std::optional<RowScaling> scaling =
          row == kPaddingRow ? RowScaling{}
                             : scaling_of(plan_, row_scales(row),
                                          tensor_scale_of(plan_.meta, first + row), has_nan_code());
      if (!scaling) {
        too_wide_.store(true, std::memory_order_relaxed);
        return {};
      }
      write_records(row_block, in_block, row, scaling->origin.shift);
      if (!layout_.has_row_records()) continue;
      const auto at = static_cast<size_t>(first + in_block);
      std::memcpy(to_ + layout_.factors_at + at * sizeof(RowFactor), &scaling->factor,
                  sizeof(RowFactor));
      std::memcpy(to_ + layout_.origins_at + at * sizeof(RowOrigin), &scaling->origin,
                  sizeof(RowOrigin));
    }
    return {};
  }

 private:
  const uint8_t* row_scales(int64_t row) const {
    return stripe_.scales.data() +
           static_cast<size_t>(row * plan_.meta.groups) * scale_bytes(plan_.meta.scale_type);
  }

  /// Of the row that order_codes() took.
  bool has_nan_code() const {
    return layout_.code_form == kFormE4m3 &&
           std::any_of(codes_.begin(), codes_.end(), [](uint8_t c) { return (c & 0x7F) == 0x7F; });
  }

  /// Puts the codes and kept bits of one row into the order of the slots.
  void order_codes(int64_t row) {
    const int64_t k = plan_.meta.k;
    if (row == kPaddingRow) {
      std::fill(codes_.begin(), codes_.end(), padding_code(plan_.meta));
      std::fill(kept_.begin(), kept_.end(), uint8_t{3});
      return;
    }
    const uint8_t* const codes = stripe_.codes.data() + row * k * code_bytes_;
    for (int64_t slot = 0; slot < layout_.slots; ++slot) {
      const int64_t from = plan_.slot_to_k.empty() ? (slot < k ? slot : -1)
                                                   : plan_.slot_to_k[static_cast<size_t>(slot)];
      uint8_t* const to = codes_.data() + slot * code_bytes_;
      if (code_bytes_ == 1)
        *to = from >= 0 ? codes[from] : pad_of(row, slot);
      else if (from >= 0)
        std::memcpy(to, codes + from * code_bytes_, static_cast<size_t>(code_bytes_));
      else
        std::memset(to, 0, static_cast<size_t>(code_bytes_));
    }
    for (size_t quad = 0; quad < kept_.size(); ++quad)
      kept_[quad] = static_cast<int64_t>(quad) < k / 4
                        ? stripe_.kept[static_cast<size_t>(row * (k / 4)) + quad]
                        : uint8_t{3};
  }

  /// Codes take the signs of their scales, and become 0 where the scale is.
  void take_signs(int64_t row) {
    for (int64_t slot = 0; slot < layout_.slots; ++slot) {
      const int32_t group = plan_.groups[static_cast<size_t>(record_of(slot))];
      if (group < 0) continue;
      const uint8_t scale = row_scales(row)[group];
      uint8_t& code = codes_[static_cast<size_t>(slot)];
      code = static_cast<uint8_t>(((scale & 0x7F) == 0 ? code & 8 : code) ^ (scale >> 4 & 8));
    }
  }

  int64_t record_of(int64_t slot) const {
    return layout_.slot_group == kBlockSlots ? slot / kBlockSlots / layout_.quad_blocks
                                             : slot / layout_.slot_group;
  }

  /// With integer zero points, the code of 0 is the zero of the slot's group (or the nearest code,
  /// the largest, if the zero is one more).
  uint8_t pad_of(int64_t row, int64_t slot) const {
    if (plan_.meta.zero_kind != ZeroKind::integer) return padding_code(plan_.meta);
    const int32_t group = plan_.groups[static_cast<size_t>(record_of(slot))];
    return group < 0 ? uint8_t{0}
                     : std::min(stripe_.zeros[static_cast<size_t>(row * plan_.meta.groups + group)],
                                static_cast<uint8_t>((1 << layout_.code_bits) - 1));
  }

  /// The codes that four slots of 2:4 weights keep, and their positions, two bits each.
  struct KeptCodes {
    uint8_t first, second;
    uint32_t positions;
  };
  KeptCodes kept_codes(int64_t slot) const {
    const unsigned kept = kept_[static_cast<size_t>(slot / 4)];
    const int first = std::countr_zero(kept), second = std::countr_zero(kept & (kept - 1));
    const uint8_t* const from = codes_.data() + slot;
    return {from[first], from[second], static_cast<uint32_t>(first | second << 2)};
  }

  /// 16 bits of kept codes and 8 bits of positions of the unit that begins at `slot`.
  std::pair<uint32_t, uint32_t> kept_unit(int64_t slot) const {
    uint32_t codes = 0, positions = 0;
    for (int quad = 0; quad < 2; ++quad) {
      const KeptCodes two = kept_codes(slot + 4 * quad);
      codes |= static_cast<uint32_t>((two.first & 15) | (two.second & 15) << 4) << 8 * quad;
      positions |= two.positions << 4 * quad;
    }
    return {codes, positions};
  }

  /// The words of lane j of the block of `units` units that begins at `slot`.
  void lane_words(int64_t slot, int units, int j, uint32_t* words) const {
    const int64_t count = layout_.words(int64_t{units} * kLanes);
    std::fill_n(words, count, 0u);
    for (int w = 0; w < units; ++w) {
      const uint8_t* const unit =
          codes_.data() + (slot + kUnitSlots * (units * j + w)) * code_bytes_;
      switch (layout_.codes) {
        case KernelCodes::fp4:
          words[w] = fp4_half(unit) | fp4_half(unit + 4) << 16;
          break;
        case KernelCodes::u4:
        case KernelCodes::lut4:
          words[w] = nibbles(unit) | nibbles(unit + 4) << 16;
          break;
        case KernelCodes::planes:
          add_to_planes(unit, layout_.code_bits, units, w, words);
          break;
        case KernelCodes::fp4_sparse:
        case KernelCodes::u4_sparse: {
          const auto [codes, positions] = kept_unit(slot + kUnitSlots * (units * j + w));
          words[w / 2] |= codes << 16 * (w % 2);
          words[count - 1] |= positions << (units == 1 ? 16 : 8 * w);
          break;
        }
        default:
          long_words(unit, words + w * layout_.words(kLanes));
      }
    }
  }

  /// The words of a unit of bytes or floats. Only INT8 is stored as value + 128.
  void long_words(const uint8_t* unit, uint32_t* words) const {
    if (are_floats(layout_.codes)) return float_words(unit, layout_.code_bits, words);
    const uint32_t sign_bits = layout_.code_form == kFormOwn ? 0 : 0x80808080u;
    words[0] = int8_word(unit, 0) ^ sign_bits;
    words[1] = int8_word(unit, 2) ^ sign_bits;
  }

  void write_mma_codes(int64_t row_block, int in_block) const {
    std::byte* const at = to_ + row_block * layout_.row_block_code_bytes();
    const auto words = static_cast<int>(layout_.words(kLanes));
    for (int32_t u = 0; u < layout_.slots / kLanes; ++u)
      for (int j = 0; j < 4; ++j) {
        std::array<uint8_t, kUnitSlots * sizeof(float)> unit;  // codes (t, 0), then (t, 1)
        for (int e = 0; e < kUnitSlots; ++e) {
          const int64_t slot = int64_t{kLanes} * u + mma_slot(j, e % 4, e / 4);
          std::copy_n(codes_.begin() + slot * code_bytes_, code_bytes_,
                      unit.begin() + e * code_bytes_);
        }
        std::array<uint32_t, kUnitSlots> packed;
        if (words == 1)
          packed[0] = mma_word_of(unit.data());
        else
          long_words(unit.data(), packed.data());
        const int lane = 4 * (in_block % 8) + j;
        for (int v = 0; v < words; ++v)
          store(at + 4 * mma_word(u, words, lane, in_block / 8, v), packed[static_cast<size_t>(v)]);
      }
  }
  uint32_t mma_word_of(const uint8_t* unit) const {
    const bool fp4 = layout_.codes == KernelCodes::fp4 || layout_.codes == KernelCodes::fp4_sparse;
    if (layout_.codes == KernelCodes::lut4) return pairs_word(unit);
    return fp4 ? fp4_mma_word(unit) : nibbles(unit) | nibbles(unit + 4) << 16;
  }

  /// Kept codes and their positions. Two rows share a word of positions, half of it each.
  void write_mma_kept(int64_t row_block, int in_block) const {
    std::byte* const at = to_ + row_block * layout_.row_block_code_bytes();
    for (int32_t chunk = 0; chunk < layout_.slots / kMmaSlots; ++chunk) {
      std::array<uint16_t, 4> positions{};  // of the steps of 16 slots
      for (int j = 0; j < 4; ++j) {
        std::array<uint8_t, kUnitSlots> unit;  // codes (t, 0), then (t, 1)
        for (size_t t = 0; t < 4; ++t) {
          const KeptCodes two =
              kept_codes(int64_t{kMmaSlots} * chunk + 16 * static_cast<int64_t>(t) + 4 * j);
          unit[t] = two.first;
          unit[t + 4] = two.second;
          positions[t] |= static_cast<uint16_t>(two.positions << 4 * j);
        }
        const int lane = 4 * (in_block % 8) + j;
        store(at + 4 * mma_kept_word(chunk, lane, in_block / 8), mma_word_of(unit.data()));
      }
      for (int t = 0; t < 4; ++t) {
        const int lane = 4 * (in_block % 8) + t, i = in_block / 8;
        store(at + 4 * mma_positions_word(chunk, lane, i / 2) + i % 2 * 2,
              positions[static_cast<size_t>(t)]);
      }
    }
  }

  void write_codes(int64_t row_block, int in_block) const {
    std::byte* at = to_ + row_block * layout_.row_block_code_bytes();
    const auto slots = static_cast<int32_t>(layout_.slots);
    for (int32_t b = 0; b < block_count(slots); ++b) {
      const int32_t units = block_slots(slots, b) / kLanes;
      const int64_t count = layout_.words(block_slots(slots, b));
      for (int j = 0; j < 4; ++j) {
        uint32_t words[kMostWords];
        lane_words(block_begin(slots, b), units, j, words);
        const int lane = lane_at(in_block % 8, j);
        for (int64_t word = 0; word < count; ++word)
          store(at + ((word * kLanes + lane) * 4 + in_block / 8) * 4, words[word]);
      }
      at += count * kLanes * 16;
    }
  }

  /// Writes the scales and zeros of one row. Their place follows from the lane row r = in_block % 8
  /// and the tile i = in_block / 8.
  void write_records(int64_t row_block, int in_block, int64_t row, int shift) const {
    const auto size = static_cast<int64_t>(scale_bytes(layout_.scale_type)),
               zero_size = layout_.zero_bytes();
    const bool groups_of_16 = layout_.slot_group == 16;
    const auto place = [&](int64_t quad, bool pairs) {  // in elements
      const auto g = static_cast<int32_t>(quad);
      const int64_t in_row_block = layout_.two_level()
                                       ? two_level_quad_at(g, in_block % 8, shift_of_groups())
                                       : scale_quad_at(g, in_block % 8, pairs);
      const int64_t elements = layout_.row_block_record_bytes(size) / size;
      return row_block * elements + 4 * in_row_block + in_block / 8;
    };
    if (layout_.two_level()) write_factors(row_block, in_block, row);
    if (layout_.nested()) write_nested(row_block, in_block, row);
    for (int64_t quad = 0; quad < layout_.quads; ++quad) {
      const int32_t group = row == kPaddingRow ? -1 : plan_.groups[static_cast<size_t>(quad)];
      write_scale(row, group, shift,
                  to_ + layout_.scales_at + place(quad, groups_of_16 && size == 1) * size);
      if (layout_.joined() && group >= 0) {
        std::byte& both = to_[layout_.scales_at + static_cast<uint64_t>(place(quad, true))];
        both |= static_cast<std::byte>(
            stripe_.zeros[static_cast<size_t>(row * plan_.meta.groups + group)] << 4);
      }
      if (zero_size == 0 || layout_.joined()) continue;
      std::byte* const zero =
          to_ + layout_.zeros_at + place(quad, groups_of_16 && zero_size == 1) * zero_size;
      if (group < 0) {
        std::memset(zero, 0, static_cast<size_t>(zero_size));
      } else {
        std::memcpy(zero, stripe_.zeros.data() + (row * plan_.meta.groups + group) * zero_size,
                    static_cast<size_t>(zero_size));
      }
    }
  }

  int shift_of_groups() const { return static_cast<int>(layout_.group_shift_constant()); }

  /// Writes the factors of two-level scales and zeros of one row.
  void write_factors(int64_t row_block, int in_block, int64_t row) const {
    const auto write = [&](uint64_t part, const std::vector<uint8_t>& factors, bool alone) {
      std::byte* const to =
          to_ + part +
          row_block * (alone ? layout_.row_block_zero_bytes() : layout_.row_block_record_bytes(1));
      const int64_t held = plan_.meta.factors();
      for (int32_t s = 0; s < ceil_div(layout_.slots, kFactorSpan); ++s) {
        const int64_t quad = alone ? joined_factor_quad_at(s, in_block % 8)
                                   : factor_quad_at(s, in_block % 8, shift_of_groups());
        const bool padding = row == kPaddingRow || s >= held;
        store(to + 4 * quad + 2 * (in_block / 8),
              padding ? uint16_t{0}
                      : load<uint16_t>(factors.data() + (row * held + s) * int64_t{kFactorBytes}));
      }
    };
    write(layout_.scales_at, stripe_.scale_factors, false);
    if (layout_.zero_kind != ZeroKind::none)
      write(layout_.zeros_at, stripe_.zero_factors, layout_.joined());
  }

  /// Writes the offset and the factors of nested scales of one row; padding has zeros.
  void write_nested(int64_t row_block, int in_block, int64_t row) const {
    const auto place = [&](int64_t quad) {  // the offsets are quad -1
      return to_ + layout_.zeros_at +
             4 * (kNestedAt + row_block * layout_.nested_numbers() + kRowBlock * (quad + 1) +
                  4 * (in_block % 8) + in_block / 8);
    };
    const auto number = [&](const std::vector<uint8_t>& from, int64_t i) {
      return row == kPaddingRow ? 0u : load<uint32_t>(from.data() + 4 * i);
    };
    store(place(-1), number(stripe_.scale_offsets, row));
    for (int64_t quad = 0; quad < layout_.quads; quad += layout_.factor_quads) {
      const int32_t group = plan_.groups[static_cast<size_t>(quad)];
      store(place(quad / layout_.factor_quads),
            group < 0 ? 0u : number(stripe_.scale_factors, row * plan_.meta.groups + group));
    }
  }

  void write_scale(int64_t row, int32_t group, int shift, std::byte* at) const {
    const size_t size = scale_bytes(layout_.scale_type);
    if (group < 0) {
      std::memset(at, padding_scale_byte(layout_.scale_type), size);
      return;
    }
    const uint8_t* const scale =
        row_scales(row) + static_cast<size_t>(group) * scale_bytes(plan_.meta.scale_type);
    if (plan_.meta.scale_type == ScaleType::e4m3 && layout_.order == SlotOrder::mma) {
      *at = static_cast<std::byte>((*scale & 0x7F) == 0x7F ? kNanE5m3 : e5m3_of(*scale));
    } else if (plan_.meta.scale_type != ScaleType::e8m0) {
      std::memcpy(at, scale, size);
    } else if (layout_.scale_type == ScaleType::e8m0) {
      *at = *scale == kNanExponent ? std::byte{0} : static_cast<std::byte>(*scale + shift);
    } else {
      store(at, decode_scale(ScaleType::e8m0, scale));
    }
  }

  static constexpr int kMostWords = 32;  // of a lane and tile in a block: 32 floats

  const WeightSource& source_;
  const PackPlan& plan_;
  const RowBlockLayout& layout_;
  std::byte* const to_;
  std::atomic<bool>& too_wide_;
  Stripe stripe_;
  const int64_t code_bytes_;
  std::vector<uint8_t> codes_, kept_;  // of one row, by slot and by four slots
};

}  // namespace

Result<bool> pack_weights(const WeightSource& source, const PackPlan& plan, std::span<std::byte> to,
                          TaskRunner& runner) {
  const RowBlockLayout& layout = plan.layout;
  if (to.size() < layout.bytes)
    return Status::error(MARLIN_E_INTERNAL, "packing: expected %" PRIu64 " bytes, found %zu",
                         layout.bytes, to.size());
  std::atomic<bool> too_wide{false};
  MARLIN_RETURN_IF_ERROR(for_each_item(runner, layout.row_blocks(), [&] {
    return RowBlockPacker(source, plan, to.data(), too_wide);
  }));
  if (too_wide.load(std::memory_order_relaxed)) return false;
  if (layout.codes == KernelCodes::lut4) {
    const float* const fixed = format_row(plan.meta.format)->codebook;
    std::memcpy(to.data() + layout.zeros_at, fixed != nullptr ? fixed : plan.meta.codebook.data(),
                kCodebookBytes);
  }
  if (layout.nested()) {
    std::byte* const codebook = to.data() + layout.zeros_at;
    std::memcpy(codebook + 4 * kScaleMapAt, plan.meta.scale_map.data(),
                kScaleMapEntries * sizeof(float));
    std::memset(codebook + 4 * kFactorQuadsAt, 0, 4 * (kNestedAt - kFactorQuadsAt));
    store(codebook + 4 * kFactorQuadsAt, static_cast<int32_t>(layout.factor_quads));
  }
  if (layout.permuted)
    std::memcpy(to.data() + layout.slot_to_k_at, plan.slot_to_k.data(),
                plan.slot_to_k.size() * sizeof(int32_t));
  return true;
}

}  // namespace metal_marlin::gpu
