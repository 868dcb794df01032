#include "timing_operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace timing {
namespace {

namespace mm = metal_marlin;

constexpr size_t kRotatingBytes = size_t{720} << 20;  // many times the last cache of any GPU so far
constexpr size_t kLeastCopies = 4;
constexpr size_t kPlaces = size_t{1} << 20;  // where the codes of a copy may begin

int64_t groups_of(const Shape& shape, const Format& format) { return (shape.k + format.group - 1) / format.group; }

/// [n][groups], of about the size that makes products of random codes and activations about 1 to 30.
std::vector<uint8_t> random_scales(const Shape& shape, const Format& format, size_t copy) {
  std::mt19937 random(static_cast<uint32_t>(copy));
  std::vector<uint8_t> scales(static_cast<size_t>(shape.n * groups_of(shape, format) * oracle::bytes_of(format.scales)));
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto bits = static_cast<uint32_t>(random());
    uint32_t byte = 0;
    if (format.scales == MARLIN_E8M0) byte = 118 + bits % 4;                            // 2^-9 to 2^-6
    if (format.scales == MARLIN_E4M3) byte = 8 + bits % 40;                             // 2^-6 to 0.47
    if (format.scales == MARLIN_F16) byte = i % 2 == 0 ? bits & 255 : 0x18 + bits % 4;  // 2^-9 to 2^-8
    if (format.scales == MARLIN_BF16) byte = i % 2 == 0 ? bits & 127 : 0x3B;            // 2^-9 to 2^-8
    if (format.scales == MARLIN_F32) byte = i % 4 == 3 ? 0x3B : bits & 127;             // 2^-9 to 2^-8
    scales[i] = static_cast<uint8_t>(byte);
  }
  return scales;
}

template <class Word>
std::vector<Word> random_words(size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Word> words(count);
  constexpr size_t kInDraw = sizeof(uint64_t) / sizeof(Word);
  for (size_t i = 0; i < count; i += kInDraw) {
    const uint64_t bits = random();
    std::memcpy(&words[i], &bits, std::min(kInDraw, count - i) * sizeof(Word));
  }
  return words;
}

/// Two of every four codes: those of the largest magnitudes.
std::vector<bool> kept_of(const oracle::Weights& weights) {
  std::vector<double> magnitudes;
  for (int64_t row = 0; row < weights.n; ++row)
    for (int64_t k = 0; k < weights.k; ++k) magnitudes.push_back(std::fabs(oracle::value(weights, row, k)));
  return oracle::keep_two_of_four(magnitudes);
}

}  // namespace

int64_t bits_of(const Format& format) { return format.format == MARLIN_BFLOAT16 ? 16 : oracle::code_bits(format.format); }

size_t packed_bytes(const Shape& shape, const Format& format) {
  // Of a slot; of 2:4 weights half a code, and a position.
  const int64_t bits = format.sparse ? 3 : bits_of(format);
  const int64_t numbers = format.zeros ? 2 : 1;  // of a group
  return static_cast<size_t>(shape.n * shape.k * bits / 8 +
                             shape.n * groups_of(shape, format) * numbers * oracle::bytes_of(format.scales));
}
size_t dense_bytes(const Shape& shape) { return static_cast<size_t>(shape.n * shape.k) * kElementBytes; }
size_t copies_of(size_t bytes) { return std::max(kLeastCopies, kRotatingBytes / bytes + 1); }

int64_t columns_of(int64_t n, marlin_epilogue epilogue) { return epilogue >= MARLIN_EPILOGUE_SWIGLU ? n / 2 : n; }

/// Draws from a table, because to round each number by itself takes far longer.
std::vector<uint16_t> random_numbers(size_t count, marlin_dtype dtype, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<uint16_t> table(size_t{1} << 16);
  for (size_t i = 0; i < table.size(); ++i) oracle::write(dtype, table.data(), static_cast<int64_t>(i), uniform(random));
  std::vector<uint16_t> numbers = random_words<uint16_t>(count, seed);
  for (uint16_t& number : numbers) number = table[number];
  return numbers;
}

RandomWeights::RandomWeights(std::span<const Shape* const> shapes) {
  size_t most = 0;
  for (const Shape* shape : shapes) most = std::max(most, static_cast<size_t>(shape->n * shape->k));
  codes_ = random_words<uint8_t>(most + kPlaces, 1);
  for (const uint8_t code : codes_) fp8_.push_back((code & 0x7F) == 0x7F ? code ^ 1 : code);
}

const uint8_t* RandomWeights::codes_of(const Format& format, size_t copy) const {
  const size_t place = copy * 8191 % kPlaces;
  if (format.format == MARLIN_BFLOAT16) {
    if (bf16_.empty()) bf16_ = random_numbers(codes_.size(), MARLIN_BF16, 2);
    return reinterpret_cast<const uint8_t*>(bf16_.data() + place);
  }
  return (format.format == MARLIN_FP8 ? fp8_ : codes_).data() + place;
}

mm::weights RandomWeights::pack(const mm::context& context, const Shape& shape, const Format& format, size_t copy) const {
  return pack_experts(context, shape, format, copy, 1);
}

mm::weights RandomWeights::pack_experts(const mm::context& context, const Shape& shape, const Format& format, size_t first,
                                        int64_t count) const {
  std::vector<std::vector<uint8_t>> scales;
  std::vector<marlin_pack_desc> parts;
  for (size_t copy = first; copy < first + static_cast<size_t>(count); ++copy) {
    scales.push_back(random_scales(shape, format, copy));
    auto& desc = parts.emplace_back(mm::make<marlin_pack_desc>());
    desc.format = format.format;
    desc.group_size = static_cast<uint32_t>(format.group);
    desc.n = shape.n;
    desc.k = shape.k;
    desc.values = mm::matrix_view(codes_of(format, copy), shape.n, shape.k * bits_of(format) / 8);
    if (format.format == MARLIN_INT8) desc.values.dtype = MARLIN_I8;
    if (format.format == MARLIN_BFLOAT16) {
      desc.values.cols = shape.k;
      desc.values.dtype = MARLIN_BF16;
      desc.group_size = 0;
      continue;
    }
    desc.scales.data = scales.back().data();
    desc.scales.rows = shape.n;
    desc.scales.cols = groups_of(shape, format);
    desc.scales.dtype = format.scales;
    if (format.zeros) {
      desc.zeros = desc.scales;
      desc.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
    }
    if (format.sparse) desc.flags |= MARLIN_PACK_PRUNE_2_4;
  }
  return mm::pack(context, parts, static_cast<uint32_t>(count));
}

oracle::Weights RandomWeights::sample(const Shape& shape, const Format& format, size_t copy,
                                      std::span<const int64_t> rows) const {
  const std::vector<uint8_t> scales = random_scales(shape, format, copy);
  const uint8_t* const codes = codes_of(format, copy);
  oracle::Weights weights;
  weights.format = format.format;
  weights.n = static_cast<int64_t>(rows.size());
  weights.k = shape.k;
  weights.group_size = format.group;
  weights.groups = groups_of(shape, format);
  for (const int64_t row : rows) {
    for (int64_t k = 0; k < shape.k; ++k) {
      const int64_t at = row * shape.k + k;
      const uint8_t pair = codes[at / 2];
      if (format.format == MARLIN_BFLOAT16) weights.numbers.push_back(oracle::read(MARLIN_BF16, codes, at));
      if (bits_of(format) == 8)
        weights.codes.push_back(codes[at]);
      else
        weights.codes.push_back(k % 2 == 0 ? pair & 15 : pair >> 4);
    }
    for (int64_t group = 0; group < weights.groups; ++group)
      if (format.format == MARLIN_BFLOAT16)
        weights.scale.push_back(1);
      else
        weights.scale.push_back(oracle::read(format.scales, scales.data(), row * weights.groups + group));
  }
  if (format.zeros) weights.zero = weights.scale;
  weights.additive = format.zeros;
  if (format.sparse) weights.kept = kept_of(weights);
  return weights;
}

}  // namespace timing
