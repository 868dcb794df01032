#include "backends/gpu/probe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "backends/gpu/gemm.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"

namespace metal_marlin::gpu {
namespace {

// Two row blocks, the second with few rows; blocks of 128, 64 and 32 slots; with groups of 256 two
// records of scales.
constexpr int64_t kN = 40, kK = 352;
/// Rows of W whose weights are all positive: with positive activations their sums grow as long as
/// they can, and errors with them.
constexpr int64_t kPositive = 8;

/// Of the sum of |a w|: what tensor cores may leave out of E4M3 products, whose sums of 128 slots
/// have 14 bits.
constexpr double kE4m3SumError = 0x1p-7;

/// The generator of Numerical Recipes: the same everywhere.
class Random {
 public:
  uint32_t next() { return (state_ = state_ * 1664525u + 1013904223u) >> 8; }
  int64_t below(int64_t n) { return next() % n; }
  /// In [-1, 1), 24 bits.
  float unit() { return static_cast<float>(static_cast<int32_t>(next()) - (1 << 23)) * 0x1p-23f; }

 private:
  uint32_t state_ = 20240229;
};

marlin_format fp4_format(ScaleType scales) {
  if (scales == ScaleType::e8m0) return MARLIN_FORMAT_MXFP4;
  return scales == ScaleType::e4m3 ? MARLIN_FORMAT_NVFP4 : MARLIN_FORMAT_FP4;
}

marlin_format integer_format(int bits) {
  constexpr marlin_format kFormats[] = {MARLIN_FORMAT_INT2, MARLIN_FORMAT_INT3, MARLIN_FORMAT_INT4,
                                        MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT6};
  return kFormats[bits - 2];
}
marlin_format float_format(const RowBlockLayout& like) {
  if (like.code_form == kFormF32) return MARLIN_FORMAT_FLOAT32;
  return like.code_form == kFormF16 ? MARLIN_FORMAT_FLOAT16 : MARLIN_FORMAT_BFLOAT16;
}
marlin_format codebook_format(ScaleType scales) {
  return is_two_level(scales) ? MARLIN_FORMAT_IQ4 : MARLIN_FORMAT_NF4;
}
marlin_format byte_format(const RowBlockLayout& like) {
  if (like.code_form == kFormE4m3) return MARLIN_FORMAT_FP8;
  return like.code_form == kFormUnsigned ? MARLIN_FORMAT_UINT8 : MARLIN_FORMAT_INT8;
}

/// A matrix with every code and scales of every kind.
class ProbeWeights final : public WeightSource {
 public:
  /// `one_group`: rows have one scale.
  ProbeWeights(const RowBlockLayout& like, bool one_group) {
    const bool fp4 = like.codes == KernelCodes::fp4 || like.codes == KernelCodes::fp4_sparse;
    const bool integers = !fp4 && !is_real(like.codes);
    if (fp4)
      meta_.format = fp4_format(like.scale_type);
    else if (are_floats(like.codes))
      meta_.format = float_format(like);
    else if (like.codes == KernelCodes::lut4)
      meta_.format = codebook_format(like.scale_type);
    else
      meta_.format = are_bytes(like.codes) ? byte_format(like) : integer_format(like.code_bits);
    meta_.n = kN;
    meta_.k = kK;
    meta_.group_size =
        like.slot_group == kBlockSlots && like.quad_blocks > 1 ? 2 * kBlockSlots : like.slot_group;
    if (one_group) meta_.group_size = static_cast<int32_t>(kK);
    meta_.groups = ceil_div(kK, meta_.group_size);
    meta_.scale_type = are_floats(like.codes) ? ScaleType::e8m0 : like.scale_type;
    meta_.zero_kind = like.zero_kind;
    meta_.zero_type = like.zero_type;
    meta_.sparse = like.sparse();
    if (meta_.has_nested_scales()) {
      meta_.factor_groups = 1;
      for (int b = 0; b < static_cast<int>(kScaleMapEntries); ++b)
        meta_.scale_map.push_back(static_cast<float>(b) / 255.0f);
    }
    fill(are_floats(like.codes) ? 0 : (1 << like.code_bits) - 1, integers);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const auto rows = [&](const std::vector<uint8_t>& from, std::vector<uint8_t>& to) {
      const auto width = static_cast<int64_t>(from.size()) / kN;
      to.assign(from.begin() + first * width, from.begin() + (first + count) * width);
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
  const Stripe& all() const { return all_; }

 private:
  bool has_e2m1() const { return format_row(meta_.format)->codebook == kE2m1; }
  bool code_is_unsigned() const {
    return format_row(meta_.format)->numbers == CodeNumbers::from_zero;
  }

  void fill(int most, bool integers) {
    Random random;
    const marlin_dtype dtype = float_dtype(meta_.format);
    for (int64_t i = 0; dtype != 0 && i < kN * kK; ++i) {
      const float x = random.unit();
      push_number(dtype, i / kK < kPositive ? std::fabs(x) : x, all_.codes);
    }
    for (int64_t i = 0; dtype == 0 && i < kN * kK; ++i) {
      const int64_t row = i / kK, code = (row + i) % (most + 1);
      const int64_t sign = integers ? 128 : 8;  // the bit that makes a code negative
      // Narrower integers have no such bit: the upper half of the codes is positive.
      const bool offset = integers && code_is_unsigned();
      // The upper half of a codebook is positive, too.
      const bool upper = offset || format_row(meta_.format)->numbers == CodeNumbers::codebook;
      const int64_t half = (most + 1) / 2,
                    positive = upper && !has_e2m1() ? half + code % half : code & ~sign;
      const int64_t chosen = row >= kPositive ? code : positive;
      const bool nan = meta_.format == MARLIN_FORMAT_FP8 && (chosen & 0x7F) == 0x7F;
      all_.codes.push_back(static_cast<uint8_t>(nan ? 1 : chosen));
    }
    for (int64_t i = 0; i < kN * meta_.groups; ++i) {
      const bool positive = i < kPositive * meta_.groups;
      push_scale(random, positive, all_.scales);
      if (meta_.zero_kind == ZeroKind::integer)
        all_.zeros.push_back(static_cast<uint8_t>(positive ? 0 : random.below(most + 2)));
      if (meta_.has_two_level_zeros())  // which are subtracted
        all_.zeros.push_back(static_cast<uint8_t>(
            positive ? 0 : random.below(meta_.zero_type == ScaleType::u4 ? 16 : 64)));
      else if (meta_.zero_kind == ZeroKind::additive)
        push_float(meta_.zero_type, positive ? 1.0f : random.unit(), all_.zeros);
    }
    for (int64_t i = 0; meta_.has_two_level_scales() && i < kN * meta_.factors(); ++i) {
      push_float(ScaleType::f16, 0.5f + std::fabs(random.unit()), all_.scale_factors);
      if (meta_.has_two_level_zeros())
        push_float(ScaleType::f16, 0.5f + std::fabs(random.unit()), all_.zero_factors);
    }
    for (int64_t i = 0; meta_.has_nested_scales() && i < kN * meta_.groups; ++i)
      push_float(ScaleType::f32, 0.5f + std::fabs(random.unit()), all_.scale_factors);
    for (int64_t i = 0; meta_.has_nested_scales() && i < kN; ++i)
      push_float(ScaleType::f32, i < kPositive ? 0.5f : random.unit(), all_.scale_offsets);
    constexpr uint8_t kPairs[] = {3, 5, 6, 9, 10, 12};
    for (int64_t i = 0; meta_.sparse && i < kN * kK / 4; ++i)
      all_.kept.push_back(kPairs[random.below(6)]);
  }

  static void push_number(marlin_dtype dtype, float value, std::vector<uint8_t>& to) {
    uint8_t bytes[4];
    encode_floats(dtype, &value, 1, bytes);
    to.insert(to.end(), bytes, bytes + float_bytes(dtype));
  }
  static void push_float(ScaleType type, float value, std::vector<uint8_t>& to) {
    push_number(scale_dtype(type), value, to);
  }

  void push_scale(Random& random, bool positive, std::vector<uint8_t>& to) const {
    switch (meta_.scale_type) {
      case ScaleType::e8m0:
        // Floats have the scale 1.
        to.push_back(float_dtype(meta_.format) != 0 ? uint8_t{127}
                                                    : static_cast<uint8_t>(120 + random.below(12)));
        break;
      case ScaleType::e4m3:  // 1..7 are subnormal
        to.push_back(static_cast<uint8_t>((1 + random.below(0x50)) |
                                          (positive ? 0 : random.below(2) * 0x80)));
        break;
      case ScaleType::u4:
      case ScaleType::u6:
        to.push_back(static_cast<uint8_t>(1 + random.below(15)));
        break;
      case ScaleType::nested:
        to.push_back(static_cast<uint8_t>(random.below(256)));
        break;
      case ScaleType::s6:
      case ScaleType::s8:
        to.push_back(static_cast<uint8_t>(1 + random.below(31) - (positive ? 0 : 32)));
        break;
      default:
        push_float(meta_.scale_type, positive ? 0.5f + std::fabs(random.unit()) : 2 * random.unit(),
                   to);
    }
  }

  Stripe all_;
};

/// Rows of A. The first is positive. For F16, the second is subnormal. For INT8, they are whole
/// numbers with 127 in each block, which quantizing does not change, and for E4M3 such with 448 in
/// each row.
std::vector<float> probe_activations(ActivationKind kind, int64_t m) {
  Random random;
  std::vector<float> a;
  for (int64_t i = 0; i < m * kK; ++i) {
    float x = random.unit();
    if (kind == ActivationKind::i8) x = i % kActivationBlock == 0 ? 127.0f : std::floor(127 * x);
    if (kind == ActivationKind::e4m3) x = i % kK == 0 ? 448.0f : std::floor(16 * x);
    if (i < kK) x = std::fabs(x);
    if (kind == ActivationKind::f16 && i / kK == 1) x = std::floor(1000 * x) * 0x1p-24f;
    a.push_back(x);
  }
  return a;
}

/// Says where C differs from the same product in double by more than FP32 sums may, and weights
/// that are rounded by so much of themselves; empty if it does not.
std::string difference(const ProbeWeights& weights, const std::vector<float>& a, const float* c,
                       int64_t m, double rounding) {
  const WeightMeta& meta = weights.meta();
  std::vector<float> w(static_cast<size_t>(kN * kK));
  decode_rows(meta, weights.all(), 0, kN, w.data());
  std::vector<double> sizes;  // of the terms: sums of activations may correct zeros
  for (int64_t i = 0; i < kN * kK; ++i) {
    const GroupScale group = decode_group(meta, weights.all(), i / kK, i % kK / meta.group_size);
    double zero = 0;
    if (meta.zero_kind != ZeroKind::none) zero = double{group.zero};
    if (meta.zero_kind == ZeroKind::integer) zero *= double{group.scale};
    sizes.push_back(std::fabs(w[static_cast<size_t>(i)]) + 2 * std::fabs(zero));
  }
  for (int64_t row = 0; row < m; ++row)
    for (int64_t n = 0; n < kN; ++n) {
      double sum = 0, size = 0, rounded = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double x = a[static_cast<size_t>(row * kK + k)];
        const double product = x * w[static_cast<size_t>(n * kK + k)];
        sum += product;
        rounded += rounding * std::fabs(product);
        size += std::fabs(x) * sizes[static_cast<size_t>(n * kK + k)];
      }
      const double got = c[row * kN + n],
                   bound = (kK + 8) * 0x1p-24 * size + kK * 0x1p-126 * 256 + rounded;
      if (std::fabs(got - sum) <= bound) continue;
      char text[112];
      std::snprintf(text, sizeof text, "C[%lld, %lld] is %.9g, expected %.9g +- %.2g",
                    static_cast<long long>(row), static_cast<long long>(n), got, sum, bound);
      return text;
    }
  return {};
}

/// Runs one product in memory that the host reaches.
Status multiply(const ProbeBench& bench, const GemmProblem& problem, const GemmPlan& plan,
                const ProductOperands& operands) {
  GemmCall call(bench.kernels);
  MARLIN_RETURN_IF_ERROR(call.add(problem, plan, operands));
  MARLIN_ASSIGN(auto stream, bench.streams.take());
  MARLIN_RETURN_IF_ERROR(call.record(*stream, bench.memory));
  MARLIN_RETURN_IF_ERROR(stream->wait(UINT64_MAX));
  bench.streams.put(std::move(stream));
  return {};
}

void report(const ProbeBench& bench, std::string_view kernel, const char* what) {
  char text[320];
  std::snprintf(text, sizeof text, "%s: kernel %.*s is not used on this device: %s",
                bench.device.capabilities().name.c_str(), static_cast<int>(kernel.size()),
                kernel.data(), what);
  bench.logger(LogLevel::warning, text);
}

}  // namespace

Result<KernelHealth::State> probe(const ProbeBench& bench, const ProductKernel& kernel,
                                  ActivationKind activation, const RowBlockLayout& layout) {
  // Tiles of INT8 serve rows of A and of W that have one scale each.
  const bool scales_rows = kernel.shares_tiles() && activation == ActivationKind::i8;
  const ProbeWeights source(layout, scales_rows);
  const WeightSource* const one = &source;
  MARLIN_ASSIGN(
      const GpuWeightStack packed,
      pack_on_device({&one, 1}, bench.policy.order, bench.device, bench.memory, bench.runner));
  const GpuWeights& weights = *packed[0];
  // More than one tile if the tile has few rows; otherwise one tile that is not full.
  const int64_t m = kernel.rows <= 8 ? kernel.rows + 1 : kernel.rows - 1;
  marlin_dtype dtype = MARLIN_F32;
  if (activation == ActivationKind::f16) dtype = MARLIN_F16;
  if (activation == ActivationKind::bf16) dtype = MARLIN_BF16;
  std::vector<float> a = probe_activations(activation, m);
  const auto a_bytes = a.size() * float_bytes(dtype), c_at = a_bytes + (-a_bytes % 256);
  MARLIN_ASSIGN(const device::BufferRef buffer,
                bench.memory.allocate(c_at + static_cast<uint64_t>(m * kN) * 4,
                                      device::Placement::shared, "probe"));
  encode_floats(dtype, a.data(), m * kK, buffer->host());
  decode_floats(dtype, buffer->host(), m * kK, a.data());  // as the kernel sees them

  GemmProblem problem;
  problem.weights = &weights;
  problem.compute = activation == ActivationKind::i8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
  if (scales_rows) problem.activation_group = kWholeRow;
  double rounding = 0;
  if (activation == ActivationKind::e4m3) {
    problem.compute = MARLIN_COMPUTE_FP8;
    rounding = kE4m3SumError;
  }
  if (kernel.rounds) {
    problem.compute = MARLIN_COMPUTE_W16;
    rounding = dtype == MARLIN_F16 ? 0x1p-11 : 0x1p-8;
  }
  problem.a = {buffer->host(), m, kK, kK, dtype};
  problem.c = {buffer->host() + c_at, m, kN, kN, MARLIN_F32};
  MARLIN_ASSIGN(const GemmPlan plan, plan_with(kernel, problem, m, bench.device.capabilities()));
  const std::string_view name = kernel.name(weights.layout.codes, activation);
  const Status ran =
      multiply(bench, problem, plan, {{{buffer, 0}, kK}, {{buffer, c_at}, kN}, {}, {}, {}});
  if (ran.code() == MARLIN_E_NOT_FOUND || ran.code() == MARLIN_E_UNSUPPORTED) {
    report(bench, name, ran.message());
    return KernelHealth::bad;
  }
  MARLIN_RETURN_IF_ERROR(ran);
  const std::string wrong =
      difference(source, a, reinterpret_cast<const float*>(buffer->host() + c_at), m, rounding);
  if (wrong.empty()) return KernelHealth::good;
  report(bench, name, wrong.c_str());
  return KernelHealth::bad;
}

}  // namespace metal_marlin::gpu
