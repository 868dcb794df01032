// Finds layers among the tensors of a checkpoint. Each family of files has a recognizer, which
// reads the names, the types and the config (recognizers/).
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/checkpoint.h"
#include "checkpoints/config.h"
#include "checkpoints/tensor_table.h"
#include "layouts/layout_table.h"
#include "layouts/rearrange.h"

namespace metal_marlin {

/// The data that recognizers see.
struct Finder {
  const TensorTable& tensors;
  const QuantConfig& config;
  bool is_gguf = false;
  marlin_layout layout = MARLIN_LAYOUT_AUTO;            ///< the caller's, which is not checked
  marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO;  ///< not checked, either
  StackOrder stack_order = StackOrder::unknown;
  /// Whether the codes of a matrix may be called as the layer ("experts.up_proj", whose scales are
  /// "experts.up_proj_scale"). Tensors that are part of a layer with a longer name are not asked.
  bool bare = false;

  /// The tensor base + suffix; data == nullptr if there is none.
  TensorView find(std::string_view base, std::string_view suffix) const {
    return bounded(tensors.view(std::string(base) + std::string(suffix)));
  }
  TensorView view(size_t index) const { return bounded(tensors.view(index)); }

  /// The first of these that is there.
  TensorView find_any(std::string_view base, std::span<const char* const> suffixes) const;
  /// The layer that has the tensor `name` as its codes: the name without `suffix` (or, with an
  /// underscore for its dot, a bare name's), or the whole name if it may be bare. Else nothing.
  std::optional<std::string_view> base_of(std::string_view name, std::string_view suffix) const;

 private:
  /// Only a tensor without elements has longer dimensions than 2^47. They are cut, so that what
  /// recognizers and layouts compute of one before they refuse it does not overflow.
  static TensorView bounded(TensorView view) {
    constexpr int64_t kLongest = int64_t{1} << 47;
    for (int64_t& length : view.dims) length = std::min(length, kLongest);
    view.row_stride = std::min(view.row_stride, kLongest);
    return view;
  }
};

/// One layer: its entry in the list, and how it is read.
struct Finding {
  Layer layer;  ///< name, layout and flags, which only the recognizer knows; or a reason (status)
  LayoutOperands operands;  ///< of all experts
  /// The layout of the codes; null for floats (layer.format NONE) and for layers that are not read.
  const LayoutRow* row = nullptr;
  std::vector<TensorView> others;          ///< that belong to the layer and are no operands
  bool stacked = false;                    ///< operands have the experts as first dimension
  std::vector<RearrangedPart> rearranged;  ///< operands whose bytes lie in another order

  void set_layout(const LayoutRow& found) {
    row = &found;
    layer.layout = operands.layout = found.number;
  }
  void set_layout(LayoutId id) { set_layout(layout_row(id)); }
  /// Takes values, n and k from a tensor [n, k] or [experts, n, k].
  void take_matrix(const TensorView& tensor) {
    operands.values = tensor;
    stacked = tensor.dims.size() > 2;
    layer.experts =
        stacked ? static_cast<uint32_t>(std::min<int64_t>(tensor.dims[0], UINT32_MAX)) : 1;
    layer.k = tensor.dims.back();
    layer.n = tensor.dims[tensor.dims.size() - 2];
  }
  /// Says that this operand, whose view has its new shape, lies in another order in the file.
  void rearrange(TensorView LayoutOperands::* part, Rearrangement how) {
    rearranged.push_back({part, how});
  }
  /// Takes a stack [experts, k, n], or its scales, for [experts, n, k]. Values also set n and k.
  void transpose(TensorView LayoutOperands::* part);
  /// Marks a layer that is listed although the files lack a part of it.
  void set_missing(std::string_view part);
};

/// The layers of a checkpoint in the order of their tensors. Every matrix of the files belongs to
/// one of them: what no recognizer takes is a layer with a status (unread.h). A hostile header can
/// name a million layers, so an entry is small: it has only the tensor and the name of the layer.
/// Everything else is found anew on every request.
class LayerTable {
 public:
  /// Reads only headers and what is as small: weight_shape, settings, some zeros.
  static LayerTable find(const Finder& finder);
  size_t size() const { return records_.size(); }
  /// Ends with a NUL; lives as long as the table.
  const char* name(size_t index) const { return names_.data() + records_[index].name; }
  /// The first layer of this name.
  std::optional<size_t> find(std::string_view name) const;
  /// The finding of the layer's recognizer, which describe() has not completed yet.
  Finding finding(const Finder& finder, size_t index) const;

 private:
  static constexpr uint8_t kUnread = UINT8_MAX;  // in place of a recognizer
  struct Record {
    size_t name;  // among names_
    uint32_t tensor;
    uint8_t recognizer;
    bool bare;  ///< Finder::bare; unread: alone
  };
  class Search;

  std::vector<Record> records_;
  std::vector<char> names_;
  std::vector<uint32_t> by_name_;
};

/// Completes the description of the layer from its operands, by building the source as far as
/// headers allow.
void describe(Finding& found);

/// `name` without `suffix`, or nothing if it does not end in `suffix`.
std::optional<std::string_view> without_suffix(std::string_view name, std::string_view suffix);

}  // namespace metal_marlin
