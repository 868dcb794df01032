#include "timing_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "oracle.h"

namespace timing {
namespace {

constexpr int64_t kMost = 64;

/// What rounding to a 16-bit type changes at most in numbers of up to this size.
double half_place(marlin_dtype dtype, double size) {
  const int fraction_bits = dtype == MARLIN_F16 ? 10 : 7, least_exponent = dtype == MARLIN_F16 ? -14 : -126;
  return std::ldexp(0.5, std::max(std::ilogb(size), least_exponent) - fraction_bits);
}

/// Sums of w a and of |w a|, for each of the decoded rows of W.
struct Sums {
  std::vector<double> values, sizes;
};
Sums sums_of(const DecodedRows& weights, const std::vector<double>& a) {
  const size_t columns = weights.rows.size();
  Sums sums{std::vector<double>(columns), std::vector<double>(columns)};
  for (size_t k = 0; k < a.size(); ++k)
    for (size_t column = 0; column < columns; ++column) {
      const double product = weights.values[k * columns + column] * a[k];
      sums.values[column] += product;
      sums.sizes[column] += std::fabs(product);
    }
  return sums;
}

}  // namespace

std::vector<int64_t> some_of(int64_t count) {
  std::vector<int64_t> chosen(static_cast<size_t>(std::min(count, kMost)));
  std::iota(chosen.begin(), chosen.end(), 0);
  if (count <= kMost) return chosen;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> uniform(0, count - 1);
  std::generate(chosen.begin() + 1, chosen.end(), [&] { return uniform(random); });
  chosen.back() = count - 1;
  return chosen;
}

Verdict check(const Device& device, const ProductToCheck& product, const DecodedRows& weights) {
  std::vector<uint16_t> c(static_cast<size_t>(product.n));
  std::vector<double> a(static_cast<size_t>(product.k));
  Verdict verdict;
  double errors = 0, squares = 0;
  for (const int64_t row : some_of(product.m)) {
    device.download(c.data(), product.c + static_cast<size_t>(row * product.n) * kElementBytes, c.size() * kElementBytes);
    for (int64_t k = 0; k < product.k; ++k)
      a[static_cast<size_t>(k)] = oracle::read(product.dtype, product.a, row * product.k + k);
    const Sums sums = sums_of(weights, a);
    for (size_t column = 0; column < weights.rows.size(); ++column) {
      const double expected = sums.values[column];
      const double error = std::fabs(oracle::read(product.dtype, c.data(), weights.rows[column]) - expected);
      const double of_sum = std::ldexp(static_cast<double>(product.k + 8), -23) * sums.sizes[column];
      const double over = error / (of_sum + half_place(product.dtype, std::fabs(expected) + of_sum));
      // What was never written is NaN, which std::max would lose.
      verdict.worst = std::isfinite(over) ? std::max(verdict.worst, over) : std::numeric_limits<double>::infinity();
      errors += error * error;
      squares += expected * expected;
    }
  }
  verdict.nmse = errors / squares;
  return verdict;
}

}  // namespace timing
