// Finding layers among the tensors of a checkpoint. What names, types and the config of a family of
// files announce is told by its recognizer (recognizers/).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/checkpoint.h"
#include "checkpoints/config.h"
#include "checkpoints/tensor_table.h"
#include "layouts/layout_table.h"

namespace metal_marlin {

/// Where recognizers look.
struct Finder {
  const TensorTable& tensors;
  const QuantConfig& config;
  bool is_gguf = false;
  marlin_layout layout = MARLIN_LAYOUT_AUTO;            ///< the caller's, taken on trust
  marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO;  ///< likewise

  /// The tensor base + suffix; data == nullptr when there is none.
  TensorView find(std::string_view base, std::string_view suffix) const {
    return tensors.view(std::string(base) + std::string(suffix));
  }
};

/// One layer: what is listed and how it is read.
struct Finding {
  Layer layer;  ///< name, layout and flags that only the recognizer knows; or why it is not served
  LayoutOperands operands;  ///< of all experts
  /// How the codes are read; null for floats (layer.format NONE) and for layers that are not read.
  const LayoutRow* row = nullptr;
  bool stacked = false;  ///< operands have the experts as first dimension

  void set_layout(const LayoutRow& found) {
    row = &found;
    layer.layout = operands.layout = found.number;
  }
  void set_layout(LayoutId id) { set_layout(layout_row(id)); }
  /// values, n and k of a tensor [n, k] or [experts, n, k].
  void take_matrix(const TensorView& tensor) {
    operands.values = tensor;
    stacked = tensor.dims.size() > 2;
    layer.experts =
        stacked ? static_cast<uint32_t>(std::min<int64_t>(tensor.dims[0], UINT32_MAX)) : 1;
    layer.k = tensor.dims.back();
    layer.n = tensor.dims[tensor.dims.size() - 2];
  }
  /// The layer is listed, but a part of it is nowhere in the files.
  void set_missing(std::string_view part);
};

/// The layers of a checkpoint in their tensors' order. Small a layer, because a hostile header can
/// name a million of them: only which tensor makes it and its name are kept; all else is found anew
/// when it is asked for.
class LayerTable {
 public:
  /// Looks at headers (and weight_shape, which is one) only.
  static LayerTable find(const Finder& finder);
  size_t size() const { return records_.size(); }
  /// Ends with a NUL; lives as long as the table.
  const char* name(size_t index) const { return names_.data() + records_[index].name; }
  /// The first layer of this name.
  std::optional<size_t> find(std::string_view name) const;
  /// As the layer's recognizer finds it, not described yet.
  Finding finding(const Finder& finder, size_t index) const;

 private:
  struct Record {
    size_t name;  // among names_
    uint32_t tensor, recognizer;
  };
  std::vector<Record> records_;
  std::vector<char> names_;
  std::vector<uint32_t> by_name_;
};

/// Fills in what the operands say of the layer, by building the source as far as headers allow.
void describe(Finding& found);

/// name without suffix, or nothing.
std::optional<std::string_view> without_suffix(std::string_view name, std::string_view suffix);

}  // namespace metal_marlin
