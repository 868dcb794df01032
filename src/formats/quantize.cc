#include "formats/quantize.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <span>

#include "base/bits.h"
#include "formats/codecs.h"
#include "formats/fit_group.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

/// Widens a row; NaN and infinity are an error.
Status widen_finite(const std::string& name, int64_t row, std::span<const float> from,
                    std::span<double> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (!std::isfinite(from[i])) {
      return Status::error(MARLIN_E_FORMAT,
                           "%s[%" PRId64 ", %zu]: expected a finite number to quantize, found %s",
                           name.c_str(), row, i, std::isnan(from[i]) ? "NaN" : "infinity");
    }
    to[i] = f32_to_f64(from[i]);
  }
  return {};
}

// --- scales -------------------------------------------------------------------------------------

/// The positive numbers that a stored type can hold.
struct ScaleRange {
  int bits;     ///< of significand
  double step;  ///< between its smallest numbers
  double smallest, largest;
};
ScaleRange range_of(ScaleType type) {
  switch (type) {
    case ScaleType::f16:
      return {11, 0x1p-24, 0x1p-24, 65504};
    case ScaleType::e4m3:
      return {4, 0x1p-9, 0x1p-9, 448};
    default:
      return {24, 0x1p-149, 0x1p-126, 0x1.fffffep127};
  }
}

/// The nearest number of the type to x > 0, kept inside its range.
double round_scale(ScaleType type, double x) {
  const ScaleRange r = range_of(type);
  const double step = std::max(std::ldexp(1.0, std::ilogb(x) - (r.bits - 1)), r.step);
  return std::clamp(round_even(x / step) * step, r.smallest, r.largest);
}

/// Appends the bytes of a scale that round_scale gave.
uint8_t* store_scale(ScaleType type, double scale, uint8_t* out) {
  const auto f = static_cast<float>(scale);
  switch (type) {
    case ScaleType::f16:
      store(out, f32_to_f16(f));
      break;
    case ScaleType::e4m3:
      *out = f32_to_e4m3(f);
      break;
    case ScaleType::e8m0:
      *out = static_cast<uint8_t>(std::ilogb(scale) + 127);
      break;
    default:
      store(out, f);
      break;
  }
  return out + scale_bytes(type);
}

// --- codes: `encode` takes w / s, `value` gives the value of the code in units of s -------------

struct E2m1Coder {
  /// Counts the midpoints below x. A tie counts if the code above it is the even one.
  uint8_t encode(double x) const {
    const double a = std::fabs(x);
    const int code =
        (a > 0.25) + (a >= 0.75) + (a > 1.25) + (a >= 1.75) + (a > 2.5) + (a >= 3.5) + (a > 5.0);
    return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
  }
  double value(uint8_t code) const { return static_cast<double>(kE2m1[code]); }
};

struct Int4Coder {
  int zero = 8, lowest = 1;
  uint8_t encode(double x) const {
    return static_cast<uint8_t>(std::clamp(round_even(x) + zero, 1.0 * lowest, 15.0));
  }
  double value(uint8_t code) const { return code - zero; }
};

struct Int8Coder {
  uint8_t encode(double x) const {
    return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(round_even(x), -127.0, 127.0)));
  }
  double value(uint8_t code) const { return static_cast<int8_t>(code); }
};

template <class Coder>
double squared_error(const FitGroup& group, double scale, Coder coder) {
  double sum = 0;
  for (size_t i = 0; i < group.w.size(); ++i) {
    const double x = group.w[i];
    const double error = x - coder.value(coder.encode(x / scale)) * scale;
    sum += group.importance[i] * error * error;
  }
  return sum;
}

// --- the source ---------------------------------------------------------------------------------

/// The extremes of some numbers, 0 included.
struct Extremes {
  double min = 0, max = 0;
  double magnitude() const { return std::max(max, -min); }
};
Extremes extremes_of(std::span<const double> w) {
  Extremes r;
  for (const double x : w) {
    r.min = std::min(r.min, x);
    r.max = std::max(r.max, x);
  }
  return r;
}

constexpr int kMseSteps = 24;
constexpr double mse_factor(int i) { return 0.70 + 0.35 * i / (kMseSteps - 1); }

class QuantizedSource final : public WeightSource {
 public:
  static Result<std::unique_ptr<WeightSource>> make(const FloatMatrix& matrix, const FormatRow& row,
                                                    int64_t group_size,
                                                    const QuantizeOptions& options);
  Status read(int64_t first, int64_t count, Stripe& out) const override;

 private:
  /// The numbers of a group, and the destinations of its scale, zero and codes.
  struct Group : FitGroup {
    uint8_t *codes, *scale, *zero;
  };

  QuantizedSource(const FloatMatrix& matrix, const QuantizeOptions& options)
      : matrix_(matrix),
        options_(options),
        importance_(column_importance(options.sparse.column_norms, matrix.k)) {}
  struct Row {
    std::vector<float> floats;
    std::vector<double> given, w;  ///< w: 0 where not kept
    std::vector<uint8_t>
        kept;  ///< masks of the blocks of 4; empty unless the floats or the codes are sparse
  };

  Status read_row(int64_t row, Row& out) const;
  Status read_kept(int64_t row, Row& out) const;
  /// Reads all rows. Returns the largest magnitude of the kept elements, and writes the norms of
  /// all elements and of the kept ones into the meta.
  Result<double> scan();
  void quantize(const Group& group) const;
  template <class CoderOf>
  void quantize_on_grid(const Group& group, double scale, CoderOf coder_of) const;
  void quantize_mx(const Group& group, double magnitude) const;
  /// `scale` is the stored scale; `unit` is the unit of the codes.
  template <class Coder>
  void write(const Group& group, double scale, double unit, Coder coder) const;

  FloatMatrix matrix_;
  QuantizeOptions options_;
  std::vector<double> importance_;
  double tensor_scale_ = 1;
};

/// Moves the kept elements, which fill the first half of a row, to their places in the row.
Status QuantizedSource::read_kept(int64_t row, Row& out) const {
  MARLIN_RETURN_IF_ERROR(matrix_.kept(row, out.kept.data()));
  for (size_t b = out.kept.size(); b-- > 0;) {  // from the back, where the room is
    size_t from = 2 * b + 2;
    for (size_t i = 4; i-- > 0;) {
      const bool keeps = (out.kept[b] >> i & 1u) != 0;
      const float value = keeps ? out.floats[--from] : 0.0f;
      out.floats[4 * b + i] = value;
    }
  }
  return {};
}

Status QuantizedSource::read_row(int64_t row, Row& out) const {
  const int64_t k = matrix_.k, width = static_cast<int64_t>(float_bytes(matrix_.dtype));
  std::vector<float>& floats = out.floats;
  floats.resize(static_cast<size_t>(k));
  out.given.resize(static_cast<size_t>(k));
  const auto* from = static_cast<const uint8_t*>(matrix_.data) + row * matrix_.row_stride * width;
  decode_floats(matrix_.dtype, from, matrix_.kept ? k / 2 : k, floats.data());
  out.kept.resize(matrix_.kept || meta_.sparse ? static_cast<size_t>(k / 4) : 0);
  if (matrix_.kept) MARLIN_RETURN_IF_ERROR(read_kept(row, out));
  MARLIN_RETURN_IF_ERROR(widen_finite(matrix_.name, row, floats, out.given));
  out.w = out.given;
  if (!meta_.sparse || matrix_.kept) return {};
  MARLIN_RETURN_IF_ERROR(
      keep_of_floats(out.w, options_.sparse, matrix_.name, row, out.kept.data()));
  for (size_t i = 0; i < out.w.size(); ++i) {
    if (!is_kept(out.kept.data(), static_cast<int64_t>(i))) out.w[i] = 0;
  }
  return {};
}

Result<double> QuantizedSource::scan() {
  Row row;
  KeptNorm norm;
  double magnitude = 0;
  const bool prune = options_.sparse.sparsity == Sparsity::prune;
  for (int64_t r = 0; r < matrix_.n; ++r) {
    MARLIN_RETURN_IF_ERROR(read_row(r, row));
    magnitude = std::max(magnitude, extremes_of(row.w).magnitude());
    for (size_t i = 0; prune && i < row.given.size(); ++i)
      norm.add(row.given[i], is_kept(row.kept.data(), static_cast<int64_t>(i)));
    norm.end_row();
  }
  norm.store(meta_);
  return magnitude;
}

Result<std::unique_ptr<WeightSource>> QuantizedSource::make(const FloatMatrix& matrix,
                                                            const FormatRow& row,
                                                            int64_t group_size,
                                                            const QuantizeOptions& options) {
  std::unique_ptr<QuantizedSource> source(new QuantizedSource(matrix, options));
  WeightMeta& meta = source->meta_;
  meta.format = row.format;
  meta.n = matrix.n;
  meta.k = matrix.k;
  MARLIN_ASSIGN(meta.group_size, resolve_group_size(row, group_size, matrix.k));
  meta.groups = ceil_div(meta.k, meta.group_size);
  meta.scale_type = row.default_type;
  meta.zero_kind = options.asymmetric ? ZeroKind::integer : ZeroKind::none;
  meta.sparse =
      options.sparse.sparsity != Sparsity::as_given || (matrix.kept && row.has_sparse_form());
  MARLIN_RETURN_IF_ERROR(check_meta(meta));
  MARLIN_RETURN_IF_ERROR(check_column_norms(options.sparse.column_norms, matrix.k));
  const bool as_given = options.sparse.sparsity == Sparsity::as_given;
  if (row.format == MARLIN_FORMAT_MXFP4 && as_given)
    return std::unique_ptr<WeightSource>(std::move(source));

  MARLIN_ASSIGN(const double largest, source->scan());
  if (row.format == MARLIN_FORMAT_MXFP4) return std::unique_ptr<WeightSource>(std::move(source));
  if (row.format == MARLIN_FORMAT_NVFP4) {
    const double t = largest / (kE4m3Max * kE2m1Max);
    const bool divide = options.divide_tensor_scale;
    const double stored = largest == 0 ? 1 : round_scale(ScaleType::f32, divide ? 1 / t : t);
    source->tensor_scale_ = divide ? 1 / stored : stored;
    meta.tensor_scales = {{0, static_cast<float>(stored), divide}};
  } else {
    const double integer_steps = row.code_bits == 8 ? 127 : 7;
    const double steps = row.codebook != nullptr ? kE2m1Max : integer_steps;
    const double scale = largest / steps;
    if (largest != 0 && (scale > 65504 || scale < 0x1p-14)) meta.scale_type = ScaleType::f32;
  }
  return std::unique_ptr<WeightSource>(std::move(source));
}

Status QuantizedSource::read(int64_t first, int64_t count, Stripe& out) const {
  const auto rows = static_cast<size_t>(count), k = static_cast<size_t>(meta_.k),
             groups = static_cast<size_t>(meta_.groups);
  const size_t width = scale_bytes(meta_.scale_type),
               group_size = static_cast<size_t>(meta_.group_size);
  const bool zeros = meta_.zero_kind == ZeroKind::integer;
  out.codes.resize(rows * k);
  out.scales.resize(rows * groups * width);
  out.zeros.resize(zeros ? rows * groups : 0);
  out.kept.resize(meta_.sparse ? rows * (k / 4) : 0);
  Row row;
  for (size_t r = 0; r < rows; ++r) {
    MARLIN_RETURN_IF_ERROR(read_row(first + static_cast<int64_t>(r), row));
    if (meta_.sparse)
      std::copy(row.kept.begin(), row.kept.end(),
                out.kept.begin() + static_cast<ptrdiff_t>(r * row.kept.size()));
    for (size_t g = 0; g < groups; ++g) {
      const size_t begin = g * group_size, length = std::min(group_size, k - begin),
                   at = r * groups + g;
      quantize({FitGroup{row.w, importance_}.part(begin, length), &out.codes[r * k + begin],
                &out.scales[at * width], zeros ? &out.zeros[at] : nullptr});
    }
  }
  return {};
}

template <class Coder>
void QuantizedSource::write(const Group& group, double scale, double unit, Coder coder) const {
  for (size_t i = 0; i < group.w.size(); ++i) group.codes[i] = coder.encode(group.w[i] / unit);
  store_scale(meta_.scale_type, scale, group.scale);
}

/// `coder_of(unit)` chooses codes that count in `unit` = scale * tensor scale.
template <class CoderOf>
void QuantizedSource::quantize_on_grid(const Group& group, double scale, CoderOf coder_of) const {
  double best = round_scale(meta_.scale_type, scale);
  if (options_.search_mse) {
    double least = HUGE_VAL;
    for (int i = kMseSteps - 1; i >= 0;
         --i) {  // from the largest on, so that a tie keeps the larger
      const double candidate = round_scale(meta_.scale_type, scale * mse_factor(i)),
                   unit = candidate * tensor_scale_;
      const double error = squared_error(group, unit, coder_of(unit));
      if (error < least) {
        least = error;
        best = candidate;
      }
    }
  }
  const double unit = best * tensor_scale_;
  write(group, best, unit, coder_of(unit));
}

void QuantizedSource::quantize_mx(const Group& group, double magnitude) const {
  double scale = std::ldexp(1.0, std::clamp(std::ilogb(magnitude) - 2, -127, 127));
  const double next = std::min(scale * 2, 0x1p127);
  if (options_.search_mse &&
      squared_error(group, next, E2m1Coder{}) <= squared_error(group, scale, E2m1Coder{})) {
    scale = next;
  }
  write(group, scale, scale, E2m1Coder{});
}

void QuantizedSource::quantize(const Group& group) const {
  const Extremes range = extremes_of(group.w);
  const double magnitude = range.magnitude();
  if (magnitude == 0) {
    const uint8_t code = meta_.format == MARLIN_FORMAT_INT4 && !options_.asymmetric ? 8 : 0;
    std::fill_n(group.codes, group.w.size(), code);
    if (group.zero != nullptr) *group.zero = 0;
    store_scale(meta_.scale_type, meta_.scale_type == ScaleType::e8m0 ? 0x1p-127 : 1, group.scale);
    return;
  }
  if (meta_.format == MARLIN_FORMAT_MXFP4) return quantize_mx(group, magnitude);
  if (format_row(meta_.format)->codebook != nullptr) {
    return quantize_on_grid(group, magnitude / kE2m1Max / tensor_scale_,
                            [](double) { return E2m1Coder{}; });
  }
  if (meta_.format == MARLIN_FORMAT_INT8) {
    return quantize_on_grid(group, magnitude / 127, [](double) { return Int8Coder{}; });
  }
  if (!options_.asymmetric) {
    const int lowest = options_.search_mse ? 0 : 1;
    return quantize_on_grid(group, magnitude / 7,
                            [lowest](double) { return Int4Coder{8, lowest}; });
  }
  quantize_on_grid(group, (range.max - range.min) / 15, [&](double unit) {
    const auto zero = static_cast<int>(std::clamp(round_even(-range.min / unit), 0.0, 15.0));
    *group.zero = static_cast<uint8_t>(zero);  // the last call is with the scale that was chosen
    return Int4Coder{zero, 0};
  });
}

}  // namespace

Status read_finite_row(const FloatMatrix& matrix, int64_t row, std::span<double> out) {
  const auto width = static_cast<int64_t>(float_bytes(matrix.dtype));
  std::vector<float> floats(out.size());
  const auto* from = static_cast<const uint8_t*>(matrix.data) + row * matrix.row_stride * width;
  decode_floats(matrix.dtype, from, matrix.k, floats.data());
  return widen_finite(matrix.name, row, floats, out);
}

Result<std::unique_ptr<WeightSource>> make_quantized(const FloatMatrix& matrix,
                                                     marlin_format format, int64_t group_size,
                                                     const QuantizeOptions& options) {
  const FormatRow* row = format_row(format);
  if (row == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "format: %d is none of this version", format);
  if (!row->quantized) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "format: floats are quantized to INT4, FP4, MXFP4, NVFP4 and INT8, "
                         "found %s",
                         row->name);
  }
  if (matrix.dtype != MARLIN_F32 && matrix.dtype != MARLIN_F16 && matrix.dtype != MARLIN_BF16) {
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s: expected F32, F16 or BF16 numbers to quantize, found dtype %d",
                         matrix.name.c_str(), matrix.dtype);
  }
  if (matrix.kept && matrix.k % 4 != 0) {
    return Status::error(MARLIN_E_SHAPE, "k: 2:4 sparse rows are whole blocks of 4, found %" PRId64,
                         matrix.k);
  }
  if (matrix.kept && options.sparse.sparsity == Sparsity::obey) {
    return Status::error(MARLIN_E_ARGUMENT,
                         "flags: OBEYS_2_4 is about dense values, found 2:4 metadata");
  }
  if (matrix.n < 1 || matrix.k < 1 || matrix.row_stride < (matrix.kept ? matrix.k / 2 : matrix.k)) {
    return Status::error(
        MARLIN_E_SHAPE,
        "%s: expected n and k above 0 and a row stride of at least k, found %" PRId64 ", %" PRId64
        " and %" PRId64,
        matrix.name.c_str(), matrix.n, matrix.k, matrix.row_stride);
  }
  return QuantizedSource::make(matrix, *row, group_size, options);
}

}  // namespace metal_marlin
