#include "timing_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace timing {

void Verdict::add(const oracle::Element& expected, double got) {
  if (expected.kind != oracle::Element::finite) {
    if (!expected.accepts(got)) worst_ = std::numeric_limits<double>::infinity();
    return;
  }
  const double error = std::fabs(got - expected.value), over = error / expected.bound;
  // What was never written is NaN, which std::max would lose.
  worst_ = std::isfinite(over) ? std::max(worst_, over) : std::numeric_limits<double>::infinity();
  errors_ += error * error;
  squares_ += expected.value * expected.value;
}

void Verdict::add(const Verdict& of_others) {
  worst_ = std::max(worst_, of_others.worst_);
  errors_ += of_others.errors_;
  squares_ += of_others.squares_;
}

std::vector<int64_t> some_of(int64_t count, int64_t most) {
  std::vector<int64_t> chosen(static_cast<size_t>(std::min(count, most)));
  std::iota(chosen.begin(), chosen.end(), 0);
  if (count <= most) return chosen;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> uniform(0, count - 1);
  std::generate(chosen.begin() + 1, chosen.end(), [&] { return uniform(random); });
  chosen.back() = count - 1;
  return chosen;
}

Sample sample_of(int64_t n, marlin_epilogue epilogue, int64_t most) {
  const int64_t columns = columns_of(n, epilogue);
  Sample sample{some_of(columns, most), {}};
  for (int64_t first = 0; first < n; first += columns)
    for (const int64_t column : sample.columns) sample.rows.push_back(first + column);
  return sample;
}

std::vector<oracle::Element> expected_of(const oracle::Weights& weights, const Activations& activations,
                                         std::span<const int64_t> rows, marlin_epilogue epilogue, marlin_dtype c_dtype,
                                         const Compute& compute) {
  oracle::Product product;
  product.compute = compute.type;
  product.activation_group = compute.activation_group;
  product.a_dtype = activations.dtype;
  product.weights = &weights;
  product.m = static_cast<int64_t>(rows.size());
  product.epilogue = epilogue;
  product.c_dtype = c_dtype;
  for (const int64_t row : rows)
    for (int64_t k = 0; k < weights.k; ++k)
      product.a.push_back(oracle::read(activations.dtype, activations.values, row * weights.k + k));
  return oracle::multiply(product);
}

Verdict check(const Device& device, const ProductToCheck& product, const Sample& sample, const oracle::Weights& weights) {
  const std::vector<int64_t> rows = some_of(product.m);
  const auto expected = expected_of(weights, product.a, rows, product.epilogue, product.a.dtype, product.compute);
  std::vector<uint16_t> c(static_cast<size_t>(columns_of(product.n, product.epilogue)));
  Verdict verdict;
  auto element = expected.begin();
  for (const int64_t row : rows) {
    device.download(c.data(), product.c + static_cast<size_t>(row) * c.size() * kElementBytes, c.size() * kElementBytes);
    for (const int64_t column : sample.columns) verdict.add(*element++, oracle::read(product.a.dtype, c.data(), column));
  }
  return verdict;
}

}  // namespace timing
