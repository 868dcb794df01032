// Tuning on a GPU whose clock the test sets, and whose kernels compute what the test says: the search finds the planted best,
// ignores noise, never picks a wrong kernel, and survives a device that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "backends/gpu/choice.h"
#include "core/tuner.h"
#include "recorded.h"
#include "temporary_folder.h"

namespace gpu_tune_tests {
namespace {

using namespace device_test;
using abi_test::explained;
using testing::HasSubstr;
using testing::Not;

/// What the device takes for a dispatch, and which kernels it computes wrongly.
struct Planted {
  std::function<double(const std::string& kernel, uint32_t splits)> seconds = [](const std::string&, uint32_t) {
    return 20e-6;
  };
  std::set<std::string> wrong, missing;
  double deviation = 0;  ///< of the logarithm of a time
  std::mt19937 random{1};
  std::map<std::string, int> runs;                 ///< dispatches of product kernels
  std::map<uint64_t, std::array<int32_t, 2>> ids;  ///< of the first token, by their place in the buffer
  int prepared = 0;                                ///< times that rows of A were gathered
  uint64_t prepared_end = 0;                       ///< of those that were gathered last, in scratch
};

class ClockStream final : public dv::Stream {
 public:
  ClockStream(std::unique_ptr<dv::Stream> inner, Planted& planted) : inner_(std::move(inner)), planted_(planted) {}
  Status dispatch(const dv::Dispatch& d) override {
    const auto& name = static_cast<const IdleKernel&>(*d.kernel).name;
    if (name.starts_with("gemv") || name.starts_with("regdecode")) {
      std::normal_distribution<double> normal;
      ++planted_.runs[name];
      seconds_ += planted_.seconds(name, d.groups.z) * std::exp(planted_.deviation * normal(planted_.random));
      spoils_ = planted_.wrong.count(name) != 0;
    }
    const uint32_t ids = name.starts_with("route") ? MARLIN_BUFFER_IDS : MARLIN_BUFFER_ROUTED_IDS;
    for (const dv::Argument& a : d.arguments)
      if (a.index == ids && a.buffer != nullptr)
        std::memcpy(&planted_.ids[a.offset], static_cast<const HostBuffer&>(*a.buffer).data() + a.offset, 8);
    for (const dv::Argument& a : d.arguments) {
      if (name.starts_with("gather") && a.index == MARLIN_BUFFER_QUANTIZED) {
        PrepareArgs args{};
        for (const dv::Argument& b : d.arguments)
          if (b.index == MARLIN_BUFFER_PREPARE_ARGS) std::memcpy(&args, b.value.data(), sizeof args);
        planted_.prepared_end = a.offset + static_cast<uint64_t>(args.m) * static_cast<uint64_t>(args.slots) * 2;
        ++planted_.prepared;
        EXPECT_LE(planted_.prepared_end, a.buffer->bytes());
      }
      if (a.index == MARLIN_BUFFER_PARTIALS) EXPECT_LE(planted_.prepared_end, a.offset) << "sums lie behind gathered rows";
    }
    // It writes C itself, or another kernel adds its sums.
    for (const dv::Argument& a : d.arguments)
      if (spoils_ && a.index == MARLIN_BUFFER_C && a.buffer != nullptr)
        std::memset(static_cast<const HostBuffer&>(*a.buffer).data() + a.offset, 0, 64);
    return inner_->dispatch(d);
  }
  Status copy(const dv::BufferRef& f, uint64_t fo, const dv::BufferRef& t, uint64_t to, uint64_t n) override {
    return inner_->copy(f, fo, t, to, n);
  }
  Status fill(const dv::BufferRef& t, uint64_t o, uint64_t n, uint8_t v) override { return inner_->fill(t, o, n, v); }
  Status barrier() override { return inner_->barrier(); }
  Status commit() override { return inner_->commit(); }
  Status wait(uint64_t ns) override {
    busy_ = std::exchange(seconds_, 0);
    return inner_->wait(ns);
  }
  Status failure() const override { return inner_->failure(); }
  double busy_seconds() const override { return busy_; }

 private:
  const std::unique_ptr<dv::Stream> inner_;
  Planted& planted_;
  double seconds_ = 0, busy_ = 0;
  bool spoils_ = false;
};

class ClockDevice final : public IdleDevice {
 public:
  ClockDevice(Record& record, Planted& planted) : IdleDevice(record), planted_(planted) {}
  Result<dv::KernelRef> kernel(std::string_view name, std::span<const dv::Constant> constants) override {
    if (planted_.missing.count(std::string(name)) != 0) return Status::error(MARLIN_E_NOT_FOUND, "no such kernel");
    return IdleDevice::kernel(name, constants);
  }
  Result<std::unique_ptr<dv::Stream>> stream(const dv::StreamSource& source) override {
    MARLIN_ASSIGN(auto inner, IdleDevice::stream(source));
    return std::unique_ptr<dv::Stream>(std::make_unique<ClockStream>(std::move(inner), planted_));
  }

 private:
  Planted& planted_;
};

constexpr int64_t kN = 640, kK = 4096;  // so that K can be split in four

/// A device with a clock behind the mock, and contexts on it that tune.
class Tuned : public testing::Test {
 protected:
  mm::context make(uint32_t tune_ms, const std::string& folder) {
    mm::BackendOptions options;
    options.tune_ms = tune_ms;
    options.profile_folder = folder;
    options.logger = {[](void* user, int32_t, const char* text) { static_cast<std::string*>(user)->append(text); }, &log};
    return mm::context(gpu_context(mock, {.probe = false}, options));
  }
  static marlin_gemm_desc desc_of(const mm::weights& w, int64_t m) {
    auto d = mm::make<marlin_gemm_desc>();
    d.weights = w.get();
    d.a = {nullptr, 0, m, kK, 0, MARLIN_F16, MARLIN_MEM_BUFFER};
    d.c = {nullptr, 0, m, kN, 0, MARLIN_F32, MARLIN_MEM_BUFFER};
    return d;
  }
  static marlin_status prepare(const marlin_gemm_desc& desc, int64_t max_m, uint64_t* bytes = nullptr) {
    const marlin_gemm_desc* const descs[] = {&desc};
    return marlin_prepare(nullptr, descs, 1, max_m, bytes, nullptr);
  }

  Record record;
  FaultPlan faults;
  Planted planted;
  std::string log;
  std::shared_ptr<ClockDevice> device = std::make_shared<ClockDevice>(record, planted);
  std::shared_ptr<testing::NiceMock<MockDevice>> mock = std::make_shared<testing::NiceMock<MockDevice>>(device, faults);
  TemporaryFolder folder;
};

std::string kernel_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST_F(Tuned, ThePlantedKernelServesHereAndInLaterContexts) {
  planted.seconds = [](const std::string& name, uint32_t) { return name.ends_with("_m6") ? 10e-6 : 20e-6; };
  planted.deviation = 0.02;
  const mm::context context = make(60000, folder.path());
  const mm::weights w = pack(context, kN, kK, 1);
  EXPECT_THAT(explained(desc_of(w, 2)), HasSubstr("kernel: gemv_u4_f16_m2\n"));
  EXPECT_EQ(prepare(desc_of(w, 1), 20), MARLIN_OK);
  for (int64_t m = 2; m <= 32; ++m) {
    EXPECT_THAT(explained(desc_of(w, m)), HasSubstr("kernel: gemv_u4_f16_m6\n")) << m;
    EXPECT_THAT(explained(desc_of(w, m)), HasSubstr("why: tuned: ")) << m;
    EXPECT_THAT(explained(desc_of(w, m)), Not(HasSubstr("instead_of"))) << m;
  }
  EXPECT_THAT(explained(desc_of(w, 2)), HasSubstr("usual_kernel: gemv_u4_f16_m2\n"));
  EXPECT_THAT(explained(desc_of(w, 33)), Not(HasSubstr("why: tuned"))) << "nobody measured so many rows";
  const auto runs = planted.runs;
  EXPECT_EQ(prepare(desc_of(w, 1), 20), MARLIN_OK);
  EXPECT_EQ(planted.runs, runs) << "the profile has these products";

  EXPECT_THAT(explained(desc_of(w, 5)), testing::ContainsRegex("\ntuned_ns: (9|10)[0-9][0-9][0-9]\n")) << "of one run";

  const mm::context later = make(0, folder.path()), off = make(0, "");
  EXPECT_THAT(explained(desc_of(pack(later, kN, kK, 1), 5)), HasSubstr("kernel: gemv_u4_f16_m6\n"));
  EXPECT_THAT(explained(desc_of(pack(off, kN, kK, 1), 5)), Not(HasSubstr("tuned")));
  device->change().driver = "another";
  const mm::context other = make(0, folder.path());
  EXPECT_THAT(explained(desc_of(pack(other, kN, kK, 1), 5)), Not(HasSubstr("why: tuned")));
  EXPECT_EQ(log, "");
}

/// Shapes that no table chooses are measured where M is in their range, and serve where they were the fastest.
TEST_F(Tuned, AnAlternativeServesWhereItWasMeasured) {
  planted.seconds = [](const std::string& name, uint32_t) {
    return name.ends_with("_m1_n64_s2") || name.ends_with("_m32_n64_threadgroup") ? 10e-6 : 20e-6;
  };
  const mm::context context = make(60000, folder.path());
  const mm::weights w = pack(context, kN, kK, 1);
  EXPECT_THAT(explained(desc_of(w, 1)), HasSubstr("kernel: gemv_u4_f16_m1\n"));
  EXPECT_EQ(prepare(desc_of(w, 1), 32), MARLIN_OK);
  EXPECT_EQ(planted.runs.count("gemv_u4_f16_m8_n64_s2"), 1u) << "of M = 5 to 8";
  EXPECT_EQ(planted.runs.count("regdecode_u4_f16_m64_n128_direct"), 0u) << "of M above 32";
  const mm::context later = make(0, folder.path()), off = make(0, "");
  const mm::weights others = pack(later, kN, kK, 1);
  for (const auto& [m, kernel] : {std::pair(1, "gemv_u4_f16_m1_n64_s2"), {32, "regdecode_u4_f16_m32_n64_threadgroup"}})
    for (const mm::weights* const each : {&w, &others}) {
      EXPECT_EQ(kernel_line(explained(desc_of(*each, m))), "kernel: " + std::string(kernel)) << m;
      EXPECT_THAT(explained(desc_of(*each, m)), HasSubstr("why: tuned: ")) << m;
    }
  EXPECT_THAT(explained(desc_of(w, 2)), HasSubstr("kernel: gemv_u4_f16_m2\n"));
  EXPECT_THAT(explained(desc_of(pack(off, kN, kK, 1), 1)), HasSubstr("kernel: gemv_u4_f16_m1\n"));
}

TEST_F(Tuned, ThePlantedPartsOfKServe) {
  planted.seconds = [](const std::string&, uint32_t splits) { return splits == 2 ? 10e-6 : 20e-6; };
  const mm::context context = make(60000, folder.path());
  const mm::weights w = pack(context, kN, kK, 1);
  const std::string before = explained(desc_of(w, 1));
  EXPECT_THAT(before, Not(HasSubstr("k_splits: 2 of 16 ")));
  EXPECT_EQ(prepare(desc_of(w, 1), 1), MARLIN_OK);
  const std::string after = explained(desc_of(w, 1));
  EXPECT_THAT(after, HasSubstr("k_splits: 2 of 16 "));
  EXPECT_EQ(kernel_line(after), kernel_line(before));
  const mm::context later = make(0, folder.path());
  EXPECT_THAT(explained(desc_of(pack(later, kN, kK, 1), 1)), HasSubstr("k_splits: 2 of 16 "));
}

TEST_F(Tuned, NoiseChangesNothing) {
  for (const double deviation : {0.01, 0.3}) {
    planted.deviation = deviation;
    const mm::context context = make(60000, "");
    const mm::weights w = pack(context, kN, kK, 1);
    std::vector<std::string> before;
    for (int64_t m = 1; m <= 20; ++m) before.push_back(explained(desc_of(w, m)));
    EXPECT_EQ(prepare(desc_of(w, 1), 20), MARLIN_OK);
    for (int64_t m = 1; m <= 20; ++m) {
      const std::string text = explained(desc_of(w, m)), &old = before[static_cast<size_t>(m - 1)];
      // Between the ends of a class the kernel of its end serves.
      if (m <= 8 || m == 16 || m == 20) {
        EXPECT_EQ(kernel_line(text), kernel_line(old)) << deviation << ", M " << m;
      }
    }
  }
}

TEST_F(Tuned, AWrongKernelIsNeverPicked) {
  planted.seconds = [](const std::string& name, uint32_t) { return name.ends_with("_m6") ? 1e-6 : 20e-6; };
  planted.wrong = {"gemv_u4_f16_m6"};
  const mm::context context = make(60000, folder.path());
  const mm::weights w = pack(context, kN, kK, 1);
  EXPECT_EQ(prepare(desc_of(w, 1), 4), MARLIN_OK);
  for (int64_t m = 1; m <= 4; ++m) EXPECT_THAT(explained(desc_of(w, m)), Not(HasSubstr("kernel: gemv_u4_f16_m6"))) << m;
  EXPECT_EQ(planted.runs["gemv_u4_f16_m6"], 4) << "once for each M, to see what it computes";
}

TEST_F(Tuned, AKernelThatIsNotThereOrThatTheProbeRefusesIsNotPicked) {
  planted.seconds = [](const std::string& name, uint32_t) { return name.ends_with("_m6") ? 1e-6 : 20e-6; };
  planted.missing = {"gemv_u4_f16_m6"};
  {
    const mm::context context = make(60000, folder.path());
    const mm::weights w = pack(context, kN, kK, 1);
    EXPECT_EQ(prepare(desc_of(w, 1), 4), MARLIN_OK);
    EXPECT_THAT(explained(desc_of(w, 3)), HasSubstr("kernel: gemv_u4_f16_m3\n"));
  }
  // A device that computes nothing: the probe refuses every kernel, and none is left to serve.
  mm::BackendOptions options;
  options.tune_ms = 1000;
  const mm::context context(gpu_context(mock, {.probe = true}, options));
  const mm::weights w = pack(context, kN, kK, 1);
  EXPECT_EQ(prepare(desc_of(w, 1), 2), MARLIN_E_UNSUPPORTED);
}

mm::weights four_experts(const mm::context& context) {
  const auto values = abi_test::numbers(static_cast<size_t>(kN * kK), 3);
  std::vector<marlin_pack_desc> parts(4, abi_test::pack_desc(values, kN, kK));
  std::vector<const marlin_pack_desc*> pointers;
  for (const auto& part : parts) pointers.push_back(&part);
  marlin_weights* made = nullptr;
  EXPECT_OK(marlin_weights_pack, context.get(), pointers.data(), 4u, 4u, &made);
  return mm::weights(made);
}

/// Two experts a token. With sums, A has a row for each of them, as for down; else C has, as for gate and up.
marlin_gemm_desc mixture_of(marlin_gemm_desc desc, bool summed) {
  const int64_t tokens = desc.a.rows;
  desc.expert_ids = {nullptr, 0, tokens, 2, 0, MARLIN_I32, MARLIN_MEM_BUFFER};
  static char present;  // scales without a pointer are absent; nobody reads it
  if (summed) desc.expert_scales = {&present, 0, tokens, 2, 0, MARLIN_F32, MARLIN_MEM_BUFFER};
  (summed ? desc.a : desc.c).rows = 2 * tokens;
  return desc;
}

TEST_F(Tuned, MixturesOfExpertsAreClassesOfTheirOwn) {
  planted.seconds = [](const std::string& name, uint32_t) { return name.ends_with("_m6") ? 10e-6 : 20e-6; };
  const mm::context context = make(60000, folder.path());
  const mm::weights w = four_experts(context);
  const marlin_gemm_desc desc = mixture_of(desc_of(w, 8), false), summed = mixture_of(desc_of(w, 8), true);
  record.take();
  EXPECT_EQ(prepare(desc, 16), MARLIN_OK);
  int products = 0;
  for (const Command& command : record.take())
    if (command.arguments.contains(MARLIN_BUFFER_ROUTES) && command.arguments.contains(MARLIN_BUFFER_ARGS)) {
      EXPECT_EQ(value_of<ProductArgs>(command, MARLIN_BUFFER_ARGS).rows_of_a, 2) << "a row of A is that of a token";
      ++products;
    }
  EXPECT_GT(products, 0);
  EXPECT_THAT(explained(summed), Not(HasSubstr("why: tuned")));
  EXPECT_EQ(prepare(summed, 16), MARLIN_OK);
  EXPECT_THAT(explained(summed), HasSubstr("kernel: gemv_u4_f16_m6\n"));
  EXPECT_THAT(explained(summed), HasSubstr("why: tuned"));
  EXPECT_THAT(explained(desc), HasSubstr("kernel: gemv_u4_f16_m6\n"));
  EXPECT_THAT(explained(desc), HasSubstr("why: tuned"));
  EXPECT_THAT(explained(desc_of(pack(context, kN, kK, 1), 8)), Not(HasSubstr("why: tuned")));
}

TEST_F(Tuned, OfAMixtureAWrongKernelIsNeverPicked) {
  planted.seconds = [](const std::string& name, uint32_t) { return name.ends_with("_m6") ? 1e-6 : 20e-6; };
  planted.wrong = {"gemv_u4_f16_m6"};
  const mm::context context = make(60000, folder.path());
  const mm::weights w = four_experts(context);
  for (const bool summed : {false, true}) {
    EXPECT_EQ(prepare(mixture_of(desc_of(w, 1), summed), 4), MARLIN_OK);
    for (int64_t m = 1; m <= 4; ++m) {
      const std::string text = explained(mixture_of(desc_of(w, m), summed));
      EXPECT_THAT(text, Not(HasSubstr("kernel: gemv_u4_f16_m6"))) << m << (summed ? ", summed" : "");
      EXPECT_THAT(text, HasSubstr("tuned: yes")) << "another kernel was measured, M " << m;
    }
  }
  EXPECT_EQ(planted.runs["gemv_u4_f16_m6"], 8) << "once for each class, to see what it computes";
}

/// Else the experts of one set of ids would stay in caches while kernels are timed.
TEST_F(Tuned, TheIdsOfAMixtureTakeTurns) {
  const mm::context context = make(60000, folder.path());
  const mm::weights w = four_experts(context);
  EXPECT_EQ(prepare(mixture_of(desc_of(w, 1), false), 1), MARLIN_OK);
  EXPECT_EQ(planted.ids.size(), 16u);
  std::set<int32_t> experts;
  for (const auto& [place, ids] : planted.ids) {
    EXPECT_NE(ids[0], ids[1]) << "a token names no expert twice";
    experts.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(experts, (std::set<int32_t>{0, 1, 2, 3}));
}

/// Weights of act-order are of one class, however many slots they have. Scratch is that of the first.
TEST_F(Tuned, WeightsWhoseSlotsDifferStayInsideTheirScratch) {
  std::mt19937 random(20261128);
  for (int round = 0; round < 4; ++round) {
    const mm::context context = make(60000, "");
    std::vector<mm::weights> weights;
    std::vector<marlin_gemm_desc> products;
    std::vector<const marlin_gemm_desc*> pointers;
    for (const int64_t run : {int64_t{64}, static_cast<int64_t>(1 + random() % 8), int64_t{1}}) {
      weights.push_back(abi_test::act_order(context, kN, kK, run, random()));
      products.push_back(desc_of(weights.back(), 1));
    }
    std::set<int64_t> slots;
    for (const mm::weights& w : weights) slots.insert(layout_of(w).slots);
    EXPECT_GT(slots.size(), 1u) << "nothing differs";
    for (const marlin_gemm_desc& d : products) pointers.push_back(&d);
    EXPECT_OK(marlin_prepare, nullptr, pointers.data(), 3u, int64_t{6}, nullptr);
  }
  EXPECT_GT(planted.prepared, 100);
}

TEST_F(Tuned, ScratchOfEveryMIsPrepared) {
  for (const uint32_t best : {1u, 2u, 8u}) {
    planted.seconds = [best](const std::string& name, uint32_t splits) {
      return splits == best && !name.ends_with("_m1") ? 10e-6 : 20e-6;
    };
    const TemporaryFolder own;
    const mm::context context = make(60000, own.path());
    const mm::weights w = pack(context, kN, kK, 1);
    for (const int64_t max_m : {3, 12, 40, 70}) {
      uint64_t bytes = 0;
      EXPECT_EQ(prepare(desc_of(w, 1), max_m, &bytes), MARLIN_OK);
      for (int64_t m = 1; m <= max_m; ++m) {
        const std::string text = explained(desc_of(w, m)), key = "scratch_bytes: ";
        EXPECT_LE(std::stoull(text.substr(text.find(key) + key.size())), bytes) << "up to " << max_m << ", M " << m;
      }
    }
  }
}

/// The clock of the stopwatch runs on by a millisecond for each measurement.
TEST_F(Tuned, EndsInTime) {
  class Clock final : public mm::Stopwatch {
   public:
    double now() override { return now_; }
    Result<double> time(std::string_view, const std::function<Result<double>()>& work) override {
      now_ += 1e-3;
      ++times;
      return work();
    }
    int times = 0;

   private:
    double now_ = 0;
  };
  int measured[2] = {};
  for (const int longer : {0, 1}) {
    const auto clock = std::make_shared<Clock>();
    mm::BackendOptions options;
    options.tune_ms = longer != 0 ? 10000 : 5;
    options.stopwatch = clock;
    const mm::context context(gpu_context(mock, {.probe = false}, options));
    EXPECT_EQ(prepare(desc_of(pack(context, kN, kK, 1), 1), 64), MARLIN_OK);
    measured[longer] = clock->times;
  }
  EXPECT_LE(measured[0], 30) << "it may finish what it has begun";
  EXPECT_GT(measured[1], 2 * measured[0]);
}

TEST_F(Tuned, WhereMemoryIsNotUnifiedOperandsAreTheDevices) {
  device->change().unified_memory = false;
  planted.seconds = [](const std::string& name, uint32_t) { return name.ends_with("_m6") ? 10e-6 : 20e-6; };
  planted.wrong = {"gemv_u4_f16_m8"};
  const mm::context context = make(60000, folder.path());
  const mm::weights w = pack(context, kN, kK, 1);
  EXPECT_EQ(prepare(desc_of(w, 1), 3), MARLIN_OK);
  EXPECT_THAT(explained(desc_of(w, 3)), HasSubstr("kernel: gemv_u4_f16_m6\n"));
  EXPECT_EQ(planted.runs["gemv_u4_f16_m8"], 3);
  const auto copies = [&] {
    const auto commands = record.take();
    return std::count_if(commands.begin(), commands.end(), [](const Command& c) { return c.what == "copy"; });
  };
  EXPECT_GT(copies(), 0) << "of activations to the device, and of results back";
  device->change().unified_memory = true;
  const mm::context unified = make(60000, "");
  const mm::weights same = pack(unified, kN, kK, 1);
  record.take();
  EXPECT_EQ(prepare(desc_of(same, 1), 3), MARLIN_OK);
  EXPECT_EQ(copies(), 0);
}

TEST_F(Tuned, AForcedKernelIsNotTuned) {
  mm::BackendOptions options;
  options.kernel = "gemv_u4_f16_m4";
  options.tune_ms = 60000;
  const mm::context context(gpu_context(mock, {.probe = false}, options));
  const mm::weights w = pack(context, kN, kK, 1);
  EXPECT_EQ(prepare(desc_of(w, 1), 4), MARLIN_OK);
  EXPECT_TRUE(planted.runs.empty());
}

/// Every call of the device fails once: the preparation fails with the device's error or succeeds, and the next one succeeds.
TEST_F(Tuned, SurvivesADeviceThatFails) {
  for (const Fault fault : {Fault::error, Fault::memory, Fault::late}) {
    const mm::context context = make(60000, "");
    const mm::weights w = pack(context, kN, kK, 1);
    bool struck = true;
    for (int call = 1; struck && call < 400; call += 1 + call / 8) {
      faults.arm(fault, call);
      const marlin_status status = prepare(desc_of(w, 1), 3);
      struck = faults.struck;
      faults.disarm();
      EXPECT_TRUE(status == MARLIN_OK || status == MARLIN_E_DEVICE || status == MARLIN_E_MEMORY) << status;
      EXPECT_EQ(prepare(desc_of(w, 1), 3), MARLIN_OK) << kFaultNames[static_cast<int>(fault)] << " at call " << call;
    }
  }
}

}  // namespace
}  // namespace gpu_tune_tests
