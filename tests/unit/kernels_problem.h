// Random weights, packed, and operands to multiply by chosen kernels, and the oracle to hold the results against.
#pragma once

#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/pack.h"
#include "core/parallel.h"
#include "core/shapes.h"
#include "formats/codecs.h"
#include "kernels/guarded.h"
#include "must.h"
#include "problem/weights.h"
#include "test.h"

namespace metal_marlin::cpu {

/// What makes a weight matrix, as far as kernels care.
struct WeightKind {
  marlin_format format = MARLIN_FORMAT_INT4;
  ScaleType scale = ScaleType::f16;
  ZeroKind zero = ZeroKind::none;
  int group = 32;
  bool tensor_scale = false;
  bool act_order = false;
  bool sparse = false;                   ///< 2:4; K is rounded up to whole blocks
  std::optional<ScaleType> zero_type{};  ///< of additive zeros; usually that of the scales
};

inline constexpr WeightKind kInt4{MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::none, 32};
inline constexpr WeightKind kMxfp4{MARLIN_FORMAT_MXFP4, ScaleType::e8m0, ZeroKind::none, 32};
inline constexpr WeightKind kNvfp4{MARLIN_FORMAT_NVFP4, ScaleType::e4m3, ZeroKind::none, 16, true};

inline WeightKind sparsely(WeightKind kind) {
  kind.sparse = true;
  return kind;
}

/// Allocates blocks of 64 bytes that begin right after an inaccessible page or end right before one. They live as long as this.
struct FencedHost {
  guarded::Edge edge;
  std::vector<guarded::Memory> blocks{};

  Allocator allocator() {
    return {[](void* user, size_t size, size_t) -> void* {
              auto& host = *static_cast<FencedHost*>(user);
              return host.blocks.emplace_back(size, host.edge).data();
            },
            [](void*, void*, size_t) {}, this};
  }
};

inline guarded::Edge any_edge(std::mt19937& rng) { return rng() % 2 == 0 ? guarded::Edge::begin : guarded::Edge::end; }

/// Weights, packed by the library: the first N rows and, in any slots with act-order, K columns of a matrix that fills panels
/// and superblocks, so that their padding holds numbers too.
struct TestWeights {
  problem::Case spec;
  std::unique_ptr<FencedHost> memory;
  std::unique_ptr<CpuWeights> packed;
  oracle::Weights expected;

  CpuWeights* operator->() const { return packed.get(); }
};

/// The oracle's weights of the first n rows and of these columns.
inline oracle::Weights part_of(const oracle::Weights& all, int64_t n, const std::vector<int64_t>& columns) {
  oracle::Weights part = all;
  part.n = n;
  part.k = static_cast<int64_t>(columns.size());
  part.slots = columns;
  part.codes.clear();
  part.numbers.clear();
  part.kept.clear();
  for (const int64_t k : columns) part.group_index.push_back(static_cast<int32_t>(k / all.group_size));
  for (int64_t row = 0; row < n; ++row)
    for (const int64_t k : columns) {
      const auto i = static_cast<size_t>(row * all.k + k);
      part.codes.push_back(all.codes[i]);
      if (!all.numbers.empty()) part.numbers.push_back(all.numbers[i]);
      if (!all.kept.empty()) part.kept.push_back(all.kept[i]);
    }
  return part;
}

inline problem::Case case_of(const WeightKind& kind, int64_t n, int64_t k, std::mt19937& rng) {
  problem::Case c;
  c.format = kind.format;
  c.zeros = kind.zero;
  c.scale_type = kind.scale;
  c.zero_type = kind.zero_type.value_or(kind.scale);
  c.group = kind.group;
  c.sparse = kind.sparse;
  c.range = problem::Range::wide;
  if (kind.tensor_scale) c.tensor = problem::Tensor::rows;
  if (kind.act_order) c.order = Order::shuffled;
  c.n = n;
  c.k = kind.sparse ? round_up(k, 4) : k;
  c.seed = static_cast<uint32_t>(rng());
  return c;
}

/// `change` has the drawn matrix before it is packed.
inline TestWeights random_weights(const problem::Case& c, std::mt19937& rng,
                                  const std::function<void(problem::Weights&)>& change = {}) {
  problem::Case whole = c;
  whole.order = Order::plain;
  whole.n = round_up(c.n, kPanelColumns);
  whole.k = round_up(c.k + (c.order == Order::plain ? 0 : 37), kSuperSlots);
  problem::Weights drawn(whole);
  if (change) change(drawn);
  SequentialRunner runner;
  auto memory = std::make_unique<FencedHost>(any_edge(rng));
  auto made = pack_weights(drawn.source, memory->allocator(), runner);
  EXPECT_TRUE(made.ok()) << made.status().message() << c.describe();
  TestWeights w{c, std::move(memory), made.take(), {}};
  w->layout.n = w->mutable_meta().n = c.n;
  w->layout.k = w->mutable_meta().k = c.k;
  std::vector<int64_t> slots(static_cast<size_t>(whole.k));
  std::iota(slots.begin(), slots.end(), 0);
  if (c.order != Order::plain) {
    std::shuffle(slots.begin(), slots.end(), rng);
    w->slot_to_k.assign(slots.size(), -1);
    for (int32_t k = 0; k < c.k; ++k) w->slot_to_k[static_cast<size_t>(slots[static_cast<size_t>(k)])] = k;
  }
  slots.resize(static_cast<size_t>(c.k));
  w.expected = part_of(drawn.to_oracle(), c.n, slots);
  return w;
}

inline TestWeights random_weights(const WeightKind& kind, int64_t n, int64_t k, std::mt19937& rng) {
  return random_weights(case_of(kind, n, k, rng), rng);
}

/// Runs tasks one after the other, backwards, claiming any width.
class SerialRunner : public TaskRunner {
 public:
  explicit SerialRunner(uint32_t width) : width_(width) {}
  void run(uint32_t tasks, TaskRef task) override {
    for (uint32_t i = tasks; i-- > 0;) task(i);
  }
  uint32_t width() const override { return width_; }

 private:
  uint32_t width_;
};

inline CpuFeatures this_machine() {
  std::string warning;
  return detect_cpu_features(&warning);
}

/// Operands between inaccessible pages. The gaps between rows are NaN.
struct Operands {
  std::vector<std::vector<float>> rows;  ///< A as exact floats
  guarded::Memory a, c, bias;
  GemmProblem problem;
};

inline Operands make_operands(const TestWeights& w, int64_t m, marlin_dtype a_type, marlin_dtype c_type, std::mt19937& rng) {
  Operands o;
  const int64_t k = w->layout.k, n = w->layout.n, a_stride = k + rng() % 5, c_stride = n + rng() % 5;
  const auto memory_of = [&](int64_t cols, int64_t stride, marlin_dtype type) {
    return guarded::Memory(static_cast<size_t>((m - 1) * stride + cols) * float_bytes(type), any_edge(rng));
  };
  o.a = memory_of(k, a_stride, a_type);
  o.c = memory_of(n, c_stride, c_type);
  o.rows.resize(static_cast<size_t>(m));
  problem::Case drawn = w.spec;
  drawn.m = m;
  drawn.a_type = a_type;
  drawn.seed = static_cast<uint32_t>(rng());
  const std::vector<double> a = problem::Operands(drawn).a;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t i = 0; i < k; ++i) {
      const auto x = static_cast<float>(a[static_cast<size_t>(r * k + i)]);
      o.rows[static_cast<size_t>(r)].push_back(x);
      encode_floats(a_type, &x, 1, o.a.data() + static_cast<size_t>(r * a_stride + i) * float_bytes(a_type));
    }
  o.problem.weights = w.packed.get();
  o.problem.a = {o.a.data(), m, k, a_stride, a_type};
  o.problem.c = {o.c.data(), m, n, c_stride, c_type};
  return o;
}

inline void run(const GemmProblem& problem, const CpuFeatures& features, std::string_view kernel, uint32_t width) {
  auto plan = must(plan_gemm(problem, problem.a.rows, {features, kernel}));
  const PlannedGemm products[] = {{problem, Plan(plan)}};
  const guarded::Memory scratch(scratch_bytes(products), guarded::Edge::end);
  SerialRunner runner(width);
  run_gemm(products, {scratch.data(), scratch.size()}, runner);
}

inline float element(const MatrixView& view, int64_t row, int64_t column) {
  float x = 0;
  decode_floats(
      view.dtype,
      static_cast<const std::byte*>(view.data) + static_cast<size_t>(row * view.stride + column) * float_bytes(view.dtype), 1,
      &x);
  return x;
}

inline std::vector<float> results(const GemmProblem& problem) {
  std::vector<float> out;
  for (int64_t r = 0; r < problem.c.rows; ++r)
    for (int64_t c = 0; c < problem.c.cols; ++c) out.push_back(element(problem.c, r, c));
  return out;
}

/// C against the oracle. `bias` and `old` are what the product adds, or empty.
inline testing::AssertionResult check(const Operands& o, const TestWeights& w, const std::vector<float>& bias = {},
                                      const std::vector<double>& old = {}, const oracle::Gate& gate = {}) {
  oracle::Product p;
  p.weights = &w.expected;
  p.m = o.problem.a.rows;
  p.compute = o.problem.compute;
  p.epilogue = o.problem.epilogue;
  p.gate = gate;
  p.c_dtype = o.problem.c.dtype;
  for (const std::vector<float>& row : o.rows) p.a.insert(p.a.end(), row.begin(), row.end());
  p.bias.assign(bias.begin(), bias.end());
  p.c = old;
  const MatrixView& c = o.problem.c;
  for (int64_t r = 0; r + 1 < c.rows; ++r)
    for (size_t i = static_cast<size_t>(r * c.stride + c.cols) * float_bytes(c.dtype);
         i < static_cast<size_t>((r + 1) * c.stride) * float_bytes(c.dtype); ++i)
      if (o.c.data()[i] != std::byte{0xff}) return testing::AssertionFailure() << "wrote between the rows of C";
  const std::vector<float> got = results(o.problem);
  return problem::compare(oracle::multiply(p), {got.begin(), got.end()}, p.columns());
}

inline marlin_compute compute_of(const KernelRow& row) {
  return row.form == ActivationForm::int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
}

inline bool every_row(const KernelRow&) { return true; }
inline std::vector<const KernelRow*> rows_that(bool (*serve)(const KernelRow&)) {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : kernel_rows())
    if (serve(row)) rows.push_back(&row);
  return rows;
}
/// A test of a kernel, on processors that have its instructions.
class OnEachKernel : public testing::TestWithParam<const KernelRow*> {
 protected:
  void SetUp() override {
    if (!features.has(row.features)) GTEST_SKIP() << "this processor lacks its instructions";
  }

  const KernelRow& row = *GetParam();
  const CpuFeatures features = this_machine();
};
inline std::string name_of_row(const testing::TestParamInfo<const KernelRow*>& info) { return std::string(info.param->name); }

}  // namespace metal_marlin::cpu
