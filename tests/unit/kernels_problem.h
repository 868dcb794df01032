// Random packed weights and a plain scalar product to hold kernels against. Reads the packed layout by its definition in
// layout.h and shares no code with the kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "core/shapes.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "kernels/guarded.h"

namespace metal_marlin::cpu {

/// What makes a weight matrix, as far as kernels care.
struct WeightKind {
  marlin_format format = MARLIN_INT4;
  ScaleType scale = ScaleType::f16;
  ZeroKind zero = ZeroKind::none;
  int group = 32;
  bool tensor_scale = false;
  bool act_order = false;
  bool sparse = false;  ///< 2:4; K is rounded up to whole blocks
};

inline constexpr WeightKind kInt4{MARLIN_INT4, ScaleType::f16, ZeroKind::none, 32};
inline constexpr WeightKind kMxfp4{MARLIN_MXFP4, ScaleType::e8m0, ZeroKind::none, 32};
inline constexpr WeightKind kNvfp4{MARLIN_NVFP4, ScaleType::e4m3, ZeroKind::none, 16, true};

inline WeightKind sparsely(WeightKind kind) {
  kind.sparse = true;
  return kind;
}

inline std::string to_string(const WeightKind& w) {
  return "format " + std::to_string(w.format) + " scale " + std::to_string(static_cast<int>(w.scale)) + " zero " +
         std::to_string(static_cast<int>(w.zero)) + " group " + std::to_string(w.group) +
         (w.tensor_scale ? " tensor scale" : "") + (w.act_order ? " act-order" : "") + (w.sparse ? " sparse" : "");
}

/// A scale of ordinary size in its stored form.
inline void random_scale(ScaleType type, std::mt19937& rng, uint8_t* p) {
  const float value = std::ldexp(static_cast<float>(rng() % 1024 + 1), -12) * (rng() % 4 == 0 ? -1.0f : 1.0f);
  switch (type) {
    case ScaleType::f32:
      store(p, value);
      break;
    case ScaleType::f16:
      store(p, f32_to_f16(value));
      break;
    case ScaleType::bf16:
      store(p, f32_to_bf16(value));
      break;
    case ScaleType::e8m0:
      *p = static_cast<uint8_t>(110 + rng() % 20);
      break;
    case ScaleType::e4m3:
      *p = static_cast<uint8_t>(rng() % 0x7e);
      break;
    case ScaleType::nested:
      *p = static_cast<uint8_t>(rng());
      break;
    default:  // two-level: random_two_level
      break;
  }
}

/// The planes of a superblock's two-level scales hold any bits, and its factors ordinary numbers.
inline void random_two_level(const PanelLayout& l, ScaleType type, std::mt19937& rng, uint8_t* p) {
  for (int64_t i = 0; i < l.factors_offset(type); ++i) p[i] = static_cast<uint8_t>(rng());
  for (int c = 0; c < kPanelColumns; ++c)
    random_scale(ScaleType::f16, rng, p + l.factors_offset(type) + c * static_cast<int>(kFactorBytes));
}

/// Floats of ordinary size; E4M3 takes any number.
inline void random_floats(int bits, std::mt19937& rng, uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += bits / 8) {
    const float value = std::ldexp(static_cast<float>(rng() % 2048) - 1024.0f, -9);
    if (bits == 32)
      store(p + i, value);
    else if (bits == 16)  // F16 and BF16: an exponent of up to 2^4
      store(p + i, static_cast<uint16_t>(rng() & 0xbfffu));
    else
      p[i] = static_cast<uint8_t>((rng() & 0x80u) | rng() % 0x7f);
  }
}

/// Two of four positions for each of 8 quads: the lower one's 2 bits at 2 t, the higher one's at 16 + 2 t.
inline uint32_t random_positions(std::mt19937& rng) {
  uint32_t word = 0;
  for (int t = 0; t < 8; ++t) {
    const uint32_t a = rng() % 4, b = (a + 1 + rng() % 3) % 4;
    word |= (std::min(a, b) | std::max(a, b) << 16) << 2 * t;
  }
  return word;
}

/// Codes, scales and zeros of a superblock.
inline void random_super(const PanelLayout& l, marlin_format format, std::mt19937& rng, uint8_t* super) {
  for (int64_t i = 0; i < l.code_bytes(); ++i) super[i] = static_cast<uint8_t>(rng());
  if (format_row(format)->numbers == CodeNumbers::floats) random_floats(l.code_bits, rng, super, l.code_bytes());
  for (int64_t i = 0; l.sparse && i < l.code_bytes(); i += 4)
    if (i % 192 >= 128) store(super + i, random_positions(rng));
  if (is_two_level(l.scale_type)) random_two_level(l, l.scale_type, rng, super + l.scales_offset());
  if (l.has_two_level_zeros()) random_two_level(l, l.zero_type, rng, super + l.zeros_offset());
  for (int i = 0; i < l.groups_per_super() * kPanelColumns && !is_two_level(l.scale_type); ++i) {
    random_scale(l.scale_type, rng, super + l.scales_offset() + i * static_cast<int64_t>(scale_bytes(l.scale_type)));
    if (l.zero_kind == ZeroKind::integer)
      super[l.zeros_offset() + i] = static_cast<uint8_t>(rng() % ((1u << l.code_bits) + (l.less_128 ? 0 : 1)));
    if (l.zero_kind == ZeroKind::additive)
      random_scale(l.zero_type, rng, super + l.zeros_offset() + i * static_cast<int64_t>(scale_bytes(l.zero_type)));
  }
}

/// The map of nested scales.
inline constexpr auto kTestScaleMap = [] {
  std::array<float, 256> map{};
  for (int i = 0; i < 256; ++i) map[static_cast<size_t>(i)] = static_cast<float>(i * (i - 128)) / 16384.0f;
  return map;
}();

inline CpuWeights random_weights(const WeightKind& kind, int64_t n, int64_t k, std::mt19937& rng) {
  if (kind.sparse) k = round_up(k, 4);
  CpuWeights w;
  WeightMeta& meta = w.mutable_meta();
  meta.format = kind.format;
  meta.n = n;
  meta.k = k;
  meta.group_size = kind.group;
  meta.groups = ceil_div(k, kind.group);
  meta.scale_type = kind.scale;
  meta.zero_kind = kind.zero;
  PanelLayout& l = w.layout;
  l.n = n;
  l.k = k;
  l.code_bits = format_row(kind.format)->code_bits;
  if (l.code_bits != 4 && l.code_bits < 8) l.expansion = Expansion::integers;
  if (kind.format == MARLIN_IQ4) l.expansion = Expansion::iq4;
  if (kind.format == MARLIN_FP8) l.expansion = Expansion::e4m3;
  l.less_128 = kind.format == MARLIN_UINT8;
  for (int i = 0; i < 16; ++i) l.codebook[i] = static_cast<float>(i * i) / 7.0f - 9.25f;
  l.slot_group = kind.group;
  l.sparse = meta.sparse = kind.sparse;
  l.scale_type = kind.scale;
  l.zero_kind = kind.zero;
  l.zero_type = kind.scale;
  if (kind.act_order) {  // any injection of k into the slots will do
    l.slots = round_up(k + 37, kSuperSlots);
    w.slot_to_k.assign(static_cast<size_t>(l.slots), -1);
    std::vector<int32_t> places(static_cast<size_t>(l.slots));
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    std::shuffle(places.begin(), places.end(), rng);
    for (int32_t i = 0; i < k; ++i) w.slot_to_k[static_cast<size_t>(places[static_cast<size_t>(i)])] = i;
  } else {
    l.slots = round_up(k, kSuperSlots);
  }
  if (l.has_nested_scales()) {
    l.scale_map = kTestScaleMap.data();
    l.factor_slots = kind.group * static_cast<int64_t>(1 + rng() % 9);
  }
  w.data = Block::allocate(Allocator::system(), static_cast<size_t>(l.bytes())).take();
  auto* bytes = reinterpret_cast<uint8_t*>(w.data.data());
  for (int64_t s = 0; s < l.panels() * l.superblocks(); ++s) {
    uint8_t* super = bytes + s / l.superblocks() * l.panel_bytes() + s % l.superblocks() * l.super_bytes();
    random_super(l, kind.format, rng, super);
  }
  for (int64_t i = 0; i < l.panels() * l.nested_bytes(); i += 4)
    random_scale(ScaleType::f32, rng,
                 bytes + i / l.nested_bytes() * l.panel_bytes() + l.nested_offset() + i % l.nested_bytes());
  if (kind.tensor_scale) {
    const size_t padded = static_cast<size_t>(l.panels() * kPanelColumns);
    w.column_multiplier.resize(padded);
    w.column_divisor.assign(padded, 1.0f);
    for (float& f : w.column_multiplier) f = std::ldexp(static_cast<float>(rng() % 1000 + 1), -9);
  }
  return w;
}

/// The 4-bit code of a superblock, -1 where a sparse matrix keeps none.
inline int code_at(const uint8_t* super, bool sparse, int64_t block, int64_t v, int64_t i, int64_t c) {
  if (!sparse) return super[block * 1024 + v * 256 + i / 8 * 64 + 4 * c + i % 4] >> i % 8 / 4 * 4 & 15;
  const uint8_t* group = super + (4 * block + v) * 192;
  const uint32_t word = load<uint32_t>(group + 128 + 4 * c) >> i / 4 * 2;
  for (uint32_t which = 0; which < 2; ++which)
    if ((word >> 16 * which & 3u) == static_cast<uint32_t>(i % 4))
      return group[i / 16 * 64 + 4 * c + 2 * which + i / 4 % 2] >> i % 16 / 8 * 4 & 15;
  return -1;
}

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

inline double float_at(const uint8_t* group, marlin_format format, int64_t slot, int64_t c) {
  const uint32_t bits = float_bits_at(group, format == MARLIN_FLOAT32 ? 32 : 16, slot, c);
  if (format == MARLIN_FLOAT32) return static_cast<double>(std::bit_cast<float>(bits));
  const auto half = static_cast<uint16_t>(bits);
  return static_cast<double>(format == MARLIN_FLOAT16 ? f16_to_f32(half) : bf16_to_f32(half));
}

/// The parts of a weight: value = integer * scale + offset.
struct WeightParts {
  double integer = 0, scale = 0, offset = 0;
};

inline WeightParts weight_at(const CpuWeights& w, int64_t slot, int64_t column) {
  const PanelLayout& l = w.layout;
  const auto* super =
      reinterpret_cast<const uint8_t*>(w.data.data()) + column / 64 * l.panel_bytes() + slot / kSuperSlots * l.super_bytes();
  const int64_t s = slot % kSuperSlots, block = s / 32, i = s % 32, v = column % 64 / 16, c = column % 16;
  const int64_t g = s / l.slot_group * 64 + column % 64;
  WeightParts parts;
  if (is_two_level(l.scale_type))
    parts.scale = two_level_at(l, l.scale_type, super + l.scales_offset(), s / l.slot_group, column % 64);
  else
    parts.scale = static_cast<double>(
        scale_at(w, super + l.scales_offset() + g * static_cast<int64_t>(scale_bytes(l.scale_type)), slot, column));
  if (l.has_two_level_zeros())
    parts.offset = two_level_at(l, l.zero_type, super + l.zeros_offset(), s / l.slot_group, column % 64);
  else if (l.zero_kind == ZeroKind::additive)
    parts.offset = static_cast<double>(
        decode_scale(l.zero_type, super + l.zeros_offset() + g * static_cast<int64_t>(scale_bytes(l.zero_type))));
  if (l.code_bits == 8) {
    const uint8_t byte = super[block * 2048 + v * 512 + i / 4 * 64 + 4 * c + i % 4];
    parts.integer = l.expansion == Expansion::e4m3 ? static_cast<double>(e4m3_to_f32(byte)) : static_cast<int8_t>(byte);
    if (l.less_128) {
      if (l.zero_kind != ZeroKind::additive)
        parts.offset = -parts.scale * (l.zero_kind == ZeroKind::none ? 128 : super[l.zeros_offset() + g]);
      parts.offset += 128 * parts.scale;
    }
    return parts;
  }
  if (l.code_bits > 8) {
    parts.integer = float_at(super + (block * 4 + v) * 4 * 16 * l.code_bits, w.meta().format, i, c);
    return parts;
  }
  if (l.expansion == Expansion::integers) {
    const int64_t low = l.code_bits < 4 ? 2 : 4, high = l.code_bits - low;
    const uint8_t* group = super + (4 * block + v) * 64 * l.code_bits;
    int q = plane_at(group, low, i, c);
    if (high != 0) q += plane_at(group + 64 * low, high, i, c) << low;
    if (l.zero_kind == ZeroKind::none) q -= 1 << (l.code_bits - 1);
    if (l.zero_kind == ZeroKind::integer) q -= super[l.zeros_offset() + g];
    parts.integer = q;
    return parts;
  }
  const int q = code_at(super, l.sparse, block, v, i, c);
  if (q < 0) return {};
  if (w.meta().format == MARLIN_NF4 || w.meta().format == MARLIN_CODEBOOK4)
    parts.integer = static_cast<double>(l.codebook[q]);
  else if (w.meta().format == MARLIN_IQ4)
    parts.integer = static_cast<double>(kIq4[q]);
  else if (w.meta().format != MARLIN_INT4)
    parts.integer = static_cast<double>(kE2m1[q]);
  else if (l.zero_kind == ZeroKind::integer)
    parts.integer = q - super[l.zeros_offset() + g];
  else
    parts.integer = l.zero_kind == ZeroKind::additive ? q : q - 8;
  return parts;
}

/// One row of activations in slot order, as the compute sees them: as given, or rounded to INT8 in blocks of 32.
inline std::vector<double> activations_in_slots(const CpuWeights& w, const std::vector<float>& row, marlin_compute compute) {
  std::vector<float> x(static_cast<size_t>(w.layout.slots), 0.0f);
  for (size_t s = 0; s < x.size(); ++s) {
    const int64_t k = !w.slot_to_k.empty()                   ? w.slot_to_k[s]
                      : static_cast<int64_t>(s) < w.layout.k ? static_cast<int64_t>(s)
                                                             : -1;
    if (k >= 0) x[s] = row[static_cast<size_t>(k)];
  }
  std::vector<double> out(x.begin(), x.end());
  if (compute != MARLIN_COMPUTE_INT8) return out;
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    bool finite = true;
    for (size_t i = b; i < b + 32; ++i) {
      finite = finite && std::isfinite(x[i]);
      largest = std::max(largest, std::fabs(x[i]));
    }
    const float d = largest / 127.0f;
    for (size_t i = b; i < b + 32; ++i)
      out[i] = !finite ? std::nan("") : d == 0 ? 0.0 : static_cast<double>(d) * std::nearbyint(static_cast<double>(x[i] / d));
  }
  return out;
}

/// A sum in float64 and the bound of its error.
struct Expected {
  double value = 0;
  double bound = 0;
};

inline Expected expected_sum(const CpuWeights& w, const std::vector<double>& x, int64_t column, int extra_roundings) {
  Expected e;
  double s = 0, largest = 1;
  for (int64_t slot = 0; slot < w.layout.slots; ++slot) {
    const double a = x[static_cast<size_t>(slot)];
    if (a == 0) continue;
    const WeightParts p = weight_at(w, slot, column);
    e.value += a * (p.integer * p.scale + p.offset);
    s += std::fabs(a) * (std::fabs(p.integer * p.scale) + std::fabs(p.offset));
    largest = std::max({largest, std::fabs(a), std::fabs(p.integer * p.scale)});
  }
  const double terms = static_cast<double>(w.layout.k + extra_roundings), u = std::ldexp(1.0, -24);
  e.bound = terms * u / (1 - terms * u) * s + terms * std::ldexp(largest, -126);
  if (!w.column_multiplier.empty()) {
    const double t = static_cast<double>(w.column_multiplier[static_cast<size_t>(column)]);
    e.value *= t;
    e.bound = e.bound * t + u * std::fabs(e.value);
  }
  return e;
}

/// Runs tasks one after the other, backwards, claiming any width.
class SerialRunner : public TaskRunner {
 public:
  explicit SerialRunner(uint32_t width) : width_(width) {}
  void run(uint32_t tasks, TaskRef task) override {
    for (uint32_t i = tasks; i-- > 0;) task(i);
  }
  uint32_t width() const override { return width_; }

 private:
  uint32_t width_;
};

inline CpuFeatures this_machine() {
  std::string warning;
  return detect_cpu_features(&warning);
}

/// Operands in memory that is exactly as large as it must be, with strides and gaps filled with NaN.
struct Operands {
  std::vector<std::vector<float>> rows;  ///< A as exact floats
  std::vector<std::byte> a, c, bias;
  std::vector<float> bias_values;
  GemmProblem problem;
};

inline Operands make_operands(const CpuWeights& w, int64_t m, marlin_dtype a_type, marlin_dtype c_type, std::mt19937& rng) {
  Operands o;
  const int64_t k = w.layout.k, n = w.layout.n, a_stride = k + rng() % 5, c_stride = n + rng() % 5;
  o.a.resize(static_cast<size_t>(m * a_stride) * float_bytes(a_type));
  const float nan = std::nanf("");
  for (int64_t i = 0; i < m * a_stride; ++i)
    encode_floats(a_type, &nan, 1, o.a.data() + static_cast<size_t>(i) * float_bytes(a_type));
  o.rows.resize(static_cast<size_t>(m), std::vector<float>(static_cast<size_t>(k)));
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t i = 0; i < k; ++i) {
      float& x = o.rows[static_cast<size_t>(r)][static_cast<size_t>(i)];
      x = normal(rng);
      std::byte* p = o.a.data() + static_cast<size_t>(r * a_stride + i) * float_bytes(a_type);
      encode_floats(a_type, &x, 1, p);
      decode_floats(a_type, p, 1, &x);
    }
  o.c.resize(static_cast<size_t>(m * c_stride) * float_bytes(c_type), std::byte{0x5a});
  o.problem.weights = &w;
  o.problem.a = {o.a.data(), m, k, a_stride, a_type};
  o.problem.c = {o.c.data(), m, n, c_stride, c_type};
  return o;
}

inline void run(const GemmProblem& problem, const CpuFeatures& features, std::string_view kernel, uint32_t width) {
  auto plan = plan_gemm(problem, problem.a.rows, {features, kernel});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const PlannedGemm products[] = {{problem, Plan(plan.value())}};
  const guarded::Memory scratch(scratch_bytes(products), guarded::Edge::end);
  SerialRunner runner(width);
  run_gemm(products, {scratch.data(), scratch.size()}, runner);
}

inline float element(const MatrixView& view, int64_t row, int64_t column) {
  float x = 0;
  decode_floats(
      view.dtype,
      static_cast<const std::byte*>(view.data) + static_cast<size_t>(row * view.stride + column) * float_bytes(view.dtype), 1,
      &x);
  return x;
}

inline std::vector<float> results(const GemmProblem& problem) {
  std::vector<float> out;
  for (int64_t r = 0; r < problem.c.rows; ++r)
    for (int64_t c = 0; c < problem.c.cols; ++c) out.push_back(element(problem.c, r, c));
  return out;
}

inline marlin_compute compute_of(const KernelRow& row) {
  return row.form == ActivationForm::int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
}

inline bool every_row(const KernelRow&) { return true; }
inline std::vector<const KernelRow*> rows_that(bool (*serve)(const KernelRow&)) {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : kernel_rows())
    if (serve(row)) rows.push_back(&row);
  return rows;
}
inline std::string name_of_row(const testing::TestParamInfo<const KernelRow*>& info) { return std::string(info.param->name); }

}  // namespace metal_marlin::cpu
