#include "model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "experts.h"
#include "vector_clones.h"

namespace llm {
namespace {

namespace mm = metal_marlin;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// y = x / rms(x) * weight. Sixteen sums, so that the loop becomes vector code.
LLM_VECTOR_CLONES void rms_norm(const float* x, const float* weight, int64_t size, double epsilon,
                                float* y) {
  constexpr int64_t kSums = 16;
  float sums[kSums] = {}, sum = 0;
  const int64_t even = size / kSums * kSums;
  for (int64_t i = 0; i < even; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += x[i + j] * x[i + j];
  }
  for (int64_t i = even; i < size; ++i) sum += x[i] * x[i];
  for (const float s : sums) sum += s;
  const auto scale =
      static_cast<float>(1 / std::sqrt(double{sum} / static_cast<double>(size) + epsilon));
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * scale * weight[i];
}

LLM_VECTOR_CLONES void add(const float* x, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] += x[i];
}

LLM_VECTOR_CLONES void scale(float by, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] *= by;
}

LLM_VECTOR_CLONES void multiply_elements(const float* a, const float* b, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = a[i] * b[i];
}

float* floats(const mm::buffer& buffer) { return static_cast<float*>(buffer.data()); }

// gate becomes its product with up as MARLIN_EPILOGUE_SWIGLU_OAI has it.
LLM_VECTOR_CLONES void swiglu_oai(const float* gate, const float* up, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) {
    const float g = std::min(gate[i], 7.0f), u = std::clamp(up[i], -7.0f, 7.0f);
    y[i] = g / (1 + std::exp(-1.702f * g)) * (u + 1);
  }
}

// Some columns of a matrix.
marlin_matrix columns(marlin_matrix m, int64_t first, int64_t count) {
  m.row_stride = m.row_stride ? m.row_stride : m.cols;
  m.offset_bytes += static_cast<uint64_t>(first) * sizeof(float);
  m.cols = count;
  return m;
}

mm::context make_context(marlin_backend backend, Pool& pool) {
  auto desc = mm::make<marlin_context_desc>();
  desc.backend = backend;
  desc.threads = pool.threads();
  desc.user = &pool;
  desc.parallel_for = [](void* user, uint32_t tasks, void (*task)(void*, uint32_t),
                         void* task_user) {
    static_cast<Pool*>(user)->run(tasks, task, task_user);
  };
  return mm::context(desc);
}

}  // namespace

Model::Model(const std::string& path, const HyperParameters& hyper, const ModelOptions& options)
    : hyper_(hyper),
      options_(options),
      share_(share_of(hyper, options.ranks)),
      heads_{share_.queries.count, share_.keys.count, hyper.head_size},
      pool_(options.threads),
      context_(make_context(options.backend, pool_)),
      rotation_(0, hyper.head_size, hyper.rotation_base),
      local_rotation_(hyper.architecture.local_rotation && hyper.is_local(0) ? options.context : 0,
                      hyper.head_size, hyper.local_rotation_base) {
  if (hyper.architecture.mixtures) router_context_ = make_context(MARLIN_BACKEND_CPU, pool_);
  const int64_t each = hyper.architecture.mixtures ? 8 : 7;
  Loader from(path, each * hyper.layers + 1, options.progress);
  const TensorNames& names = from.names();
  rotate_halves_ = names.rotate_halves || hyper.architecture.rotate_halves;
  rotation_ = Rotation(options.context, hyper.head_size, hyper.rotation_base,
                       {hyper.rotation_factor, hyper.yarn_context, load_rotation_factors(from)});
  load_vocabulary(from);
  norm_ = from.vector(names.norm + std::string(".weight"), hyper.width);
  for (int64_t i = 0; i < hyper.layers; ++i) layers_.push_back(load_layer(from, i));
  if (!options.ranks || options.ranks->rank() == 0) from.check_all_used(hyper.architecture.name);
  allocate();
  prepare();
}

void Model::allocate() {
  const int64_t width = hyper_.width;
  const auto activations = [&](int64_t columns) {
    return mm::buffer(context_, static_cast<uint64_t>(options_.block * columns) * sizeof(float));
  };
  ids_ = activations(1), x_ = activations(width), h_ = activations(std::max(width, queries()));
  qkv_ = activations(queries() + 2 * keys());
  mlp_ = activations(routed(feed_forward()));
  if (adds_later()) result_ = activations(width);
  if (std::any_of(layers_.begin(), layers_.end(),
                  [](const Layer& layer) { return layer.gate_up.weights.size() > 1; }))
    apart_ = activations(routed(2 * feed_forward()));
  if (!hyper_.architecture.mixtures) return;
  router_logits_ = mm::buffer(
      router_context_, static_cast<uint64_t>(options_.block * hyper_.experts) * sizeof(float));
  expert_ids_ = activations(hyper_.experts_used), expert_shares_ = activations(hyper_.experts_used);
}

uint64_t Model::weight_bytes() const {
  uint64_t sum = 0;
  const auto count = [&](const Joined& joined) {
    for (const mm::weights& weights : joined) sum += mm::info(weights).bytes;
  };
  count(embedding_), count(own_head_);
  for (const Layer& layer : layers_)
    for (const Linear* each : {&layer.qkv, &layer.out, &layer.router, &layer.gate_up, &layer.down})
      count(each->weights);
  return sum;
}

Model::Products Model::products(const Joined& weights, const marlin_matrix& a,
                                const marlin_matrix& c, const marlin_matrix& bias) const {
  Products all;
  int64_t column = 0;
  for (const mm::weights& each : weights) {
    const bool alone = weights.size() == 1;
    const int64_t n = alone ? c.cols : mm::info(each).n;
    auto desc = mm::make<marlin_gemm_desc>();
    desc.compute = options_.compute;
    if (options_.row_invariant) desc.flags = MARLIN_GEMM_ROW_INVARIANT;
    desc.weights = each.get();
    desc.a = a;
    desc.c = columns(c, column, n);
    desc.bias = alone || !bias.data ? bias : columns(bias, column, n);
    all.push_back(desc);
    column += n;
  }
  return all;
}

Model::Products Model::products(const Linear& linear, const marlin_matrix& a,
                                const marlin_matrix& c) const {
  if (!linear.bias.get()) return products(linear.weights, a, c);
  return products(linear.weights, a, c, linear.bias.matrix<float>(linear.experts, linear.rows));
}

Model::Products Model::qkv_products(const Layer& layer, int64_t rows) const {
  return products(layer.qkv, h_.matrix<float>(rows, hyper_.width),
                  qkv_.matrix<float>(rows, queries() + 2 * keys()));
}

// Of what x gets: added to it by the product, or later, when it is normalized.
Model::Products Model::result_products(const Linear& linear, const marlin_matrix& a,
                                       int64_t rows) const {
  const bool later = adds_later();
  Products all = products(linear, a, (later ? result_ : x_).matrix<float>(rows, hyper_.width));
  for (marlin_gemm_desc& desc : all) desc.flags |= later ? 0 : MARLIN_GEMM_ACCUMULATE;
  return all;
}

Model::Products Model::out_products(const Layer& layer, int64_t rows) const {
  return result_products(layer.out, h_.matrix<float>(rows, queries()), rows);
}

// In another context than the rows, which are memory of the host to it.
Model::Products Model::router_products(const Layer& layer, int64_t rows) const {
  return products(layer.router, mm::matrix_view(floats(h_), rows, hyper_.width),
                  router_logits_.matrix<float>(rows, hyper_.experts));
}

Model::Products Model::gate_up_products(const Layer& layer, int64_t rows) const {
  const bool gelu = hyper_.architecture.gelu, oai = hyper_.architecture.swiglu_oai,
             together = layer.gate_up.weights.size() == 1;
  const int64_t ff = feed_forward();
  Products all = products(
      layer.gate_up, h_.matrix<float>(rows, hyper_.width),
      together ? mlp_.matrix<float>(routed(rows), ff) : apart_.matrix<float>(routed(rows), 2 * ff));
  if (oai)
    all[0].epilogue = together ? MARLIN_EPILOGUE_SWIGLU_OAI : MARLIN_EPILOGUE_NONE;
  else if (together)
    all[0].epilogue = gelu ? MARLIN_EPILOGUE_GEGLU_TANH : MARLIN_EPILOGUE_SWIGLU;
  else
    all[0].epilogue = gelu ? MARLIN_EPILOGUE_GELU_TANH : MARLIN_EPILOGUE_SILU;
  for (marlin_gemm_desc& desc : all) desc.expert_ids = expert_ids(rows);
  return all;
}

Model::Products Model::down_products(const Layer& layer, int64_t rows) const {
  Products all =
      result_products(layer.down, mlp_.matrix<float>(routed(rows), feed_forward()), rows);
  if (!hyper_.architecture.mixtures) return all;
  for (marlin_gemm_desc& desc : all) {
    desc.expert_ids = expert_ids(rows);
    desc.expert_scales = expert_shares_.matrix<float>(rows, hyper_.experts_used);
  }
  return all;
}

Model::Products Model::head_products(int64_t rows) const {
  return products(own_head_.empty() ? embedding_ : own_head_, h_.matrix<float>(rows, hyper_.width),
                  logits_.matrix<float>(rows, own_vocabulary_.count));
}

void Model::took(Stage stage) {
  const double time = now();
  seconds_[static_cast<size_t>(stage)] += time - clock_;
  clock_ = time;
}

void Model::multiply(const Products& products, Stage stage) {
  mm::gemm_many(products);  // without a stream: done on return, on a GPU too
  took(stage);
}

// h = x, each row normalized.
void Model::normalize(const std::vector<float>& weight, int64_t rows) {
  const int64_t width = hyper_.width;
  for (int64_t r = 0; r < rows; ++r) {
    rms_norm(floats(x_) + r * width, weight.data(), width, hyper_.norm_epsilon,
             floats(h_) + r * width);
  }
  took(Stage::rest);
}

// Nothing without ranks and a norm: the product has added its result to x.
void Model::add_result(const std::vector<float>& norm, int64_t rows) {
  if (!adds_later()) return;
  const int64_t width = hyper_.width;
  if (options_.ranks) options_.ranks->sum({floats(result_), static_cast<size_t>(rows * width)});
  took(Stage::sum);
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = floats(result_) + r * width;
    if (!norm.empty()) rms_norm(row, norm.data(), width, hyper_.norm_epsilon, row);
    add(row, width, floats(x_) + r * width);
  }
  took(Stage::rest);
}

// Norms of heads, rotation, and keys and values into the cache.
void Model::turn_and_store(Layer& layer, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = floats(qkv_) + r * (queries() + 2 * keys());
    for (int64_t i = 0; !layer.query_norm.empty() && i < heads_.query + heads_.key_value; ++i) {
      const std::vector<float>& norm = i < heads_.query ? layer.query_norm : layer.key_norm;
      float* const head = row + i * heads_.size;
      rms_norm(head, norm.data(), heads_.size, hyper_.norm_epsilon, head);
    }
    layer.rotation->apply(row, heads_.query + heads_.key_value, position_ + r, rotate_halves_);
    layer.cache.store(position_ + r, row + queries(), row + queries() + keys());
  }
  took(Stage::rest);
}

// The experts of each row, and the share of each.
void Model::route(const Layer& layer, int64_t rows) {
  multiply(router_products(layer, rows), Stage::route);
  const auto experts = static_cast<size_t>(hyper_.experts),
             used = static_cast<size_t>(hyper_.experts_used);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    choose_experts({floats(router_logits_) + r * experts, experts},
                   {static_cast<int32_t*>(expert_ids_.data()) + r * used, used},
                   {floats(expert_shares_) + r * used, used});
    // Experts of other ranks are outside of the stack and add nothing.
    auto* const ids = static_cast<int32_t*>(expert_ids_.data()) + r * used;
    for (size_t i = 0; i < used; ++i) ids[i] -= static_cast<int32_t>(share_.experts.first);
  }
  took(Stage::route);
}

void Model::gate_and_up(const Layer& layer, int64_t rows) {
  multiply(gate_up_products(layer, rows), Stage::gate_up);
  const int64_t ff = feed_forward();
  const auto combine = hyper_.architecture.swiglu_oai ? swiglu_oai : multiply_elements;
  for (int64_t r = 0; layer.gate_up.weights.size() > 1 && r < routed(rows); ++r) {
    const float* const gate = floats(apart_) + r * 2 * ff;
    combine(gate, gate + ff, ff, floats(mlp_) + r * ff);
  }
  took(Stage::gate_up);
}

// One block of the model for rows of x_, which it adds to.
void Model::block_of(Layer& layer, int64_t rows) {
  normalize(layer.attention_norm, rows);
  multiply(qkv_products(layer, rows), Stage::qkv);
  turn_and_store(layer, rows);
  layer.cache.attend(floats(qkv_), queries() + 2 * keys(), position_, rows, layer.window,
                     layer.sinks.empty() ? nullptr : layer.sinks.data(), floats(h_), pool_);
  took(Stage::attend);
  multiply(out_products(layer, rows), Stage::out);
  add_result(layer.attention_result_norm, rows);

  normalize(layer.mlp_norm, rows);
  if (hyper_.architecture.mixtures) route(layer, rows);
  gate_and_up(layer, rows);
  multiply(down_products(layer, rows), Stage::down);
  add_result(layer.mlp_result_norm, rows);
}

std::span<const float> Model::run(std::span<const Token> tokens, int64_t wanted) {
  const auto rows = static_cast<int64_t>(tokens.size());
  if (rows > options_.block || position_ + rows > options_.context)
    throw std::runtime_error("more tokens than fit");
  if (options_.ranks) {
    Order order{rows, wanted, position_, 0};
    std::vector<Token> copy(tokens.begin(), tokens.end());
    options_.ranks->broadcast(std::as_writable_bytes(std::span(&order, 1)));
    options_.ranks->broadcast(std::as_writable_bytes(std::span(copy)));
  }
  return run_here(tokens, wanted);
}

void Model::serve() {
  for (;;) {
    Order order{};
    options_.ranks->broadcast(std::as_writable_bytes(std::span(&order, 1)));
    if (order.ends) return;
    std::vector<Token> tokens(static_cast<size_t>(order.rows));
    options_.ranks->broadcast(std::as_writable_bytes(std::span(tokens)));
    position_ = order.position;
    run_here(tokens, order.wanted);
  }
}

void Model::dismiss() {
  Order order{0, 0, 0, 1};
  if (options_.ranks) options_.ranks->broadcast(std::as_writable_bytes(std::span(&order, 1)));
}

// x = the rows of the tokens. A rank has those of its part of the vocabulary; others are zeros.
void Model::embed(std::span<const Token> tokens) {
  const auto rows = static_cast<int64_t>(tokens.size());
  auto* const own = static_cast<int32_t*>(ids_.data());
  const auto is_own = [&](Token token) {
    const int64_t at = token - own_vocabulary_.first;
    return !options_.ranks || (at >= 0 && at < own_vocabulary_.count);
  };
  for (size_t r = 0; r < tokens.size(); ++r)
    own[r] = is_own(tokens[r]) ? static_cast<int32_t>(tokens[r] - own_vocabulary_.first) : 0;
  const marlin_matrix ids = ids_.matrix<int32_t>(rows, 1), x = x_.matrix<float>(rows, hyper_.width);
  mm::unpack_rows(embedding_[0], ids, x);
  for (size_t r = 0; r < tokens.size(); ++r)
    if (!is_own(tokens[r])) std::fill_n(floats(x_) + r * hyper_.width, hyper_.width, 0.0f);
  if (options_.ranks) options_.ranks->sum({floats(x_), static_cast<size_t>(rows * hyper_.width)});
  if (hyper_.architecture.scaled_embedding)
    scale(std::sqrt(static_cast<float>(hyper_.width)), rows * hyper_.width, floats(x_));
  took(Stage::embed);
}

std::span<const float> Model::run_here(std::span<const Token> tokens, int64_t wanted) {
  const auto rows = static_cast<int64_t>(tokens.size());
  clock_ = now();
  embed(tokens);
  for (Layer& layer : layers_) block_of(layer, rows);
  position_ += rows;

  const int64_t own = own_vocabulary_.count;
  if (wanted > logit_rows_) {
    logits_ = mm::buffer(context_, static_cast<uint64_t>(wanted * own) * 4);
    logit_rows_ = wanted;
  }
  for (int64_t r = 0; r < wanted; ++r) {
    const float* const last = floats(x_) + (rows - wanted + r) * hyper_.width;
    rms_norm(last, norm_.data(), hyper_.width, hyper_.norm_epsilon, floats(h_) + r * hyper_.width);
  }
  took(Stage::rest);
  if (wanted > 0) multiply(head_products(wanted), Stage::head);
  if (!options_.ranks) return {floats(logits_), static_cast<size_t>(wanted * vocabulary_)};
  all_logits_.resize(static_cast<size_t>(wanted * vocabulary_));
  for (int64_t r = 0; r < wanted; ++r)
    options_.ranks->gather({floats(logits_) + r * own, static_cast<size_t>(own)},
                           std::span(all_logits_).subspan(r * vocabulary_, vocabulary_));
  took(Stage::sum);
  return all_logits_;
}

// Has memory taken and kernels compiled before the first token. Blocks have the same shapes, but
// layers of some may have another format.
void Model::prepare() {
  Products every = head_products(1), routers;
  for (const Layer& layer : layers_) {
    for (const Products& some : {qkv_products(layer, 1), out_products(layer, 1),
                                 gate_up_products(layer, 1), down_products(layer, 1)})
      every.insert(every.end(), some.begin(), some.end());
    if (hyper_.architecture.mixtures) routers.push_back(router_products(layer, 1)[0]);
  }
  mm::prepare(every, options_.block);
  if (!routers.empty()) mm::prepare(routers, options_.block);
}

}  // namespace llm
