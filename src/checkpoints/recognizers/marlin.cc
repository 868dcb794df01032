// IST Marlin (`B`, `s`), its 2:4 form (`B`, `s`, `meta`) and compressed-tensors' marlin-24
// (`weight_packed`, `scale_packed`, `meta`).
#include <algorithm>
#include <cinttypes>

#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

struct MarlinNames {
  const char *values, *scales, *meta;  // meta null: dense
  int64_t tile_k;
  LayoutId layout;
};
constexpr MarlinNames kMarlinNames[] = {
    {".weight_packed", ".scale_packed", ".meta", 32, LayoutId::marlin_24},
    {".B", ".s", ".meta", 32, LayoutId::sparse_marlin},
    {".B", ".s", nullptr, 16, LayoutId::marlin},
};

/// Codes of 8 bits have the same names and twice the words.
Status check_width(const Finder& finder, const TensorView& words, int64_t n) {
  const int64_t bits =
      finder.config.bits.value_or(n <= INT32_MAX && cols_of(words) == 4 * n ? 8 : 4);
  if (bits == 4) return {};
  return view_error(words, MARLIN_E_UNSUPPORTED, "expected 4-bit codes, found %" PRId64 " bits",
                    bits);
}

}  // namespace

std::optional<Finding> recognize_marlin(const Finder& finder, const TensorView& tensor) {
  for (const MarlinNames& names : kMarlinNames) {
    const auto base = without_suffix(tensor.name, names.values);
    if (!base || tensor.dims.size() != 2 || is_float(tensor.dtype)) continue;
    const TensorView scales = finder.find(*base, names.scales);
    const TensorView meta = names.meta != nullptr ? finder.find(*base, names.meta) : TensorView{};
    // Any one of the companion tensors identifies the family. A missing one is reported by name.
    if (names.meta != nullptr ? !present(meta) : !present(scales)) continue;
    Finding found;
    found.layer.name = *base;
    found.layer.format = MARLIN_FORMAT_INT4;
    found.set_layout(names.layout);
    LayoutOperands& o = found.operands;
    o.format = MARLIN_FORMAT_INT4;
    o.values = tensor;
    o.scales = scales;
    o.sparse_meta = meta;
    if (!present(scales)) {
      found.set_missing(names.scales);
      return found;
    }
    found.layer.n = o.n = cols_of(scales);
    found.layer.k = o.k = std::min<int64_t>(tensor.dims[0], INT32_MAX) * names.tile_k;
    o.group_size = group_size_of(finder.config, o.k, rows_of(scales)).value_or(0);
    found.layer.status = check_width(finder, tensor, o.n);
    return found;
  }
  return std::nullopt;
}

}  // namespace metal_marlin
