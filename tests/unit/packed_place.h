// One place of packed weights, read by the definition in layout.h. It shares no code with the packer and the kernels.
#pragma once

#include "backends/cpu/layout.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"
#include "test.h"

namespace metal_marlin::cpu {

/// The bits of a code in one plane of 1, 2, 4 or 8 bits.
inline int plane_at(const uint8_t* plane, int64_t bits, int64_t i, int64_t c) {
  return plane[i / (32 / bits) * 64 + 4 * c + i % 4] >> i % (32 / bits) / 4 * bits & ((1 << bits) - 1);
}

/// The rows of 64 bytes of the integers, low and high bits, and the factors.
inline int64_t two_level_bytes(const PanelLayout& l, ScaleType type) {
  const int64_t groups = l.groups_per_super(), nibbles = (groups + 1) / 2;
  if (type == ScaleType::s8) return 64 * groups + 128;
  return 64 * (type == ScaleType::u4 ? nibbles : nibbles + (groups + 3) / 4) + 128;
}

/// Group g of two-level scales: the integer times the factor.
inline double two_level_at(const PanelLayout& l, ScaleType type, const uint8_t* p, int64_t g, int64_t column) {
  const int64_t groups = l.groups_per_super();
  const bool bytes = type == ScaleType::s8, six = type == ScaleType::u6 || type == ScaleType::s6;
  const int64_t low_rows = bytes ? groups : (groups + 1) / 2, high_rows = six ? (groups + 3) / 4 : 0;
  int q = bytes ? static_cast<int8_t>(p[64 * g + column]) : p[64 * (g / 2) + column] >> g % 2 * 4 & 15;
  if (six) q += 16 * (p[64 * (low_rows + g / 4) + column] >> g % 4 * 2 & 3);
  if (type == ScaleType::s6 && q > 31) q -= 64;
  const uint8_t* factor = p + 64 * (low_rows + high_rows) + 2 * column;
  return q * static_cast<double>(f16_to_f32(load<uint16_t>(factor)));
}

/// A nested scale of `byte`: the offsets of 64 columns and then the factors follow the superblocks of a panel. The sum is
/// exact if its parts have about the same size, because a long double has 64 bits.
inline long double nested_at(const CpuWeights& w, uint8_t byte, int64_t slot, int64_t column) {
  const PanelLayout& l = w.layout;
  const std::byte* const after = w.data.data() + column / 64 * l.panel_bytes() + l.slots / 128 * l.super_bytes();
  const auto float_at = [&](int64_t i) { return static_cast<long double>(load<float>(after + 4 * i)); };
  const long double factor = float_at(64 * (1 + slot / l.factor_slots) + column % 64);
  return static_cast<long double>(l.scale_map[byte]) * factor + float_at(column % 64);
}

/// A scale of one level, or a nested one, whose bytes are at `own`.
inline float scale_at(const CpuWeights& w, const uint8_t* own, int64_t slot, int64_t column) {
  if (w.layout.has_nested_scales()) return static_cast<float>(nested_at(w, *own, slot, column));
  return decode_scale(w.layout.scale_type, own);
}

/// The bits of a float of 2 or 4 bytes: slots 0 and 2, 4 and 6, 1 and 3, 5 and 7 of 8 are pairs, or slots 0, 4, 1, 5, 2, 6,
/// 3 and 7 follow each other.
inline uint32_t float_bits_at(const uint8_t* group, int bits, int64_t slot, int64_t c) {
  constexpr int kPairs[] = {0, 2, 0, 2, 1, 3, 1, 3}, kSingle[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const int64_t octet = slot / 8, s = slot % 8;
  if (bits == 32) return load<uint32_t>(group + (8 * octet + kSingle[s]) * 64 + 4 * c);
  return load<uint16_t>(group + (4 * octet + kPairs[s]) * 64 + 4 * c + s % 4 / 2 * 2);
}

/// One place of the packed layout, read as the comment of layout.h says and not as the packer writes.
struct PackedWeight {
  bool kept;
  uint32_t code;  // where kept
  GroupScale group;
};

/// A kept code and its position stand where layout.h says.
inline void read_sparse_place(const uint8_t* codes, int64_t block, int64_t v, int64_t c, int64_t s, PackedWeight& place) {
  const uint8_t* const group = codes + (block * 4 + v) * 192;
  const int64_t quad = s / 4, unit = quad / 4, in_unit = quad % 4;
  const uint32_t positions = load<uint32_t>(group + 128 + 4 * c);
  const int64_t first = positions >> 2 * quad & 3, second = positions >> (16 + 2 * quad) & 3;
  EXPECT_LT(first, second);
  place.kept = s % 4 == first || s % 4 == second;
  const uint8_t byte = group[64 * unit + 4 * c + (s % 4 == second ? 2 : 0) + in_unit % 2];
  place.code = !place.kept ? 0 : in_unit < 2 ? byte & 15 : byte >> 4;
}
/// Zeros that are not two-level.
inline void read_zero(const PanelLayout& l, const uint8_t* zeros, int64_t group, int64_t column, GroupScale& to) {
  const int64_t at = group * 64 + column % 64;
  if (l.zero_kind == ZeroKind::integer) to.zero = zeros[at];
  if (l.zero_kind == ZeroKind::additive)
    to.zero = decode_scale(l.zero_type, zeros + at * static_cast<int64_t>(scale_bytes(l.zero_type)));
}

inline PackedWeight read_place(const CpuWeights& weights, int64_t column, int64_t slot) {
  const PanelLayout& l = weights.layout;
  const auto* super =
      reinterpret_cast<const uint8_t*>(weights.data.data()) + column / 64 * l.panel_bytes() + slot / 128 * l.super_bytes();
  const int64_t v = column % 64 / 16, c = column % 16, block = slot % 128 / 32, s = slot % 32;
  PackedWeight place{true, 0, {}};
  if (l.sparse) {
    read_sparse_place(super, block, v, c, s, place);
  } else if (l.expansion == Expansion::integers) {
    const int64_t low = l.code_bits < 4 ? 2 : 4, high = l.code_bits - low;
    const uint8_t* group = super + (4 * block + v) * 64 * l.code_bits;
    place.code = static_cast<uint8_t>(plane_at(group, low, s, c));
    if (high != 0) place.code = static_cast<uint8_t>(place.code | plane_at(group + 64 * low, high, s, c) << low);
  } else if (l.code_bits == 4) {
    place.code = static_cast<uint32_t>(plane_at(super + block * 1024 + v * 256, 4, s, c));
  } else if (l.code_bits == 8) {
    place.code = super[block * 2048 + v * 512 + s / 4 * 64 + 4 * c + s % 4] ^ (l.less_128 ? 0x80u : 0u);
  } else {
    place.code = float_bits_at(super + (block * 4 + v) * 64 * l.code_bits, l.code_bits, s, c);
  }
  const int64_t group = slot % 128 / l.slot_group, groups = 128 / l.slot_group,
                codes = 64 * 128 * l.code_bits / 8 * (l.sparse ? 3 : 4) / 4;
  if (is_two_level(l.scale_type)) {
    place.group.scale = static_cast<float>(two_level_at(l, l.scale_type, super + codes, group, column % 64));
    const uint8_t* const zeros = super + codes + two_level_bytes(l, l.scale_type);
    place.group.zero = static_cast<float>(format_row(weights.meta().format)->zero_point());
    if (l.has_two_level_zeros())
      place.group.zero = static_cast<float>(two_level_at(l, l.zero_type, zeros, group, column % 64));
    else
      read_zero(l, zeros, group, column, place.group);
    return place;
  }
  const auto scale = static_cast<int64_t>(scale_bytes(l.scale_type));
  place.group.scale = scale_at(weights, super + codes + (group * 64 + column % 64) * scale, slot, column);
  const uint8_t* const zeros = super + codes + groups * 64 * scale;
  place.group.zero = static_cast<float>(format_row(weights.meta().format)->zero_point());
  read_zero(l, zeros, group, column, place.group);
  return place;
}

}  // namespace metal_marlin::cpu
