#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "oracle.h"

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// 2^exponent, which is a normal number. std::ldexp is right for more, and takes many times as long.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

/// sign | exponent | mantissa, with subnormals; no special codes.
double decode_float(int bits, int exponent_bits, int mantissa_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int sign = bits >> (exponent_bits + mantissa_bits) & 1;
  // In units of the last place.
  const int units = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const double magnitude = units * power_of_two(std::max(exponent, 1) - bias - mantissa_bits);
  return sign != 0 ? -magnitude : magnitude;
}

/// As decode_float, but the highest exponent holds infinity and NaN.
double decode_ieee(int bits, int exponent_bits, int mantissa_bits) {
  const int top = (1 << exponent_bits) - 1;
  if ((bits >> mantissa_bits & top) != top) return decode_float(bits, exponent_bits, mantissa_bits, top >> 1);
  if ((bits & ((1 << mantissa_bits) - 1)) != 0) return NAN;
  return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -kInf : kInf;
}

uint16_t encode_ieee(double x, int exponent_bits, int mantissa_bits) {
  const int top = (1 << exponent_bits) - 1, bias = top >> 1;
  const int sign = std::signbit(x) ? 0x8000 : 0, infinity = top << mantissa_bits;
  if (std::isnan(x)) return static_cast<uint16_t>(sign | infinity | 1 << (mantissa_bits - 1));
  if (std::isinf(x)) return static_cast<uint16_t>(sign | infinity);
  if (x == 0) return static_cast<uint16_t>(sign);
  const int exponent = std::max(std::ilogb(x), 1 - bias);
  if (exponent > bias) return static_cast<uint16_t>(sign | infinity);
  // In units of the last place; nearbyint rounds ties to even. The hidden bit adds one to the exponent field, as does a carry.
  const int units = static_cast<int>(std::nearbyint(std::fabs(x) * power_of_two(mantissa_bits - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + bias - 1) << mantissa_bits) + units));
}

}  // namespace

double e2m1(int code) { return decode_float(code, 2, 1, 1); }
int iq4(int code) {
  static constexpr int kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kValues[code];
}

int code_bits(marlin_format format) {
  switch (format) {
    case MARLIN_FORMAT_INT2:
      return 2;
    case MARLIN_FORMAT_INT3:
      return 3;
    case MARLIN_FORMAT_INT5:
      return 5;
    case MARLIN_FORMAT_INT6:
      return 6;
    case MARLIN_FORMAT_INT8:
    case MARLIN_FORMAT_UINT8:
    case MARLIN_FORMAT_FP8:
      return 8;
    default:
      return 4;
  }
}

bool has_integer_codes(marlin_format format) {
  return format == MARLIN_FORMAT_INT4 || (code_bits(format) != 4 && format != MARLIN_FORMAT_FP8);
}
bool takes_float_activations(marlin_format format) {
  return format == MARLIN_FORMAT_FP8 || format == MARLIN_FORMAT_NF4 || format == MARLIN_FORMAT_CODEBOOK4 ||
         format >= MARLIN_FORMAT_FLOAT32;
}

double nf4(int code) {
  static constexpr uint32_t kBits[] = {0xBF800000, 0xBF3239B1, 0xBF066B30, 0xBECA32A0, 0xBE91A24D, 0xBE3D353F,
                                       0xBDBA7871, 0x00000000, 0x3DA2FAFF, 0x3E24CAE3, 0x3E7C04DD, 0x3EAD033A,
                                       0x3EE1A4B8, 0x3F1007AB, 0x3F3913B3, 0x3F800000};
  float f;
  std::memcpy(&f, &kBits[code], sizeof f);
  return static_cast<double>(f);
}

double e8m0(int byte) { return byte == 255 ? NAN : power_of_two(byte - 127); }
double e4m3(int byte) { return (byte & 127) == 127 ? NAN : decode_float(byte, 4, 3, 7); }
double f16(int bits) { return decode_ieee(bits, 5, 10); }
double bf16(int bits) { return decode_ieee(bits, 8, 7); }
uint16_t to_f16(double x) { return encode_ieee(x, 5, 10); }
uint16_t to_bf16(double x) { return encode_ieee(x, 8, 7); }

int64_t bytes_of(marlin_dtype dtype) { return dtype == MARLIN_F32 ? 4 : dtype == MARLIN_F16 || dtype == MARLIN_BF16 ? 2 : 1; }

double read(marlin_dtype dtype, const void* from, int64_t index) {
  const auto* p = static_cast<const unsigned char*>(from) + index * bytes_of(dtype);
  if (dtype == MARLIN_F32) {
    float f;
    std::memcpy(&f, p, sizeof f);
    return f;
  }
  if (dtype == MARLIN_E8M0) return e8m0(*p);
  if (dtype == MARLIN_E4M3) return e4m3(*p);
  const int bits = p[0] | p[1] << 8;
  return dtype == MARLIN_F16 ? f16(bits) : bf16(bits);
}

void write(marlin_dtype dtype, void* to, int64_t index, double x) {
  auto* p = static_cast<unsigned char*>(to) + index * bytes_of(dtype);
  if (dtype == MARLIN_F32) {
    const auto f = static_cast<float>(x);
    std::memcpy(p, &f, sizeof f);
    return;
  }
  const uint16_t bits = dtype == MARLIN_F16 ? to_f16(x) : to_bf16(x);
  p[0] = static_cast<unsigned char>(bits & 255);
  p[1] = static_cast<unsigned char>(bits >> 8);
}

// Wide enough that a product of two values below is exact, so that rounding it to float32 rounds once.
#ifdef __SIZEOF_FLOAT128__
using Wide = __float128;
#else
using Wide = long double;
#endif

namespace {

template <class Real>
Real real_value(const Weights& w, int64_t row, int64_t column) {
  if (!w.kept.empty() && !w.kept[static_cast<size_t>(row * w.k + column)]) return Real(0);
  const int64_t group = row * w.groups + w.group_of(column);
  const auto at = static_cast<size_t>(row * w.k + column);
  const int code = w.numbers.empty() ? w.codes[at] : 0;
  const Real scale = w.scale[static_cast<size_t>(group)];
  const Real zero = w.zero.empty() ? Real(0) : Real(w.zero[static_cast<size_t>(group)]);
  Real v;
  if (has_integer_codes(w.format)) {
    const int q = w.format == MARLIN_FORMAT_INT8 ? (code ^ 128) - 128 : code;
    if (w.additive) {
      v = q * scale + zero;
    } else {
      const int middle = w.format == MARLIN_FORMAT_INT8 ? 0 : 1 << (code_bits(w.format) - 1);
      v = (q - (w.zero.empty() ? Real(middle) : zero)) * scale;
    }
  } else {
    const double number = !w.numbers.empty()              ? w.numbers[at]
                          : w.format == MARLIN_FORMAT_IQ4 ? iq4(code)
                          : w.format == MARLIN_FORMAT_NF4 ? nf4(code)
                          : w.format == MARLIN_FORMAT_FP8 ? e4m3(code)
                                                          : e2m1(code);
    v = Real(number) * scale;
  }
  if (w.tensor_scale.empty()) return v;
  const Real t = w.tensor_scale[static_cast<size_t>(row)];
  return w.divide ? v / t : v * t;
}

}  // namespace

int64_t Weights::group_of(int64_t column) const {
  return group_index.empty() ? column / group_size : group_index[static_cast<size_t>(column)];
}
double value(const Weights& w, int64_t row, int64_t column) {
  return static_cast<double>(real_value<long double>(w, row, column));
}
namespace {

/// product + zero, both exact, rounded once however far apart they are: the sum is rounded to odd first (Boldo and Melquiond,
/// "Emulation of FMA and correctly rounded sums"), so that it lies half way between two floats only if the exact sum does.
float sum_f32(double product, double zero) {
  double sum = product + zero;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double back = sum - product, error = (product - (sum - back)) + (zero - back);  // Knuth's two-sum: exact
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  if (error != 0 && bits % 2 == 0) {
    bits += (error > 0) == (sum > 0) ? 1 : -1;
    std::memcpy(&sum, &bits, sizeof bits);
  }
  return static_cast<float>(sum);
}

}  // namespace

float value_f32(const Weights& w, int64_t row, int64_t column) {
  const auto at = static_cast<size_t>(row * w.k + column);
  if (!w.additive || (!w.kept.empty() && !w.kept[at])) return static_cast<float>(real_value<Wide>(w, row, column));
  const auto group = static_cast<size_t>(row * w.groups + w.group_of(column));
  const int q = w.format == MARLIN_FORMAT_INT8 ? (w.codes[at] ^ 128) - 128 : w.codes[at];
  return sum_f32(q * static_cast<double>(w.scale[group]), w.zero[group]);
}

std::vector<bool> keep_two_of_four(const std::vector<double>& scores) {
  std::vector<bool> kept(scores.size(), false);
  for (size_t block = 0; block + 4 <= scores.size(); block += 4) {
    std::vector<size_t> order = {block, block + 1, block + 2, block + 3};
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    kept[order[0]] = kept[order[1]] = true;
  }
  return kept;
}

}  // namespace oracle
