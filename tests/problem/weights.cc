#include "problem/weights.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "formats/format_table.h"

namespace problem {
namespace {

using metal_marlin::WeightMeta;

size_t at(int64_t i) { return static_cast<size_t>(i); }

const char* name_of(marlin_dtype dtype) {
  const char* const name = metal_marlin::dtype_name(dtype);
  return name != nullptr ? name : "none";
}

/// The size of the largest code, about.
double range_of(const metal_marlin::FormatRow& row) {
  if (row.format == MARLIN_FORMAT_IQ4) return 256;
  return row.code_bits > 8 ? 16 : row.format == MARLIN_FORMAT_CODEBOOK4 ? 64 : 1 << row.code_bits;
}

/// The product of two levels: of a byte (in two's complement if its type is signed) and the float16 of 256 elements.
double two_level(const WeightMeta& meta, ScaleType type, const std::vector<uint8_t>& bytes, const std::vector<uint8_t>& factors,
                 int64_t index) {
  const int64_t row = index / meta.groups, group = index % meta.groups;
  const uint8_t byte = bytes[at(index)];
  const bool is_signed = type == ScaleType::s6 || type == ScaleType::s8;
  const double integer = is_signed ? static_cast<double>(static_cast<int8_t>(byte)) : static_cast<double>(byte);
  return integer * oracle::read(MARLIN_F16, factors.data(), row * meta.factors() + group * meta.group_size / 256);
}

/// A nested scale, rounded once.
double nested(const WeightMeta& meta, const metal_marlin::Stripe& all, int64_t index) {
  const auto float_at = [](const std::vector<uint8_t>& floats, int64_t i) {
    return static_cast<long double>(oracle::read(MARLIN_F32, floats.data(), i));
  };
  const auto unit = static_cast<long double>(meta.scale_map[all.scales[at(index)]]);
  return static_cast<double>(
      static_cast<float>(unit * float_at(all.scale_factors, index) + float_at(all.scale_offsets, index / meta.groups)));
}

double scale_of(const WeightMeta& meta, const metal_marlin::Stripe& all, int64_t index) {
  if (meta.has_nested_scales()) return nested(meta, all, index);
  if (meta.has_two_level_scales()) return two_level(meta, meta.scale_type, all.scales, all.scale_factors, index);
  return oracle::read(metal_marlin::scale_dtype(meta.scale_type), all.scales.data(), index);
}

}  // namespace

std::string Case::describe() const {
  constexpr const char* kZeros[] = {"no", "integer", "additive"};
  constexpr const char* kTensors[] = {"none", "multiply", "divide", "two parts", "two parts divide", "rows"};
  constexpr const char* kRanges[] = {"", " of a wide range", " of any bits"};
  constexpr const char* kOrders[] = {"plain", "shuffled", "unequal", "shard", "offset", "regular index"};
  constexpr const char* kEpilogues[] = {"none", "silu", "gelu_tanh", "gelu_erf", "swiglu", "geglu_tanh", "swiglu_oai", "situ"};
  std::ostringstream s;
  s << metal_marlin::format_name(format) << (sparse ? " sparse" : "") << ", group " << group << ", scales "
    << metal_marlin::scale_type_name(scale_type) << (k_quant() ? " of two levels" : "") << kRanges[static_cast<int>(range)]
    << ", " << kZeros[static_cast<int>(zeros)] << " zeros " << metal_marlin::scale_type_name(zero_type) << ", tensor scale "
    << kTensors[static_cast<int>(tensor)] << ", order " << kOrders[static_cast<int>(order)]
    << (interleaved ? ", interleaved" : "") << ", M N K " << m << " " << n << " " << k << ", compute " << compute
    << " in groups of " << activation_group << ", A " << name_of(a_type) << ", C " << name_of(c_type) << ", bias "
    << name_of(bias_type) << ", " << kEpilogues[epilogue] << (accumulate ? " accumulate" : "")
    << (row_invariant ? " row-invariant" : "") << ", strides " << static_cast<int>(strides) << ", threads " << threads
    << (together ? ", together with another" : "") << ", splits " << splits << " " << suffix << ", seed " << seed;
  return s.str();
}

oracle::Gate Case::gate() const {
  Random random((gate_seed != 0 ? gate_seed : seed) ^ 0x9e3779b9u);
  const auto number = [&](double most, bool always) {
    const double x = std::round(random.uniform(0.25, most) * 64) / 64;
    return always || random.below(2) == 0 ? static_cast<float>(x) : 0.0f;
  };
  const bool situ = epilogue == MARLIN_EPILOGUE_SITU;
  if (!situ && epilogue != MARLIN_EPILOGUE_SWIGLU) return {};
  oracle::Gate drawn;
  drawn.gate_limit = number(3, situ);
  drawn.up_limit = number(3, situ);
  if (!situ) drawn.gate_alpha = number(2, false);
  if (!situ) drawn.up_offset = number(2, false) - number(2, false);
  return drawn;
}

Case case_of(const Kind& kind, int64_t m, int64_t n, int64_t k) {
  Case c;
  c.format = kind.format;
  c.zeros = kind.zeros;
  c.scale_type = kind.scale_type;
  c.zero_type = kind.zero_type;
  c.group = kind.group;
  c.sparse = kind.sparse;
  c.tensor = kind.tensor;
  c.m = m;
  c.n = n;
  c.k = kind.sparse ? (k + 3) / 4 * 4 : k;
  return c;
}

Weights::Weights(const Case& c) : spec(c) {
  Random random(spec.seed);
  WeightMeta& meta = source.mutable_meta();
  meta.format = spec.format;
  meta.n = spec.n;
  meta.k = spec.k;
  meta.group_size = spec.group == 0 ? spec.k : spec.group;
  meta.scale_type = spec.scale_type;
  meta.zero_kind = spec.zeros;
  meta.zero_type = spec.zero_type;
  meta.sparse = spec.sparse;
  meta.gate_up_interleaved = spec.interleaved;
  if (spec.format == MARLIN_FORMAT_CODEBOOK4)
    for (int i = 0; i < 16; ++i) meta.codebook.push_back(static_cast<float>(i * i) / 7.0f - 9.25f);
  if (meta.has_nested_scales()) metal_marlin::set_scale_map(meta);
  metal_marlin::set_groups(meta, spec.order, random);
  metal_marlin::fill_randomly(source, random, spec.range != Range::bits);
  fill_codes(random);
  if (spec.range == Range::ordinary) fill_scales(random);
  if (spec.range == Range::wide) fill_wide_scales(random);
  for (int64_t row = 0; spec.tensor == Tensor::rows && row < spec.n; ++row)
    meta.tensor_scales.push_back({row, std::ldexp(static_cast<float>(random.below(1000) + 1), -9)});
  if (spec.tensor == Tensor::rows) return;
  // An even number of rows in the first part: pairs of gate and up stay together. Part 2 of very few rows holds all of them.
  const bool divide = spec.tensor == Tensor::divide || spec.tensor == Tensor::two_divide;
  const int64_t first = spec.tensor < Tensor::two_parts ? 0 : spec.n / 4 * 2;
  const auto factor = [&] { return static_cast<float>(std::exp2(random.uniform(-1, 1))); };
  if (first > 0) meta.tensor_scales.push_back({0, factor(), divide});
  if (spec.tensor != Tensor::none) meta.tensor_scales.push_back({first, factor(), divide});
}

void Weights::fill_codes(Random& random) {
  std::vector<uint8_t>& codes = source.all().codes;
  const marlin_dtype floats = metal_marlin::float_dtype(spec.format);
  for (int64_t i = 0; floats != 0 && i < spec.n * spec.k; ++i)
    if (spec.range == Range::wide && floats != MARLIN_F32) {  // any exponent below that of 2
      const auto bits = static_cast<uint16_t>(random() & 0xbfffu);
      const bool is_subnormal = floats == MARLIN_BF16 && (bits & 0x7f80) == 0;  // in float32: units may flush it
      metal_marlin::store(codes.data() + 2 * i, static_cast<uint16_t>(is_subnormal ? bits | 0x0080 : bits));
    } else  // of a size that all types hold
      oracle::write(floats, codes.data(), i, (static_cast<double>(random.below(4001)) - 2000) / 1024);
  for (uint8_t& code : codes)
    if (spec.format == MARLIN_FORMAT_FP8 && spec.range == Range::wide && code % 128 == 127) code ^= 1;  // not NaN
  if (spec.format != MARLIN_FORMAT_FP8 || spec.range != Range::ordinary) return;
  // Mostly numbers from 2 to 30, so that no single product outweighs the others; no NaN.
  for (uint8_t& code : codes)
    if (random.below(16) != 0 || code % 128 == 127) code = static_cast<uint8_t>((code & 0x9f) | 0x40);
}

void Weights::fill_scales(Random& random) {
  const WeightMeta& meta = source.meta();
  metal_marlin::Stripe& all = source.all();
  const double range = range_of(*metal_marlin::format_row(spec.format));
  const double size = 8 / std::sqrt(static_cast<double>(spec.k)) / range;
  const auto near = [&](double x) { return x * std::exp2(random.uniform(-1, 1)); };
  if (spec.k_quant()) {
    constexpr double kLargest[] = {15, 63, 31, 127};  // of u4, u6, s6 and s8
    const auto largest = [&](ScaleType type) { return kLargest[static_cast<int>(type) - static_cast<int>(ScaleType::u4)]; };
    for (int64_t i = 0; i < meta.n * meta.factors(); ++i) {
      oracle::write(MARLIN_F16, all.scale_factors.data(), i, near(2 * size / largest(spec.scale_type)));
      if (meta.has_two_level_zeros())
        oracle::write(MARLIN_F16, all.zero_factors.data(), i, near(size * range / largest(spec.zero_type)));
    }
    if (meta.has_two_level_zeros() || spec.zeros != ZeroKind::additive) return;
  }
  for (std::vector<uint8_t>* const floats : {&all.scale_factors, &all.scale_offsets})
    for (int64_t i = 0; meta.has_nested_scales() && i < static_cast<int64_t>(floats->size()) / 4; ++i)
      oracle::write(MARLIN_F32, floats->data(), i, oracle::read(MARLIN_F32, floats->data(), i) * size);
  for (int64_t i = 0; i < meta.n * meta.groups; ++i) {
    const double scale = size * std::exp2(random.uniform(-2, 2)) * (random.below(16) == 0 ? -1 : 1);
    const auto e8m0 = static_cast<uint8_t>(127 + std::lround(std::log2(std::fabs(scale))));
    const auto e4m3 = static_cast<uint8_t>((random.below(16) == 0 ? random.below(0x10) : 0x10 + random.below(0x28)) |
                                           (random.below(16) == 0 ? 0x80 : 0));
    if (!spec.k_quant() && !meta.has_nested_scales()) set_scale(i, scale, spec.scale_type == ScaleType::e8m0 ? e8m0 : e4m3);
    if (spec.zeros == ZeroKind::additive) set_additive_zero(i, scale * random.uniform(-10, 0));
  }
}

void Weights::fill_wide_scales(Random& random) {
  const WeightMeta& meta = source.meta();
  metal_marlin::Stripe& all = source.all();
  const auto any = [&] { return std::ldexp(random.below(1024) + 1, -12) * (random.below(4) == 0 ? -1 : 1); };
  const auto fill = [&](std::vector<uint8_t>& floats) {
    for (int64_t i = 0; i < static_cast<int64_t>(floats.size()) / 2; ++i) oracle::write(MARLIN_F16, floats.data(), i, any());
  };
  if (spec.k_quant()) fill(all.scale_factors);
  fill(all.zero_factors);
  for (int64_t i = 0; i < meta.n * meta.groups; ++i) {
    const uint32_t byte = spec.scale_type == ScaleType::e8m0 ? 110 + random.below(20) : random.below(0x7f);
    if (!spec.k_quant() && !meta.has_nested_scales()) set_scale(i, any(), static_cast<uint8_t>(byte));
    if (spec.zeros == ZeroKind::additive && !meta.has_two_level_zeros()) set_additive_zero(i, any());
  }
}

void Weights::set_scale(int64_t index, double value, uint8_t byte) {
  std::vector<uint8_t>& scales = source.all().scales;
  if (metal_marlin::scale_bytes(source.meta().scale_type) == 1)
    scales[at(index)] = byte;
  else
    oracle::write(metal_marlin::scale_dtype(source.meta().scale_type), scales.data(), index, value);
}

void Weights::set_additive_zero(int64_t index, double value) {
  oracle::write(metal_marlin::scale_dtype(source.meta().zero_type), source.all().zeros.data(), index, value);
}

oracle::Weights Weights::to_oracle() const {
  const WeightMeta& meta = source.meta();
  const metal_marlin::Stripe& all = source.all();
  oracle::Weights w;
  w.format = meta.format;
  w.n = meta.n;
  w.k = meta.k;
  w.group_size = meta.group_size;
  w.groups = meta.groups;
  w.codes = all.codes;
  const marlin_dtype floats = metal_marlin::float_dtype(meta.format);
  for (int64_t i = 0; floats != 0 && i < meta.n * meta.k; ++i) w.numbers.push_back(oracle::read(floats, all.codes.data(), i));
  for (size_t i = 0; !meta.codebook.empty() && i < all.codes.size(); ++i)
    w.numbers.push_back(static_cast<double>(meta.codebook[all.codes[i]]));
  w.additive = meta.zero_kind == ZeroKind::additive;
  for (int64_t i = 0; i < meta.n * meta.groups; ++i) {
    w.scale.push_back(scale_of(meta, all, i));
    if (meta.zero_kind == ZeroKind::integer) w.zero.push_back(all.zeros[at(i)]);
    if (meta.has_two_level_zeros())
      w.zero.push_back(-two_level(meta, meta.zero_type, all.zeros, all.zero_factors, i));
    else if (w.additive)
      w.zero.push_back(oracle::read(metal_marlin::scale_dtype(meta.zero_type), all.zeros.data(), i));
  }
  w.group_index = meta.group_index;
  w.interleaved = meta.gate_up_interleaved;
  for (int64_t n = 0; !meta.tensor_scales.empty() && n < meta.n; ++n) {
    size_t part = meta.tensor_scales.size() - 1;
    while (meta.tensor_scales[part].first_row > n) --part;
    w.tensor_scale.push_back(static_cast<double>(meta.tensor_scales[part].value));
    w.divide = meta.tensor_scales[0].divide;
  }
  for (int64_t i = 0; meta.sparse && i < meta.n * meta.k; ++i) w.kept.push_back(metal_marlin::is_kept(all.kept.data(), i));
  return w;
}

Operands::Operands(const Case& c) : a(at(c.m * c.k)), bias(c.bias_type != 0 ? at(c.n) : 0), c_before(at(c.m * c.columns())) {
  Random random(c.seed ^ 0x5bd1e995u);
  const auto fill = [&](std::vector<double>& numbers, marlin_dtype type) {
    for (double& x : numbers) {
      uint8_t stored[4] = {};
      oracle::write(type, stored, 0, random.normal());
      x = oracle::read(type, stored, 0);
    }
  };
  fill(a, c.a_type);
  fill(bias, c.bias_type);
  fill(c_before, c.c_type);
}

oracle::Product product_of(const Case& c, const oracle::Weights& weights) {
  oracle::Product p;
  p.weights = &weights;
  p.m = c.m;
  p.compute = c.compute;
  p.activation_group = c.activation_group;
  p.a_dtype = c.a_type;
  p.epilogue = c.epilogue;
  p.gate = c.gate();
  p.c_dtype = c.c_type;
  return p;
}

testing::AssertionResult compare(const std::vector<oracle::Element>& expected, const std::vector<double>& got, int64_t columns,
                                 double* worst) {
  if (expected.size() != got.size()) return testing::AssertionFailure() << got.size() << " elements, not " << expected.size();
  for (size_t i = 0; i < got.size(); ++i) {
    const oracle::Element& e = expected[i];
    if (worst != nullptr && e.kind == oracle::Element::finite && e.bound > 0)
      *worst = std::max(*worst, std::fabs(got[i] - e.value) / e.bound);
    if (!e.accepts(got[i]))
      return testing::AssertionFailure() << "C[" << i / at(columns) << ", " << i % at(columns) << "] is " << got[i]
                                         << ", expected " << e.value << " +- " << e.bound << " (kind " << int{e.kind} << ")";
  }
  return testing::AssertionSuccess();
}

}  // namespace problem
