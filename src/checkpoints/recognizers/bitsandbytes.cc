// bitsandbytes with 4 bits: the codes of the flattened matrix, a scale for each block of it, the
// codebook, and a text that has the shape.
#include <cinttypes>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "checkpoints/json.h"
#include "checkpoints/recognizers/recognizers.h"
#include "formats/codecs.h"

namespace metal_marlin {
namespace {

constexpr uint32_t kMaxState = 64u << 10;  // bytes of the text

/// The members of the text that a reader needs.
struct State {
  int64_t block = 0;
  std::vector<int64_t> shape;
  bool nested = false;
  int64_t nested_block = 0;
  std::optional<double> nested_offset;
};

Result<State> read_state(const TensorView& view) {
  State state;
  std::string key;
  const auto visit = [&](const JsonEvent& e) -> Status {
    using Kind = JsonEvent::Kind;
    if (e.kind == Kind::key) key = e.text.substr(0, 32);
    if (e.kind == Kind::key && e.text.starts_with("nested_")) state.nested = true;
    const bool number = e.kind == Kind::integer || e.kind == Kind::negative || e.kind == Kind::real;
    if (key == "nested_offset" && number && e.depth == 1) state.nested_offset = e.number;
    if (e.kind != Kind::integer || e.integer > INT32_MAX) return {};
    if (key == "blocksize" && e.depth == 1) state.block = static_cast<int64_t>(e.integer);
    if (key == "nested_blocksize" && e.depth == 1)
      state.nested_block = static_cast<int64_t>(e.integer);
    if (key == "shape" && e.depth == 2 && state.shape.size() < 4)
      state.shape.push_back(static_cast<int64_t>(e.integer));
    return {};
  };
  const std::string_view text(reinterpret_cast<const char*>(view.data), view.bytes);
  MARLIN_RETURN_IF_ERROR(walk_json({text, view.file, view.file_offset, kMaxState, 4}, visit));
  if (state.shape.size() < 2 || state.shape.size() > 3 || state.block < 1) {
    return view_error(view, MARLIN_E_FORMAT,
                      "expected a blocksize and a shape of two numbers (of experts, three), "
                      "each up to 2147483647");
  }
  if (state.nested && (state.nested_block < 1 || !state.nested_offset)) {
    return view_error(view, MARLIN_E_FORMAT,
                      "expected a nested_blocksize up to 2147483647 and a nested_offset");
  }
  return state;
}

/// A stack was flattened as a whole. Each expert must begin with a block, and with a factor of
/// nested scales.
Status take_stack(const State& state, Finding& found) {
  LayoutOperands& o = found.operands;
  const int64_t experts = state.shape[0], elements = o.n * o.k;  // n and k are below 2^31
  const int64_t blocks = elements / o.flat_block;
  const bool whole = experts > 0 && elements % 2 == 0 && elements % o.flat_block == 0 &&
                     (!present(o.nested.absmax) || blocks % o.nested.span == 0);
  if (!whole || o.values.bytes % static_cast<uint64_t>(experts) != 0 ||
      cols_of(o.scales) / experts != blocks) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "expected experts that begin with a block of scales, found %" PRId64
                      " experts of [%" PRId64 ", %" PRId64 "] in blocks of %" PRId64,
                      experts, o.n, o.k, o.flat_block);
  }
  found.stacked = true;
  found.layer.experts = static_cast<uint32_t>(experts);
  o.values.dims = {experts, static_cast<int64_t>(o.values.bytes) / experts, 1};
  o.scales.dims = {experts, 1, cols_of(o.scales) / experts};
  if (present(o.nested.absmax)) o.nested.absmax.dims = {experts, blocks / o.nested.span};
  return {};
}

/// Takes shape, groups and codebook. All of them are as small as a header.
Status take_state(const Finder& finder, const TensorView& text, const std::string& weight,
                  Finding& found) {
  LayoutOperands& o = found.operands;
  MARLIN_ASSIGN(const State state, read_state(text));
  found.layer.k = o.k = state.shape.back();
  found.layer.n = o.n = state.shape[state.shape.size() - 2];
  o.flat_block = state.block;
  o.group_size = std::gcd(o.k, o.flat_block);
  const TensorView codebook = finder.find(weight, ".quant_map");
  MARLIN_RETURN_IF_ERROR(expect_shape(codebook, 1, 16));
  MARLIN_RETURN_IF_ERROR(expect_dtype(codebook, {MARLIN_F32}));
  const bool nf4 = std::memcmp(codebook.data, static_cast<const void*>(kNf4), sizeof kNf4) == 0;
  found.layer.format = o.format = nf4 ? MARLIN_FORMAT_NF4 : MARLIN_FORMAT_CODEBOOK4;
  if (!nf4) o.codebook = codebook;
  found.others = {text, codebook};
  if (!state.nested || !state.nested_offset) {  // read_state gives both or neither
    return state.shape.size() == 3 ? take_stack(state, found) : Status();
  }
  o.nested = {finder.find(weight, ".nested_quant_map"), finder.find(weight, ".nested_absmax"),
              state.nested_block, static_cast<float>(*state.nested_offset)};
  if (!present(o.nested.map)) found.set_missing(".weight.nested_quant_map");
  if (!present(o.nested.absmax)) found.set_missing(".weight.nested_absmax");
  if (!found.layer.status.ok() || state.shape.size() == 2) return found.layer.status;
  return take_stack(state, found);
}

/// All parts of a layer that cannot be read are its own nevertheless.
void take_others(const Finder& finder, const std::string& weight, Finding& found) {
  found.others.clear();
  found.operands.nested = {};
  finder.tensors.for_each_with_prefix(weight + ".", [&](size_t index) {
    TensorView view = finder.tensors.view(index);
    if (view.name != found.operands.scales.name) found.others.push_back(std::move(view));
  });
}

}  // namespace

std::optional<Finding> recognize_bitsandbytes(const Finder& finder, const TensorView& tensor) {
  const auto base = finder.base_of(tensor.name, ".weight");
  if (!base) return std::nullopt;
  const std::string weight(tensor.name);
  TensorView text = finder.find(weight, ".quant_state.bitsandbytes__nf4");
  if (!present(text)) text = finder.find(weight, ".quant_state.bitsandbytes__fp4");
  if (!present(text)) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.set_layout(LayoutId::bitsandbytes);
  found.layer.format = found.operands.format = MARLIN_FORMAT_NF4;
  found.operands.values = tensor;
  found.operands.scales = finder.find(weight, ".absmax");
  found.layer.status = take_state(finder, text, weight, found);
  if (found.layer.status.ok() && !present(found.operands.scales))
    found.set_missing(".weight.absmax");
  if (!found.layer.status.ok()) take_others(finder, weight, found);
  return found;
}

}  // namespace metal_marlin
