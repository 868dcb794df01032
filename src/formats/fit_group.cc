#include "formats/fit_group.h"

#include <algorithm>

namespace metal_marlin {
namespace {

/// The weighted sums over a group from which the error and the best line follow.
struct LineSums {
  double one = 0, code = 0, code2 = 0, w = 0, w2 = 0, code_w = 0;

  double error(double scale, double zero) const {
    return w2 - 2 * scale * code_w - 2 * zero * w + scale * scale * code2 +
           2 * scale * zero * code + zero * zero * one;
  }
  /// The scale and the zero that solve the normal equations.
  AffineFit solve(double zero_limit) const {
    AffineFit fit;
    const double determinant = one * code2 - code * code;
    if (determinant > 0) {
      fit.scale = (one * code_w - code * w) / determinant;
      fit.zero = (code2 * w - code * code_w) / determinant;
    } else if (one > 0) {  // all codes are one number
      fit.zero = w / one;
    }
    if (fit.zero > zero_limit || fit.scale < 0) {
      fit.zero = std::min(fit.zero, zero_limit);
      fit.scale = code2 > 0 ? std::max(0.0, (code_w - fit.zero * code) / code2) : 0;
    }
    fit.error = error(fit.scale, fit.zero);
    return fit;
  }
};

LineSums sums_of(const FitGroup& group, double last, double scale, double zero) {
  const double inverse = reciprocal(scale);
  LineSums sums;
  for (size_t i = 0; i < group.w.size(); ++i) {
    const double x = group.w[i], importance = group.importance[i];
    const double code = inside(round_even((x - zero) * inverse), 0, last);
    sums.one += importance;
    sums.code += importance * code;
    sums.code2 += importance * code * code;
    sums.w += importance * x;
    sums.w2 += importance * x * x;
    sums.code_w += importance * code * x;
  }
  return sums;
}

}  // namespace

std::vector<double> column_importance(std::span<const float> norms, int64_t k) {
  std::vector<double> importance(static_cast<size_t>(k), 1);
  double sum = 0;
  for (const float norm : norms) sum += f32_to_f64(norm) * f32_to_f64(norm);
  if (sum == 0) return importance;
  const double least = 1e-6 * sum / static_cast<double>(k);
  for (size_t i = 0; i < std::min(norms.size(), importance.size()); ++i)
    importance[i] = std::max(f32_to_f64(norms[i]) * f32_to_f64(norms[i]), least);
  return importance;
}

double affine_error(const FitGroup& group, double last, double scale, double zero,
                    double zero_limit, AffineFit* next) {
  if (next != nullptr) *next = sums_of(group, last, scale, zero).solve(zero_limit);
  const double inverse = reciprocal(scale);
  double sum = 0;
  for (size_t i = 0; i < group.w.size(); ++i) {
    const double code = inside(round_even((group.w[i] - zero) * inverse), 0, last);
    const double error = group.w[i] - (scale * code + zero);
    sum += group.importance[i] * error * error;
  }
  return sum;
}

AffineFit best_affine(const FitGroup& group, double last, double zero_limit) {
  const auto [low_at, high_at] = std::minmax_element(group.w.begin(), group.w.end());
  const double low = std::min(*low_at, zero_limit), range = *high_at - low;
  if (range <= 0) return {0, low, 0};
  // Scales that leave the last code free, and scales that clip both ends.
  constexpr int kSteps = 24;
  constexpr double kFewest = 0.9, kStep = 0.125;
  AffineFit best;
  bool found = false;
  const auto keep = [&](const AffineFit& fit) {
    if (found && fit.error >= best.error) return false;
    best = fit;
    return found = true;
  };
  for (int i = 0; i < kSteps; ++i) {
    const double scale = range / (last - kFewest + i * kStep);
    const double clipped = std::max(0.0, range - scale * last);
    const AffineFit first =
        sums_of(group, last, scale, std::min(low + clipped / 2, zero_limit)).solve(zero_limit);
    keep(first);
    keep(sums_of(group, last, first.scale, first.zero).solve(zero_limit));
  }
  for (int i = 0; i < 6; ++i)
    if (!keep(sums_of(group, last, best.scale, best.zero).solve(zero_limit))) break;
  return best;
}

}  // namespace metal_marlin
