#include "checkpoints/unread.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <string>

namespace metal_marlin {
namespace {

/// Types of a byte or less, which hold nothing but codes and their scales, and unknown types, which
/// may.
bool is_small_type(const ElementType& type) {
  const std::string_view name = type.name;
  return type.dtype == MARLIN_U8 || type.dtype == MARLIN_I8 || type.dtype == MARLIN_E4M3 ||
         type.dtype == MARLIN_E8M0 || name.starts_with("F8_") || name.starts_with("F6_") ||
         name.starts_with("F4") || is_unknown_type(name);
}

/// Names beside the weights of a layer that say nothing about them.
bool is_companion(std::string_view leaf) {
  static constexpr std::string_view kWhole[] = {
      "bias",     "weight_shape", "workspace",   "row_offsets",  "shape",      "num_bits",
      "in_scale", "out_scale",    "scale_input", "scale_output", "weight_amax"};
  static constexpr std::string_view kBegins[] = {"input_", "output_", "act_", "activation_", "k_",
                                                 "v_",     "q_scale", "kv_",  "lora_"};
  const auto is_begin = [&](std::string_view begin) { return leaf.starts_with(begin); };
  return std::find(std::begin(kWhole), std::end(kWhole), leaf) != std::end(kWhole) ||
         std::any_of(std::begin(kBegins), std::end(kBegins), is_begin);
}

/// Whether "LAYER_x" speaks of the layer LAYER and is no layer beside it.
bool speaks_of_weights(std::string_view leaf) {
  if (leaf.starts_with("weight_")) leaf.remove_prefix(7);
  for (const char* begin : {"scale", "zero", "global_scale", "g_idx", "shape", "meta", "bitmask"})
    if (leaf.starts_with(begin)) return true;
  return false;
}

bool is_part(const Finding& found, std::string_view name) {
  const LayoutOperands& o = found.operands;
  for (const TensorView* view : {&o.values, &o.scales, &o.zeros, &o.group_index, &o.tensor_scale,
                                 &o.sparse_meta, &o.codebook, &o.nested.map, &o.nested.absmax})
    if (present(*view) && view->name == name) return true;
  return std::any_of(found.others.begin(), found.others.end(),
                     [&](const TensorView& view) { return view.name == name; });
}

/// Calls visit(index, x) for the tensors "LAYER.x"; for bare names also for "LAYER_x" that speak of
/// its weights.
template <class Visit>
void for_each_sibling(const Finder& finder, const std::string& layer, Visit visit) {
  const auto under = [&](char joint) {
    finder.tensors.for_each_with_prefix(layer + joint, [&](size_t index) {
      const std::string_view leaf = finder.tensors.name(index).substr(layer.size() + 1);
      if (leaf.empty() || leaf.find('.') != std::string_view::npos) return;
      if (joint == '.' || speaks_of_weights(leaf)) visit(index, leaf);
    });
  };
  under('.');
  if (finder.bare) under('_');
}

void refuse(const Finder& finder, const TensorView& tensor, Finding& found) {
  const std::string& method = finder.config.method;
  const std::string said = method.empty() ? "" : " (quant_method '" + method.substr(0, 24) + "')";
  const bool floats = is_float(tensor.dtype);
  found.layer.status = view_error(
      tensor, MARLIN_E_UNSUPPORTED, "no reader takes %s%.*s in %zu dimensions under this name%s%s",
      floats ? "floats, " : "", static_cast<int>(tensor.type_name.size()), tensor.type_name.data(),
      tensor.dims.size(), said.c_str(), floats ? ": expected 2, or 3 of a stack of experts" : "");
}

}  // namespace

bool is_matrix_or_codes(const TensorTable& tensors, size_t index) {
  const TensorView view = tensors.view(index);
  if (view.bytes <= 1 || (is_float(view.dtype) && view.name.ends_with("bias"))) return false;
  const auto wide =
      std::count_if(view.dims.begin(), view.dims.end(), [](int64_t d) { return d > 1; });
  return wide > 1 || (wide == 1 && is_small_type(tensors.type(index)));
}

void check_siblings(const Finder& finder, Finding& found) {
  if (finder.is_gguf) return;
  Layer& layer = found.layer;
  const bool floats = found.row == nullptr && is_float(layer.dtype);
  if (layer.status.ok() && !floats) layer.status = finder.config.refusal;
  const bool broken = !layer.status.ok();
  const bool has_settings = found.row == &layout_row(LayoutId::hqq);  // tensors of any name
  for_each_sibling(finder, layer.name, [&](size_t index, std::string_view leaf) {
    if (is_companion(leaf) || is_part(found, finder.tensors.name(index))) return;
    if (floats && leaf.find("scale") == std::string_view::npos) return;
    TensorView view = finder.tensors.view(index);
    if (broken && !has_settings && !is_matrix_or_codes(finder.tensors, index)) return;
    if (layer.status.ok() && !has_settings) {
      layer.status = view_error(view, MARLIN_E_UNSUPPORTED,
                                "no reader knows it, and the values of '%.60s' may depend on it",
                                layer.name.c_str());
    }
    found.others.push_back(std::move(view));
  });
}

Finding unread(const Finder& finder, const TensorView& tensor, bool alone) {
  Finding found;
  Layer& layer = found.layer;
  layer.name = tensor.name;
  layer.dtype = tensor.dtype;
  layer.layout = MARLIN_LAYOUT_AUTO;
  layer.n = rows_of(tensor);
  layer.k = layer.group_size = cols_of(tensor);
  found.operands.values = tensor;
  refuse(finder, tensor, found);
  if (finder.is_gguf) return found;
  const size_t dot = tensor.name.rfind('.');
  const bool grouped =
      !alone && !is_float(tensor.dtype) && dot != std::string_view::npos && dot > 0;
  if (const auto base = without_suffix(tensor.name, ".weight")) {
    layer.name = *base;
  } else if (grouped) {
    layer.name = tensor.name.substr(0, dot);
  }
  if (!grouped) return found;
  for_each_sibling(finder, layer.name, [&](size_t index, std::string_view leaf) {
    if (is_companion(leaf) || finder.tensors.name(index) == tensor.name) return;
    if (leaf == "weight" || finder.tensors.range(index).bytes > tensor.bytes) return;
    found.others.push_back(finder.tensors.view(index));
  });
  return found;
}

}  // namespace metal_marlin
