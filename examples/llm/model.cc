#include "model.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "half.h"
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

float* floats(const mm::buffer& buffer) { return static_cast<float*>(buffer.data()); }

mm::context make_context(const ModelOptions& options, Pool& pool) {
  auto desc = mm::make<marlin_context_desc>();
  desc.backend = options.backend;
  desc.threads = pool.threads();
  desc.user = &pool;
  desc.parallel_for = [](void* user, uint32_t tasks, void (*task)(void*, uint32_t),
                         void* task_user) {
    static_cast<Pool*>(user)->run(tasks, task, task_user);
  };
  return mm::context(desc);
}

}  // namespace

// Finds layers by the names of one of the two tables, and loads them.
class Model::Loader {
 public:
  Loader(const Model& model, const std::string& path)
      : model_(model),
        path_(path),
        file_(path),
        layers_(file_.layers()),
        names_(find(kGgufNames.embedding) ? kGgufNames : kHuggingFaceNames) {}

  const TensorNames& names() const { return names_; }
  std::string in_block(int64_t index, const char* name) const {
    return names_.block + std::to_string(index) + "." + name;
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }

  /// One handle of several layers, rows after rows; n is how many in all, k the columns of each.
  mm::weights load(const std::vector<std::string>& layers, int64_t n, int64_t k) {
    std::vector<const char*> found;
    bool is_float = false;
    int64_t rows = 0;
    for (const std::string& name : layers) {
      const marlin_layer_info* layer = find(name);
      if (!layer) throw std::runtime_error(path_ + ": has no layer '" + name + "'");
      if (layer->k != k) wrong_size(name, layer->k, k, "columns");
      rows += layer->n;
      is_float |= layer->format == MARLIN_FORMAT_NONE;
      found.push_back(layer->name);
    }
    if (n != 0 && rows != n) wrong_size(layers[0], rows, n, "rows");
    auto desc = mm::make<marlin_load_desc>();
    desc.layers = found.data();
    desc.layer_count = static_cast<uint32_t>(found.size());
    if (is_float)
      desc.format = MARLIN_INT8;  // what a file left unquantized, as embeddings often are
    desc.user = this;
    desc.progress = [](void* user, uint64_t done, uint64_t total) {
      static_cast<Loader*>(user)->report(
          total ? static_cast<double>(done) / static_cast<double>(total) : 1);
      return 0;
    };
    mm::weights weights = mm::load(model_.context_, file_, desc);
    ++loaded_;
    return weights;
  }

  /// A vector of floats in any of the types there are. Files align nothing, so elements are copied
  /// out.
  std::vector<float> vector(const std::string& name, int64_t size) const {
    const marlin_matrix m = file_.tensor(name + ".weight");
    if (m.rows * m.cols != size) wrong_size(name, m.rows * m.cols, size, "elements");
    const auto* bytes = static_cast<const unsigned char*>(m.data) + m.offset_bytes;
    std::vector<float> out(static_cast<size_t>(size));
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t half = 0;
      if (m.dtype == MARLIN_F32)
        std::memcpy(&out[i], bytes + 4 * i, 4);
      else
        std::memcpy(&half, bytes + 2 * i, 2);
      if (m.dtype == MARLIN_F16)
        out[i] = float16_to_float(half);
      else if (m.dtype == MARLIN_BF16)
        out[i] = bfloat16_to_float(half);
      else if (m.dtype != MARLIN_F32)
        throw std::runtime_error(path_ + ": tensor '" + name + "': expected floats");
    }
    return out;
  }

 private:
  // Names as the tables have them, with or without the ".weight" that GGUF keeps.
  const marlin_layer_info* find(const std::string& name) const {
    for (const marlin_layer_info& layer : layers_) {
      if (layer.name == name || layer.name == name + ".weight") return &layer;
    }
    return nullptr;
  }
  [[noreturn]] void wrong_size(const std::string& name, int64_t found, int64_t expected,
                               const char* what) const {
    throw std::runtime_error(path_ + ": '" + name + "': expected " + std::to_string(expected) +
                             " " + what + ", found " + std::to_string(found));
  }
  void report(double part) const {
    model_.options_.progress((loaded_ + part) / static_cast<double>(4 * model_.hyper_.layers + 1));
  }

  const Model& model_;
  std::string path_;
  mm::checkpoint file_;
  std::vector<marlin_layer_info> layers_;
  const TensorNames& names_;
  double loaded_ = 0;
};

Model::Model(const std::string& path, const HyperParameters& hyper, const ModelOptions& options)
    : hyper_(hyper),
      options_(options),
      heads_{hyper.heads, hyper.key_value_heads, hyper.head_size},
      pool_(options.threads),
      context_(make_context(options, pool_)),
      rotation_(options.context, hyper.head_size, hyper.rotation_base) {
  Loader from(*this, path);
  const TensorNames& names = from.names();
  rotate_halves_ = names.rotate_halves;
  const int64_t width = hyper.width, queries = heads_.query * heads_.size,
                all = queries + 2 * heads_.key_value * heads_.size;
  embedding_ = from.load({names.embedding}, 0, width);
  vocabulary_ = mm::info(embedding_).n;
  if (from.has(names.head)) own_head_ = from.load({names.head}, vocabulary_, width);
  norm_ = from.vector(names.norm, width);
  for (int64_t i = 0; i < hyper.layers; ++i) {
    const auto name = [&](const char* of) { return from.in_block(i, of); };
    layers_.push_back(
        {from.vector(name(names.attention_norm), width), from.vector(name(names.mlp_norm), width),
         from.load({name(names.query), name(names.key), name(names.value)}, all, width),
         from.load({name(names.attention_out)}, width, queries),
         from.load({name(names.gate), name(names.up)}, 2 * hyper.feed_forward, width),
         from.load({name(names.down)}, width, hyper.feed_forward),
         KeyValueCache(heads_, options.context)});
  }
  const auto activations = [&](int64_t columns) {
    return mm::buffer(context_, static_cast<uint64_t>(options.block * columns) * 4);
  };
  ids_ = activations(1), x_ = activations(width), h_ = activations(std::max(width, queries)),
  qkv_ = activations(all);
  mlp_ = activations(hyper.feed_forward);
  prepare();
}

uint64_t Model::weight_bytes() const {
  uint64_t sum = mm::info(embedding_).bytes + (own_head_ ? mm::info(own_head_).bytes : 0);
  for (const Layer& layer : layers_) {
    for (const mm::weights* weights : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down})
      sum += mm::info(*weights).bytes;
  }
  return sum;
}

marlin_gemm_desc Model::product(const mm::weights& weights, const marlin_matrix& a,
                                const marlin_matrix& c) const {
  auto desc = mm::make<marlin_gemm_desc>();
  desc.compute = options_.compute;
  desc.weights = weights.get();
  desc.a = a;
  desc.c = c;
  return desc;
}

void Model::took(Stage stage) {
  const double time = now();
  seconds_[static_cast<size_t>(stage)] += time - clock_;
  clock_ = time;
}

void Model::multiply(const mm::weights& weights, const marlin_matrix& a, const marlin_matrix& c,
                     Stage stage, marlin_epilogue epilogue, uint32_t flags) {
  marlin_gemm_desc desc = product(weights, a, c);
  desc.epilogue = epilogue;
  desc.flags = flags;
  mm::gemm(desc);  // without a stream: done on return, on a GPU too
  took(stage);
}

// One block of the model for rows of x_, which it adds to.
void Model::block_of(Layer& layer, int64_t rows) {
  const int64_t width = hyper_.width, queries = heads_.query * heads_.size,
                keys = heads_.key_value * heads_.size;
  const int64_t all = queries + 2 * keys;
  const auto view = [&](const mm::buffer& buffer, int64_t columns) {
    return buffer.matrix<float>(rows, columns);
  };
  const auto norm = [&](const std::vector<float>& weight) {
    for (int64_t r = 0; r < rows; ++r) {
      rms_norm(floats(x_) + r * width, weight.data(), width, hyper_.norm_epsilon,
               floats(h_) + r * width);
    }
    took(Stage::rest);
  };

  norm(layer.attention_norm);
  multiply(layer.qkv, view(h_, width), view(qkv_, all), Stage::qkv);
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = floats(qkv_) + r * all;
    rotation_.apply(row, heads_.query + heads_.key_value, position_ + r, rotate_halves_);
    layer.cache.store(position_ + r, row + queries, row + queries + keys);
  }
  took(Stage::rest);
  layer.cache.attend(floats(qkv_), all, position_, rows, floats(h_), pool_);
  took(Stage::attend);
  multiply(layer.out, view(h_, queries), view(x_, width), Stage::out, MARLIN_EPILOGUE_NONE,
           MARLIN_GEMM_ACCUMULATE);

  norm(layer.mlp_norm);
  multiply(layer.gate_up, view(h_, width), view(mlp_, hyper_.feed_forward), Stage::gate_up,
           MARLIN_EPILOGUE_SWIGLU);
  multiply(layer.down, view(mlp_, hyper_.feed_forward), view(x_, width), Stage::down,
           MARLIN_EPILOGUE_NONE, MARLIN_GEMM_ACCUMULATE);
}

std::span<const float> Model::run(std::span<const Token> tokens, int64_t wanted) {
  const auto rows = static_cast<int64_t>(tokens.size());
  if (rows > options_.block || position_ + rows > options_.context)
    throw std::runtime_error("more tokens than fit");
  clock_ = now();
  std::memcpy(ids_.data(), tokens.data(), tokens.size_bytes());
  const marlin_matrix ids = ids_.matrix<int32_t>(rows, 1), x = x_.matrix<float>(rows, hyper_.width);
  mm::call(marlin_weights_unpack, nullptr, embedding_.get(), &ids, int64_t{0}, &x);
  took(Stage::embed);
  for (Layer& layer : layers_) block_of(layer, rows);
  position_ += rows;

  if (wanted > logit_rows_) {
    logits_ = mm::buffer(context_, static_cast<uint64_t>(wanted * vocabulary_) * 4);
    logit_rows_ = wanted;
  }
  for (int64_t r = 0; r < wanted; ++r) {
    const float* const last = floats(x_) + (rows - wanted + r) * hyper_.width;
    rms_norm(last, norm_.data(), hyper_.width, hyper_.norm_epsilon, floats(h_) + r * hyper_.width);
  }
  took(Stage::rest);
  if (wanted > 0) {
    multiply(own_head_ ? own_head_ : embedding_, h_.matrix<float>(wanted, hyper_.width),
             logits_.matrix<float>(wanted, vocabulary_), Stage::head);
  }
  return {floats(logits_), static_cast<size_t>(wanted * vocabulary_)};
}

// Has memory taken and kernels compiled before the first token. Blocks have the same shapes, so one
// of them stands for all.
void Model::prepare() {
  const Layer& layer = layers_.front();
  const int64_t width = hyper_.width, queries = heads_.query * heads_.size;
  const auto shape = [](int64_t columns) {
    marlin_matrix matrix = mm::matrix_view(static_cast<float*>(nullptr), 1, columns);
    matrix.memory = MARLIN_MEM_BUFFER;  // as all activations: a GPU need not stage them
    return matrix;
  };
  marlin_gemm_desc descs[] = {
      product(layer.qkv, shape(width), shape(mm::info(layer.qkv).n)),
      product(layer.out, shape(queries), shape(width)),
      product(layer.gate_up, shape(width), shape(hyper_.feed_forward)),
      product(layer.down, shape(hyper_.feed_forward), shape(width)),
      product(own_head_ ? own_head_ : embedding_, shape(width), shape(vocabulary_))};
  descs[1].flags = descs[3].flags = MARLIN_GEMM_ACCUMULATE;
  descs[2].epilogue = MARLIN_EPILOGUE_SWIGLU;
  std::vector<const marlin_gemm_desc*> all;
  for (const marlin_gemm_desc& desc : descs) all.push_back(&desc);
  mm::call(marlin_prepare, nullptr, all.data(), static_cast<uint32_t>(all.size()), options_.block,
           nullptr);
}

}  // namespace llm
