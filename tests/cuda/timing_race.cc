// The mode without a name: products of single weights, beside cuBLAS's of 16-bit weights.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "timing_check.h"
#include "timing_cublas.h"
#include "timing_modes.h"
#include "timing_products.h"

namespace timing {
namespace {

namespace mm = metal_marlin;

/// Activations and room for C.
struct Operands {
  Operands(const Device& device, const Shape& shape, int64_t most_rows, marlin_dtype type)
      : a(device, static_cast<size_t>(most_rows * shape.k), type),
        c(device, static_cast<size_t>(most_rows * shape.n) * kElementBytes) {}
  const Numbers a;
  const Memory c;
};

/// The library's products with M rows, one for each of the weights.
std::vector<marlin_gemm_desc> products_of(const std::vector<mm::weights>& weights, const Shape& shape, const Operands& operands,
                                          int64_t m, const Compute& compute) {
  std::vector<marlin_gemm_desc> descs;
  for (const mm::weights& each : weights) {
    auto& desc = descs.emplace_back(mm::make<marlin_gemm_desc>());
    desc.weights = each.get();
    desc.compute = compute.type;
    desc.activation_group = compute.activation_group;
    desc.a = device_matrix(operands.a.memory.at(), m, shape.k, operands.a.dtype);
    desc.c = device_matrix(operands.c.at(), m, shape.n, operands.a.dtype);
  }
  return descs;
}

/// cuBLAS's weights, and what the kernel that only reads reads.
size_t bytes_of_numbers(const Options& options) {
  size_t most = 0;
  for (const Shape* shape : options.shapes) {
    most = std::max(most, dense_bytes(*shape) * copies_of(dense_bytes(*shape)));
    for (const Format* format : options.formats)
      most = std::max(most, packed_bytes(*shape, *format) * copies_of(packed_bytes(*shape, *format)));
  }
  return most;
}

class Race {
 public:
  explicit Race(const Bench& bench)
      : bench_(bench),
        cublas_(bench.device, bench.options.cublas),
        made_(bench.options.shapes),
        numbers_(bench.device, bytes_of_numbers(bench.options), bench.options.activations),
        report_(bench.setting(), bench.options.json, cublas_.about(),
                "C[M, N] = A[M, K] W[N, K]^T. Each product of a graph has weights of its own (more than 750 MB in all).") {}

  /// Whether all products ran and were right.
  bool run() {
    for (const Shape* shape : bench_.options.shapes) run(*shape);
    return report_.is_right();
  }

 private:
  /// What one line needs besides its rows.
  struct TimedProduct {
    const Shape& shape;
    const Format& format;
    const std::vector<mm::weights>& weights;
    const Operands& operands;
    const Sample& sample;
    const oracle::Weights& last;  ///< the sampled rows of the weights whose product is the one that is left in C
  };

  void run(const Shape& shape) {
    std::vector<int64_t> rows;
    for (const int64_t m : bench_.options.rows)
      if (m <= shape.most_rows) rows.push_back(m);
    if (rows.empty()) return;
    const Operands operands(bench_.device, shape, *std::max_element(rows.begin(), rows.end()), bench_.options.activations);
    const Sample sample = sample_of(shape.n, MARLIN_EPILOGUE_NONE);
    if (cublas_.is_there()) check_cublas(shape, operands, rows.front(), sample);
    for (const Format* format : bench_.options.formats) {
      std::vector<mm::weights> weights;
      for (size_t copy = 0; copy < copies_of(packed_bytes(shape, *format)); ++copy)
        weights.push_back(made_.pack(bench_.context, shape, *format, copy));
      const oracle::Weights last = made_.sample(shape, *format, weights.size() - 1, sample.rows);
      const TimedProduct place{shape, *format, weights, operands, sample, last};
      for (const int64_t m : rows)
        report_.add({{"shape", shape.name, "shape", -8},
                     {"k", shape.k, "K", 6},
                     {"n", shape.n, "N", 6},
                     {"format", format->name, "format", -8},
                     {"group", format->group},
                     {"m", m, "M", 5}},
                    [&] { return measure(place, m); });
    }
  }

  Measured measure(const TimedProduct& place, int64_t m) const {
    const auto& [shape, format, weights, operands, sample, last] = place;
    const Device& device = bench_.device;
    const auto descs = products_of(weights, shape, operands, m, bench_.options.compute);
    const Products products(bench_.context, device, descs, m);
    const Graph ours = warm_graph(device, [&] { products.multiply(); });
    const Verdict verdict = verdict_of(ours, place, m);

    const size_t bytes = packed_bytes(shape, format);
    const Graph read(device, [&] {
      for (size_t copy = 0; copy < weights.size(); ++copy) bench_.read_floor.read(numbers_.at(copy * bytes), bytes);
    });
    std::vector<const Graph*> graphs = {&ours, &read};
    std::unique_ptr<Graph> dense;
    if (cublas_.is_there()) {
      dense.reset(new Graph(warm_graph(device, [&] { multiply_dense(shape, operands, m, copies_of(dense_bytes(shape))); })));
      graphs.push_back(dense.get());
    }
    auto times = replay_in_turn(device, graphs, bench_.options.rounds);
    const size_t copies[] = {weights.size(), weights.size(), copies_of(dense_bytes(shape))};
    for (size_t graph = 0; graph < times.size(); ++graph)
      for (double& time : times[graph]) time /= static_cast<double>(copies[graph]);
    Fields fields = report_.times(times);
    fields.push_back(tflops_of(static_cast<double>(m * shape.n * shape.k), fields));
    fields.push_back({"kernel", kernel_of(descs.front()), "kernel", -28});
    return {fields, verdict};
  }

  Verdict verdict_of(const Graph& ours, const TimedProduct& place, int64_t m) const {
    const auto& [shape, format, weights, operands, sample, last] = place;
    bench_.device.fill(operands.c.at(), 0xff, static_cast<size_t>(m * shape.n) * kElementBytes);
    ours.launch();
    return check(bench_.device, {operands.a.view(), m, shape.n, operands.c.at(), MARLIN_EPILOGUE_NONE, bench_.options.compute},
                 sample, last);
  }

  void multiply_dense(const Shape& shape, const Operands& operands, int64_t m, size_t copies) const {
    for (size_t copy = 0; copy < copies; ++copy)
      cublas_.multiply({operands.a.dtype, m, shape.n, shape.k, operands.a.memory.at(), numbers_.at(copy * dense_bytes(shape)),
                        operands.c.at()});
  }

  /// A race against a product of something else would say nothing. cuBLAS may round sums of parts to 16 bits, so that the
  /// bounds of our products are not for it.
  void check_cublas(const Shape& shape, const Operands& operands, int64_t m, const Sample& sample) const {
    oracle::Weights weights;  // 1 * scale, a scale an element, because the oracle knows no weights without codes
    weights.format = MARLIN_INT8;
    weights.n = static_cast<int64_t>(sample.rows.size());
    weights.k = weights.groups = shape.k;
    weights.group_size = 1;
    weights.codes.assign(static_cast<size_t>(weights.n * weights.k), 1);
    std::vector<uint16_t> row(static_cast<size_t>(shape.k));
    for (const int64_t n : sample.rows) {
      bench_.device.download(row.data(), numbers_.at(static_cast<size_t>(n) * row.size() * kElementBytes),
                             row.size() * kElementBytes);
      for (int64_t k = 0; k < shape.k; ++k) weights.scale.push_back(oracle::read(operands.a.dtype, row.data(), k));
    }
    bench_.device.fill(operands.c.at(), 0xff, static_cast<size_t>(m * shape.n) * kElementBytes);
    multiply_dense(shape, operands, m, 1);
    const Verdict verdict = check(bench_.device, {operands.a.view(), m, shape.n, operands.c.at()}, sample, weights);
    if (!(verdict.nmse() < 1e-3)) throw std::runtime_error("cuBLAS multiplies something else than this library");
  }

  const Bench& bench_;
  const Cublas cublas_;
  const RandomWeights made_;
  const RepeatedNumbers numbers_;
  Report report_;
};

}  // namespace

bool race_products(const Bench& bench) { return Race(bench).run(); }

}  // namespace timing
