// The C ABI for the command: owners destroy handles, and failures throw.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metal_marlin/metal_marlin.hpp"

namespace metal_marlin::tools {

struct Destroy {
  void operator()(marlin_context* p) const { marlin_context_destroy(p); }
  void operator()(marlin_weights* p) const { marlin_weights_destroy(p); }
  void operator()(marlin_checkpoint* p) const { marlin_checkpoint_destroy(p); }
};
using Context = std::unique_ptr<marlin_context, Destroy>;
using Weights = std::unique_ptr<marlin_weights, Destroy>;
using Checkpoint = std::unique_ptr<marlin_checkpoint, Destroy>;

/// Throws Failure with the library's message unless status is MARLIN_OK. `doing` names the
/// attempted action.
void check(marlin_status status, const marlin_error& error, const std::string& doing);

/// Every device of every backend, including the unusable ones.
std::vector<marlin_device_info> devices();
class Trace;
struct ContextOptions {
  marlin_backend backend = MARLIN_BACKEND_AUTO;
  uint32_t threads = 0;                          ///< 0: as many as the process may use
  int32_t device_index = 0;                      ///< marlin_device_info::index; 0 with AUTO
  std::vector<std::string>* messages = nullptr;  ///< where logged messages go; outlives the context
  Trace* trace = nullptr;                        ///< hears of steps, in place of messages
};
Context make_context(const ContextOptions& options);
/// The device that a context of this backend uses.
marlin_device_info device_of(marlin_backend backend);

Checkpoint open_checkpoint(const std::string& path);

/// How to read what a file leaves open: a layout of .qweight, the order of stacks of experts, or
/// members of config.json.
struct Reading {
  marlin_layout layout = MARLIN_LAYOUT_AUTO;
  uint32_t flags = 0;    ///< MARLIN_OPEN_*
  std::string config{};  ///< an object of JSON
};
std::optional<Reading> parse_reading(std::string_view name);
/// The choice of --read-as, for every checkpoint that is opened from then on.
void set_reading(const Reading& reading);
/// Calls a function for every layer in turn. The names live as long as the checkpoint, here and
/// below.
void for_each_layer(const marlin_checkpoint* checkpoint,
                    const std::function<void(const marlin_layer_info&)>& visit);
std::vector<marlin_layer_info> layers_of(const marlin_checkpoint* checkpoint);
/// The layer `name`, or a Failure that lists the existing layers.
marlin_layer_info find_layer(const marlin_checkpoint* checkpoint, const std::string& name);

/// The type that a file gives a tensor, "Q4_K" or "BF16"; "" if the checkpoint has no such tensor.
std::string tensor_type(const marlin_checkpoint* checkpoint, const char* name);
/// The method of quantization that the config names, "gptq"; "" if there is none.
std::string quant_method(const marlin_checkpoint* checkpoint);

/// How to quantize layers of floats; NONE: not at all.
struct Quantize {
  marlin_format format = MARLIN_FORMAT_NONE;
  uint32_t group = 0;  ///< 0: the format's own
};
/// Why the library did not load a layer.
struct Refusal {
  marlin_status status = MARLIN_OK;
  std::string why;
};
/// One expert (0 for plain layers) of a layer, packed. NULL and *refusal on failure.
Weights try_load(marlin_context* context, const marlin_checkpoint* checkpoint,
                 const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize,
                 Refusal* refusal);
/// Does the same, or throws a Failure.
Weights load(marlin_context* context, const marlin_checkpoint* checkpoint,
             const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize);
/// The library's reason why a layer would not load; empty if it would.
std::string why_not(marlin_context* context, const marlin_checkpoint* checkpoint,
                    const marlin_layer_info& layer);

marlin_layer_info info_of(const marlin_weights* weights);
/// About 16 MB of rows of k floats, so that memory holds little more than one packed expert.
constexpr int64_t rows_of_stripe(int64_t k) {
  return std::max<int64_t>(1, (int64_t{4} << 20) / std::max<int64_t>(1, k));
}
/// Unpacks rows [first, first + count) to float32 [count, k].
void unpack_rows(const marlin_weights* weights, int64_t first, int64_t count, int64_t k,
                 float* out);
/// Why no kernel of the backend does this product; empty if one does.
std::string why_not_served(const marlin_gemm_desc& desc);
/// The whole text of marlin_explain.
std::string explain(const marlin_gemm_desc& desc);
/// The "key: value" lines of the text, in their order.
std::vector<std::pair<std::string, std::string>> explained(const std::string& text);
/// The value of one of them, or "".
std::string explained(const std::string& text, const std::string& key);

}  // namespace metal_marlin::tools
