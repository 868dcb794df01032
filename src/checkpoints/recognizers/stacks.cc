#include "checkpoints/recognizers/stacks.h"

#include <algorithm>
#include <cinttypes>
#include <string>
#include <vector>

namespace metal_marlin {
namespace {

/// The orders that are still possible.
struct Orders {
  bool outputs_first = true, inputs_first = true;

  bool is_settled() const { return outputs_first != inputs_first; }
  /// Takes a piece of evidence unless it excludes both.
  void narrow(bool outputs, bool inputs) {
    if (is_settled() || outputs == inputs) return;
    outputs_first = outputs;
    inputs_first = inputs;
  }
};

/// The matrix that a name calls: those before the nonlinearity have the model's state as input,
/// those behind it as output.
enum class Side { unknown, in, out };

Side side_of(std::string_view leaf) {
  if (leaf.find("down") != std::string_view::npos || leaf.starts_with("w2") ||
      leaf.starts_with("output") || leaf.starts_with("wo") || leaf.starts_with("mlp2"))
    return Side::out;
  for (const char* word : {"gate", "up", "w1", "w3", "input", "wi", "mlp1"})
    if (leaf.find(word) != std::string_view::npos) return Side::in;
  return Side::unknown;
}

/// "a.experts." and "down_proj" of "a.experts.down_proj.weight".
struct StackName {
  std::string_view before, leaf;
};
StackName split(std::string_view layer) {
  const size_t dot = layer.rfind('.');
  if (dot == std::string_view::npos) return {{}, layer};
  return {layer.substr(0, dot + 1), layer.substr(dot + 1)};
}

/// gate (or gate and up) [a, b] and down [c, d] of one expert: with outputs first, b = c is the
/// state and a = d (or a = 2 d) what is between; with inputs first, a = d is the state.
void compare_pair(const std::vector<int64_t>& in, const std::vector<int64_t>& out, Orders& orders) {
  const int64_t a = in[1], b = in[2], c = out[1], d = out[2];
  const auto fits = [](int64_t twice, int64_t once) {
    return twice == once || (once <= INT64_MAX / 2 && twice == 2 * once);
  };
  orders.narrow(b == c && fits(a, d), a == d && fits(b, c));
}

void compare_pairs(const Finder& finder, const TensorView& tensor, const StackName& name, Side side,
                   Orders& orders) {
  if (side == Side::unknown || name.before.empty()) return;
  finder.tensors.for_each_with_prefix(name.before, [&](size_t index) {
    if (orders.is_settled() || finder.tensors.range(index).bytes == 0) return;
    std::string_view rest = finder.tensors.name(index).substr(name.before.size());
    if (const auto base = without_suffix(rest, ".weight")) rest = *base;
    if (rest.find('.') != std::string_view::npos || rest == name.leaf) return;
    const Side other = side_of(rest);
    if (other == Side::unknown || other == side) return;
    const TensorView partner = finder.tensors.view(index);
    const bool alike =
        partner.dtype == tensor.dtype || (is_float(partner.dtype) && is_float(tensor.dtype));
    if (partner.dims.size() != 3 || partner.dims[0] != tensor.dims[0] || !alike) return;
    side == Side::in ? compare_pair(tensor.dims, partner.dims, orders)
                     : compare_pair(partner.dims, tensor.dims, orders);
  });
}

/// The state's size: of the config, or of the router, which has a row for each expert.
int64_t state_size(const Finder& finder, const TensorView& tensor, std::string_view before) {
  if (finder.config.sizes.hidden > 0) return finder.config.sizes.hidden;
  std::string_view block = before.substr(0, before.empty() ? 0 : before.size() - 1);
  const size_t dot = block.rfind('.');
  block = dot == std::string_view::npos ? std::string_view() : block.substr(0, dot + 1);
  for (const char* router :
       {"gate.weight", "router.weight", "router.layer.weight", "gate.wg.weight"}) {
    const TensorView rows = finder.find(block, router);
    if (rows.dims.size() == 2 && rows.dims[0] == tensor.dims[0]) return rows.dims[1];
  }
  return 0;
}

/// A scale for each output tells which dimension they are.
void compare_scales(const TensorView& tensor, const TensorView& scales, Orders& orders) {
  if (scales.dims.size() != 3 || scales.dims[0] != tensor.dims[0]) return;
  const int64_t a = tensor.dims[1], b = tensor.dims[2];
  orders.narrow(scales.dims[1] == a && scales.dims[2] == 1 && a > 1,
                scales.dims[2] == b && scales.dims[1] == 1 && b > 1);
}

}  // namespace

bool is_stack(const Finder& finder, const TensorView& tensor) {
  if (tensor.dims.size() != 3) return false;
  for (const char* word : {"expert", "_exps", "switch_mlp", "moe"})
    if (tensor.name.find(word) != std::string_view::npos) return true;
  return finder.config.sizes.experts > 1 && finder.config.sizes.experts == tensor.dims[0];
}

void settle_order(const Finder& finder, const TensorView& scales, Finding& found) {
  const TensorView tensor = found.operands.values;
  if (tensor.dims.size() != 3) return;
  const StackName name = split(found.layer.name);
  const Side side = side_of(name.leaf);
  const int64_t a = tensor.dims[1], b = tensor.dims[2];
  const ModelSizes& sizes = finder.config.sizes;
  Orders orders;
  if (finder.stack_order != StackOrder::unknown)
    orders.narrow(finder.stack_order == StackOrder::outputs_first,
                  finder.stack_order == StackOrder::inputs_first);
  compare_scales(tensor, scales, orders);
  compare_pairs(finder, tensor, name, side, orders);
  if (const int64_t state = state_size(finder, tensor, name.before); state > 0) {
    if (side == Side::in) orders.narrow(b == state, a == state);
    if (side == Side::out) orders.narrow(a == state, b == state);
  }
  if (const int64_t between = sizes.intermediate; between > 0 && between <= INT32_MAX) {
    if (side == Side::in)
      orders.narrow(a == between || a == 2 * between, b == between || b == 2 * between);
    if (side == Side::out) orders.narrow(b == between, a == between);
  }
  const bool transposed = sizes.model_type.starts_with("llama4") || sizes.model_type == "gpt_oss";
  if (transposed) orders.narrow(false, true);
  // The matrices of modules, which are called so, have outputs first.
  if (tensor.name.ends_with(".weight")) orders.narrow(true, false);
  if (orders.is_settled()) {
    if (orders.inputs_first) found.transpose(&LayoutOperands::values);
    return;
  }
  if (a == 1 || b == 1 || tensor.bytes == 0) return;
  found.layer.status =
      view_error(tensor, MARLIN_E_UNSUPPORTED,
                 "cannot tell whether an expert is %" PRId64 " outputs x %" PRId64
                 " inputs or the reverse: expected hidden_size in config.json, or OUTPUTS_FIRST or "
                 "INPUTS_FIRST when opening",
                 a, b);
}

}  // namespace metal_marlin
