// compressed-tensors "pack-quantized", "int-quantized", and "sparse-24-bitmask", which holds pruned
// floats. The FP4 formats of the same writer are in mxfp4.cc and nvfp4.cc, marlin-24 in marlin.cc.
#include <algorithm>
#include <cinttypes>
#include <string>

#include "base/bits.h"
#include "checkpoints/recognizers/comfy.h"
#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/recognizers/scales.h"
#include "checkpoints/recognizers/stacks.h"

namespace metal_marlin {
namespace {

/// Two numbers, which are data of the file, but as small as a header.
struct Shape {
  int64_t n, k;
};
Result<Shape> read_shape(const TensorView& shape) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(shape, {MARLIN_I64, MARLIN_I32}));
  const bool wide = shape.dtype == MARLIN_I64;
  const uint64_t size = wide ? 8 : 4;
  // A stack has the shape of its experts, or [experts, n, k] itself, or a shape for each expert.
  const uint64_t numbers = shape.bytes / size;
  const bool whole = shape.dims.size() == 1 && numbers == 3;
  if (numbers < 2 || (numbers != 2 && !whole && cols_of(shape) != 2))
    MARLIN_RETURN_IF_ERROR(expect_shape(shape, 1, 2));
  const auto at = [&](uint64_t i) {
    const std::byte* from = shape.data + i * size;
    return wide ? load<int64_t>(from) : load<int32_t>(from);
  };
  const uint64_t first = whole ? 1 : 0;
  for (uint64_t i = 2; !whole && i < numbers; ++i)
    if (at(i) != at(i % 2))
      return view_error(shape, MARLIN_E_FORMAT, "expected the same shape for each expert");
  return Shape{at(first), at(first + 1)};
}

/// Codes of one width, in a stream or in padded words.
struct Packing {
  int bits;
  bool padded;
};

/// The widths that have a format. If tensors allow several, the first counts.
constexpr int kWidths[] = {4, 8, 2, 3, 5, 6};

bool has_two_packings(int bits) { return 32 % bits != 0; }

/// Versions before 0.18 padded words to whole codes. Nothing if the config does not tell.
std::optional<bool> is_padded_version(std::string_view version) {
  const auto major = take_number(version);
  if (!major || !version.starts_with('.')) return std::nullopt;
  version.remove_prefix(1);
  const auto minor = take_number(version);
  if (!minor) return std::nullopt;
  return *major == 0 && *minor < 18;
}

/// "4 bits", "3 or 4 bits": the widths of a mask.
std::string width_names(uint32_t widths) {
  std::string names;
  for (int bits = 1; bits < 32; ++bits) {
    if ((widths >> bits & 1u) == 0) continue;
    names.append(names.empty() ? "" : " or ").append(std::to_string(bits));
  }
  return names + " bits";
}

/// The packing that gives rows of k codes this number of words. The config names the widths that
/// occur in the file; which layer has which is seen from the words.
Result<Packing> find_packing(const QuantConfig& config, const TensorView& codes, int64_t k) {
  uint32_t served = 0;
  for (const int bits : kWidths) served |= uint32_t{1} << bits;
  const uint32_t widths = config.num_bits != 0 ? config.num_bits : served;
  if ((widths & served) == 0) {
    return view_error(codes, MARLIN_E_UNSUPPORTED, "codes of %s are not read",
                      width_names(widths).c_str());
  }
  const int64_t words = cols_of(codes);
  for (const int bits : kWidths) {
    if ((widths >> bits & 1u) == 0) continue;
    const bool dense = words == ceil_div(k * bits, 32), padded = words == ceil_div(k, 32 / bits);
    if (!dense && !padded) continue;
    if (!dense || !padded || !has_two_packings(bits)) return Packing{bits, !dense};
    if (const auto is_padded = is_padded_version(config.version)) return Packing{bits, *is_padded};
    return view_error(codes, MARLIN_E_UNSUPPORTED,
                      "cannot tell whether words of %d-bit codes are padded: expected a version in "
                      "the config",
                      bits);
  }
  return view_error(codes, MARLIN_E_FORMAT,
                    "expected codes of %s for %" PRId64 " elements, found %" PRId64 " words a row",
                    width_names(widths).c_str(), k, words);
}

/// Without weight_shape, rows end with a whole word. Codes have the only width that the config
/// names, or 4 bits.
Result<Packing> packing_without_shape(const QuantConfig& config, const std::string& layer,
                                      const TensorView& codes) {
  for (const int bits : kWidths) {
    if (config.num_bits != uint32_t{1} << bits) continue;
    if (!has_two_packings(bits)) return Packing{bits, false};
    return view_error(codes, MARLIN_E_NOT_FOUND,
                      "'%.80s.weight_shape' is in none of the files: %d-bit codes need it",
                      layer.c_str(), bits);
  }
  return Packing{4, false};
}

/// Takes n and k from weight_shape, or from the codes if it is absent, and the format.
Status take_shape(const QuantConfig& config, const TensorView& shape, Finding& found) {
  const TensorView& codes = found.operands.values;
  Packing packing{4, false};
  if (present(shape)) {
    MARLIN_ASSIGN(const Shape said, read_shape(shape));
    const auto [n, k] = said;
    if (n != found.layer.n || k < 1 || k > INT32_MAX) {
      return view_error(shape, MARLIN_E_FORMAT,
                        "expected [%" PRId64 ", 1..2147483647], found [%" PRId64 ", %" PRId64 "]",
                        found.layer.n, n, k);
    }
    MARLIN_ASSIGN(packing, find_packing(config, codes, k));
    found.layer.k = k;
  } else {
    MARLIN_ASSIGN(packing, packing_without_shape(config, found.layer.name, codes));
    found.layer.k = std::min<int64_t>(cols_of(codes), INT32_MAX) * (32 / packing.bits);
  }
  const bool zeros = present(found.operands.zeros);
  found.layer.format = found.operands.format =
      packing.bits == 8 && zeros ? MARLIN_FORMAT_UINT8
                                 : integer_format(packing.bits).value_or(MARLIN_FORMAT_INT4);
  found.set_layout(packing.padded ? LayoutId::compressed_tensors_padded
                                  : LayoutId::compressed_tensors);
  return {};
}

/// sparse-24-bitmask: floats [n, k / 2], a mask of k bits per row, and the shape of the matrix.
Status check_bitmask(const TensorView& shape, const LayoutOperands& o) {
  MARLIN_RETURN_IF_ERROR(float_type(o.values).status());
  if (o.n < 1 || o.n > INT32_MAX || o.k < 1 || o.k % 4 != 0 || o.values.dims.size() != 2) {
    return view_error(o.values, MARLIN_E_SHAPE,
                      "expected the kept half of [1..2147483647, multiple of 4]");
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.sparse_meta, {MARLIN_U8}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.sparse_meta, o.n, ceil_div(o.k, 8)));
  if (!present(shape)) return {};
  MARLIN_ASSIGN(const Shape said, read_shape(shape));
  if (said.n == o.n && said.k == o.k) return {};
  return view_error(shape, MARLIN_E_FORMAT,
                    "expected [%" PRId64 ", %" PRId64 "], found [%" PRId64 ", %" PRId64 "]", o.n,
                    o.k, said.n, said.k);
}

}  // namespace

std::optional<Finding> recognize_compressed_tensors(const Finder& finder,
                                                    const TensorView& tensor) {
  auto base = finder.base_of(tensor.name, ".weight_packed");
  if (!base && finder.bare) base = finder.base_of(tensor.name, ".packed");
  if (!base || (tensor.dtype != MARLIN_I32 && tensor.dtype != MARLIN_U32)) return std::nullopt;
  if (tensor.dims.size() < 2 || tensor.dims.size() > 3) return std::nullopt;
  if (present(finder.find(*base, ".meta"))) return std::nullopt;  // marlin-24
  const auto part = [&](const char* dotted, const char* joined, const char* shorter) {
    const char* const names[] = {dotted, joined, shorter};
    return finder.find_any(*base, names);
  };
  Finding found;
  found.layer.name = *base;
  found.take_matrix(tensor);
  LayoutOperands& o = found.operands;
  o.scales = part(".weight_scale", "_weight_scale", "_scale");
  o.zeros = part(".weight_zero_point", "_weight_zero_point", "_zero_point");
  o.group_index = part(".weight_g_idx", "_weight_g_idx", "_g_idx");
  if (present(o.group_index)) found.layer.flags |= MARLIN_LAYER_ACT_ORDER;
  TensorView shape = part(".weight_shape", "_weight_shape", "_shape");
  found.layer.status = take_shape(finder.config, shape, found);
  if (present(shape)) found.others.push_back(std::move(shape));
  if (!present(o.scales)) found.set_missing(".weight_scale");
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.group_size = group_size_of(finder.config, o.k, cols_of(o.scales)).value_or(0);
  return found;
}

std::optional<Finding> recognize_int_quantized(const Finder& finder, const TensorView& tensor) {
  const auto base = finder.base_of(tensor.name, ".weight");
  if (!base || tensor.dtype != MARLIN_I8 || tensor.dims.size() < 2 || tensor.dims.size() > 3)
    return std::nullopt;
  const TensorView scales = finder.find_any(*base, kScaleNames);
  if (!present(scales) || !is_float(scales.dtype)) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.layer.format = MARLIN_FORMAT_INT8;
  found.set_layout(LayoutId::rows);
  found.take_matrix(tensor);
  LayoutOperands& o = found.operands;
  o.format = MARLIN_FORMAT_INT8;
  o.n = found.layer.n;
  o.k = found.layer.k;
  static constexpr const char* kZeros[] = {".weight_zero_point", "_weight_zero_point",
                                           "_zero_point"};
  o.zeros = finder.find_any(*base, kZeros);
  if (present(o.zeros)) found.layer.format = o.format = MARLIN_FORMAT_UINT8;
  settle_order(finder, scales, found);
  take_comfy(finder, "int8_tensorwise", found);
  take_scales(finder, scales, found);
  spread_over_rows(o.zeros, found);
  return found;
}

std::optional<Finding> recognize_bitmask(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".compressed");
  if (!base) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.layer.layout = MARLIN_LAYOUT_ROWS;
  found.layer.flags = MARLIN_LAYER_SPARSE_2_4;
  found.layer.dtype = tensor.dtype;
  LayoutOperands& o = found.operands;
  o.values = tensor;
  o.sparse_meta = finder.find(*base, ".bitmask");
  found.layer.n = o.n = rows_of(tensor);
  found.layer.k = o.k = found.layer.group_size =
      std::min<int64_t>(cols_of(tensor), INT32_MAX / 2) * 2;
  if (!present(o.sparse_meta)) {
    found.set_missing(".bitmask");
    return found;
  }
  found.layer.status = check_bitmask(finder.find(*base, ".shape"), o);
  return found;
}

}  // namespace metal_marlin
