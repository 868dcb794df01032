#include "backends/cpu/cpu_backend.h"
#include "test.h"

#include "backends/cpu/gemm.h"
#include "counting_new.h"
#include "fails.h"
#include "formats/codecs.h"
#include "problem/memory_source.h"
#include "unit/planned.h"

namespace metal_marlin::cpu {
namespace {

/// Counts what a host's allocator gives.
struct CountingHost {
  std::atomic<int64_t> calls{0};
  Allocator allocator() {
    return {[](void* user, size_t size, size_t align) {
              auto& host = *static_cast<CountingHost*>(user);
              ++host.calls;
              return std::aligned_alloc(align, size);
            },
            [](void*, void* p, size_t) { std::free(p); }, this};
  }
};

class CpuBackendTest : public testing::Test {
 protected:
  CpuBackendTest()
      : seed_(std::random_device{}()), random_(seed_), trace_(__FILE__, __LINE__, testing::Message() << "seed " << seed_) {
    backend_ = make({.threads = 3, .allocator = host_.allocator()});
    packed_ = pack(*backend_, MARLIN_FORMAT_INT4, 200, 300);
  }

  static std::unique_ptr<Backend> make(const BackendOptions& options) { return must(create_backend(options)); }

  std::unique_ptr<PackedWeights> pack(Backend& backend, marlin_format format, int64_t n, int64_t k) {
    WeightMeta& meta = source_.mutable_meta();
    const FormatRow& row = *format_row(format);
    meta = {};
    meta.format = format;
    meta.scale_type = row.default_type;
    meta.n = n;
    meta.k = k;
    meta.group_size = row.default_group;
    set_groups(meta, Order::plain, random_);
    fill_randomly(source_, random_, true);
    return must(backend.pack(source_));
  }

  /// Operands of one product with random A; c starts as 99.
  struct Operands {
    std::vector<float> a, c;
    GemmProblem problem;
  };
  Operands operands(const PackedWeights& weights, int64_t m) {
    const int64_t n = weights.meta().n, k = weights.meta().k;
    Operands o;
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < m * k; ++i) o.a.push_back(normal(random_));
    o.c.assign(static_cast<size_t>(m * n), 99.0f);
    o.problem.weights = &weights;
    o.problem.a = {o.a.data(), m, k, k, MARLIN_F32};
    o.problem.c = {o.c.data(), m, n, n, MARLIN_F32};
    return o;
  }

  const unsigned seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
  CountingHost host_;
  MemorySource source_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PackedWeights> packed_;
};

TEST_F(CpuBackendTest, PreparedCallsDoNotAllocate) {
  constexpr int64_t kMaxM = 70;
  std::vector<Operands> all;
  all.reserve(3);
  for (int i = 0; i < 3; ++i) all.push_back(operands(*packed_, kMaxM));
  const auto stream = backend_->create_stream({}).take();
  for (BackendStream* s : {stream.get(), static_cast<BackendStream*>(nullptr)})
    for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SWIGLU}) {
      PlannedGemm products[3];
      for (int i = 0; i < 3; ++i) {
        GemmProblem& problem = products[i].problem = all[i].problem;
        problem.epilogue = epilogue;
        if (is_two_input(epilogue)) problem.c.cols /= 2;
      }
      ASSERT_TRUE(backend_->prepare(s, products, kMaxM).ok());
      const int64_t from_host = host_.calls, from_new = counting_new::calls;
      for (int64_t m = 1; m <= kMaxM; ++m) {
        for (auto& [problem, plan] : products) {
          problem.a.rows = problem.c.rows = m;
          plan = backend_->plan(problem).value();
        }
        must(backend_->gemm(s, products));
      }
      EXPECT_EQ(host_.calls.load(), from_host);
      EXPECT_EQ(counting_new::calls.load(), from_new);
    }
}

TEST_F(CpuBackendTest, PreparedScratchCoversEveryM) {
  std::string warning;
  const CpuFeatures features = detect_cpu_features(&warning);
  for (const FormatRow& row : format_table())
    for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16})
      for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
        for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_GEGLU_TANH}) {
          if (!row.quantized) continue;
          std::uniform_int_distribution<int64_t> size(1, 300);
          const auto packed = pack(*backend_, row.format, 2 * size(random_), size(random_));
          GemmProblem problem{
              .weights = packed.get(), .a{}, .c{}, .bias{}, .routing{}, .compute = compute, .epilogue = epilogue, .gate{}};
          problem.a.dtype = dtype;
          const int64_t max_m = size(random_);
          const uint64_t prepared = plan_and_prepare(*backend_, nullptr, {&problem, 1}, max_m).value();
          for (int64_t m = 1; m <= max_m; ++m) {
            const GemmPlan plan = plan_gemm(problem, m, {features, ""}).value();
            ASSERT_GE(prepared, scratch_bytes(1, plan.bytes())) << row.name << " dtype " << dtype << " compute " << compute
                                                                << " epilogue " << epilogue << " max_m " << max_m << " m " << m;
          }
        }
}

TEST_F(CpuBackendTest, ScratchIsBoundedForAnyM) {
  Operands o = operands(*packed_, 1);
  const uint64_t bytes = plan_and_prepare(*backend_, nullptr, {&o.problem, 1}, INT64_MAX).value();
  EXPECT_LT(bytes, uint64_t{64} << 20);
  EXPECT_EQ(plan_and_prepare(*backend_, nullptr, {&o.problem, 1}, int64_t{1} << 30).value(), bytes);
}

TEST_F(CpuBackendTest, ExplainsTheChoice) {
  Operands o = operands(*packed_, 4);
  const auto text = must(plan_and_explain(*backend_, o.problem));
  EXPECT_THAT(text, StartsWith("kernel: "));
  EXPECT_THAT(text, HasSubstr("\nthreads: 3\n"));
  o.problem.compute = MARLIN_COMPUTE_FP8;
  EXPECT_EQ(plan_and_explain(*backend_, o.problem).status().code(), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(backend_->plan(o.problem).status().code(), MARLIN_E_UNSUPPORTED);
}

TEST_F(CpuBackendTest, RejectsWhatACpuDoesNotHave) {
  EXPECT_EQ(create_backend({.device_index = 1}).status().code(), MARLIN_E_NO_DEVICE);
  EXPECT_EQ(create_backend({.device_index = -1}).status().code(), MARLIN_E_NO_DEVICE);
  EXPECT_EQ(create_backend({.native_device = this}).status().code(), MARLIN_E_ARGUMENT);
  EXPECT_EQ(backend_->create_stream({.kind = MARLIN_NATIVE_CUDA_STREAM}).status().code(), MARLIN_E_UNSUPPORTED);
}

TEST_F(CpuBackendTest, EnvironmentIsReadWhenTheContextIsMade) {
  std::string logged;
  BackendOptions options{.threads = 1};
  options.logger = {[](void* user, int32_t, const char* text) { *static_cast<std::string*>(user) += text; }, &logged};
  setenv("METAL_MARLIN_ISA", "vax", 1);
  options.kernel = "no_such_kernel";
  const auto odd = make(options);
  setenv("METAL_MARLIN_ISA", "generic", 1);
  options.kernel.clear();
  const auto generic = make(options);
  unsetenv("METAL_MARLIN_ISA");
  EXPECT_THAT(logged, HasSubstr("\"vax\""));
  Operands o = operands(*packed_, 4);
  EXPECT_THAT(odd->plan(o.problem).status(), Fails(MARLIN_E_UNSUPPORTED, HasSubstr("no_such_kernel")));
  EXPECT_THAT(plan_and_explain(*generic, o.problem).value(), StartsWith("kernel: cpu_generic_"));
}

TEST(CpuDevice, DescribesItself) {
  ASSERT_EQ(device_count(), 1u);
  marlin_device_info info{};
  info.why_not[0] = 'x';
  describe_device(0, info);
  EXPECT_NE(info.name[0], '\0');
  EXPECT_NE(info.isa_or_arch[0], '\0');
  EXPECT_GT(info.memory_bytes, uint64_t{1} << 28);
  EXPECT_STREQ(info.why_not, "");
}

}  // namespace
}  // namespace metal_marlin::cpu
