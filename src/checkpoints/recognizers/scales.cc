#include "checkpoints/recognizers/scales.h"

#include <algorithm>
#include <iterator>

#include "base/bits.h"
#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

constexpr const char* kScales[] = {
    ".weight_scale_inv", ".weight_scale", ".scale_weight", ".qscale_weight", ".scale_inv", ".scale",
    "_weight_scale_inv", "_weight_scale", "_scale_inv",    "_scale"};
constexpr const char* kTensorScales[] = {".weight_scale_2", "_weight_scale_2", "_scale_2"};
constexpr const char* kTensorDivisors[] = {".weight_global_scale", "_weight_global_scale",
                                           "_global_scale"};

constexpr int64_t kBlock = 128;  // if the config does not say more

bool is_byte_exponent(marlin_dtype dtype) { return dtype == MARLIN_U8 || dtype == MARLIN_E8M0; }

/// The dimensions of the scales of one expert, [rows, columns] or fewer; `stacked` tells whether
/// each expert has its own.
struct ScaleShape {
  std::vector<int64_t> dims;
  bool stacked = false;
  bool blocks = false;  ///< [rows, 1, columns, 1]
};

ScaleShape shape_of(const TensorView& scales, const Finding& found) {
  ScaleShape shape{scales.dims};
  std::vector<int64_t>& dims = shape.dims;
  if (found.stacked && !dims.empty() && dims[0] == static_cast<int64_t>(found.layer.experts) &&
      (dims.size() != 2 || dims[1] == 1 || dims[1] == found.layer.n)) {
    dims.erase(dims.begin());
    shape.stacked = true;
  }
  if (dims.size() == 4 && dims[1] == 1 && dims[3] == 1) {
    dims = {dims[0], dims[2]};
    shape.blocks = true;
  }
  return shape;
}

bool is_one(const std::vector<int64_t>& dims) {
  return std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d == 1; });
}

void set_dims(const ScaleShape& shape, int64_t rows, int64_t columns, const Finding& found,
              TensorView& view) {
  view.dims = {rows, columns};
  if (shape.stacked) view.dims.insert(view.dims.begin(), found.layer.experts);
}

/// One number, or a number for each row.
bool take_rows(const ScaleShape& shape, const Finding& found, TensorView& view) {
  const int64_t n = found.layer.n;
  const std::vector<int64_t>& dims = shape.dims;
  if (shape.blocks) return false;
  const bool transposed = !found.rearranged.empty() && dims.size() == 2 && dims[0] == 1;
  const bool rows = (dims.size() == 1 && dims[0] == n) || (transposed && dims[1] == n) ||
                    (dims.size() == 2 && dims[0] == n && dims[1] == 1);
  if (!rows && !is_one(dims)) return false;
  set_dims(shape, n, 1, found, view);
  view.row_stride = rows ? 1 : 0;
  return true;
}

}  // namespace

const std::span<const char* const> kScaleNames = kScales, kTensorScaleNames = kTensorScales,
                                   kTensorDivisorNames = kTensorDivisors;

void spread_over_rows(TensorView& view, const Finding& found) {
  if (present(view)) take_rows(shape_of(view, found), found, view);
}

void take_scales(const Finder& finder, TensorView scales, Finding& found) {
  LayoutOperands& o = found.operands;
  o.scales = std::move(scales);
  o.group_size = std::max<int64_t>(o.k, 1);
  const ScaleShape shape = shape_of(o.scales, found);
  if (take_rows(shape, found, o.scales)) return;
  if (shape.dims.size() != 2) return;  // the layout says what it expects
  set_dims(shape, shape.dims[0], shape.dims[1], found, o.scales);
  o.scales.row_stride = shape.dims[1];
  const bool transposed = !found.rearranged.empty();
  if (transposed) found.transpose(&LayoutOperands::scales);
  const std::vector<int64_t>& dims = o.scales.dims;
  const int64_t rows = dims[dims.size() - 2], columns = dims.back();
  const QuantConfig& config = finder.config;
  const bool named = config.block.size() == 2 && config.block[0] >= 1 && config.block[1] >= 1;
  const bool in_blocks = shape.blocks || named || o.format == MARLIN_FORMAT_FP8;
  if ((rows == o.n && !shape.blocks) || !in_blocks) {
    o.group_size = is_byte_exponent(o.scales.dtype)
                       ? 32
                       : group_size_of(finder.config, o.k, columns).value_or(o.group_size);
    return;
  }
  o.scale_rows = named ? config.block[0] : kBlock;
  o.group_size = named ? config.block[1] : kBlock;
}

}  // namespace metal_marlin
