// MXFP4 in safetensors: gpt-oss expert stacks, compressed-tensors, Quark and DeepSeek. All have
// rows of bytes, low nibble = even k, and one byte of E8M0 for 32 codes. Only their names differ.
#include <algorithm>
#include <utility>

#include "base/bits.h"
#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/recognizers/scales.h"

namespace metal_marlin {
namespace {

/// DeepSeek calls them I8.
bool is_bytes(const TensorView& v) {
  return (v.dtype == MARLIN_U8 || v.dtype == MARLIN_I8) && v.dims.size() >= 2 && v.dims.size() <= 3;
}
bool is_e8m0(const TensorView& v) { return v.dtype == MARLIN_U8 || v.dtype == MARLIN_E8M0; }

/// [..., N, bytes of a row] and its scales [..., N, K / 32].
Finding make_finding(std::string_view name, const TensorView& values, const TensorView& scales) {
  Finding found;
  found.layer.name = name;
  found.layer.format = MARLIN_FORMAT_MXFP4;
  found.set_layout(LayoutId::rows);
  found.take_matrix(values);
  LayoutOperands& o = found.operands;
  o.values.dtype = MARLIN_U8;
  o.format = MARLIN_FORMAT_MXFP4;
  o.scales = scales;
  found.layer.k = std::min<int64_t>(found.layer.k, INT32_MAX) * 2;
  o.n = found.layer.n;
  o.k = found.layer.k;
  return found;
}

}  // namespace

std::optional<Finding> recognize_gpt_oss(const Finder& finder, const TensorView& tensor) {
  // Transformers writes down_proj_blocks, the original files mlp2_weight.blocks.
  for (const auto& [blocks, scales] :
       {std::pair{"_blocks", "_scales"}, std::pair{".blocks", ".scales"}}) {
    const auto base = without_suffix(tensor.name, blocks);
    if (!base || tensor.dtype != MARLIN_U8 || tensor.dims.size() != 4 || tensor.dims[3] != 16)
      continue;
    TensorView rows = tensor;
    rows.dims = {tensor.dims[0], tensor.dims[1], std::min<int64_t>(tensor.dims[2], INT32_MAX) * 16};
    rows.row_stride = rows.dims[2];
    Finding found = make_finding(*base, rows, finder.find(*base, scales));
    const bool gate_up = base->ends_with("gate_up_proj") || base->ends_with("mlp1_weight");
    if (gate_up) found.operands.flags |= MARLIN_PACK_GATE_UP_INTERLEAVED;
    if (!present(found.operands.scales)) found.set_missing(scales);
    return found;
  }
  return std::nullopt;
}

std::optional<Finding> recognize_mxfp4(const Finder& finder, const TensorView& tensor) {
  for (const char* suffix : {".weight_packed", ".packed", ".weight"}) {
    const auto base = finder.base_of(tensor.name, suffix);
    if (!base || !is_bytes(tensor)) continue;
    const TensorView scales = finder.find_any(*base, kScaleNames);
    const bool has_global = present(finder.find_any(*base, kTensorDivisorNames)) ||
                            present(finder.find_any(*base, kTensorScaleNames));
    if (!present(scales) || !is_e8m0(scales) || has_global) continue;
    // Other codes in I8 have a scale for 32 bytes.
    if (tensor.dtype == MARLIN_I8 && cols_of(scales) != ceil_div(cols_of(tensor), 16)) continue;
    return make_finding(*base, tensor, scales);
  }
  return std::nullopt;
}

}  // namespace metal_marlin
