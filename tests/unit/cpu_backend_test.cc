#include "backends/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>
#include <span>
#include <thread>

#include "backends/cpu/gemm.h"
#include "counting_new.h"
#include "problem/memory_source.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "kernels/guarded.h"
#include "unit/planned.h"
#include "unit/under_sanitizer.h"

namespace metal_marlin::cpu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> out;
  std::ranges::transform(values, std::back_inserter(out), [](float f) { return std::bit_cast<uint32_t>(f); });
  return out;
}

/// Counts what a host's allocator gives.
struct CountingHost {
  std::atomic<int64_t> calls{0}, live{0};
  Allocator allocator() {
    return {[](void* user, size_t size, size_t align) {
              auto& host = *static_cast<CountingHost*>(user);
              ++host.calls;
              host.live += static_cast<int64_t>(size);
              return std::aligned_alloc(align, size);
            },
            [](void* user, void* p, size_t size) {
              static_cast<CountingHost*>(user)->live -= static_cast<int64_t>(size);
              std::free(p);
            },
            this};
  }
};

class CpuBackendTest : public testing::Test {
 protected:
  CpuBackendTest()
      : seed_(std::random_device{}()), random_(seed_), trace_(__FILE__, __LINE__, testing::Message() << "seed " << seed_) {
    backend_ = make({.threads = 3, .allocator = host_.allocator()});
    packed_ = pack(*backend_, MARLIN_INT4, 200, 300);
  }

  static std::unique_ptr<Backend> make(const BackendOptions& options) {
    auto made = create_backend(options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.take();
  }

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
    auto packed = backend.pack(source_);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    return packed.take();
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

  /// True when every element is within the bound of a float32 dot product of the weights of source_.
  bool right(const Operands& o) const {
    const WeightMeta& meta = source_.meta();
    std::vector<float> w(static_cast<size_t>(meta.n * meta.k));
    decode_rows(meta, source_.all(), 0, meta.n, w.data());
    for (int64_t m = 0; m < o.problem.a.rows; ++m)
      for (int64_t n = 0; n < meta.n; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < meta.k; ++k) {
          const double term = static_cast<double>(o.a[m * meta.k + k]) * w[n * meta.k + k];
          sum += term;
          size += std::abs(term);
        }
        // Zeros are corrected by sums of A, whose terms are up to 16 times the products.
        if (!(std::abs(o.c[m * meta.n + n] - sum) <= 16 * size * static_cast<double>(meta.k) * 0x1p-24)) return false;
      }
    return true;
  }

  const unsigned seed_;
  std::mt19937 random_;
  testing::ScopedTrace trace_;
  CountingHost host_;
  MemorySource source_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PackedWeights> packed_;
};

TEST_F(CpuBackendTest, MultipliesOnAStreamAndWithout) {
  const auto stream = backend_->create_stream({}).take();
  for (const FormatRow& row : format_table()) {
    if (!row.quantized) continue;
    const auto packed = pack(*backend_, row.format, 70, 100);
    for (const int64_t m : {1, 2, 5, 33}) {
      Operands o = operands(*packed, m);
      ASSERT_TRUE(backend_->plan(o.problem).ok());
      ASSERT_TRUE(plan_and_run(*backend_, nullptr, o.problem).ok());
      EXPECT_TRUE(right(o)) << row.name << " m " << m;
      const std::vector<float> first = o.c;
      o.c.assign(o.c.size(), 99.0f);
      ASSERT_TRUE(plan_and_run(*backend_, stream.get(), o.problem).ok());
      EXPECT_EQ(o.c, first);
    }
  }
  EXPECT_TRUE(backend_->flush(*stream).ok());
  EXPECT_TRUE(backend_->wait(*stream, 0).ok());
}

TEST_F(CpuBackendTest, NoRowsWriteNothing) {
  Operands o = operands(*packed_, 1);
  o.problem.a.rows = o.problem.c.rows = 0;
  EXPECT_TRUE(backend_->plan(o.problem).ok());
  EXPECT_TRUE(plan_and_run(*backend_, nullptr, o.problem).ok());
  EXPECT_TRUE(backend_->gemm(nullptr, {}).ok());
  EXPECT_EQ(o.c[0], 99.0f);
}

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
        const Status status = backend_->gemm(s, products);
        ASSERT_TRUE(status.ok()) << status.message();
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
              .weights = packed.get(), .a{}, .c{}, .bias{}, .routing{}, .compute = compute, .epilogue = epilogue};
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

MatrixView scratch_view(std::byte* memory, uint64_t bytes) {
  const auto cols = static_cast<int64_t>(bytes);
  return {memory, 1, cols, cols, MARLIN_U8};
}

TEST_F(CpuBackendTest, HostScratchOfThePreparedSizeSuffices) {
  constexpr int64_t kMaxM = 40;
  Operands o = operands(*packed_, kMaxM);
  o.problem.compute = MARLIN_COMPUTE_INT8;
  const uint64_t bytes = plan_and_prepare(*backend_, nullptr, {&o.problem, 1}, kMaxM).value();
  for (const size_t offset : {0, 1, 33, 63}) {
    const guarded::Memory memory(offset + bytes, guarded::Edge::end);
    const auto stream = backend_->create_stream({.scratch = scratch_view(memory.data() + offset, bytes)}).take();
    const int64_t calls = host_.calls;
    EXPECT_EQ(plan_and_prepare(*backend_, stream.get(), {&o.problem, 1}, kMaxM).value(), bytes);
    for (const int64_t m : {1, 4, 7, 39, 40}) {
      o.problem.a.rows = o.problem.c.rows = m;
      ASSERT_TRUE(plan_and_run(*backend_, stream.get(), o.problem).ok());
    }
    EXPECT_EQ(host_.calls.load(), calls);
  }
}

TEST_F(CpuBackendTest, SmallHostScratchIsAnErrorThatNamesBothSizes) {
  Operands o = operands(*packed_, 40);
  alignas(64) std::byte memory[128];
  for (const size_t size : {size_t{1}, size_t{128}}) {
    const auto stream = backend_->create_stream({.scratch = scratch_view(memory, size)}).take();
    const Status status = plan_and_run(*backend_, stream.get(), o.problem);
    EXPECT_EQ(status.code(), MARLIN_E_NOT_PREPARED);
    EXPECT_THAT(status.message(), HasSubstr("holds " + std::to_string(size) + " bytes"));
    EXPECT_THAT(status.message(), HasSubstr("these products need "));
    EXPECT_EQ(o.c[0], 99.0f);
  }
}

TEST_F(CpuBackendTest, AllocatorThatRefusesIsAnErrorAndTheBackendLivesOn) {
  static bool refuse = false;
  const Allocator moody{[](void*, size_t size, size_t align) { return refuse ? nullptr : std::aligned_alloc(align, size); },
                        [](void*, void* p, size_t) { std::free(p); }, nullptr};
  const auto backend = make({.threads = 2, .allocator = moody});
  const auto packed = pack(*backend, MARLIN_INT4, 65, 200);
  Operands o = operands(*packed, 3);
  refuse = true;
  EXPECT_EQ(backend->pack(source_).status().code(), MARLIN_E_MEMORY);
  EXPECT_EQ(plan_and_run(*backend, nullptr, o.problem).code(), MARLIN_E_MEMORY);
  EXPECT_EQ(plan_and_prepare(*backend, nullptr, {&o.problem, 1}, 3).status().code(), MARLIN_E_MEMORY);
  refuse = false;
  EXPECT_TRUE(plan_and_run(*backend, nullptr, o.problem).ok());
  EXPECT_TRUE(right(o));
}

TEST_F(CpuBackendTest, EverythingComesFromAndReturnsToTheHost) {
  Operands o = operands(*packed_, 3);
  ASSERT_TRUE(plan_and_run(*backend_, nullptr, o.problem).ok());
  EXPECT_GT(host_.live.load(), 200 * 300 / 2);
  packed_.reset();
  backend_.reset();
  EXPECT_EQ(host_.live.load(), 0);
}

TEST_F(CpuBackendTest, SameBitsForEveryNumberOfThreads) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
    for (const int64_t m : {1, 3, 20, 100}) {
      Operands o = operands(*packed_, m);
      o.problem.compute = compute;
      ASSERT_TRUE(plan_and_run(*backend_, nullptr, o.problem).ok());
      const std::vector<float> expected = o.c;
      for (uint32_t threads = 0; threads <= 4; ++threads) {
        BackendOptions options{.threads = threads};
        if (threads == 0) {
          options.threads = 7;
          options.parallel_for = [](void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
            for (uint32_t i = tasks; i-- > 0;) task(user, i);
          };
        }
        const auto other = make(options);
        o.c.assign(o.c.size(), 99.0f);
        ASSERT_TRUE(plan_and_run(*other, nullptr, o.problem).ok());
        ASSERT_EQ(o.c, expected) << threads << " threads, m " << m;
      }
    }
}

TEST_F(CpuBackendTest, CallersAtOnceGetTheirOwnResults) {
  std::vector<Operands> all;
  std::vector<std::vector<float>> expected;
  for (int64_t m : {1, 2, 9, 17, 30, 64}) all.push_back(operands(*packed_, m));
  for (Operands& o : all) {
    ASSERT_TRUE(plan_and_run(*backend_, nullptr, o.problem).ok());
    expected.push_back(o.c);
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (size_t t = 0; t < all.size(); ++t) {
    threads.emplace_back([&, t] {
      const auto stream = backend_->create_stream({}).take();
      for (int round = 0; round < 30; ++round) {
        all[t].c.assign(all[t].c.size(), 99.0f);
        const bool ok = plan_and_run(*backend_, round % 2 == 0 ? stream.get() : nullptr, all[t].problem).ok();
        if (!ok || all[t].c != expected[t]) ++failures;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST_F(CpuBackendTest, ComputesInTheChildOfAFork) {
  SKIP_UNDER_TSAN();
  SKIP_UNDER_ASAN();
  Operands o = operands(*packed_, 5);
  ASSERT_TRUE(plan_and_run(*backend_, nullptr, o.problem).ok());
  const std::vector<float> expected = o.c;
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    Operands own = operands(*packed_, 20);
    while (!stop.load())
      if (!plan_and_run(*backend_, nullptr, own.problem).ok()) std::abort();
  });
  for (int round = 0; round < 30; ++round) {
    o.c.assign(o.c.size(), 99.0f);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const bool ok = plan_and_run(*backend_, nullptr, o.problem).ok() && o.c == expected;
      packed_.reset();
      backend_.reset();
      _exit(ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}

TEST_F(CpuBackendTest, UnpacksRows) {
  std::vector<float> all(200 * 300), out(2 * 300);
  decode_rows(source_.meta(), source_.all(), 0, 200, all.data());
  int32_t rows[] = {199, 3};
  const RowSelection listed{0, {rows, 2, 1, 1, MARLIN_I32}};
  ASSERT_TRUE(backend_->unpack(nullptr, *packed_, listed, {out.data(), 2, 300, 300, MARLIN_F32}).ok());
  const auto expected = [&](int64_t row) { return bits(std::span(all).subspan(row * 300, 300)); };
  EXPECT_EQ(bits(std::span(out).first(300)), expected(199));
  EXPECT_EQ(bits(std::span(out).last(300)), expected(3));
}

TEST_F(CpuBackendTest, ExplainsTheChoice) {
  Operands o = operands(*packed_, 4);
  const auto text = plan_and_explain(*backend_, o.problem);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(text.value(), StartsWith("kernel: "));
  EXPECT_THAT(text.value(), HasSubstr("\nthreads: 3\n"));
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
  EXPECT_EQ(odd->plan(o.problem).status().code(), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(odd->plan(o.problem).status().message(), HasSubstr("no_such_kernel"));
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
