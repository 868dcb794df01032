// Random canonical weights in memory, for tests of packing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/bits.h"
#include "formats/format_table.h"
#include "formats/weights.h"

namespace metal_marlin {

class MemorySource final : public WeightSource {
 public:
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const auto rows = [&](const std::vector<uint8_t>& all, std::vector<uint8_t>& part) {
      const size_t width = all.size() / static_cast<size_t>(meta_.n);
      part.assign(all.begin() + static_cast<ptrdiff_t>(first * width),
                  all.begin() + static_cast<ptrdiff_t>((first + count) * width));
    };
    rows(all_.codes, out.codes);
    rows(all_.scales, out.scales);
    rows(all_.zeros, out.zeros);
    rows(all_.kept, out.kept);
    rows(all_.scale_factors, out.scale_factors);
    rows(all_.zero_factors, out.zero_factors);
    rows(all_.scale_offsets, out.scale_offsets);
    return {};
  }
  WeightMeta& mutable_meta() { return meta_; }
  Stripe& all() { return all_; }
  const Stripe& all() const { return all_; }

 private:
  Stripe all_;
};

/// Code i of the matrix.
inline uint32_t code_of(const MemorySource& source, int64_t i) {
  const uint8_t* const codes = source.all().codes.data();
  switch (format_row(source.meta().format)->code_bytes()) {
    case 1:
      return codes[i];
    case 2:
      return load<uint16_t>(codes + 2 * i);
    default:
      return load<uint32_t>(codes + 4 * i);
  }
}

/// The meta of INT4 [2, 64] in groups of 32.
inline WeightMeta int4_of_two_rows(ScaleType scales) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 2;
  meta.k = 64;
  meta.group_size = 32;
  meta.groups = 2;
  meta.scale_type = scales;
  return meta;
}

/// The masks of a block of 4 with two kept elements.
inline constexpr uint8_t kKeptPatterns[] = {3, 5, 6, 9, 10, 12};

/// Fills the factors and offsets of nested scales: any bytes, or normal numbers around 1. A run of groups has one factor.
template <class Engine>
void fill_nested(MemorySource& source, Engine& random, bool tame) {
  const WeightMeta& meta = source.meta();
  const int64_t run = meta.group_index.empty() ? meta.factor_groups : 1;
  const auto random_float = [&] {
    const auto bits = static_cast<uint32_t>(random());
    return tame ? (bits & 0x81ffffffu) | 0x3e000000u : bits;
  };
  Stripe& all = source.all();
  all.scale_offsets.resize(static_cast<size_t>(meta.n) * 4);
  all.scale_factors.resize(static_cast<size_t>(meta.n * meta.groups) * 4);
  for (size_t i = 0; i < all.scale_offsets.size(); i += 4) store(all.scale_offsets.data() + i, random_float());
  uint32_t factor = 0;
  for (int64_t i = 0; i < meta.n * meta.groups; ++i) {
    if (i % meta.groups % run == 0) factor = random_float();
    store(all.scale_factors.data() + 4 * i, factor);
  }
}

/// Fills codes, scales, zeros and, for 2:4 sparse weights, masks at random; the meta is set. Scales are any bytes, NaN and
/// infinity too, unless `tame`: then they are normal numbers around 1.
template <class Engine>
void fill_randomly(MemorySource& source, Engine& random, bool tame) {
  const WeightMeta& meta = source.meta();
  const auto elements = static_cast<size_t>(meta.n * meta.k), groups = static_cast<size_t>(meta.n * meta.groups);
  Stripe& all = source.all();
  const auto fill = [&](std::vector<uint8_t>& bytes, size_t count, uint32_t below) {
    bytes.resize(count);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % below);
  };
  const auto fill_scales = [&](std::vector<uint8_t>& bytes, ScaleType type) {
    fill(bytes, groups * scale_bytes(type), 256);
    for (uint8_t& b : bytes) {  // what the integers of a two-level type can be
      if (type == ScaleType::u4) b &= 15;
      if (type == ScaleType::u6) b &= 63;
      if (type == ScaleType::s6) b = static_cast<uint8_t>(b % 64 - 32);
    }
    if (!tame || is_two_level(type) || type == ScaleType::nested) return;
    for (size_t i = 0; i < groups; ++i) {
      uint8_t* const high = &bytes[(i + 1) * scale_bytes(type) - 1];  // sign and exponent, or the whole of a byte
      if (type == ScaleType::e8m0)
        *high = static_cast<uint8_t>(120 + *high % 12);
      else if (type == ScaleType::e4m3)
        *high = static_cast<uint8_t>(0x30 + *high % 0x20);
      else if (type == ScaleType::f16)
        *high = static_cast<uint8_t>(0x34 + *high % 8);
      else
        *high = static_cast<uint8_t>(0x3e + *high % 2);
    }
  };
  const FormatRow& row = *format_row(meta.format);
  const uint32_t codes = row.code_bits >= 8 ? 256 : 1u << row.code_bits;
  fill(all.codes, elements * row.code_bytes(), codes);
  for (size_t i = row.code_bytes() - 1; tame && row.numbers == CodeNumbers::floats && i < all.codes.size();
       i += row.code_bytes())
    if (uint8_t& high = all.codes[i]; (high & 0x7c) == 0x7c) high ^= 0x40;  // no NaN and no infinity
  fill_scales(all.scales, meta.scale_type);
  all.zeros.clear();
  if (meta.zero_kind == ZeroKind::integer) fill(all.zeros, groups, std::min(codes + 1, 256u));
  if (meta.zero_kind == ZeroKind::additive) fill_scales(all.zeros, meta.zero_type);
  const auto fill_factors = [&](std::vector<uint8_t>& bytes, bool present) {
    fill(bytes, present ? static_cast<size_t>(meta.n * meta.factors()) * 2 : 0, 256);
    for (size_t i = 1; tame && i < bytes.size(); i += 2) bytes[i] = static_cast<uint8_t>(0x1c + bytes[i] % 8);
  };
  fill_factors(all.scale_factors, meta.has_two_level_scales());
  fill_factors(all.zero_factors, meta.has_two_level_zeros());
  if (meta.has_nested_scales()) fill_nested(source, random, tame);
  all.kept.resize(meta.sparse ? elements / 4 : 0);
  for (uint8_t& kept : all.kept) kept = kKeptPatterns[random() % 6];
}

/// The map of nested scales, from about -1 to 1.
inline void set_scale_map(WeightMeta& meta) {
  for (int i = 0; i < 256; ++i) meta.scale_map.push_back(static_cast<float>(i - 128) / 127.0f);
}

enum class Order : uint8_t { plain, shuffled, unequal, shard, offset, regular_index };

/// Gives the meta its groups, and an index of the wanted kind: k / group_size spelled out or shuffled (act-order), any number
/// of k in each group, a few k of each of many groups (a shard of an act-order file) or in order from a later group on (a
/// shard of a plain file).
template <class Engine>
void set_groups(WeightMeta& meta, Order order, Engine& random) {
  meta.groups = (meta.k + meta.group_size - 1) / meta.group_size;
  meta.group_index.clear();
  if (meta.has_nested_scales()) meta.factor_groups = static_cast<int64_t>(1 + random() % 5);
  if (order == Order::plain) return;
  for (int64_t k = 0; k < meta.k; ++k) meta.group_index.push_back(static_cast<int32_t>(k / meta.group_size));
  if (order == Order::shuffled) std::shuffle(meta.group_index.begin(), meta.group_index.end(), random);
  if (order == Order::unequal || order == Order::shard) {
    if (order == Order::shard) meta.groups *= 3;
    for (int32_t& g : meta.group_index) g = static_cast<int32_t>(random() % static_cast<uint32_t>(meta.groups));
  }
  if (order == Order::offset) {
    for (int32_t& g : meta.group_index) g += 2;
    meta.groups += 2;
  }
}

/// Every combination of a format's scale types, kinds of zeros (with each of their types) and, with 4-bit codes, dense and 2:4
/// sparse, one call each.
template <class Use>
void for_each_kind(const FormatRow& row, const Use& use) {
  constexpr ScaleType kAll[] = {ScaleType::f32, ScaleType::f16, ScaleType::bf16, ScaleType::e8m0, ScaleType::e4m3,
                                ScaleType::u4,  ScaleType::u6,  ScaleType::s6,   ScaleType::s8,   ScaleType::nested};
  for (const ScaleType scale : kAll) {
    if (!row.allows(scale)) continue;
    for (const ZeroKind zero : {ZeroKind::none, ZeroKind::integer, ZeroKind::additive}) {
      if (!row.allows(zero)) continue;
      for (const ScaleType zero_type : {ScaleType::f32, ScaleType::f16, ScaleType::bf16, ScaleType::u4, ScaleType::u6}) {
        if (zero == ZeroKind::additive && is_two_level(zero_type) && (!is_two_level(scale) || !row.allows(zero_type))) continue;
        WeightMeta meta;
        meta.format = row.format;
        meta.scale_type = scale;
        meta.zero_kind = zero;
        meta.zero_type = zero_type;
        if (row.format == MARLIN_FORMAT_CODEBOOK4)
          for (int i = 0; i < 16; ++i) meta.codebook.push_back(static_cast<float>(i * i) / 7.0f - 9.25f);
        if (meta.has_nested_scales()) set_scale_map(meta);
        use(meta);
        meta.sparse = true;
        if (row.has_sparse_form() && !is_two_level(scale)) use(meta);
        if (zero != ZeroKind::additive) break;
      }
    }
  }
}

}  // namespace metal_marlin
