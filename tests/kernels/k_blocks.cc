#include "k_blocks.h"

#include <algorithm>

#include "oracle.h"

namespace trial {
namespace {

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

}  // namespace

int64_t k_block_bytes(marlin_format format) {
  switch (format) {
    case MARLIN_INT2:
      return 84;
    case MARLIN_INT3:
      return 110;
    case MARLIN_INT4:
      return 144;
    case MARLIN_INT5:
      return 176;
    default:
      return 210;
  }
}
int64_t k_group(marlin_format format) { return format == MARLIN_INT4 || format == MARLIN_INT5 ? 32 : 16; }
bool has_minima(marlin_format format) { return format != MARLIN_INT3 && format != MARLIN_INT6; }

std::vector<uint8_t> KBlock::bytes(marlin_format format) const {
  std::vector<uint8_t> all(static_cast<size_t>(k_block_bytes(format)));
  uint8_t* to = all.data();
  switch (format) {
    case MARLIN_INT2:
      for (size_t i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(scales[i] | minima[i] << 4);
      write_pairs_of_bits(*this, to + 16);
      oracle::write(MARLIN_F16, to + 80, 0, factor);
      oracle::write(MARLIN_F16, to + 80, 1, minima_factor);
      return all;
    case MARLIN_INT3:
      for (int e = 0; e < kSuperBlock; ++e) to[e % 32] |= static_cast<uint8_t>(codes[static_cast<size_t>(e)] >> 2 << e / 32);
      write_pairs_of_bits(*this, to + 32);
      write_q3_scales(*this, to + 96);
      oracle::write(MARLIN_F16, to + 108, 0, factor);
      return all;
    case MARLIN_INT6:
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
  if (format == MARLIN_INT5) {
    for (int e = 0; e < kSuperBlock; ++e) to[e % 32] |= static_cast<uint8_t>(codes[static_cast<size_t>(e)] >> 4 << e / 32);
    to += 32;
  }
  write_nibbles(*this, to);
  return all;
}

KBlock random_k_block(marlin_format format, double scale, std::mt19937& random) {
  const int bits = oracle::code_bits(format);
  const int largest = format == MARLIN_INT2 ? 15 : format == MARLIN_INT6 ? 127 : has_minima(format) ? 63 : 31;
  KBlock block;
  for (uint8_t& code : block.codes) code = static_cast<uint8_t>(random() % (1u << bits));
  for (size_t g = 0; g < 16; ++g) {
    block.scales[g] = static_cast<int>(random() % static_cast<uint32_t>(largest)) + 1;
    if (!has_minima(format) && random() % 4 == 0) block.scales[g] = ~block.scales[g];  // the lowest, too
    if (has_minima(format)) block.minima[g] = static_cast<int>(random() % static_cast<uint32_t>(largest + 1));
  }
  const auto factor = [&](double size) {  // times 0.5 to 2
    uint8_t half[2];
    oracle::write(MARLIN_F16, half, 0, size / largest * (0.5 + static_cast<double>(random() % 1024) / 682));
    return oracle::read(MARLIN_F16, half, 0);
  };
  block.factor = factor(2 * scale);
  if (has_minima(format)) block.minima_factor = factor(scale * (1 << bits));
  return block;
}

}  // namespace trial
