// Every kernel between guard pages: each operand, the packed weights and the scratch start right after an inaccessible page or
// end right before one. The same product in both places, once under hostile floating-point modes, must give the same bits.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels.h"
#include "campaigns.h"
#include "core/fp_environment.h"
#include "core/shapes.h"
#include "formats/codecs.h"
#include "kernels/guarded.h"
#include "problem/memory_source.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace metal_marlin::cpu {
namespace {

// What runs now, for the handler of the fault.
char running[256];

void report_fault(int) {
  const char text[] = "stray access by ";
  (void)!write(2, text, sizeof text - 1);
  (void)!write(2, running, strlen(running));
  _exit(1);
}

using guarded::Edge;

/// The header of each allocation lies in memory of its own; blocks are multiples of 64 bytes, so both edges are aligned.
struct FencedHost {
  Edge edge = Edge::begin;
  std::vector<guarded::Memory> blocks;
  Allocator allocator() {
    return {[](void* user, size_t size, size_t) -> void* {
              auto& host = *static_cast<FencedHost*>(user);
              host.blocks.emplace_back(size, host.edge);
              return host.blocks.back().data();
            },
            [](void* user, void* p, size_t) {
              auto& blocks = static_cast<FencedHost*>(user)->blocks;
              std::erase_if(blocks, [p](const auto& b) { return b.data() == p; });
            },
            this};
  }
};

/// A matrix in fenced memory. Rows are `stride` apart, and the last one ends at its last column.
class FencedMatrix {
 public:
  FencedMatrix(MatrixView shape, Edge edge)
      : bytes_(shape.rows == 0 ? 0 : ((shape.rows - 1) * shape.stride + shape.cols) * float_bytes(shape.dtype)),
        memory_(bytes_, edge),
        view_(shape) {
    view_.data = memory_.data();
    std::memset(memory_.data(), 0x3c, bytes_);  // 0.0115 as F32, 1.06 as F16, 0.0115 as BF16
  }
  MatrixView view() const { return view_; }
  void fill(const std::vector<float>& values) {
    for (int64_t r = 0; r < view_.rows; ++r) encode_floats(view_.dtype, values.data() + r * view_.cols, view_.cols, row(r));
  }
  std::vector<std::byte> bytes() const { return {memory_.data(), memory_.data() + bytes_}; }
  bool gaps_untouched() const {
    const size_t element = float_bytes(view_.dtype);
    for (int64_t r = 0; r + 1 < view_.rows; ++r)
      for (size_t i = view_.cols * element; i < view_.stride * element; ++i)
        if (row(r)[i] != std::byte{0x3c}) return false;
    return true;
  }

 private:
  std::byte* row(int64_t r) const { return memory_.data() + r * view_.stride * float_bytes(view_.dtype); }
  size_t bytes_;
  guarded::Memory memory_;
  MatrixView view_;
};

#if defined(__x86_64__)
/// Flush-to-zero, denormals-are-zero and rounding towards zero while it lives.
class HostileModes {
 public:
  HostileModes() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80 | 0x8040 | 0x6000); }
  ~HostileModes() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};
#else
class HostileModes {};
#endif

class Guarded : public testing::TestWithParam<std::string> {
 protected:
  Guarded()
      : seed_(std::random_device{}()), random_(seed_), trace_(__FILE__, __LINE__, testing::Message() << "seed " << seed_) {}

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[pick(0, static_cast<int64_t>(values.size()) - 1)];
  }

  void randomize(WeightMeta meta, const FormatRow& row) {
    meta.n = pick(1, 40) + one_of<int64_t>({0, 0, 24, 64, 100});
    meta.k = pick(1, 40) + one_of<int64_t>({0, 88, 128, 216, 340});
    if (meta.sparse) meta.k = (meta.k + 3) / 4 * 4;
    meta.group_size =
        resolve_group_size(row, row.fixed_group ? 0 : one_of<int64_t>({16, 32, 64, 128, 1 << 20}), meta.k).value();
    const Order order = one_of({Order::plain, Order::plain, Order::shuffled, Order::shard});
    set_groups(meta, meta.sparse ? Order::plain : order, random_);
    source_.mutable_meta() = meta;
    if (meta.zero_kind != ZeroKind::additive) source_.mutable_meta().tensor_scales = {{0, 0.7f, pick(0, 1) == 1}};
    fill_randomly(source_, random_, true);

    problem_ = {};
    problem_.compute = one_of({MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8});
    problem_.epilogue = static_cast<marlin_epilogue>(pick(0, meta.n % 2 == 0 ? 6 : 3));
    problem_.accumulate = pick(0, 1) == 1;
    const int64_t m = one_of<int64_t>({1, 2, 3, 4, 5, 8, 13, 16, 25, 33, 49}), stride = pick(0, 3);
    const int64_t c_cols = is_two_input(problem_.epilogue) ? meta.n / 2 : meta.n;
    const auto dtype = [&] { return one_of({MARLIN_F32, MARLIN_F16, MARLIN_BF16}); };
    problem_.a = {nullptr, m, meta.k, meta.k + stride, pick(0, 1) == 1 ? MARLIN_BF16 : dtype()};
    problem_.c = {nullptr, m, c_cols, c_cols + pick(0, 3), dtype()};
    has_bias_ = pick(0, 1) == 1;
    problem_.bias = {nullptr, 1, meta.n, meta.n, dtype()};
    a_.resize(static_cast<size_t>(m * meta.k));
    bias_.resize(static_cast<size_t>(meta.n));
    std::normal_distribution<float> normal;
    for (float& x : a_) x = normal(random_);
    for (float& x : bias_) x = normal(random_);
  }

  /// C's bytes, or nothing when the kernel does not serve this problem.
  std::vector<std::byte> run(Edge edge, bool hostile) {
    FencedHost host;
    host.edge = edge;
    BackendOptions options{.threads = 2, .kernel = GetParam(), .allocator = host.allocator()};
    auto made = create_backend(options);
    EXPECT_TRUE(made.ok());
    auto packed = made.value()->pack(source_);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    FencedMatrix a(problem_.a, edge), c(problem_.c, edge), bias(problem_.bias, edge);
    a.fill(a_);
    bias.fill(bias_);
    GemmProblem problem = problem_;
    problem.weights = packed.value().get();
    problem.a = a.view();
    problem.c = c.view();
    problem.bias = has_bias_ ? bias.view() : MatrixView{};
    auto plan = made.value()->plan(problem);
    if (!plan.ok()) return {};
    const PlannedGemm product{problem, plan.value()};
    std::snprintf(running, sizeof running,
                  "%s: seed %u format %d%s n %d k %d group %d m %d compute %d epilogue %d A %d C %d edge %d\n",
                  GetParam().c_str(), seed_, source_.meta().format, source_.meta().sparse ? " sparse" : "",
                  int(source_.meta().n), int(source_.meta().k), int(source_.meta().group_size), int(problem.a.rows),
                  problem.compute, problem.epilogue, problem.a.dtype, problem.c.dtype, int(edge));
    const Status status = [&] {
      [[maybe_unused]] std::unique_ptr<HostileModes> modes(hostile ? new HostileModes : nullptr);
      const FpEnvironment of_the_boundary;
      return made.value()->gemm(nullptr, {&product, 1});
    }();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(c.gaps_untouched()) << running;
    return c.bytes();
  }

  const unsigned seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
  MemorySource source_;
  GemmProblem problem_;
  bool has_bias_ = false;
  std::vector<float> a_, bias_;
};

TEST_P(Guarded, StaysInsideAndGivesTheSameBits) {
  struct sigaction fault = {};
  fault.sa_handler = report_fault;
  sigaction(SIGSEGV, &fault, nullptr);
  sigaction(SIGBUS, &fault, nullptr);
  int served = 0;
  for (const FormatRow& row : format_table())
    for_each_kind(row, [&](const WeightMeta& meta) {
      for (int round = 0; round < (is_emulated() ? 2 : 6); ++round) {
        randomize(meta, row);
        const std::vector<std::byte> first = run(Edge::begin, false);
        if (first.empty()) continue;
        ++served;
        ASSERT_EQ(first, run(Edge::end, true)) << running;
      }
    });
  if (served == 0) GTEST_SKIP() << "this processor does not have the instructions";
}

std::vector<std::string> all_kernels() {
  std::vector<std::string> names;
  for (const KernelRow& row : kernel_rows()) names.emplace_back(row.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Kernels, Guarded, testing::ValuesIn(all_kernels()), [](const auto& p) { return p.param; });

}  // namespace
}  // namespace metal_marlin::cpu
