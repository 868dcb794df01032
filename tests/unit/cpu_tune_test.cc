// Tuning on the CPU with a clock that the test sets: marlin_prepare finds the planted kernel, later contexts load it, and
// products stay right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi/support.h"
#include "api/context.h"
#include "api/weights.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/plan.h"
#include "core/tuner.h"
#include "kernels/guarded_stream.h"
#include "temporary_folder.h"

namespace metal_marlin::cpu {
namespace {

namespace mm = metal_marlin;
using abi_test::explained;
using testing::HasSubstr;
using testing::Not;

/// Runs the work, and says what the test has planted for the kernel.
class PlantedClock final : public Stopwatch {
 public:
  double now() override { return now_; }
  Result<double> time(std::string_view kernel, const std::function<Result<double>()>& work) override {
    MARLIN_RETURN_IF_ERROR(work().status());
    const double seconds = kernel == best ? 0.5e-3 : 1e-3;
    now_ += seconds;
    ++timed[std::string(kernel)];
    return seconds;
  }
  std::string best;
  std::map<std::string, int> timed;

 private:
  double now_ = 0;
};

constexpr int64_t kN = 130, kK = 1024, kMaxM = 20;

class Tuned : public testing::Test {
 protected:
  mm::context make(uint32_t tune_ms, const std::string& folder, BackendOptions options = {}) {
    options.threads = 1;
    options.tune_ms = tune_ms;
    options.profile_folder = folder;
    options.stopwatch = clock_;
    auto backend = create_backend(options);
    return mm::context(new marlin_context(MARLIN_BACKEND_CPU, backend.take(), {}));
  }
  static marlin_gemm_desc desc_of(const mm::weights& w, int64_t m) {
    auto d = mm::make<marlin_gemm_desc>();
    d.weights = w.get();
    d.a = {nullptr, 0, m, kK, 0, MARLIN_F32, MARLIN_MEM_HOST};
    d.c = {nullptr, 0, m, kN, 0, MARLIN_F32, MARLIN_MEM_HOST};
    return d;
  }
  /// Kernels that may be measured, but the usual one for one row.
  std::vector<std::string_view> rivals(const mm::weights& w) {
    GemmProblem problem;
    problem.weights = w.get()->experts.front().get();
    problem.a.dtype = problem.c.dtype = MARLIN_F32;
    const CpuFeatures features = detect_cpu_features(nullptr);
    auto names = measurable_kernels(problem, features);
    std::erase(names, plan_gemm(problem, 1, {features}).value().row->name);
    return names;
  }
  static void prepare(const marlin_gemm_desc& desc, uint64_t* bytes = nullptr) {
    const marlin_gemm_desc* const descs[] = {&desc};
    EXPECT_OK(marlin_prepare, nullptr, descs, 1u, kMaxM, bytes);
  }

  TemporaryFolder folder_;
  std::shared_ptr<PlantedClock> clock_ = std::make_shared<PlantedClock>();
};

TEST_F(Tuned, ThePlantedKernelServesHereAndInLaterContexts) {
  const mm::context context = make(60000, folder_.path());
  const mm::weights w = abi_test::quantized(context, kN, kK);
  const auto names = rivals(w);
  if (names.empty()) GTEST_SKIP() << "this processor has one kernel for these weights";
  clock_->best = names.back();
  const auto desc = desc_of(w, 1);
  EXPECT_THAT(explained(desc), Not(HasSubstr("tuned")));
  prepare(desc);
  for (int64_t m = 1; m <= 32; ++m) EXPECT_THAT(explained(desc_of(w, m)), HasSubstr("kernel: " + clock_->best + "\n")) << m;
  EXPECT_THAT(explained(desc), HasSubstr("why: tuned: "));
  EXPECT_THAT(explained(desc), HasSubstr("tuned_ns: 500000\n"));
  EXPECT_THAT(explained(desc), HasSubstr("usual_ns: 1000000\n"));
  EXPECT_THAT(explained(desc_of(w, 33)), Not(HasSubstr("why: tuned"))) << "nobody measured so many rows";

  clock_->timed.clear();
  prepare(desc);
  EXPECT_TRUE(clock_->timed.empty()) << "the profile has these products";
  const mm::context later = make(0, folder_.path()), off = make(0, "");
  EXPECT_THAT(explained(desc_of(abi_test::quantized(later, kN, kK), 1)), HasSubstr("kernel: " + clock_->best + "\n"));
  EXPECT_THAT(explained(desc_of(abi_test::quantized(off, kN, kK), 1)), Not(HasSubstr("tuned")));
}

TEST_F(Tuned, AProfileThatCannotBeWrittenIsAWarning) {
  std::string log;
  BackendOptions options;
  options.logger = {[](void* user, int32_t level, const char* message) {
                      if (level == static_cast<int32_t>(LogLevel::warning)) static_cast<std::string*>(user)->append(message);
                    },
                    &log};
  const mm::context context = make(60000, "/dev/null/below", options);
  prepare(desc_of(abi_test::quantized(context, kN, kK), 1));
  EXPECT_THAT(log, HasSubstr("/dev/null/below"));
  EXPECT_THAT(log, HasSubstr("cannot be made"));
}

/// Memory that looks, as it is given back, for a product of kMaxM rows and for its activations.
struct Watched {
  int products = 0, unwritten = 0, activations = 0, unfilled = 0;

  static void* alloc(void*, size_t size, size_t align) {
    void* const p = std::aligned_alloc(align, size);
    std::memset(p, 0, size);
    return p;
  }
  static void release(void* user, void* p, size_t size) {
    auto& self = *static_cast<Watched*>(user);
    const auto bits = [&](int64_t i) {
      uint32_t value = 0;
      std::memcpy(&value, static_cast<std::byte*>(p) + 4 * i, 4);
      return value;
    };
    const auto whole = [](int64_t cols, int64_t m) { return static_cast<size_t>((m * cols * 4 + 63) / 64 * 64); };
    for (int64_t m = 1; m <= 32; ++m) {
      const bool product = size == whole(kN, m), activations = size == whole(kK, m);
      self.products += product;
      self.activations += activations;
      if (product && bits(m * kN - 1) == UINT32_MAX) ++self.unwritten;
      if (activations && bits(m * kK - 1) == 0) ++self.unfilled;
    }
    std::free(p);
  }
};

/// Also of a product that is added to C: its C is what the test of a rival is compared in.
TEST_F(Tuned, WhatIsTimedMultipliesAllRows) {
  for (const uint32_t flags : {0u, static_cast<uint32_t>(MARLIN_GEMM_ACCUMULATE)}) {
    const TemporaryFolder own;
    Watched watched;
    BackendOptions options;
    options.allocator = {Watched::alloc, Watched::release, &watched};
    const mm::context context = make(60000, own.path(), options);
    const mm::weights w = abi_test::quantized(context, kN, kK);
    if (rivals(w).empty()) GTEST_SKIP() << "this processor has one kernel for these weights";
    auto desc = desc_of(w, 1);
    desc.flags = flags;
    prepare(desc);
    EXPECT_GT(watched.products, 5) << "a class of rows each";
    EXPECT_GT(watched.activations, 5);
    EXPECT_EQ(watched.unwritten, 0);
    EXPECT_EQ(watched.unfilled, 0);
  }
}

TEST_F(Tuned, ProductsAreRightAndTheirScratchIsWhatPrepareSays) {
  const mm::context context = make(60000, folder_.path()), usual = make(0, "");
  const mm::weights w = abi_test::quantized(context, kN, kK), v = abi_test::quantized(usual, kN, kK);
  for (const std::string_view name : rivals(w)) {
    const TemporaryFolder own;
    const mm::context tuned = make(60000, own.path());
    const mm::weights u = abi_test::quantized(tuned, kN, kK);
    clock_->best = name;
    const guarded::Stream stream(tuned.get(), desc_of(u, 1), kMaxM);
    for (int64_t m = 1; m <= kMaxM; ++m) {
      abi_test::Product got(u, m), want(v, m);
      EXPECT_OK(marlin_gemm, stream.get(), &got.desc);
      EXPECT_OK(marlin_gemm, nullptr, &want.desc);
      for (size_t i = 0; i < got.c.size(); ++i) ASSERT_NEAR(got.c[i], want.c[i], 1e-3) << name << ", M " << m;
    }
  }
}

/// Memory of which every block ends where an inaccessible page begins.
struct Fenced {
  std::map<void*, guarded::Memory> blocks;

  static void* alloc(void* user, size_t size, size_t) {
    guarded::Memory memory(size, guarded::Edge::end);
    void* const p = memory.data();
    static_cast<Fenced*>(user)->blocks.emplace(p, std::move(memory));
    return p;
  }
  static void release(void* user, void* p, size_t) { static_cast<Fenced*>(user)->blocks.erase(p); }
};

/// Of one class are weights whose slots differ, and products whose C or epilogues do.
TEST_F(Tuned, WhatDiffersInsideAClassStaysInsideItsMemory) {
  std::mt19937 random(20261128);
  for (int round = 0; round < 6; ++round) {
    Fenced fenced;
    BackendOptions options;
    options.allocator = {Fenced::alloc, Fenced::release, &fenced};
    const mm::context context = make(60000, "", options);
    std::vector<mm::weights> weights;
    std::vector<marlin_gemm_desc> products;
    for (int i = 0; i < 3; ++i) {
      weights.push_back(abi_test::act_order(context, kN, kK / 4, 1 + random() % 40, random()));
      auto d = desc_of(weights.back(), 1);
      d.a.cols = kK / 4;
      d.c.dtype = std::array{MARLIN_F16, MARLIN_F32, MARLIN_BF16}[random() % 3];
      if (random() % 2 == 0) d.epilogue = MARLIN_EPILOGUE_SILU;
      products.push_back(d);
    }
    std::vector<const marlin_gemm_desc*> pointers;
    for (const marlin_gemm_desc& d : products) pointers.push_back(&d);
    EXPECT_OK(marlin_prepare, nullptr, pointers.data(), 3u, int64_t{4}, nullptr);
    for (const mm::weights& w : weights) {
      abi_test::Product product(w, 3);
      EXPECT_OK(marlin_gemm, nullptr, &product.desc);
      EXPECT_TRUE(product.right());
    }
  }
}

TEST_F(Tuned, ExpertsTakeWhatTheirRowsTake) {
  const mm::context context = make(60000, folder_.path());
  const mm::weights one = abi_test::quantized(context, kN, kK);
  const auto names = rivals(one);
  if (names.empty()) GTEST_SKIP() << "this processor has one kernel for these weights";
  clock_->best = names.back();
  const auto values = abi_test::numbers(static_cast<size_t>(4 * kN * kK), 3);
  std::vector<marlin_pack_desc> parts;
  std::vector<const marlin_pack_desc*> pointers;
  for (int e = 0; e < 4; ++e) parts.push_back(abi_test::pack_desc(values, kN, kK));
  for (const auto& part : parts) pointers.push_back(&part);
  marlin_weights* made = nullptr;
  EXPECT_OK(marlin_weights_pack, context.get(), pointers.data(), 4u, 4u, &made);
  const mm::weights w(made);
  auto desc = desc_of(w, 4);
  desc.expert_ids = {nullptr, 0, 4, 2, 0, MARLIN_I32, MARLIN_MEM_HOST};
  desc.c.rows = 8;
  prepare(desc);
  EXPECT_THAT(explained(desc), HasSubstr("kernel_from_1_rows: " + clock_->best + "\n"));
  EXPECT_THAT(explained(desc), HasSubstr("why: tuned"));
}

TEST_F(Tuned, AProfileThatNamesAKernelThatIsNotHereIsIgnored) {
  const mm::context context = make(0, folder_.path());
  const mm::weights w = abi_test::quantized(context, kN, kK);
  const std::string usual = explained(desc_of(w, 1));
  const CpuFeatures features = detect_cpu_features(nullptr);
  Profile profile(folder_.path(), {"cpu", features.model, features.name, ""}, {});
  GemmProblem problem;
  problem.weights = w.get()->experts.front().get();
  problem.a.dtype = problem.c.dtype = MARLIN_F32;
  profile.keep(class_of(problem, 1), {"cpu_no_such_kernel", 0, 0, 1, "usual", 2});
  profile.keep(class_of(problem, 2), {"cpu_generic_gemv_any_i8", 0, 0, 1, "usual", 2});  // another compute's
  profile.keep(class_of(problem, 3), {"cpu_generic_dequant_any_f32", 0, 0, 1, "usual", 2});
  ASSERT_TRUE(profile.save().ok());
  const mm::context later = make(0, folder_.path());
  const mm::weights v = abi_test::quantized(later, kN, kK);
  EXPECT_THAT(explained(desc_of(v, 1)), HasSubstr(usual.substr(0, usual.find('\n'))));
  EXPECT_THAT(explained(desc_of(v, 1)), Not(HasSubstr("why: tuned")));
  EXPECT_THAT(explained(desc_of(v, 2)), Not(HasSubstr("why: tuned")));
  EXPECT_THAT(explained(desc_of(v, 3)), HasSubstr("kernel: cpu_generic_dequant_any_f32\n")) << "the profile was read";
}

TEST_F(Tuned, TimeThatIsUpEndsThePreparationWithoutAnError) {
  const mm::context context = make(1, folder_.path());
  const mm::weights w = abi_test::quantized(context, kN, kK);
  prepare(desc_of(w, 1));
  EXPECT_THAT(explained(desc_of(w, 16)), Not(HasSubstr("why: tuned")));
}

}  // namespace
}  // namespace metal_marlin::cpu
