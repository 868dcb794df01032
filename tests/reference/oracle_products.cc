#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "oracle.h"

namespace oracle {
namespace {

constexpr double kUnit = 0x1p-24;  // float32's
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double gamma(double roundings) { return roundings * kUnit / (1 - roundings * kUnit); }
size_t at(int64_t i) { return static_cast<size_t>(i); }

/// The columns of each group of INT8 activations.
std::vector<std::vector<int64_t>> groups_of(const Weights& w, int64_t group) {
  std::vector<int64_t> slots;
  if (!w.slots.empty()) {
    for (int64_t k = 0; k < w.k; ++k) {
      slots.resize(std::max(slots.size(), at(w.slots[at(k)] + 1)), -1);
      slots[at(w.slots[at(k)])] = k;
    }
  } else if (w.group_index.empty()) {
    for (int64_t k = 0; k < w.k; ++k) slots.push_back(k);
  } else {
    for (int64_t g = 0; g < w.groups; ++g) {
      for (int64_t k = 0; k < w.k; ++k) {
        if (w.group_of(k) == g) slots.push_back(k);
      }
      while (slots.size() % at(w.slot_group) != 0) slots.push_back(-1);
    }
  }
  const size_t length = group == 0 ? 32 : group < w.k ? at(group) : slots.size();
  std::vector<std::vector<int64_t>> groups((slots.size() + length - 1) / length);
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s] >= 0) groups[s / length].push_back(slots[s]);
  }
  return groups;
}

/// Of a row of A or W.
struct RowStatistics {
  bool nan = false, infinite = false;
  bool overflows = false;  // parts of a finite weight may be infinite in float32
  double largest = 0;

  void see(double x) {
    nan |= std::isnan(x);
    infinite |= std::isinf(x);
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  }
};

/// Decoded once: the values, and what each adds to S a unit of activation; both [k][n].
struct DecodedWeights {
  std::vector<double> value, magnitude;
  std::vector<RowStatistics> statistics;  // [n]
};

double magnitude_of(const Weights& w, int64_t row, int64_t column, double decoded) {
  if ((w.zero.empty() && w.format != MARLIN_FORMAT_UINT8) || (!w.kept.empty() && !w.kept[at(row * w.k + column)]))
    return std::fabs(decoded);
  const size_t group = at(row * w.groups + w.group_of(column));
  const int code = w.codes[at(row * w.k + column)], less = w.format == MARLIN_FORMAT_UINT8 ? 128 : 0,
            q = w.format == MARLIN_FORMAT_INT8 ? (code ^ 128) - 128 : code - less;
  const double scale = w.scale[group], zero = w.zero.empty() ? 128 : w.zero[group];
  double m = std::fabs(q * scale) + std::fabs(w.additive ? zero + less * scale : (zero - less) * scale);
  if (!w.tensor_scale.empty()) m = std::fabs(w.divide ? m / w.tensor_scale[at(row)] : m * w.tensor_scale[at(row)]);
  return m;
}

/// From here on float32 may overflow.
constexpr double kHuge = 0x1p127;
/// A number may be met with and without its tensor scale: the larger factor, at least 1.
double tensor_range(const Weights& w, int64_t row) {
  const double t = w.tensor_scale.empty() ? 1 : std::fabs(w.tensor_scale[at(row)]);
  return std::max({1.0, t, 1 / t});
}

DecodedWeights decode(const Weights& w) {
  DecodedWeights d;
  d.value.resize(at(w.n * w.k));
  d.magnitude.resize(at(w.n * w.k));
  d.statistics.resize(at(w.n));
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t k = 0; k < w.k; ++k) {
      const double v = value(w, r, k);
      const size_t group = at(r * w.groups + w.group_of(k));
      const bool nan = std::isnan(w.scale[group]) || (!w.zero.empty() && std::isnan(w.zero[group])) ||
                       (!w.tensor_scale.empty() && std::isnan(w.tensor_scale[at(r)]));
      // 0 * infinity is NaN, but a kernel that scales a group's sum may rightly get infinity: only a stored NaN must stay one.
      RowStatistics& statistics = d.statistics[at(r)];
      if (std::isfinite(v)) statistics.largest = std::max(statistics.largest, std::fabs(v));
      statistics.nan |= nan;
      statistics.infinite |= !nan && !std::isfinite(v);
      const double magnitude = magnitude_of(w, r, k, v);
      statistics.overflows |= magnitude * tensor_range(w, r) >= kHuge;
      d.value[at(k * w.n + r)] = v;
      d.magnitude[at(k * w.n + r)] = magnitude;
    }
  }
  return d;
}

/// A number and how far a kernel may be from it.
struct Approximate {
  Element::Kind kind = Element::finite;
  double value = 0, bound = 0;
};

int extra_roundings(const Product& p) {
  const Weights& w = *p.weights;
  return 1 + (w.zero.empty() ? 0 : 2) + (w.format == MARLIN_FORMAT_UINT8 ? 2 : 0) + (p.compute == MARLIN_COMPUTE_INT8 ? 1 : 0) +
         (w.tensor_scale.empty() ? 0 : 1) + (p.bias.empty() ? 0 : 1);
}

/// Sums of one row of A with every row of W, before the epilogue.
class RowSums {
 public:
  RowSums(const Product& p, const DecodedWeights& d) : p_(p), d_(d), n_(at(p.weights->n)) {}

  std::vector<Approximate> compute(const double* a, bool not_finite) {
    sum_.assign(n_, 0);
    magnitude_.assign(n_, 0);
    rounding_.assign(n_, 0);
    const bool rounds = p_.compute == MARLIN_COMPUTE_W16;
    // Tensor cores keep 14 bits of sums of E4M3 products.
    const bool short_sums = p_.compute == MARLIN_COMPUTE_FP8 && p_.weights->format == MARLIN_FORMAT_FP8;
    RowStatistics row;
    for (int64_t k = 0; k < p_.weights->k; ++k) {
      row.see(a[k]);
      const double x = a[k], y = std::fabs(x), *value = &d_.value[at(k) * n_], *magnitude = &d_.magnitude[at(k) * n_];
      for (size_t n = 0; n < n_; ++n) {
        sum_[n] += x * value[n];
        magnitude_[n] += y * magnitude[n];
        if (rounds) rounding_[n] += y * rounding_of(value[n]);
        if (short_sums) rounding_[n] += 0x1p-7 * y * std::fabs(value[n]);
      }
    }
    std::vector<Approximate> out(n_);
    for (size_t n = 0; n < n_; ++n) out[n] = finish(n, row, not_finite);
    return out;
  }

 private:
  /// How far a weight is from itself in the 16 bits of A's type, or of bfloat16 for float32.
  double rounding_of(double weight) const {
    if (p_.a_dtype == MARLIN_F16) return std::max(0x1p-11 * std::fabs(weight), 0x1p-25);
    return std::max(0x1p-8 * std::fabs(weight), 0x1p-126);
  }
  Approximate finish(size_t n, const RowStatistics& row, bool not_finite) const {
    const RowStatistics& column = d_.statistics[n];
    const double bias = p_.bias.empty() ? 0 : p_.bias[n];
    if (not_finite || row.nan || column.nan || std::isnan(bias)) return {Element::nan, kNaN, 0};
    if (row.infinite || column.infinite || std::isinf(bias)) return {Element::non_finite, kNaN, 0};
    const auto k = static_cast<double>(p_.weights->k);
    // With INT8 activations it is the product of the two scales that may be flushed, and 127 * 127 of it are lost.
    const double smallest = p_.compute == MARLIN_COMPUTE_INT8 ? 0x1p-112 : 0x1p-126;
    const double tensor = tensor_range(*p_.weights, static_cast<int64_t>(n));
    const double flushed = k * smallest * std::max({1.0, row.largest, column.largest, tensor});
    if (column.overflows || magnitude_[n] * tensor >= kHuge) return {Element::any, kNaN, 0};
    const bool leaves_f16 = p_.compute == MARLIN_COMPUTE_W16 && p_.a_dtype == MARLIN_F16 && column.largest >= 65504;
    if (leaves_f16) return {Element::any, kNaN, 0};
    return {Element::finite, sum_[n] + bias,
            gamma(k + extra_roundings(p_)) * (magnitude_[n] + std::fabs(bias)) + flushed + rounding_[n]};
  }

  const Product& p_;
  const DecodedWeights& d_;
  size_t n_;
  std::vector<double> sum_, magnitude_, rounding_;
};

// Steepest slopes: silu 1.0999, gelu 1.1290 (erf), 1.1291 (tanh).
constexpr double kSlope = 1.13;
// An epilogue's own arithmetic, exp and tanh included: 16 roundings of its argument.
constexpr double kEvaluation = 16 * kUnit;

Approximate activate(marlin_epilogue e, const Approximate& x) {
  if (e == MARLIN_EPILOGUE_NONE) return x;
  if (x.kind != Element::finite) return {x.kind == Element::nan ? Element::nan : Element::any, kNaN, 0};
  return {Element::finite, apply_epilogue(e, x.value, 0), kSlope * x.bound + kEvaluation * std::fabs(x.value)};
}

/// SWIGLU's numbers, with those of gpt-oss where its epilogue is asked for.
Gate numbers_of(marlin_epilogue e, const Gate& given) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (e == MARLIN_EPILOGUE_SWIGLU_OAI) return {7, 7, 1.702f, 1};
  const auto limit = [](float x) { return x == 0 ? kInfinity : x; };
  return {limit(given.gate_limit), limit(given.up_limit), given.gate_alpha == 0 ? 1 : given.gate_alpha, given.up_offset};
}

/// f(g) h(u) with |f'| <= slope, |h'| <= 1 and |f(g)| <= |g|: the f of SWIGLU is silu(alpha g) / alpha, and clamping passes
/// bounds on. SITU's f is steepest where silu is, and both of its factors have a tanh of up to 5 ulp (Metal's) as well.
Approximate combine(const Product& p, Approximate gate, Approximate up) {
  if (gate.kind == Element::nan || up.kind == Element::nan) return {Element::nan, kNaN, 0};
  if (gate.kind != Element::finite || up.kind != Element::finite) return {Element::any, kNaN, 0};
  const bool situ = p.epilogue == MARLIN_EPILOGUE_SITU;
  const Gate n = numbers_of(p.epilogue, p.gate);
  const double g = std::fabs(situ ? gate.value : std::min<double>(gate.value, n.gate_limit)),
               limit = situ ? INFINITY : n.up_limit;
  const double u = std::fabs(std::clamp<double>(up.value, -limit, limit) + n.up_offset), offset = std::fabs(n.up_offset);
  const double evaluation = situ ? 40 * kUnit : kEvaluation;
  const double bound = kSlope * gate.bound * (u + up.bound) + g * up.bound + evaluation * g * (u + offset);
  return {Element::finite, apply_epilogue(p.epilogue, gate.value, up.value, p.gate), bound};
}

/// + C, and the one rounding to C's type.
Element finish_element(const Product& p, Approximate x, size_t index) {
  if (!p.c.empty()) {
    const double old = p.c[index];
    if (std::isnan(old)) return {Element::nan, kNaN, 0};
    if (x.kind != Element::finite) return {x.kind, x.value, 0};
    if (std::isinf(old)) return {Element::non_finite, kNaN, 0};
    x.value += old;
    x.bound += kUnit * (std::fabs(x.value) + x.bound);
  }
  if (x.kind != Element::finite) return {x.kind, x.value, 0};
  const double unit = p.c_dtype == MARLIN_F32 ? 0x1p-24 : p.c_dtype == MARLIN_F16 ? 0x1p-11 : 0x1p-8;
  const double step = p.c_dtype == MARLIN_F16 ? 0x1p-25 : 0x1p-126;
  const double bound = x.bound + std::max(unit * (std::fabs(x.value) + x.bound), step);
  // Where the rounding may overflow, infinity and everything near are right.
  const double limit = p.c_dtype == MARLIN_F32 ? 0x1.ffffffp127 : p.c_dtype == MARLIN_F16 ? 65520 : 0x1.ffp127;
  if (std::fabs(x.value) - x.bound >= limit) return {Element::non_finite, x.value, 0};
  if (std::fabs(x.value) + x.bound >= limit) return {Element::any, x.value, 0};
  return {Element::finite, x.value, bound};
}

}  // namespace

double apply_epilogue(marlin_epilogue epilogue, double gate, double up, const Gate& numbers) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto gelu_tanh = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  switch (epilogue) {
    case MARLIN_EPILOGUE_SILU:
      return gate * sigmoid(gate);
    case MARLIN_EPILOGUE_GELU_TANH:
      return gelu_tanh(gate);
    case MARLIN_EPILOGUE_GELU_ERF:
      return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0)));
    case MARLIN_EPILOGUE_GEGLU_TANH:
      return gelu_tanh(gate) * up;
    case MARLIN_EPILOGUE_SWIGLU:
    case MARLIN_EPILOGUE_SWIGLU_OAI: {
      const Gate n = numbers_of(epilogue, numbers);
      const double g = std::min<double>(gate, n.gate_limit), u = std::clamp<double>(up, -n.up_limit, n.up_limit);
      return g * sigmoid(n.gate_alpha * g) * (u + n.up_offset);
    }
    case MARLIN_EPILOGUE_SITU: {
      const double l = numbers.gate_limit, m = numbers.up_limit;
      return l * std::tanh(gate / l) * sigmoid(gate) * m * std::tanh(up / m);
    }
    default:
      return gate;
  }
}

Activations quantize_activations(const Weights& w, int64_t m, const std::vector<double>& a, int64_t group) {
  Activations out;
  out.value.resize(a.size());
  out.not_finite.resize(at(m));
  const auto groups = groups_of(w, group);
  for (int64_t r = 0; r < m; ++r) {
    const double* x = &a[at(r * w.k)];
    for (const auto& of_scale : groups) {
      RowStatistics statistics;
      for (const int64_t k : of_scale) statistics.see(x[k]);
      if (statistics.nan || statistics.infinite) out.not_finite[at(r)] = true;
      const double d = static_cast<float>(statistics.largest / 127);
      if (d == 0) continue;
      for (const int64_t k : of_scale) {
        const double q = std::nearbyint(static_cast<float>(x[k] / d));
        out.value[at(r * w.k + k)] = std::clamp(q, -127.0, 127.0) * d;  // a subnormal d may be far from max / 127
      }
    }
  }
  return out;
}

Activations round_activations(int64_t m, int64_t k, const std::vector<double>& a) {
  Activations out;
  out.not_finite.resize(at(m));
  for (int64_t r = 0; r < m; ++r) {
    RowStatistics statistics;
    for (int64_t i = 0; i < k; ++i) statistics.see(a[at(r * k + i)]);
    out.not_finite[at(r)] = statistics.nan || statistics.infinite;
    double d = 0x1p-117;
    while (statistics.largest / d > 448) d *= 2;
    const double most = d == 0x1p120 ? 240 : 448;
    for (int64_t i = 0; i < k; ++i) {
      const double x = a[at(r * k + i)] / d;
      // Four bits, but multiples of 2^-9.
      const double unit = std::isfinite(x) && std::fabs(x) >= 0x1p-6 ? std::ldexp(1, std::ilogb(x) - 3) : 0x1p-9;
      out.value.push_back(std::clamp(std::nearbyint(x / unit) * unit, -most, most) * d);
    }
  }
  return out;
}

int64_t Product::columns() const { return epilogue >= MARLIN_EPILOGUE_SWIGLU ? weights->n / 2 : weights->n; }

bool Element::accepts(double got) const {
  switch (kind) {
    case finite:
      return std::fabs(got - value) <= bound;
    case non_finite:
      return !std::isfinite(got);
    case nan:
      return std::isnan(got);
    default:
      return true;
  }
}

std::vector<Element> multiply(const Product& p) {
  const Weights& w = *p.weights;
  const DecodedWeights decoded = decode(w);
  const bool int8 = p.compute == MARLIN_COMPUTE_INT8 && !takes_float_activations(w.format);
  const bool fp8 = p.compute == MARLIN_COMPUTE_FP8, rounds = int8 || fp8;
  const Activations rounded = int8  ? quantize_activations(w, p.m, p.a, p.activation_group)
                              : fp8 ? round_activations(p.m, w.k, p.a)
                                    : Activations{};
  const int64_t columns = p.columns();
  RowSums sums(p, decoded);
  std::vector<Element> out(at(p.m * columns));
  for (int64_t m = 0; m < p.m; ++m) {
    const double* a = rounds ? &rounded.value[at(m * w.k)] : &p.a[at(m * w.k)];
    const auto row = sums.compute(a, rounds && rounded.not_finite[at(m)]);
    for (int64_t n = 0; n < columns; ++n) {
      const size_t index = at(m * columns + n);
      if (columns == w.n) {
        out[index] = finish_element(p, activate(p.epilogue, row[at(n)]), index);
      } else {
        const size_t gate = at(w.interleaved ? 2 * n : n), up = at(w.interleaved ? 2 * n + 1 : n + columns);
        out[index] = finish_element(p, combine(p, row[gate], row[up]), index);
      }
    }
  }
  return out;
}

Element weighted_sum(const Product& p, const std::vector<double>& scales, const std::vector<Element>& parts, size_t index) {
  Approximate sum{Element::finite, 0, 0};
  double size = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    sum.kind = std::max(sum.kind, parts[i].kind);  // a NaN comes out of any sum, an infinity as one or as NaN
    sum.value += scales[i] * parts[i].value;
    sum.bound += std::fabs(scales[i]) * parts[i].bound;
    size += std::fabs(scales[i] * parts[i].value);
  }
  sum.bound += kUnit * static_cast<double>(2 * parts.size()) * (size + sum.bound);
  return finish_element(p, sum, index);
}

double nmse(const std::vector<Element>& expected, const std::vector<double>& got) {
  double error = 0, power = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].kind != Element::finite) continue;
    const double e = expected[i].value, d = got[i] - e;
    error += d * d;
    power += e * e;
  }
  return power == 0 ? error : error / power;
}

}  // namespace oracle
