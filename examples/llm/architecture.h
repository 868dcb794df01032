// What models are made of: hyper-parameters and the names of layers. Another architecture of this
// family is one more row in the tables of architecture.cc.
#pragma once

#include <cstdint>
#include <string>

#include "gguf.h"

namespace llm {

struct HyperParameters {
  int64_t layers = 0, width = 0, feed_forward = 0, heads = 0, key_value_heads = 0, head_size = 0,
          context = 0;
  double rotation_base = 10000, norm_epsilon = 1e-5;
};

/// Layers and tensors of one block are "<block><index>.<name>"; names are without ".weight".
struct TensorNames {
  const char *embedding, *norm, *head, *block;
  const char *attention_norm, *query, *key, *value, *attention_out, *mlp_norm, *gate, *up, *down;
  bool rotate_halves;  // pairs of rotary embedding: (i, i + size / 2), else (2i, 2i + 1)
};
extern const TensorNames kGgufNames, kHuggingFaceNames;

/// From a GGUF's key-values. Throws std::runtime_error for what is missing, out of range or of an
/// unknown architecture.
HyperParameters hyper_parameters(const Metadata& metadata);
/// From a model folder's config.json; false when it says nothing about the model, as one that was
/// made from a GGUF.
bool read_config(const std::string& folder, HyperParameters& hyper);

}  // namespace llm
