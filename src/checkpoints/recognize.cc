#include "checkpoints/recognize.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "checkpoints/recognizers/recognizers.h"
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

void describe(Finding& found) {
  Layer& layer = found.layer;
  const LayoutOperands& o = found.operands;
  for (const TensorView* view : {&o.values, &o.scales, &o.zeros, &o.group_index, &o.tensor_scale,
                                 &o.sparse_meta, &o.nested.absmax}) {
    layer.bytes += view->bytes;
  }
  if (!layer.status.ok() || found.row == nullptr) return;
  if (layer.experts == 0) {
    layer.status = view_error(o.values, MARLIN_E_SHAPE, "expected experts, found none");
    return;
  }
  const auto source =
      read_layout(*found.row, found.stacked ? expert_slice(o, 0, layer.experts) : o, Depth::header);
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

LayerTable LayerTable::find(const Finder& finder) {
  LayerTable table;
  const std::span<const Recognizer> all = recognizers();
  const size_t tensors = finder.tensors.size();
  // There are at most so many layers. Growing in steps would take more memory.
  table.records_.reserve(tensors);
  table.names_.reserve(finder.tensors.name_bytes() + tensors);
  for (size_t i = 0; i < tensors; ++i) {
    const TensorView tensor = finder.view(i);
    for (uint32_t r = 0; r < all.size(); ++r) {
      const auto found = all[r].recognize(finder, tensor);
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
  auto found = recognizers()[record.recognizer].recognize(finder, finder.view(record.tensor));
  // The recognizer found the layer when the table was made, from the same tensors.
  return *found;  // NOLINT(bugprone-unchecked-optional-access)
}

}  // namespace metal_marlin
