// A Llama-style decoder. Every product with weights is the library's, through the public interface
// alone; norms, rotation and attention are the program's own.
#pragma once

#include <array>
#include <functional>
#include <metal_marlin/metal_marlin.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "architecture.h"
#include "attention.h"
#include "loader.h"
#include "pool.h"
#include "ranks.h"
#include "tokenizer.h"

namespace llm {

struct ModelOptions {
  marlin_backend backend = MARLIN_BACKEND_AUTO;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  unsigned threads = 0;        // 0: as many as processors
  int64_t context = 0;         // positions; 0: the model's
  int64_t vocabulary = 0;      // tokens; only a packed container needs to be told
  int64_t block = 128;         // tokens that run through the model at once
  bool row_invariant = false;  // logits of a token do not depend on the tokens that run with it
  Ranks* ranks = nullptr;  // the processes that share the model; nullptr: this one has all of it
  std::function<void(double part)> progress = [](double) {};  // of loading, 0 to 1
};

/// Where the time goes.
enum class Stage { embed, qkv, attend, out, route, gate_up, down, head, rest, sum };
constexpr std::array<const char*, 10> kStageNames = {
    "embedding rows", "q, k, v", "attention", "attention out",          "choice of experts",
    "gate and up",    "down",    "head",      "norms, rotation, cache", "sums over ranks"};
using StageSeconds = std::array<double, kStageNames.size()>;

class Model {
 public:
  /// path: a GGUF file, or a folder of safetensors. Throws std::runtime_error or
  /// metal_marlin::error.
  Model(const std::string& path, const HyperParameters& hyper, const ModelOptions& options);

  /// Runs at most options.block tokens, behind those that ran before. Returns the logits of the
  /// last `wanted` of them, a row of vocabulary() each, valid until the next call. A token outside
  /// of the vocabulary: metal_marlin::error.
  std::span<const float> run(std::span<const Token> tokens, int64_t wanted);
  /// With ranks, run() is for rank 0. The others serve it, until rank 0 dismisses them.
  void serve();
  void dismiss();
  /// How many tokens ran, and back to an earlier state.
  int64_t position() const { return position_; }
  void rewind(int64_t position) { position_ = position; }

  int64_t context() const { return options_.context; }
  int64_t block() const { return options_.block; }
  int64_t vocabulary() const { return vocabulary_; }
  /// Of all weights as they are multiplied by, scales included.
  uint64_t weight_bytes() const;
  const StageSeconds& seconds() const { return seconds_; }

 private:
  using Products = std::vector<marlin_gemm_desc>;
  struct Linear {
    Joined weights;
    metal_marlin::buffer bias;  // [experts, rows], or absent
    int64_t rows = 0, experts = 1;
  };
  struct Layer {
    std::vector<float> attention_norm, mlp_norm;
    Linear qkv, out, gate_up, down, router;  // gate_up and down of all experts
    KeyValueCache cache;
    const Rotation* rotation;
    int64_t window;
    // What the architecture may lack: empty.
    std::vector<float> query_norm, key_norm, attention_result_norm, mlp_result_norm, sinks;
  };
  // What a layer is made of: the names of its parts, their rows, and those that this rank holds.
  struct LayerRows {
    std::string name;
    int64_t rows;
    Portion own;
  };
  using LayerParts = std::vector<LayerRows>;
  // What ranks have to do for rank 0.
  struct Order {
    int64_t rows, wanted, position, ends;
  };

  Layer load_layer(Loader& from, int64_t index);
  // `columns` are those of k that this rank holds.
  Linear load_linear(Loader& from, const LayerParts& parts, int64_t k, Portion columns,
                     int64_t experts, bool bias);
  void load_vocabulary(Loader& from);
  std::vector<float> load_rotation_factors(Loader& from) const;
  Linear load_router(Loader& from, const std::string& name);
  void load_bias(Loader& from, const LayerParts& parts, int64_t experts, Portion own_experts,
                 Linear& linear, const metal_marlin::context& to);
  void embed(std::span<const Token> tokens);
  std::span<const float> run_here(std::span<const Token> tokens, int64_t wanted);
  void allocate();
  void prepare();
  void block_of(Layer& layer, int64_t rows);
  void turn_and_store(Layer& layer, int64_t rows);
  void route(const Layer& layer, int64_t rows);
  void gate_and_up(const Layer& layer, int64_t rows);
  void normalize(const std::vector<float>& weight, int64_t rows);
  void add_result(const std::vector<float>& norm, int64_t rows);
  Products products(const Joined& weights, const marlin_matrix& a, const marlin_matrix& c,
                    const marlin_matrix& bias = {}) const;
  Products products(const Linear& linear, const marlin_matrix& a, const marlin_matrix& c) const;
  // Those of each step for this many rows.
  Products qkv_products(const Layer& layer, int64_t rows) const;
  Products result_products(const Linear& linear, const marlin_matrix& a, int64_t rows) const;
  Products out_products(const Layer& layer, int64_t rows) const;
  Products router_products(const Layer& layer, int64_t rows) const;
  Products gate_up_products(const Layer& layer, int64_t rows) const;
  Products down_products(const Layer& layer, int64_t rows) const;
  Products head_products(int64_t rows) const;
  void multiply(const Products& products, Stage stage);
  void took(Stage stage);
  // Whether x gets the results of products later than from the products.
  bool adds_later() const { return hyper_.architecture.result_norms || options_.ranks != nullptr; }
  int64_t feed_forward() const { return share_.feed_forward.count; }
  int64_t queries() const { return heads_.query * heads_.size; }
  int64_t keys() const { return heads_.key_value * heads_.size; }
  // Of what the MLPs compute, each expert of a token has a row.
  int64_t routed(int64_t rows) const { return rows * hyper_.experts_used; }
  // Absent without mixtures.
  marlin_matrix expert_ids(int64_t rows) const {
    return hyper_.architecture.mixtures ? expert_ids_.matrix<int32_t>(rows, hyper_.experts_used)
                                        : marlin_matrix{};
  }

  HyperParameters hyper_;
  ModelOptions options_;
  Share share_;
  Heads heads_;  // of this rank
  int64_t vocabulary_ = 0, position_ = 0;
  Portion own_vocabulary_;
  Pool pool_;
  // The second is the CPU, for routers: they are floats, for which GPUs have no kernels, and their
  // results are read at once.
  metal_marlin::context context_, router_context_;
  Joined embedding_, own_head_;  // no own head: the embedding's weights serve as one
  std::vector<float> norm_;
  std::vector<Layer> layers_;
  Rotation rotation_, local_rotation_;
  bool rotate_halves_ = false;
  // Activations, [block, ...] each: x runs through the model, h is x normalized and what attention
  // gives, result is what a norm changes before x gets it, apart is gate and up in two formats.
  // Experts are the ids and shares of each token's.
  metal_marlin::buffer ids_, x_, h_, qkv_, mlp_, result_, apart_, logits_;
  metal_marlin::buffer router_logits_, expert_ids_, expert_shares_;
  int64_t logit_rows_ = 0;
  std::vector<float> all_logits_;  // of all ranks
  StageSeconds seconds_{};
  double clock_ = 0;
};

}  // namespace llm
