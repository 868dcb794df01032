// What models are made of: hyper-parameters, the names of layers, and how the architectures differ.
// Another architecture of this family is one more row in the tables of architecture.cc.
#pragma once

#include <cstdint>
#include <string>

#include "gguf.h"

namespace llm {

/// What one architecture has that another lacks. All but rotation_factors is off in Llama.
struct Architecture {
  const char* name = "llama";         // general.architecture of a GGUF
  const char* folder_name = nullptr;  // model_type of config.json, where it is another
  bool rotate_halves = false;  // in GGUF: pairs of rotary embedding (i, i + size / 2), else (2i, 2i
                               // + 1)
  bool qkv_bias = false;
  bool all_biases = false;         // of every layer of a block, routers and experts included
  bool sinks = false;              // each head's softmax has one more score, which no position has
  bool head_norms = false;         // each head of q and k is normalized
  bool result_norms = false;       // what attention and the MLP add is normalized
  bool scaled_embedding = false;   // by the square root of its width
  bool gelu = false;               // of the gate, else silu
  bool swiglu_oai = false;         // MARLIN_EPILOGUE_SWIGLU_OAI
  bool mixtures = false;           // a router chooses a few of many MLPs for each token
  bool in_folders = true;          // safetensors have the names and norms of kHuggingFaceNames
  bool local_rotation = false;     // of local layers: another base, positions that are not scaled
  bool yarn = false;               // positions may be scaled so
  bool rotation_factors = false;   // a file may divide the speed of each pair by a factor
  const char* mlp_norm = nullptr;  // its name in GGUF, where it is another
  int64_t local_period = 0;        // see HyperParameters
  int64_t wide_layers = 0;         // with so many, scores are divided by the root of width / heads
};

struct HyperParameters {
  int64_t layers = 0, width = 0, feed_forward = 0, heads = 0, key_value_heads = 0, head_size = 0,
          context = 0;
  double rotation_base = 10000, norm_epsilon = 1e-5;
  double rotation_factor = 1;          // positions are divided by it
  int64_t yarn_context = 0;            // see Scaling; 0: all positions are divided
  double local_rotation_base = 10000;  // of local layers
  double query_scale = 1;  // of queries, whose products with keys the root of head_size divides
  /// Of so many layers, the last attends to all positions, and the others are local: they attend to
  /// the last `window` positions. 0: no layer is local.
  int64_t local_period = 0, window = 0;
  /// A token has so many MLPs of all those that a block has, and feed_forward is the size of one.
  /// Without mixtures a block has one, which is no stack of experts.
  int64_t experts = 1, experts_used = 1;
  Architecture architecture = {};

  bool is_local(int64_t layer) const {
    return local_period > 0 && window > 0 && (layer + 1) % local_period != 0;
  }
};

/// Layers and tensors of one block are "<block><index>.<name>"; names are without ".weight".
struct TensorNames {
  const char *embedding, *norm, *head, *block;
  const char *attention_norm, *query, *key, *value, *attention_out, *mlp_norm, *gate, *up, *down;
  const char *query_norm, *key_norm, *attention_result_norm, *mlp_result_norm, *sinks;
  const char *router, *expert_gate, *expert_up, *expert_down;
  const char* rotation_factors;  // a tensor of the whole model
  bool rotate_halves;            // whatever the architecture
};
extern const TensorNames kGgufNames, kHuggingFaceNames;

/// From a GGUF's key-values. Throws std::runtime_error for what is missing, out of range or of an
/// unknown architecture.
HyperParameters hyper_parameters(const Metadata& metadata);
/// From a model folder's config.json; false when it says nothing about the model, as one that was
/// made from a GGUF.
bool read_config(const std::string& folder, HyperParameters& hyper);

}  // namespace llm
