// The mode --decoder: all products of a model's step in one graph. Each has weights of its own, so that a step reads them all
// from memory, as a model does. The activations of a kind of product are the same random numbers in every layer: a chain of
// random layers would overflow or vanish, and takes no other time.
#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "timing_check.h"
#include "timing_cublas.h"
#include "timing_modes.h"
#include "timing_products.h"

namespace timing {
namespace {

namespace mm = metal_marlin;

struct Kind {
  Shape shape;
  marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE;
  size_t layers = 32;
};
constexpr int64_t kHidden = 4096, kInner = 11008, kVocabulary = 32000, kMostRows = 4096;
constexpr Kind kKinds[] = {{{"qkv", kHidden, 3 * kHidden, kMostRows}},
                           {{"out", kHidden, kHidden, kMostRows}},
                           {{"gate_up", kHidden, 2 * kInner, kMostRows}, MARLIN_EPILOGUE_SWIGLU},
                           {{"down", kInner, kHidden, kMostRows}},
                           {{"head", kHidden, kVocabulary, kMostRows}, MARLIN_EPILOGUE_NONE, 1}};
constexpr size_t kLayerKinds = std::size(kKinds) - 1;  // then the head

/// One product of a step.
struct StepProduct {
  const Kind& kind;
  size_t layer;
};
/// In the order of a model.
std::vector<StepProduct> places_of_step() {
  std::vector<StepProduct> places;
  for (size_t layer = 0; layer < kKinds[0].layers; ++layer)
    for (size_t kind = 0; kind < kLayerKinds; ++kind) places.push_back({kKinds[kind], layer});
  places.push_back({kKinds[kLayerKinds], 0});
  return places;
}

std::vector<const Shape*> shapes_of_kinds() {
  std::vector<const Shape*> shapes;
  for (const Kind& kind : kKinds) shapes.push_back(&kind.shape);
  return shapes;
}

/// Of the weights of a step, where those of one product have bytes_of(its shape).
template <class BytesOf>
size_t bytes_of_step(const BytesOf& bytes_of) {
  size_t bytes = 0;
  for (const Kind& kind : kKinds) bytes += kind.layers * bytes_of(kind.shape);
  return bytes;
}

/// What the kernel that only reads reads, and cuBLAS's weights if there are any.
size_t bytes_of_numbers(const Options& options) {
  size_t most = options.dense ? bytes_of_step(dense_bytes) : 0;
  for (const Format* format : options.formats)
    most = std::max(most, bytes_of_step([&](const Shape& shape) { return packed_bytes(shape, *format); }));
  return most;
}

/// Of the kinds before `end`.
int64_t sum_of_n(const Kind* end) {
  return std::accumulate(std::begin(kKinds), end, int64_t{0}, [](int64_t sum, const Kind& kind) { return sum + kind.shape.n; });
}

class Decoder {
 public:
  explicit Decoder(const Bench& bench)
      : bench_(bench),
        most_rows_(*std::max_element(bench.options.rows.begin(), bench.options.rows.end())),
        made_(shapes_of_kinds()),
        a_(bench.device, static_cast<size_t>(most_rows_ * kInner), bench.options.activations),
        c_(bench.device, static_cast<size_t>(most_rows_ * sum_of_n(std::end(kKinds))) * kElementBytes),
        numbers_(bench.device, bytes_of_numbers(bench.options), bench.options.activations) {
    if (!bench.options.dense) return;
    cublas_.emplace(bench.device, bench.options.cublas);
    if (!cublas_->is_there()) throw std::runtime_error("--dense needs cuBLAS: " + cublas_->about());
  }
  std::string about_cublas() const { return cublas_ ? cublas_->about() : "not asked for"; }

  /// Gives each line, or why there is none, to the report.
  void run(Report& report) const {
    for (const Format* format : bench_.options.formats) {
      std::vector<mm::weights> weights;
      for (const StepProduct& place : places_)
        weights.push_back(made_.pack(bench_.context, place.kind.shape, *format, place.layer));
      for (const int64_t m : bench_.options.rows)
        report.add({{"model", "decoder"}, {"format", format->name, "format", -8}, {"group", format->group}, {"m", m, "M", 5}},
                   [&] { return measure(report, *format, weights, m); });
    }
  }

 private:
  DevicePtr c_of(const Kind& kind) const { return c_.at(static_cast<size_t>(most_rows_ * sum_of_n(&kind)) * kElementBytes); }

  Measured measure(const Report& report, const Format& format, const std::vector<mm::weights>& weights, int64_t m) const {
    const Device& device = bench_.device;
    const auto descs = products_of(weights, m);
    const Products products(bench_.context, device, descs, m);
    const Graph ours = warm_graph(device, [&] { products.multiply(); });
    const Verdict verdict = verdict_of(ours, format, m);
    const size_t bytes = bytes_of_step([&](const Shape& shape) { return packed_bytes(shape, format); });
    const Graph read(device, [&] { bench_.read_floor.read(numbers_.at(), bytes); });
    std::vector<const Graph*> graphs = {&ours, &read};
    std::unique_ptr<Graph> dense;
    if (cublas_) {
      dense.reset(new Graph(warm_graph(device, [&] { multiply_dense(m); })));
      graphs.push_back(dense.get());
    }
    const auto times = replay_in_turn(device, graphs, bench_.options.rounds);
    Fields fields = report.times(times);
    const auto rows = static_cast<double>(m), weights_of_step = static_cast<double>(bytes_of_step(dense_bytes) / kElementBytes);
    fields.push_back(tflops_of(rows * weights_of_step, fields));
    fields.push_back({"tokens_per_second", 1e6 * rows / fields.front().value.number(), "token/s", 9, 1});
    fields.push_back({"weight_bytes", bytes});
    mm::tools::Json kernels;
    for (size_t kind = 0; kind < std::size(kKinds); ++kind)
      kernels[kKinds[kind].shape.name] = kernel_of(kind < kLayerKinds ? descs[kind] : descs.back());
    fields.push_back({"kernels", kernels});
    return {fields, verdict};
  }

  std::vector<marlin_gemm_desc> products_of(const std::vector<mm::weights>& weights, int64_t m) const {
    std::vector<marlin_gemm_desc> descs;
    for (size_t i = 0; i < places_.size(); ++i) {
      const Kind& kind = places_[i].kind;
      auto& desc = descs.emplace_back(mm::make<marlin_gemm_desc>());
      desc.epilogue = kind.epilogue;
      desc.weights = weights[i].get();
      desc.a = device_matrix(a_.memory.at(), m, kind.shape.k, a_.dtype);
      desc.c = device_matrix(c_of(kind), m, columns_of(kind.shape.n, kind.epilogue), a_.dtype);
    }
    return descs;
  }

  /// Of the last layer's products, which are left in C, and the head's.
  Verdict verdict_of(const Graph& ours, const Format& format, int64_t m) const {
    bench_.device.fill(c_.at(), 0xff, static_cast<size_t>(most_rows_ * sum_of_n(std::end(kKinds))) * kElementBytes);
    ours.launch();
    Verdict verdict;
    for (const Kind& kind : kKinds) {
      const Sample sample = sample_of(kind.shape.n, kind.epilogue);
      const oracle::Weights weights = made_.sample(kind.shape, format, kind.layers - 1, sample.rows);
      verdict.add(check(bench_.device, {a_.view(), m, kind.shape.n, c_of(kind), kind.epilogue}, sample, weights));
    }
    return verdict;
  }

  void multiply_dense(int64_t m) const {
    size_t weights = 0;
    for (const StepProduct& place : places_) {
      const Shape& shape = place.kind.shape;
      cublas_->multiply({a_.dtype, m, shape.n, shape.k, a_.memory.at(), numbers_.at(weights), c_of(place.kind)});
      weights += dense_bytes(shape);
    }
  }

  const Bench& bench_;
  const int64_t most_rows_;
  const std::vector<StepProduct> places_ = places_of_step();
  const RandomWeights made_;
  const Numbers a_;
  const Memory c_;
  const RepeatedNumbers numbers_;
  std::optional<Cublas> cublas_;
};

}  // namespace

bool time_decoder(const Bench& bench) {
  const Decoder decoder(bench);
  Report report(
      bench.setting(), bench.options.json, decoder.about_cublas(),
      "All products of a decoder for M tokens: 32 layers of qkv 4096 -> 12288, out 4096 -> 4096, gate_up 4096 -> 22016\n"
      "with SwiGLU (not in cuBLAS) and down 11008 -> 4096; head 4096 -> 32000. Each layer has weights of its own.");
  decoder.run(report);
  return report.is_right();
}

}  // namespace timing
