#include "formats/decode.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bits.h"
#include "formats/codecs.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

// Every value is computed in double, where the products are exact and nothing is subnormal, and is
// rounded once at the end. Therefore 2^-127 * 0.5 is 2^-128 even if the host has set flush-to-zero.
// (The rounding mode must be to nearest.)

/// hi is a sum or product rounded to nearest, and lo is its exact error. Returns the same number
/// rounded to odd. Rounding this number to float gives the same result as a single rounding (53 >=
/// 2 * 24 + 2; Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
double round_to_odd(double hi, double lo) {
  const auto bits = std::bit_cast<uint64_t>(hi);
  if (lo == 0 || !std::isfinite(hi) || (bits & 1u) != 0) return hi;
  // hi is even and inexact: the odd neighbor lies in the direction of the error.
  return std::bit_cast<double>((lo > 0) == (hi > 0) ? bits + 1 : bits - 1);
}

/// What is missing from a rounded sum (Knuth's two-sum).
double error_of_sum(double a, double b, double sum) {
  const double b_part = sum - a;
  return (a - (sum - b_part)) + (b - b_part);
}

double add_to_odd(double a, double b) {
  const double sum = a + b;
  return round_to_odd(sum, error_of_sum(a, b, sum));
}

double multiply_to_odd(double a, double b) {
  const double product = a * b;
  return round_to_odd(product, std::fma(a, b, -product));
}

/// The number that a code stands for, in units of its scale and without its zero; exact.
double number_of(const WeightMeta& meta, const FormatRow& row, uint32_t code) {
  switch (row.numbers) {
    case CodeNumbers::from_zero:
      return code;
    case CodeNumbers::twos_signed:
      return static_cast<int8_t>(code);
    case CodeNumbers::codebook:
      return f32_to_f64(row.codebook != nullptr ? row.codebook[code & 15]
                                                : meta.codebook[code & 15]);
    case CodeNumbers::floats:
      break;
  }
  if (row.code_bits == 8) return static_cast<double>(e4m3_to_f32(static_cast<uint8_t>(code)));
  if (row.code_bits == 32) return f32_to_f64(std::bit_cast<float>(code));
  const auto half = static_cast<uint16_t>(code);
  return f32_to_f64(meta.format == MARLIN_FORMAT_FLOAT16 ? f16_to_f32(half) : bf16_to_f32(half));
}

/// q times a nested scale. The parts of the product are added from the least one on, each sum
/// rounded to odd. A part that is not exact lies between the same neighbors as its exact number.
/// The next sum is so much larger that no boundary of its roundings lies between these neighbors,
/// so that the last sum, too, is what one rounding to odd gives.
double multiply_nested(double q, const GroupScale& group) {
  const double product = q * group.high;
  if (q == 0 || !std::isfinite(product)) return product;  // the sign of a zero is that of `product`
  const double rest = std::fma(q, group.high, -product);
  return add_to_odd(product, add_to_odd(rest, multiply_to_odd(q, group.low)));
}

/// The value without tensor scale. Without an additive zero it is exact: it has at most 24 + 24
/// bits. With nested scales, it is rounded to odd.
double value_in_double(const WeightMeta& meta, uint32_t code, const GroupScale& group) {
  const double scale = f32_to_f64(group.scale);
  const double q = number_of(meta, *format_row(meta.format), code);
  if (meta.has_nested_scales()) return multiply_nested(q, group);
  if (meta.zero_kind == ZeroKind::additive) return add_to_odd(q * scale, f32_to_f64(group.zero));
  return (q - static_cast<double>(group.zero)) * scale;
}

/// Code i of a row.
uint32_t code_at(const uint8_t* codes, size_t bytes, int64_t i) {
  if (bytes == 1) return codes[i];
  return bytes == 2 ? load<uint16_t>(codes + 2 * i) : load<uint32_t>(codes + 4 * i);
}

/// map[b] * factor + offset, of a group of a row.
GroupScale decode_nested(const WeightMeta& meta, const Stripe& stripe, size_t row, size_t at) {
  const auto float_at = [](const std::vector<uint8_t>& floats, size_t i) {
    return f32_to_f64(load<float>(floats.data() + i * sizeof(float)));
  };
  const double offset = float_at(stripe.scale_offsets, row),
               product = f32_to_f64(meta.scale_map[stripe.scales[at]]) *
                         float_at(stripe.scale_factors, at);  // exact
  GroupScale out;
  out.zero = 0;
  out.high = product + offset;
  out.low = error_of_sum(product, offset, out.high);
  out.scale = f64_to_f32(round_to_odd(out.high, out.low));
  return out;
}

}  // namespace

GroupScale decode_group(const WeightMeta& meta, const Stripe& stripe, int64_t row, int64_t group) {
  const auto at = static_cast<size_t>(row * meta.groups + group);
  if (meta.has_nested_scales()) return decode_nested(meta, stripe, static_cast<size_t>(row), at);
  const auto factor = [&](const std::vector<uint8_t>& factors) {
    const int64_t block = group * meta.group_size / kFactorSpan;
    const auto i = static_cast<size_t>(row * meta.factors() + block);
    return f16_to_f32(load<uint16_t>(factors.data() + i * kFactorBytes));
  };
  GroupScale out;
  out.scale =
      decode_scale(meta.scale_type, stripe.scales.data() + at * scale_bytes(meta.scale_type));
  if (meta.has_two_level_scales()) out.scale *= factor(stripe.scale_factors);
  switch (meta.zero_kind) {
    case ZeroKind::none:
      out.zero = static_cast<float>(format_row(meta.format)->zero_point());
      break;
    case ZeroKind::integer:
      out.zero = stripe.zeros[at];
      break;
    case ZeroKind::additive:
      out.zero =
          decode_scale(meta.zero_type, stripe.zeros.data() + at * scale_bytes(meta.zero_type));
      if (meta.has_two_level_zeros()) out.zero = -(out.zero * factor(stripe.zero_factors));
      break;
  }
  return out;
}

float decode_value(const WeightMeta& meta, uint32_t code, GroupScale group,
                   const TensorScale* tensor) {
  const double value = value_in_double(meta, code, group);
  if (tensor == nullptr) return f64_to_f32(value);
  const double factor = f32_to_f64(tensor->value);
  // The quotient of a number of at most 49 bits and a number of 24 bits is either exactly halfway
  // between two floats or at least 2^-49 (relative) away from the halfway point. The intermediate
  // rounding to double therefore changes nothing.
  if (tensor->divide) return f64_to_f32(value / factor);
  // Only NVFP4 has both; its product has at most 38 bits and is exact.
  if (tensor->divisor != 1) return f64_to_f32(value * factor / f32_to_f64(tensor->divisor));
  return f64_to_f32(multiply_to_odd(value, factor));
}

const TensorScale* tensor_scale_of(const WeightMeta& meta, int64_t row) {
  const auto after =
      std::upper_bound(meta.tensor_scales.begin(), meta.tensor_scales.end(), row,
                       [](int64_t r, const TensorScale& t) { return r < t.first_row; });
  return after == meta.tensor_scales.begin() ? nullptr : &*(after - 1);
}

void decode_rows(const WeightMeta& meta, const Stripe& stripe, int64_t first_row, int64_t rows,
                 float* out) {
  const FormatRow& row = *format_row(meta.format);
  const int code_bits = row.code_bits;
  const bool small_codes = code_bits < 8;
  const size_t bytes = row.code_bytes();
  for (int64_t r = 0; r < rows; ++r, out += meta.k) {
    const uint8_t* codes = stripe.codes.data() + static_cast<size_t>(r * meta.k) * bytes;
    const uint8_t* kept = meta.sparse ? stripe.kept.data() + r * (meta.k / 4) : nullptr;
    const TensorScale* tensor = tensor_scale_of(meta, first_row + r);
    int64_t current = -1;
    GroupScale group;
    float table[64];
    for (int64_t k = 0; k < meta.k; ++k) {
      const int64_t g =
          meta.group_index.empty() ? k / meta.group_size : meta.group_index[static_cast<size_t>(k)];
      if (g != current) {
        current = g;
        group = decode_group(meta, stripe, r, g);
        if (small_codes) {
          for (int code = 0; code < 1 << code_bits; ++code)
            table[code] = decode_value(meta, static_cast<uint32_t>(code), group, tensor);
        }
      }
      if (kept != nullptr && !is_kept(kept, k)) {
        out[k] = 0;
        continue;
      }
      out[k] = small_codes ? table[codes[k] & 63]
                           : decode_value(meta, code_at(codes, bytes, k), group, tensor);
    }
  }
}

}  // namespace metal_marlin
