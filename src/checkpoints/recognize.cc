#include "checkpoints/recognize.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/unread.h"
#include "formats/format_table.h"

namespace metal_marlin {

std::optional<std::string_view> without_suffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix) || name.size() == suffix.size()) return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

TensorView Finder::find_any(std::string_view base, std::span<const char* const> suffixes) const {
  for (const char* suffix : suffixes) {
    TensorView view = find(base, suffix);
    if (present(view)) return view;
  }
  return {};
}

std::optional<std::string_view> Finder::base_of(std::string_view name,
                                                std::string_view suffix) const {
  if (const auto base = without_suffix(name, suffix)) return base;
  if (!bare) return std::nullopt;
  const std::string joined = "_" + std::string(suffix.substr(1));
  if (const auto base = without_suffix(name, joined)) return base;
  return suffix == ".weight" ? std::optional(name) : std::nullopt;
}

void Finding::transpose(TensorView LayoutOperands::* part) {
  TensorView& view = operands.*part;
  const size_t rank = view.dims.size();
  std::swap(view.dims[rank - 2], view.dims[rank - 1]);
  view.row_stride = view.dims.back();
  rearrange(part, Rearrangement::transpose);
  if (part != &LayoutOperands::values) return;
  std::swap(layer.n, layer.k);
  std::swap(operands.n, operands.k);
}

void Finding::set_missing(std::string_view part) {
  layer.status =
      view_error(operands.values, MARLIN_E_NOT_FOUND, "'%.80s%.*s' is in none of the files",
                 layer.name.c_str(), static_cast<int>(part.size()), part.data());
}

void describe(Finding& found) {
  Layer& layer = found.layer;
  const LayoutOperands& o = found.operands;
  layer.rearranged = !found.rearranged.empty();
  for (const TensorView* view : {&o.values, &o.scales, &o.zeros, &o.group_index, &o.tensor_scale,
                                 &o.sparse_meta, &o.nested.absmax, &o.nested.map}) {
    if (!view->file.empty()) layer.bytes += view->bytes;
  }
  for (const TensorView& view : found.others) layer.bytes += view.bytes;
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

/// Looks at the tensors until each that is more than a vector of numbers belongs to a layer.
class LayerTable::Search {
 public:
  Search(const Finder& finder, LayerTable& table)
      : finder_(finder), table_(table), claimed_(finder.tensors.size()) {}

  void run() {
    const size_t tensors = finder_.tensors.size();
    for (uint32_t i = 0; i < tensors; ++i) ask(i, false);
    std::vector<uint32_t> rest;
    for (uint32_t i = 0; i < tensors; ++i)
      if (!claimed_[i] && is_matrix_or_codes(finder_.tensors, i)) rest.push_back(i);
    // A matrix is larger than its scales, and so it is asked before them.
    std::sort(rest.begin(), rest.end(), [&](uint32_t a, uint32_t b) {
      const uint64_t x = finder_.tensors.range(a).bytes, y = finder_.tensors.range(b).bytes;
      return std::tie(y, a) < std::tie(x, b);
    });
    if (!finder_.is_gguf) {
      for (const uint32_t i : rest)
        if (!is_float(finder_.tensors.type(i).dtype)) ask(i, true);
      for (const uint32_t i : rest)
        if (!is_float(finder_.tensors.type(i).dtype)) list_unread(i);
      for (const uint32_t i : rest) ask(i, true);
    }
    for (const uint32_t i : rest) list_unread(i);
    std::sort(table_.records_.begin(), table_.records_.end(),
              [](const Record& a, const Record& b) { return a.tensor < b.tensor; });
  }

 private:
  /// Asks the recognizers about a tensor that belongs to no layer yet.
  void ask(uint32_t tensor, bool bare) {
    if (bare && claimed_[tensor]) return;
    Finder finder = finder_;
    finder.bare = bare;
    const std::span<const Recognizer> all = recognizers();
    const TensorView view = finder.view(tensor);
    for (uint8_t r = 0; r < all.size(); ++r) {
      if (!all[r].recognize(finder, view)) continue;
      add(tensor, r, bare);
      return;
    }
  }

  void list_unread(uint32_t tensor) {
    if (claimed_[tensor]) return;
    const Finding found = unread(finder_, finder_.view(tensor), false);
    const bool shared =
        std::any_of(found.others.begin(), found.others.end(), [&](const TensorView& view) {
          const auto index = finder_.tensors.find(view.name);
          return index && claimed_[*index];
        });
    add(tensor, kUnread, shared);
  }

  void add(uint32_t tensor, uint8_t recognizer, bool bare) {
    table_.records_.push_back({table_.names_.size(), tensor, recognizer, bare});
    const Finding found = table_.finding(finder_, table_.records_.size() - 1);
    table_.names_.insert(table_.names_.end(), found.layer.name.begin(), found.layer.name.end());
    table_.names_.push_back('\0');
    claim(found.operands.values);
    const LayoutOperands& o = found.operands;
    for (const TensorView* view : {&o.scales, &o.zeros, &o.group_index, &o.tensor_scale,
                                   &o.sparse_meta, &o.codebook, &o.nested.map, &o.nested.absmax})
      claim(*view);
    for (const TensorView& view : found.others) claim(view);
    for (const char* bias : {".bias", "_bias"}) claim(finder_.find(found.layer.name, bias));
    claimed_[tensor] = true;
  }

  void claim(const TensorView& view) {
    if (!present(view) || view.file.empty()) return;
    if (const auto index = finder_.tensors.find(view.name)) claimed_[*index] = true;
  }

  const Finder& finder_;
  LayerTable& table_;
  std::vector<bool> claimed_;
};

LayerTable LayerTable::find(const Finder& finder) {
  LayerTable table;
  const size_t tensors = finder.tensors.size();
  // There are at most so many layers. Growing in steps would take more memory.
  table.records_.reserve(tensors);
  table.names_.reserve(finder.tensors.name_bytes() + tensors);
  Search(finder, table).run();
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
  const TensorView tensor = finder.view(record.tensor);
  if (record.recognizer == kUnread) return unread(finder, tensor, record.bare);
  Finder asked = finder;
  asked.bare = record.bare;
  auto found = recognizers()[record.recognizer].recognize(asked, tensor);
  // The recognizer found the layer when the table was made, from the same tensors.
  Finding& finding = *found;  // NOLINT(bugprone-unchecked-optional-access)
  check_siblings(asked, finding);
  return std::move(finding);
}

}  // namespace metal_marlin
