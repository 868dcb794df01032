// Loading a model, or the part of it that one rank holds.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "model.h"

namespace llm {

namespace mm = metal_marlin;

// The rows of the embedding and of the head that this rank holds.
void Model::load_vocabulary(Loader& from) {
  const TensorNames& names = from.names();
  vocabulary_ = from.rows(names.embedding);
  own_vocabulary_ = {0, vocabulary_};
  if (Ranks* const ranks = options_.ranks) {
    if (from.packed()) vocabulary_ = options_.vocabulary;  // the file has those of this rank
    own_vocabulary_ = even_part(vocabulary_, 1, ranks->rank(), ranks->count(), "tokens");
  }
  const std::vector<marlin_shard> own = {{{own_vocabulary_.first}, {own_vocabulary_.count}}};
  const auto load = [&](const char* name, int64_t rows) {
    return from.load(context_, {name}, rows, hyper_.width, 1, MARLIN_FORMAT_INT8, own);
  };
  embedding_ = load(names.embedding, 0);
  if (from.has(names.head)) own_head_ = load(names.head, vocabulary_);
}

// Of each pair of a head; none in most files.
std::vector<float> Model::load_rotation_factors(Loader& from) const {
  const std::string name = from.names().rotation_factors;
  if (!hyper_.architecture.rotation_factors || name.empty() || !from.has_tensor(name)) return {};
  std::vector<float> factors = from.vector(name, hyper_.head_size / 2);
  for (const float factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor))
      from.fail("tensor '" + name + "': expected numbers above 0, found " + std::to_string(factor));
  }
  return factors;
}

Model::Layer Model::load_layer(Loader& from, int64_t index) {
  const TensorNames& names = from.names();
  const Architecture& has = hyper_.architecture;
  const int64_t width = hyper_.width, ff = hyper_.feed_forward, size = heads_.size;
  const auto of_heads = [&](Portion heads) {
    return Portion{heads.first * size, heads.count * size};
  };
  const Portion all{0, width}, q = of_heads(share_.queries), kv = of_heads(share_.keys);
  const auto [gate, up, down] =
      has.mixtures ? std::array{names.expert_gate, names.expert_up, names.expert_down}
                   : std::array{names.gate, names.up, names.down};
  const auto name = [&](const char* of) { return from.in_block(index, of); };
  const auto norm = [&](bool there, const char* of, int64_t size) {
    return there ? from.vector(name(of) + ".weight", size) : std::vector<float>();
  };
  const bool local = hyper_.is_local(index);
  Layer layer{
      norm(true, names.attention_norm, width),
      norm(true, has.mlp_norm ? has.mlp_norm : names.mlp_norm, width),
      load_linear(from,
                  {{name(names.query), hyper_.heads * size, q},
                   {name(names.key), hyper_.key_value_heads * size, kv},
                   {name(names.value), hyper_.key_value_heads * size, kv}},
                  width, all, 1, has.qkv_bias),
      load_linear(from, {{name(names.attention_out), width, all}}, hyper_.heads * size, q, 1,
                  has.all_biases),
      load_linear(from,
                  {{name(gate), ff, share_.feed_forward}, {name(up), ff, share_.feed_forward}},
                  width, all, hyper_.experts, has.all_biases),
      load_linear(from, {{name(down), width, all}}, ff, share_.feed_forward, hyper_.experts,
                  has.all_biases),
      has.mixtures ? load_router(from, name(names.router)) : Linear(),
      KeyValueCache(heads_, options_.context),
      local && has.local_rotation ? &local_rotation_ : &rotation_,
      local ? hyper_.window : options_.context,
      norm(has.head_norms, names.query_norm, heads_.size),
      norm(has.head_norms, names.key_norm, heads_.size),
      norm(has.result_norms, names.attention_result_norm, width),
      norm(has.result_norms, names.mlp_result_norm, width),
      norm(has.sinks, names.sinks, hyper_.heads)};
  if (has.sinks)
    layer.sinks = {layer.sinks.begin() + share_.queries.first,
                   layer.sinks.begin() + share_.queries.first + share_.queries.count};
  for (float& norm_of_query : layer.query_norm)
    norm_of_query *= static_cast<float>(hyper_.query_scale);
  return layer;
}

Model::Linear Model::load_linear(Loader& from, const LayerParts& parts, int64_t k, Portion columns,
                                 int64_t experts, bool bias) {
  const Portion own = experts > 1 ? share_.experts : Portion{0, 1};
  Linear linear;
  linear.experts = own.count;
  std::vector<std::string> names;
  std::vector<marlin_shard> shards;
  int64_t rows = 0;
  for (const LayerRows& part : parts) {
    names.push_back(part.name);
    shards.push_back(
        {{part.own.first, columns.first, own.first}, {part.own.count, columns.count, own.count}});
    if (columns.first == 0 && columns.count == k) shards.back().count[1] = 0;  // all of them
    rows += part.rows;
    linear.rows += part.own.count;
  }
  linear.weights = from.load(context_, names, rows, k, experts, MARLIN_FORMAT_INT8, shards);
  // A result is the sum over all ranks, of which one adds the bias.
  const bool adds = columns.count == k || columns.first == 0 || experts > 1;
  if (bias && adds) load_bias(from, parts, experts, own, linear, context_);
  return linear;
}

Model::Linear Model::load_router(Loader& from, const std::string& name) {
  Linear linear;
  linear.rows = hyper_.experts;
  linear.weights =
      from.load(router_context_, {name}, hyper_.experts, hyper_.width, 1, MARLIN_FORMAT_NONE);
  if (hyper_.architecture.all_biases)
    load_bias(from, {{name, linear.rows, {0, linear.rows}}}, 1, {0, 1}, linear, router_context_);
  return linear;
}

// A row for each expert, the parts side by side. In files each part has all its experts.
void Model::load_bias(Loader& from, const LayerParts& parts, int64_t experts, Portion own_experts,
                      Linear& linear, const mm::context& to) {
  linear.bias = mm::buffer(to, static_cast<uint64_t>(linear.experts * linear.rows) * sizeof(float));
  auto* bias = static_cast<float*>(linear.bias.data());
  for (const LayerRows& part : parts) {
    const std::vector<float> all = from.vector(part.name + ".bias", experts * part.rows);
    for (int64_t e = 0; e < own_experts.count; ++e)
      std::copy_n(all.data() + (own_experts.first + e) * part.rows + part.own.first, part.own.count,
                  bias + e * linear.rows);
    bias += part.own.count;
  }
}

}  // namespace llm
