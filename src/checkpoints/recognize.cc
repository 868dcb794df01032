#include "checkpoints/recognize.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include "checkpoints/tensor_table.h"
#include "formats/format_table.h"

namespace metal_marlin {

std::optional<std::string_view> without_suffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix) || name.size() == suffix.size()) return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

void Finding::set_missing(std::string_view part) {
  layer.status =
      view_error(operands.values, MARLIN_E_NOT_FOUND, "'%.80s%.*s' is in none of the files",
                 layer.name.c_str(), static_cast<int>(part.size()), part.data());
}

std::optional<Finding> recognize_floats(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  if (!base || !is_float(tensor.dtype) || tensor.dims.size() < 2 || tensor.dims.size() > 3)
    return std::nullopt;
  // Three dimensions are experts only where the name says so: convolutions have them too.
  const bool experts = tensor.name.find("expert") != std::string_view::npos ||
                       tensor.name.find("_exps") != std::string_view::npos ||
                       tensor.name.find("switch_mlp") != std::string_view::npos;
  if (tensor.dims.size() == 3 && !experts) return std::nullopt;
  Finding found;
  found.layer.name = finder.is_gguf ? tensor.name : *base;
  found.take_matrix(tensor);
  found.layer.layout = finder.is_gguf ? MARLIN_LAYOUT_GGUF : MARLIN_LAYOUT_ROWS;
  found.layer.dtype = tensor.dtype;
  found.layer.group_size = found.layer.k;
  found.operands.n = found.layer.n;
  found.operands.k = found.layer.k;
  const bool sane = found.layer.n >= 1 && found.layer.n <= INT32_MAX && found.layer.k >= 1 &&
                    found.layer.k <= INT32_MAX;
  if (!sane || found.layer.experts < 1) {
    found.layer.status =
        view_error(tensor, MARLIN_E_SHAPE, "n, k, experts: expected 1..2147483647 each");
  }
  if (finder.is_gguf && present(finder.find(*base, ".scale"))) {
    found.layer.status = view_error(tensor, MARLIN_E_UNSUPPORTED,
                                    "floats with a tensor of scale beside them are not read");
  }
  return found;
}

std::optional<Finding> recognize_unsupported(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  const bool eight_bits = tensor.dtype == MARLIN_E4M3 || tensor.dtype == MARLIN_I8;
  const bool scaled_bytes =
      tensor.dtype == MARLIN_U8 && base && present(finder.find(*base, ".weight_scale"));
  if (!base || !(eight_bits || scaled_bytes) || tensor.dims.size() != 2) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.take_matrix(tensor);
  found.layer.dtype = tensor.dtype;
  if (eight_bits) {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "weights of 8 bits (%.*s) are not read",
                   static_cast<int>(tensor.type_name.size()), tensor.type_name.data());
  } else {  // ModelOpt's INT4 packs along N
    const TensorView scales = finder.find(*base, ".weight_scale");
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "codes in U8 with %.*s scales are not read",
                   static_cast<int>(scales.type_name.size()), scales.type_name.data());
  }
  return found;
}

void describe(Finding& found) {
  Layer& layer = found.layer;
  const LayoutOperands& o = found.operands;
  for (const TensorView* view :
       {&o.values, &o.scales, &o.zeros, &o.group_index, &o.tensor_scale, &o.sparse_meta}) {
    layer.bytes += view->bytes;
  }
  if (!layer.status.ok() || found.make == nullptr) return;
  if (layer.experts == 0) {
    layer.status = view_error(o.values, MARLIN_E_SHAPE, "expected experts, found none");
    return;
  }
  const auto source =
      found.make(found.stacked ? expert_slice(o, 0, layer.experts) : o, Depth::header);
  if (!source.ok()) {
    layer.status = source.status();
    return;
  }
  const WeightMeta& meta = source.value()->meta();
  layer.format = meta.format;
  layer.group_size = meta.group_size;
  layer.dtype = scale_dtype(meta.scale_type);
  layer.flags |= o.flags;
  if (meta.zero_kind == ZeroKind::integer) layer.flags |= MARLIN_LAYER_ZEROS;
  if (meta.sparse) layer.flags |= MARLIN_LAYER_SPARSE_2_4;
}

namespace {

constexpr decltype(&recognize_floats) kRecognizers[] = {
    recognize_gguf,    recognize_qweight,     recognize_gpt_oss, recognize_nvfp4,
    recognize_mxfp4,   recognize_mlx,         recognize_marlin,  recognize_compressed_tensors,
    recognize_bitmask, recognize_unsupported, recognize_floats,
};

}  // namespace

LayerTable LayerTable::find(const Finder& finder) {
  LayerTable table;
  const size_t tensors = finder.tensors.size();
  // At most so many: growing in steps would take more.
  table.records_.reserve(tensors);
  table.names_.reserve(finder.tensors.name_bytes() + tensors);
  for (size_t i = 0; i < tensors; ++i) {
    const TensorView tensor = finder.tensors.view(i);
    for (uint32_t r = 0; r < std::size(kRecognizers); ++r) {
      const auto found = kRecognizers[r](finder, tensor);
      if (!found) continue;
      table.records_.push_back({table.names_.size(), static_cast<uint32_t>(i), r});
      table.names_.insert(table.names_.end(), found->layer.name.begin(), found->layer.name.end());
      table.names_.push_back('\0');
      break;
    }
  }
  table.by_name_.resize(table.size());
  std::iota(table.by_name_.begin(), table.by_name_.end(), 0u);
  std::sort(table.by_name_.begin(), table.by_name_.end(), [&](uint32_t a, uint32_t b) {
    const int order = std::strcmp(table.name(a), table.name(b));
    return order != 0 ? order < 0 : a < b;
  });
  return table;
}

std::optional<size_t> LayerTable::find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                       [&](uint32_t index, std::string_view text) { return name(index) < text; });
  if (at == by_name_.end() || name(*at) != wanted) return std::nullopt;
  return *at;
}

Finding LayerTable::finding(const Finder& finder, size_t index) const {
  const Record& record = records_[index];
  return *kRecognizers[record.recognizer](finder, finder.tensors.view(record.tensor));
}

}  // namespace metal_marlin
