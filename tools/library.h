// The C ABI as the command uses it: owners that destroy, failures that throw.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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

/// Throws Failure with the library's message unless status is MARLIN_OK. `doing` says what was
/// tried.
void check(marlin_status status, const marlin_error& error, const std::string& doing);

/// Every device of every backend, the unusable ones included.
std::vector<marlin_device_info> devices();
struct ContextOptions {
  marlin_backend backend = MARLIN_BACKEND_AUTO;
  uint32_t threads = 0;                          ///< 0: as many as the process may use
  int32_t device_index = 0;                      ///< marlin_device_info::index; 0 with AUTO
  std::vector<std::string>* messages = nullptr;  ///< where logged messages go; outlives the context
};
Context make_context(const ContextOptions& options);
/// The device that such a context uses.
marlin_device_info device_of(marlin_backend backend);

Checkpoint open_checkpoint(const std::string& path);
/// Every layer in turn. The names inside live as long as the checkpoint, here and below.
void for_each_layer(const marlin_checkpoint* checkpoint,
                    const std::function<void(const marlin_layer_info&)>& visit);
std::vector<marlin_layer_info> layers_of(const marlin_checkpoint* checkpoint);
/// The layer called `name`, or a Failure that says what there is.
marlin_layer_info find_layer(const marlin_checkpoint* checkpoint, const std::string& name);

/// How layers of floats are to be quantized; NONE: not at all.
struct Quantize {
  marlin_format format = MARLIN_FORMAT_NONE;
  uint32_t group = 0;  ///< 0: the format's own
};
/// One expert (0 for plain layers) of a layer, packed. NULL and *why on failure.
Weights try_load(marlin_context* context, const marlin_checkpoint* checkpoint,
                 const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize,
                 std::string* why);
/// The same, or a Failure.
Weights load(marlin_context* context, const marlin_checkpoint* checkpoint,
             const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize);
/// Why a layer would not load, in the library's words; empty when it would.
std::string why_not(marlin_context* context, const marlin_checkpoint* checkpoint,
                    const marlin_layer_info& layer);

marlin_layer_info info_of(const marlin_weights* weights);
/// Rows [first, first + count) as float32 [count, k].
void unpack_rows(const marlin_weights* weights, int64_t first, int64_t count, int64_t k,
                 float* out);
/// All of marlin_explain's text.
std::string explain(const marlin_gemm_desc& desc);
/// Its "key: value" lines, in their order.
std::vector<std::pair<std::string, std::string>> explained(const std::string& text);
/// The value of one of them, or "".
std::string explained(const std::string& text, const std::string& key);

}  // namespace metal_marlin::tools
