// The least-squares fits of one group of weights (fit.h says how).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/codecs.h"

namespace metal_marlin {

/// Weights and how much the square of the error of each counts.
struct FitGroup {
  std::span<const double> w, importance;
  FitGroup part(size_t begin, size_t length) const {
    return {w.subspan(begin, length), importance.subspan(begin, length)};
  }
};

/// The square of each column's norm; all 1 if there are none. A column of norm 0 counts a millionth
/// of the mean, so that its weights still come near.
std::vector<double> column_importance(std::span<const float> norms, int64_t k);

/// Rounds |x| < 2^51 to an integer, ties to even: near 1.5 * 2^52, doubles are the integers.
inline double round_even(double x) { return (x + 0x1.8p52) - 0x1.8p52; }
/// x inside [low, high]; NaN becomes low. Compilers make two instructions of it, unlike std::clamp.
inline double inside(double x, double low, double high) {
  const double above = x > low ? x : low;
  return above < high ? above : high;
}

/// Integers in units of the scale; the number `lowest` has the code `first`.
struct IntegerGrid {
  double lowest, highest;
  int first;
  static constexpr double kStep = 0.125;  ///< between the scales that are tried, in units
  double nearest(double x) const { return inside(round_even(x), lowest, highest); }
  uint8_t code(double number) const { return static_cast<uint8_t>(number - lowest + first); }
};

/// The codebook of IQ4.
struct Iq4Grid {
  static constexpr double lowest = -127, highest = 113;
  static constexpr double kStep = 1.5;
  double nearest(double x) const {
    double number = kIq4[0];
    for (int i = 1; i < 16; ++i)
      number = x > (double{kIq4[i - 1]} + double{kIq4[i]}) / 2 ? double{kIq4[i]} : number;
    return number;
  }
  uint8_t code(double number) const {
    uint8_t code = 0;
    while (double{kIq4[code]} < number) ++code;
    return code;
  }
};

/// 1 / x, and 0 for 0: every weight then gets the number nearest to 0.
inline double reciprocal(double x) { return x == 0 ? 0 : 1 / x; }

template <class Grid>
double fit_error(const FitGroup& group, double scale, const Grid& grid) {
  const double inverse = reciprocal(scale);
  double sum = 0;
  for (size_t i = 0; i < group.w.size(); ++i) {
    const double error = group.w[i] - scale * grid.nearest(group.w[i] * inverse);
    sum += group.importance[i] * error * error;
  }
  return sum;
}

/// The scale of least squared error that the search finds; 0 for zeros.
template <class Grid>
double best_scale(const FitGroup& group, const Grid& grid) {
  double extreme = 0;
  for (const double x : group.w)
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  if (extreme == 0) return 0;
  double best_gain = 0, best = extreme / grid.lowest;
  // With the best scale for these codes, the error is less by `gain` than that of zeros.
  const auto try_inverse = [&](double inverse) {
    double numbers = 0, products = 0;
    for (size_t i = 0; i < group.w.size(); ++i) {
      const double number = grid.nearest(group.w[i] * inverse),
                   weighted = group.importance[i] * number;
      numbers += weighted * number;
      products += weighted * group.w[i];
    }
    if (numbers <= 0 || products * products <= best_gain * numbers) return false;
    best_gain = products * products / numbers;
    best = products / numbers;
    return true;
  };
  constexpr int kFewer = 8, kMore = 12;  // steps to larger scales, and to smaller ones that clip
  for (const double edge : {double{grid.lowest}, double{grid.highest}}) {
    const double step = edge < 0 ? -Grid::kStep : Grid::kStep;
    for (int i = -kFewer; i <= kMore; ++i) try_inverse((edge + i * step) / extreme);
  }
  for (int i = 0; i < 4 && best != 0; ++i)
    if (!try_inverse(1 / best)) break;
  return best;
}

/// Values code * scale + zero of codes 0..last.
struct AffineFit {
  double scale = 0, zero = 0, error = 0;
};

/// The error of the nearest codes with this scale and zero. With `next`, also the scale and the
/// zero that are best for these codes; the zero is at most `zero_limit`.
double affine_error(const FitGroup& group, double last, double scale, double zero,
                    double zero_limit, AffineFit* next);

/// The fit of least squared error that the search finds, with a scale of at least 0 and a zero of
/// at most `zero_limit` (infinity: any).
AffineFit best_affine(const FitGroup& group, double last, double zero_limit);

}  // namespace metal_marlin
