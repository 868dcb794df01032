#include "formats/fit.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <limits>

#include "formats/fit_group.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

constexpr double kAnyZero = std::numeric_limits<double>::infinity();
constexpr int kRounds = 4;  ///< of factors, integers and codes in turn

/// Of the numbers that two-level scales are made of.
struct IntegerRange {
  int lowest, highest;
};
constexpr IntegerRange integers_of(ScaleType type) {
  switch (type) {
    case ScaleType::u4:
      return {0, 15};
    case ScaleType::u6:
      return {0, 63};
    case ScaleType::s6:
      return {-32, 31};
    default:
      return {-128, 127};
  }
}

/// Where the parts of a group or of a block go; those that the type lacks are null.
struct Parts {
  uint8_t *codes, *scales, *zeros, *scale_factor, *zero_factor;
};

// --- a group with scales of one level ------------------------------------------------------------

template <class Grid>
void write_codes(const FitGroup& group, double scale, const Grid& grid, uint8_t* codes) {
  const double inverse = reciprocal(scale);
  for (size_t i = 0; i < group.w.size(); ++i)
    codes[i] = grid.code(grid.nearest(group.w[i] * inverse));
}

void write_affine_codes(const FitGroup& group, double last, double scale, double zero,
                        uint8_t* codes) {
  const double inverse = reciprocal(scale);
  for (size_t i = 0; i < group.w.size(); ++i)
    codes[i] = static_cast<uint8_t>(inside(round_even((group.w[i] - zero) * inverse), 0, last));
}

/// False if the scale or the zero is beyond its type; here and below.
template <class Grid>
bool fit_scale(const FitGroup& group, const Grid& grid, ScaleType type, const Parts& to) {
  const float scale = round_scale_to(type, best_scale(group, grid));
  if (!std::isfinite(scale)) return false;
  write_codes(group, f32_to_f64(scale), grid, to.codes);
  encode_scale(type, scale, to.scales);
  return true;
}

bool fit_affine(const FitGroup& group, double last, const WeightMeta& meta, const Parts& to) {
  const AffineFit fit = best_affine(group, last, kAnyZero);
  const float scale = round_scale_to(meta.scale_type, fit.scale),
              zero = round_scale_to(meta.zero_type, fit.zero);
  if (!std::isfinite(scale) || !std::isfinite(zero)) return false;
  write_affine_codes(group, last, f32_to_f64(scale), f32_to_f64(zero), to.codes);
  encode_scale(meta.scale_type, scale, to.scales);
  encode_scale(meta.zero_type, zero, to.zeros);
  return true;
}

// --- a block with two-level scales ---------------------------------------------------------------

constexpr size_t kMostGroups = 16;

/// The block of factors and integers with the least error so far.
struct Levels {
  double scale_factor = 0, zero_factor = 0, error = std::numeric_limits<double>::infinity();
  std::array<int, kMostGroups> scales{}, zeros{};
};

int nearest_integer(double x, const IntegerRange& range) {
  return static_cast<int>(inside(round_even(x), range.lowest, range.highest));
}

/// Calls use(integer) for the integer nearest to x and its neighbors inside of the range.
template <class Use>
void for_neighbors(double x, const IntegerRange& range, const Use& use) {
  const int nearest = nearest_integer(x, range);
  for (int i = std::max(range.lowest, nearest - 1); i <= std::min(range.highest, nearest + 1); ++i)
    use(i);
}

/// Chooses the integer of each group for this factor; `wanted` are the scales without levels.
template <class Grid>
Levels choose_scales(const FitGroup& block, const Grid& grid, size_t size, double factor,
                     const IntegerRange& range, const std::array<double, kMostGroups>& wanted) {
  Levels levels;
  levels.scale_factor = factor;
  levels.error = 0;
  for (size_t g = 0; g * size < block.w.size(); ++g) {
    const FitGroup group = block.part(g * size, size);
    double least = std::numeric_limits<double>::infinity();
    for_neighbors(wanted[g] * reciprocal(factor), range, [&](int integer) {
      const double error = fit_error(group, factor * integer, grid);
      if (error >= least) return;
      least = error;
      levels.scales[g] = integer;
    });
    levels.error += least;
  }
  return levels;
}

/// The best factor for the codes that these levels give.
template <class Grid>
double best_factor(const FitGroup& block, const Grid& grid, size_t size, const Levels& levels) {
  double numbers = 0, products = 0;
  for (size_t g = 0; g * size < block.w.size(); ++g) {
    const double inverse = reciprocal(levels.scale_factor * levels.scales[g]);
    const FitGroup group = block.part(g * size, size);
    for (size_t i = 0; i < size; ++i) {
      const double number = levels.scales[g] * grid.nearest(group.w[i] * inverse);
      numbers += group.importance[i] * number * number;
      products += group.importance[i] * number * group.w[i];
    }
  }
  return numbers > 0 ? products / numbers : 0;
}

template <class Grid>
bool fit_levels(const FitGroup& block, const Grid& grid, const WeightMeta& meta, const Parts& to) {
  const IntegerRange range = integers_of(meta.scale_type);
  const auto size = static_cast<size_t>(meta.group_size), groups = block.w.size() / size;
  std::array<double, kMostGroups> wanted{};
  double extreme = 0;
  for (size_t g = 0; g < groups; ++g) {
    wanted[g] = best_scale(block.part(g * size, size), grid);
    if (std::fabs(wanted[g]) > std::fabs(extreme)) extreme = wanted[g];
  }
  Levels best;
  double factor = extreme / range.lowest;
  for (int round = 0; round < kRounds; ++round) {
    const float stored = round_scale_to(ScaleType::f16, factor);
    if (!std::isfinite(stored)) return false;
    const Levels levels = choose_scales(block, grid, size, f32_to_f64(stored), range, wanted);
    if (levels.error >= best.error) break;
    best = levels;
    factor = best_factor(block, grid, size, levels);
  }
  for (size_t g = 0; g < groups; ++g) {
    write_codes(block.part(g * size, size), best.scale_factor * best.scales[g], grid,
                to.codes + g * size);
    to.scales[g] = static_cast<uint8_t>(best.scales[g]);
  }
  encode_scale(ScaleType::f16, f64_to_f32(best.scale_factor), to.scale_factor);
  return true;
}

/// The same with zeros; those of `wanted` are 0 or less.
Levels choose_affine_levels(const FitGroup& block, double last, size_t size, double scale_factor,
                            double zero_factor, const IntegerRange& range,
                            const std::array<AffineFit, kMostGroups>& wanted) {
  Levels levels;
  levels.scale_factor = scale_factor;
  levels.zero_factor = zero_factor;
  levels.error = 0;
  for (size_t g = 0; g * size < block.w.size(); ++g) {
    const FitGroup group = block.part(g * size, size);
    double least = std::numeric_limits<double>::infinity();
    for_neighbors(wanted[g].scale * reciprocal(scale_factor), range, [&](int scale) {
      for_neighbors(-wanted[g].zero * reciprocal(zero_factor), range, [&](int zero) {
        const double error =
            affine_error(group, last, scale_factor * scale, -zero_factor * zero, 0, nullptr);
        if (error >= least) return;
        least = error;
        levels.scales[g] = scale;
        levels.zeros[g] = zero;
      });
    });
    levels.error += least;
  }
  return levels;
}

/// Solves the normal equations of w = scale_factor (integer code) - zero_factor integer for the
/// codes that these levels give.
void best_factors(const FitGroup& block, double last, size_t size, const Levels& levels,
                  double& scale_factor, double& zero_factor) {
  double aa = 0, ab = 0, bb = 0, aw = 0, bw = 0;
  for (size_t g = 0; g * size < block.w.size(); ++g) {
    const double scale = levels.scale_factor * levels.scales[g];
    const double zero = -levels.zero_factor * levels.zeros[g], inverse = reciprocal(scale);
    const FitGroup group = block.part(g * size, size);
    for (size_t i = 0; i < size; ++i) {
      const double code = inside(round_even((group.w[i] - zero) * inverse), 0, last);
      const double a = levels.scales[g] * code, b = -levels.zeros[g];
      const double weighted_a = group.importance[i] * a, weighted_b = group.importance[i] * b;
      aa += weighted_a * a;
      ab += weighted_a * b;
      bb += weighted_b * b;
      aw += weighted_a * group.w[i];
      bw += weighted_b * group.w[i];
    }
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant > 0) {
    scale_factor = (aw * bb - bw * ab) / determinant;
    zero_factor = (bw * aa - aw * ab) / determinant;
  } else if (aa > 0) {
    scale_factor = aw / aa;
  }
}

bool fit_affine_levels(const FitGroup& block, double last, const WeightMeta& meta,
                       const Parts& to) {
  const IntegerRange range = integers_of(meta.scale_type);
  const auto size = static_cast<size_t>(meta.group_size), groups = block.w.size() / size;
  std::array<AffineFit, kMostGroups> wanted{};
  double scale_factor = 0, zero_factor = 0;
  for (size_t g = 0; g < groups; ++g) {
    wanted[g] = best_affine(block.part(g * size, size), last, 0);
    scale_factor = std::max(scale_factor, wanted[g].scale / range.highest);
    zero_factor = std::max(zero_factor, -wanted[g].zero / range.highest);
  }
  Levels best;
  for (int round = 0; round < kRounds; ++round) {
    const float scale = round_scale_to(ScaleType::f16, scale_factor),
                zero = round_scale_to(ScaleType::f16, zero_factor);
    if (!std::isfinite(scale) || !std::isfinite(zero)) return false;
    const Levels levels =
        choose_affine_levels(block, last, size, f32_to_f64(scale), f32_to_f64(zero), range, wanted);
    if (levels.error >= best.error) break;
    best = levels;
    best_factors(block, last, size, levels, scale_factor, zero_factor);
  }
  for (size_t g = 0; g < groups; ++g) {
    write_affine_codes(block.part(g * size, size), last, best.scale_factor * best.scales[g],
                       -best.zero_factor * best.zeros[g], to.codes + g * size);
    to.scales[g] = static_cast<uint8_t>(best.scales[g]);
    to.zeros[g] = static_cast<uint8_t>(best.zeros[g]);
  }
  encode_scale(ScaleType::f16, f64_to_f32(best.scale_factor), to.scale_factor);
  encode_scale(ScaleType::f16, f64_to_f32(best.zero_factor), to.zero_factor);
  return true;
}

// --- the source ----------------------------------------------------------------------------------

class FittedSource final : public WeightSource {
 public:
  FittedSource(const FloatMatrix& matrix, const WeightMeta& meta, std::span<const float> norms)
      : matrix_(matrix),
        row_(*format_row(meta.format)),
        importance_(column_importance(norms, meta.k)) {
    meta_ = meta;
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const auto k = static_cast<size_t>(meta_.k);
    const bool two_level = meta_.has_two_level_scales(), additive = has_zeros();
    const size_t span = static_cast<size_t>(two_level ? kFactorSpan : meta_.group_size);
    const size_t spans = (k + span - 1) / span, rows = static_cast<size_t>(count);
    const size_t groups = static_cast<size_t>(meta_.groups) / spans;
    const size_t scale_step = groups * scale_bytes(meta_.scale_type),
                 zero_step = groups * scale_bytes(meta_.zero_type);
    out.codes.resize(rows * k);
    out.scales.resize(rows * spans * scale_step);
    out.zeros.resize(additive ? rows * spans * zero_step : 0);
    out.scale_factors.resize(two_level ? rows * spans * kFactorBytes : 0);
    out.zero_factors.resize(two_level && additive ? rows * spans * kFactorBytes : 0);
    out.kept.clear();
    const auto at = [](std::vector<uint8_t>& part, size_t place) {
      return part.empty() ? nullptr : part.data() + place;
    };
    std::vector<double> w(k);
    for (size_t r = 0; r < rows; ++r) {
      const int64_t row = first + static_cast<int64_t>(r);
      MARLIN_RETURN_IF_ERROR(read_finite_row(matrix_, row, w));
      for (size_t s = 0; s < spans; ++s) {
        const size_t begin = s * span, length = std::min(span, k - begin), place = r * spans + s;
        const FitGroup group = FitGroup{w, importance_}.part(begin, length);
        if (!fit(group,
                 {&out.codes[r * k + begin], &out.scales[place * scale_step],
                  at(out.zeros, place * zero_step), at(out.scale_factors, place * kFactorBytes),
                  at(out.zero_factors, place * kFactorBytes)}))
          return range_error(row, begin);
      }
    }
    return {};
  }

 private:
  bool has_zeros() const { return meta_.zero_kind == ZeroKind::additive; }

  bool fit(const FitGroup& group, const Parts& to) const {
    const int last = (1 << row_.code_bits) - 1;
    if (has_zeros()) {
      return meta_.has_two_level_scales() ? fit_affine_levels(group, last, meta_, to)
                                          : fit_affine(group, last, meta_, to);
    }
    if (row_.numbers == CodeNumbers::codebook) return fit_on(group, Iq4Grid{}, to);
    const int zero = row_.zero_point();
    return fit_on(group, IntegerGrid{-1.0 * zero, 1.0 * last - zero, 0}, to);
  }
  template <class Grid>
  bool fit_on(const FitGroup& group, const Grid& grid, const Parts& to) const {
    return meta_.has_two_level_scales() ? fit_levels(group, grid, meta_, to)
                                        : fit_scale(group, grid, meta_.scale_type, to);
  }

  Status range_error(int64_t row, size_t column) const {
    return Status::error(MARLIN_E_FORMAT,
                         "%s[%" PRId64
                         ", %zu]: expected weights whose scales %s can hold, found "
                         "larger ones",
                         matrix_.name.c_str(), row, column, scale_type_name(meta_.scale_type));
  }

  FloatMatrix matrix_;
  const FormatRow& row_;
  std::vector<double> importance_;
};

}  // namespace

bool is_fitted(const WeightMeta& meta) {
  return meta.zero_kind == ZeroKind::additive || meta.has_two_level_scales() ||
         !format_row(meta.format)->quantized;
}

Result<std::unique_ptr<WeightSource>> make_fitted(const FloatMatrix& matrix, const WeightMeta& meta,
                                                  std::span<const float> norms) {
  const FormatRow& row = *format_row(meta.format);
  const bool integers = row.numbers == CodeNumbers::from_zero;
  const bool iq4 = row.numbers == CodeNumbers::codebook && row.codebook == kIq4;
  if ((!integers && !iq4) || meta.sparse || meta.zero_kind == ZeroKind::integer) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "format: dense integers and IQ4 are fitted by least squares, found %s%s",
                         row.name, meta.sparse ? " with 2:4 sparsity" : "");
  }
  MARLIN_RETURN_IF_ERROR(check_column_norms(norms, meta.k));
  return std::unique_ptr<WeightSource>(std::make_unique<FittedSource>(matrix, meta, norms));
}

}  // namespace metal_marlin
