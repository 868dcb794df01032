#include "k_blocks.h"

#include <algorithm>
#include <array>

#include "oracle.h"

namespace trial {
namespace {

/// One super-block of one row.
struct KBlock {
  std::array<uint8_t, kSuperBlock> codes{};
  std::array<int, 16> scales{}, minima{};  ///< Q3_K and Q6_K: signed scales
  double factor = 0, minima_factor = 0;    ///< float16

  std::vector<uint8_t> bytes(marlin_format format) const;
};

constexpr int kHalf = 128;  // elements; Q2_K, Q3_K and Q6_K repeat their pattern of bits from there

/// Codes of Q2_K and Q3_K: element l + 32 j of a half is at bits 2 j of byte l.
void write_pairs_of_bits(const KBlock& block, uint8_t* to) {
  for (int e = 0; e < kSuperBlock; ++e)
    to[e / kHalf * 32 + e % 32] |= static_cast<uint8_t>((block.codes[static_cast<size_t>(e)] & 3) << e % kHalf / 32 * 2);
}

/// Scales and minima of Q4_K and Q5_K, six bits each.
void write_six_bits(const KBlock& block, uint8_t* to) {
  for (size_t i = 0; i < 4; ++i) {
    to[i] = static_cast<uint8_t>(block.scales[i] | block.scales[i + 4] >> 4 << 6);
    to[i + 4] = static_cast<uint8_t>(block.minima[i] | block.minima[i + 4] >> 4 << 6);
    to[i + 8] = static_cast<uint8_t>((block.scales[i + 4] & 15) | (block.minima[i + 4] & 15) << 4);
  }
}

/// Codes of Q4_K, and the low four bits of Q5_K: of each 64 elements the first 32 are low nibbles.
void write_nibbles(const KBlock& block, uint8_t* to) {
  for (int e = 0; e < kSuperBlock; ++e)
    to[e / 64 * 32 + e % 32] |= static_cast<uint8_t>((block.codes[static_cast<size_t>(e)] & 15) << e % 64 / 32 * 4);
}

void write_q3_scales(const KBlock& block, uint8_t* to) {
  for (int i = 0; i < 16; ++i) {
    const int s = block.scales[static_cast<size_t>(i)] + 32;
    to[i % 8] |= static_cast<uint8_t>((s & 15) << i / 8 * 4);
    to[8 + i % 4] |= static_cast<uint8_t>(s >> 4 << i / 4 * 2);
  }
}

void write_q6_codes(const KBlock& block, uint8_t* low, uint8_t* high) {
  for (int e = 0; e < kSuperBlock; ++e) {
    const int code = block.codes[static_cast<size_t>(e)], half = e / kHalf, quarter = e % kHalf / 32, l = e % 32;
    low[half * 64 + quarter % 2 * 32 + l] |= static_cast<uint8_t>((code & 15) << quarter / 2 * 4);
    high[half * 32 + l] |= static_cast<uint8_t>(code >> 4 << quarter * 2);
  }
}

std::vector<uint8_t> KBlock::bytes(marlin_format format) const {
  std::vector<uint8_t> all(static_cast<size_t>(k_block_bytes(format)));
  uint8_t* to = all.data();
  switch (format) {
    case MARLIN_FORMAT_INT2:
      for (size_t i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(scales[i] | minima[i] << 4);
      write_pairs_of_bits(*this, to + 16);
      oracle::write(MARLIN_F16, to + 80, 0, factor);
      oracle::write(MARLIN_F16, to + 80, 1, minima_factor);
      return all;
    case MARLIN_FORMAT_INT3:
      for (int e = 0; e < kSuperBlock; ++e) to[e % 32] |= static_cast<uint8_t>(codes[static_cast<size_t>(e)] >> 2 << e / 32);
      write_pairs_of_bits(*this, to + 32);
      write_q3_scales(*this, to + 96);
      oracle::write(MARLIN_F16, to + 108, 0, factor);
      return all;
    case MARLIN_FORMAT_INT6:
      write_q6_codes(*this, to, to + 128);
      for (size_t i = 0; i < 16; ++i) to[192 + i] = static_cast<uint8_t>(scales[i]);
      oracle::write(MARLIN_F16, to + 208, 0, factor);
      return all;
    default:
      break;
  }
  oracle::write(MARLIN_F16, to, 0, factor);
  oracle::write(MARLIN_F16, to, 1, minima_factor);
  write_six_bits(*this, to + 4);
  to += 16;
  if (format == MARLIN_FORMAT_INT5) {
    for (int e = 0; e < kSuperBlock; ++e) to[e % 32] |= static_cast<uint8_t>(codes[static_cast<size_t>(e)] >> 4 << e / 32);
    to += 32;
  }
  write_nibbles(*this, to);
  return all;
}

}  // namespace

int64_t k_block_bytes(marlin_format format) {
  switch (format) {
    case MARLIN_FORMAT_INT2:
      return 84;
    case MARLIN_FORMAT_INT3:
      return 110;
    case MARLIN_FORMAT_INT4:
      return 144;
    case MARLIN_FORMAT_INT5:
      return 176;
    default:
      return 210;
  }
}

problem::Kind k_quant_of(marlin_format format) {
  using problem::ScaleType;
  constexpr ScaleType kScales[] = {ScaleType::u4, ScaleType::s6, ScaleType::u6, ScaleType::u6, ScaleType::s8};
  problem::Kind kind{.name = "K-quant", .format = format};
  kind.scale_type = kScales[oracle::code_bits(format) - 2];
  kind.group = kind.scale_type == ScaleType::u6 ? 32 : 16;
  if (kind.scale_type == ScaleType::s6 || kind.scale_type == ScaleType::s8) return kind;
  kind.zeros = problem::ZeroKind::additive;
  kind.zero_type = kind.scale_type;
  return kind;
}

std::vector<uint8_t> k_block(const metal_marlin::MemorySource& source, int64_t row, int64_t block) {
  const metal_marlin::WeightMeta& meta = source.meta();
  const metal_marlin::Stripe& all = source.all();
  KBlock b;
  std::copy_n(all.codes.begin() + row * meta.k + block * kSuperBlock, kSuperBlock, b.codes.begin());
  const int64_t groups = kSuperBlock / meta.group_size, first = row * meta.groups + block * groups;
  for (int64_t g = 0; g < groups; ++g) {
    const auto i = static_cast<size_t>(g), from = static_cast<size_t>(first + g);
    b.scales[i] = meta.has_two_level_zeros() ? all.scales[from] : static_cast<int8_t>(all.scales[from]);
    if (meta.has_two_level_zeros()) b.minima[i] = all.zeros[from];
  }
  const int64_t factor = row * meta.factors() + block;
  b.factor = oracle::read(MARLIN_F16, all.scale_factors.data(), factor);
  if (meta.has_two_level_zeros()) b.minima_factor = oracle::read(MARLIN_F16, all.zero_factors.data(), factor);
  return b.bytes(meta.format);
}

}  // namespace trial
