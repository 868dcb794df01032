#include "reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <vector>

#include "library.h"
#include "names.h"
#include "parallel.h"

namespace metal_marlin::tools {
namespace {

constexpr double kU = 0x1p-24;   // unit roundoff of float32
constexpr int64_t kBlock = 32;   // activations that share a step in INT8 compute
constexpr int64_t kStripe = 64;  // rows unpacked at a time by one thread
constexpr size_t kLanes = 8;     // independent sums, so that the compiler can keep them in vectors

struct Sums {
  double value = 0, magnitude = 0, squares = 0, step = 0;
};

/// Returns sum a w, sum |a| |w|, sum (a w)^2 and sum step |w| over k.
Sums dot(const double* a, const double* step, const double* w, int64_t k) {
  double value[kLanes] = {}, magnitude[kLanes] = {}, squares[kLanes] = {}, steps[kLanes] = {};
  const int64_t whole = k / static_cast<int64_t>(kLanes) * static_cast<int64_t>(kLanes);
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double x = a[i + lane], y = w[i + lane];
      value[lane] += x * y;
      magnitude[lane] += std::fabs(x * y);
      squares[lane] += x * y * (x * y);
      steps[lane] += step[i + lane] * std::fabs(y);
    }
  }
  Sums sums;
  for (int64_t i = whole; i < k; ++i) {
    sums.value += a[i] * w[i];
    sums.magnitude += std::fabs(a[i] * w[i]);
    sums.squares += a[i] * w[i] * (a[i] * w[i]);
    sums.step += step[i] * std::fabs(w[i]);
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sums.value += value[lane];
    sums.magnitude += magnitude[lane];
    sums.squares += squares[lane];
    sums.step += steps[lane];
  }
  return sums;
}

/// Bounds the magnitudes of codes and integer zeros.
double largest_code(marlin_format format) {
  return format == MARLIN_FORMAT_INT8 ? 128 : 1 << code_bits(format);
}

/// Bounds |q s| + |z s| for every weight of a group by the values of the group alone.
double corrected_magnitude(const double* w, int64_t count, const marlin_layer_info& info,
                           std::vector<double>& sorted) {
  sorted.clear();
  std::copy_if(w, w + count, std::back_inserter(sorted), [](double v) { return std::isfinite(v); });
  const bool additive = info.flags & MARLIN_PACK_ADDITIVE_ZEROS;
  if (!additive) sorted.push_back(0);  // (q - z) s: zero is a multiple of s as well
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  const double largest = std::max(std::fabs(sorted.front()), std::fabs(sorted.back()));
  double scale = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < sorted.size(); ++i) {
    // Values are rounded to float32: values within a few units in the last place are equal.
    const double distance = sorted[i] - sorted[i - 1];
    if (distance > 4 * kU * largest) scale = std::min(scale, distance);
  }
  if (!std::isfinite(scale)) return 0;  // one value only: see row_magnitudes
  const double codes = largest_code(info.format);
  return additive ? 2 * codes * scale + largest : 2 * codes * scale;
}

/// The activations of one product in double, with the values that the bounds need.
class Operand {
 public:
  Operand(const Product& product, const marlin_layer_info& info)
      : m_(product.m),
        k_(info.k),
        a_(static_cast<size_t>(m_ * k_)),
        step_(a_.size(), 0.0),
        largest_(static_cast<size_t>(m_)) {
    for (int64_t m = 0; m < m_; ++m) {
      for (int64_t k = 0; k < k_; ++k) {
        const double value = product.a->at(m, k);
        a_[static_cast<size_t>(m * k_ + k)] = value;
        largest_[static_cast<size_t>(m)] =
            std::max(largest_[static_cast<size_t>(m)], std::fabs(value));
      }
    }
    if (product.compute == MARLIN_COMPUTE_INT8)
      set_steps(info.flags & MARLIN_LAYER_ACT_ORDER ? k_ : kBlock);
  }
  const double* a(int64_t m) const { return a_.data() + m * k_; }
  const double* step(int64_t m) const { return step_.data() + m * k_; }
  double largest(int64_t m) const { return largest_[static_cast<size_t>(m)]; }

 private:
  // Act-order gathers activations before they are cut into blocks, so any activation of the row may
  // set the step of a block.
  void set_steps(int64_t block) {
    for (int64_t m = 0; m < m_; ++m) {
      for (int64_t first = 0; first < k_; first += block) {
        const int64_t count = std::min(block, k_ - first);
        const double* values = a(m) + first;
        double largest = 0;
        for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
        // The step itself is rounded to float32, so this takes a little more than half of it.
        std::fill_n(step_.data() + m * k_ + first, count, largest / 127 / 2 * (1 + 1e-6));
      }
    }
  }

  int64_t m_, k_;
  std::vector<double> a_, step_, largest_;
};

double output_rounding(marlin_dtype dtype, double value) {
  switch (dtype) {
    case MARLIN_F16:
      return std::max(std::fabs(value) * 0x1p-11, 0x1p-25);
    case MARLIN_BF16:
      return std::max(std::fabs(value) * 0x1p-8, 0x1p-134);
    default:
      return std::max(std::fabs(value) * kU, 0x1p-150);
  }
}

double largest_finite(marlin_dtype dtype) { return dtype == MARLIN_F16 ? 65504 : 3.38e38; }

/// `beside` is how large the terms of the sums are beside the true values, 1 or more.
double limit_nmse(const Product& product, int64_t checked, double beside) {
  constexpr double kFew = 64;
  const double few = 1 + kFew / static_cast<double>(std::max<int64_t>(checked, 1));
  const double limit = product.compute == MARLIN_COMPUTE_INT8 ? 5e-4
                       : product.c->dtype() == MARLIN_F16     ? 1e-7
                       : product.c->dtype() == MARLIN_BF16    ? 5e-6
                                                              : 1e-11;
  return limit * few * beside;
}

/// Sums of squares, kept apart from Verdict so that threads can add up.
struct Tally {
  Verdict verdict;
  double error2 = 0, true2 = 0, terms2 = 0;

  /// `squares` is the sum of the squared terms of `want`.
  void element(double got, double want, double squares, double bound, double finite_limit,
               int64_t m, int64_t n) {
    ++verdict.checked;
    constexpr double kWrong = std::numeric_limits<double>::infinity();
    if (std::isnan(want) || std::isinf(want)) {  // a NaN must stay NaN
      if (std::isnan(want) ? !std::isnan(got) : std::isfinite(got)) note(kWrong, m, n);
      return;
    }
    // A value that overflows the output may become infinity or NaN.
    if (std::fabs(want) > finite_limit && !std::isfinite(got)) return;
    const double error = std::fabs(got - want);
    note(std::isnan(error) ? kWrong : error / bound, m, n);
    error2 += error * error;
    true2 += want * want;
    terms2 += squares;
  }
  /// An element whose sum may overflow on the way, and did.
  void overflown() { ++verdict.checked; }
  void note(double fraction, int64_t m, int64_t n) {
    if (fraction > 1) ++verdict.wrong;
    if (fraction <= verdict.worst) return;
    verdict.worst = fraction;
    verdict.m = m;
    verdict.n = n;
  }
  void add(const Tally& other) {
    verdict.checked += other.verdict.checked;
    error2 += other.error2;
    true2 += other.true2;
    terms2 += other.terms2;
    const int64_t wrong = verdict.wrong + other.verdict.wrong;
    note(other.verdict.worst, other.verdict.m, other.verdict.n);
    verdict.wrong = wrong;
  }
};

/// One row of W in double with the bounds of its groups.
struct Row {
  std::vector<double> w, magnitudes, sorted;
  double largest = 0;

  void set(const float* from, const marlin_layer_info& info) {
    w.assign(from, from + info.k);
    largest = 0;
    for (double v : w) largest = std::max(largest, std::fabs(v));
    magnitudes.clear();
    const bool corrected = info.format == MARLIN_FORMAT_INT4 ||
                           info.format == MARLIN_FORMAT_UINT8 ||
                           (info.flags & MARLIN_PACK_ADDITIVE_ZEROS);
    if (!corrected) return;
    // Act-order scatters a group over the row, and the members of groups are not visible. The
    // largest value of the row then bounds the scale of every group, because a scale is one step.
    if (info.flags & MARLIN_LAYER_ACT_ORDER) {
      magnitudes.push_back(2 * largest_code(info.format) * (largest > 0 ? largest : 1));
      return;
    }
    for (int64_t first = 0; first < info.k; first += info.group_size) {
      const int64_t count = std::min<int64_t>(info.group_size, info.k - first);
      magnitudes.push_back(corrected_magnitude(w.data() + first, count, info, sorted));
    }
    // A group whose values are all equal hides its scale; the scales of its neighbors replace it.
    const double row = *std::max_element(magnitudes.begin(), magnitudes.end());
    for (double& magnitude : magnitudes)
      magnitude = magnitude > 0 ? magnitude : row > 0 ? row + largest : 32;
  }

  /// S for integers with zeros.
  double corrected(const double* a, int64_t group_size) const {
    const auto k = static_cast<int64_t>(w.size());
    const int64_t step = magnitudes.size() == 1 ? k : group_size;
    double sum = 0;
    for (int64_t first = 0, g = 0; first < k; first += step, ++g) {
      double absolute = 0;
      for (int64_t i = first; i < std::min(first + step, k); ++i) absolute += std::fabs(a[i]);
      sum += absolute * magnitudes[static_cast<size_t>(g)];
    }
    return sum;
  }
};

void check_row(const Row& row, int64_t n, const marlin_layer_info& info, const Product& product,
               const Operand& operand, Tally& tally) {
  const auto k = static_cast<double>(info.k);
  const double gamma = k * kU / (1 - k * kU);
  const int64_t rows =
      product.experts.empty() ? product.m : static_cast<int64_t>(product.experts.size());
  const int64_t expert = n / info.n, column = n % info.n;
  for (int64_t at = 0; at < rows; ++at) {
    if (!product.experts.empty() && product.experts[static_cast<size_t>(at)] != expert) continue;
    const int64_t m = at / (rows / product.m);
    const Sums sums = dot(operand.a(m), operand.step(m), row.w.data(), info.k);
    const double s = row.magnitudes.empty()
                         ? sums.magnitude
                         : std::max(sums.magnitude, row.corrected(operand.a(m), info.group_size));
    // With rounded activations every |a| in S may be one step larger.
    const double bound = gamma * (s + sums.step) + sums.step +
                         k * 0x1p-126 * std::max({1.0, operand.largest(m), row.largest}) +
                         output_rounding(product.c->dtype(), sums.value);
    const double got = product.c->at(at, column);
    // Sums are float32, and their terms may come in any order.
    if (std::isfinite(sums.value) && !std::isfinite(got) &&
        s + sums.step > largest_finite(MARLIN_F32)) {
      tally.overflown();
      continue;
    }
    tally.element(got, sums.value, sums.squares, bound, largest_finite(product.c->dtype()), at,
                  column);
  }
}

}  // namespace

std::string Verdict::complaint() const {
  if (wrong == 0) return fmt::format("nmse {:.1e}, at most {:.1e}", nmse, limit_nmse);
  return fmt::format("{} of {} elements out of bounds, worst {:.3g} x at [{}, {}]", wrong, checked,
                     worst, m, n);
}

void check_products(const marlin_weights* weights, std::span<Product> products,
                    std::span<const RowRange> rows, unsigned threads,
                    const std::function<void(int64_t)>& on_rows) {
  const marlin_layer_info info = info_of(weights);
  std::vector<Operand> operands;
  for (const Product& product : products) operands.emplace_back(product, info);
  std::vector<RowRange> stripes;
  for (const RowRange& range : rows) {
    for (int64_t done = 0; done < range.count; done += kStripe) {
      stripes.push_back({range.first + done, std::min(kStripe, range.count - done)});
    }
  }
  std::vector<Tally> totals(products.size());
  std::mutex totals_mutex;
  parallel_for(static_cast<int64_t>(stripes.size()), threads, [&](int64_t at) {
    const RowRange stripe = stripes[static_cast<size_t>(at)];
    std::vector<float> values(static_cast<size_t>(stripe.count * info.k));
    unpack_rows(weights, stripe.first, stripe.count, info.k, values.data());
    std::vector<Tally> tallies(products.size());
    Row row;
    for (int64_t r = 0; r < stripe.count; ++r) {
      row.set(values.data() + r * info.k, info);
      for (size_t p = 0; p < products.size(); ++p)
        check_row(row, stripe.first + r, info, products[p], operands[p], tallies[p]);
    }
    const std::lock_guard lock(totals_mutex);
    for (size_t p = 0; p < products.size(); ++p) totals[p].add(tallies[p]);
    if (on_rows) on_rows(stripe.count);
  });
  for (size_t p = 0; p < products.size(); ++p) {
    Verdict& verdict = products[p].verdict = totals[p].verdict;
    const auto& [_, error2, true2, terms2] = totals[p];
    verdict.nmse = error2 == 0 ? 0 : error2 / true2;
    verdict.limit_nmse =
        limit_nmse(products[p], verdict.checked, terms2 > true2 ? terms2 / true2 : 1);
  }
}

std::vector<RowRange> every_row(int64_t n) { return {{0, n}}; }

std::vector<RowRange> sampled_rows(int64_t n, int64_t count) {
  if (n <= count) return every_row(n);
  if (count < 3) return {{0, 1}, {n - 1, count - 1}};
  const int64_t piece = count / 3;
  return {{0, piece}, {(n - piece) / 2, piece}, {n - piece, piece}};
}

}  // namespace metal_marlin::tools
