// What a host hears of its work: the steps of products with their times, and that a stream has ended.
#include <time.h>

#include <thread>

#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

struct Heard {
  marlin_trace_event event;
  std::string kernel, step;
};

class Trace : public testing::Test {
 protected:
  static marlin_context_desc desc_for(std::vector<Heard>& heard) {
    auto desc = mm::make<marlin_context_desc>();
    desc.backend = MARLIN_BACKEND_CPU;
    desc.threads = 2;
    desc.user = &heard;
    desc.trace = [](void* user, const marlin_trace_event* event) {
      static_cast<std::vector<Heard>*>(user)->push_back({*event, event->kernel, event->step});
    };
    return desc;
  }
  std::vector<std::string> steps() const {
    std::vector<std::string> all;
    for (const Heard& one : heard) all.push_back(one.step);
    return all;
  }

  std::vector<Heard> heard;
  const mm::context context{desc_for(heard)};
};

TEST_F(Trace, TellsTheStepsOfAProduct) {
  const mm::weights w = quantized(context, 40, 96);
  const mm::stream stream(context);
  EXPECT_TRUE(heard.empty()) << "packing is no product";
  for (marlin_stream* const on : {static_cast<marlin_stream*>(nullptr), stream.get()}) {
    Product product(w, 3);
    heard.clear();
    const uint64_t before = now_ns();
    EXPECT_OK(marlin_gemm, on, &product.desc);
    const uint64_t after = now_ns();
    EXPECT_EQ(steps(), (std::vector<std::string>{"prepare A", "multiply"}));
    uint64_t last = before;
    for (const Heard& one : heard) {
      EXPECT_EQ(one.event.struct_size, sizeof(marlin_trace_event));
      EXPECT_TRUE(contains(explained(product.desc), ("kernel: " + one.kernel + "\n").c_str())) << one.kernel;
      EXPECT_TRUE(last <= one.event.begin_ns && one.event.begin_ns <= one.event.end_ns && one.event.end_ns <= after);
      EXPECT_EQ(one.event.device_ns, 0u);
      EXPECT_EQ(one.event.together, 1u);
      EXPECT_EQ(one.event.rows, 3);
      EXPECT_EQ(one.event.n, 40);
      EXPECT_EQ(one.event.k, 96);
      EXPECT_EQ(one.event.stream, on);
      last = one.event.end_ns;
    }
  }
}

TEST_F(Trace, TellsWhatProductsTakeTogether) {
  const mm::weights v = quantized(context, 40, 96), w = quantized(context, 64, 96, 2);
  Product one(v, 2), other(w, 2);
  other.desc.a = one.desc.a;
  other.desc.epilogue = MARLIN_EPILOGUE_SWIGLU;
  other.desc.c.cols = 32;
  const marlin_gemm_desc* const descs[] = {&one.desc, &other.desc};
  EXPECT_OK(marlin_gemm_many, nullptr, descs, 2u);
  EXPECT_EQ(steps(), (std::vector<std::string>{"prepare A", "multiply", "multiply", "finish"})) << "A is prepared once";
  EXPECT_EQ(heard[0].event.together, 1u);
  for (const int i : {1, 2}) EXPECT_EQ(heard[static_cast<size_t>(i)].event.together, 2u);
  EXPECT_EQ(heard[1].event.begin_ns, heard[2].event.begin_ns);
  EXPECT_EQ(heard[1].event.end_ns, heard[2].event.end_ns);
  EXPECT_EQ(heard[2].event.n, 64);
}

TEST_F(Trace, TellsOfExpertsAndOfUnpacking) {
  const auto values = numbers(4 * 8 * 64, 1);
  std::vector<marlin_pack_desc> parts(4, pack_desc(values, 8, 64));
  const mm::weights experts = mm::pack(context, parts, 4);
  const std::vector<int32_t> ids = {0, 3, 3, 1};
  const std::vector<float> scales(4, 0.5f), a = numbers(2 * 64, 3);
  std::vector<float> c(2 * 8), w(8 * 64);
  auto desc = mm::make<marlin_gemm_desc>();
  desc.weights = experts.get();
  desc.a = mm::matrix_view(a.data(), 2, 64);
  desc.c = mm::matrix_view(c.data(), 2, 8);
  desc.expert_ids = mm::matrix_view(ids.data(), 2, 2);
  desc.expert_scales = mm::matrix_view(scales.data(), 2, 2);
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  int64_t rows = 0, sums = 0;
  for (const Heard& one : heard) {
    if (one.step == "multiply") rows += one.event.rows;
    if (one.step == "sum experts") sums += one.event.rows;
  }
  EXPECT_EQ(rows, 4) << "each routed row";
  EXPECT_EQ(sums, 4);
  heard.clear();
  mm::unpack(experts, mm::matrix_view(w.data(), 8, 64));
  EXPECT_EQ(steps(), (std::vector<std::string>{"unpack"}));
  EXPECT_EQ(heard[0].event.rows, 8);
}

TEST_F(Trace, IsNotInVersion1) {
  marlin_context_desc old = desc_for(heard);
  old.struct_size = 64;
  const mm::context silent(old);
  const mm::weights w = quantized(silent, 8, 32);
  Product product(w, 1);
  EXPECT_OK(marlin_gemm, nullptr, &product.desc);
  EXPECT_TRUE(heard.empty());
}

struct Ended {
  int calls = 0;
  marlin_status status = 1;
  std::thread::id thread{};
  static void done(void* user, marlin_status status) {
    auto& self = *static_cast<Ended*>(user);
    ++self.calls;
    self.status = status;
    self.thread = std::this_thread::get_id();
  }
};

TEST(Notify, OfTheCpuIsAtOnceAndOnce) {
  const mm::context context(MARLIN_BACKEND_CPU);
  Ended ended;
  {
    mm::stream stream(context);
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "done is NULL", marlin_stream_notify, stream.get(), nullptr, &ended);
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is NULL", marlin_stream_notify, nullptr, &Ended::done, &ended);
    EXPECT_EQ(ended.calls, 0);
    const mm::weights w = quantized(context, 8, 32);
    Product product(w, 1);
    mm::gemm(stream, product.desc);
    stream.notify(&Ended::done, &ended);
    EXPECT_EQ(ended.calls, 1);
    EXPECT_EQ(ended.status, MARLIN_OK);
    EXPECT_EQ(ended.thread, std::this_thread::get_id());
  }
  EXPECT_EQ(ended.calls, 1);
}

/// The numbers of epilogues: what is refused, and that the default of each is what it says.
class Gates : public testing::Test {
 protected:
  std::vector<float> result(void (*change)(marlin_gemm_desc&)) {
    Product product(weights, 2);
    product.desc.c.cols = 32;
    change(product.desc);
    EXPECT_OK(marlin_gemm, nullptr, &product.desc);
    return product.c;
  }
  void fails(marlin_status status, const char* mentioned, void (*change)(marlin_gemm_desc&)) {
    Product product(weights, 2);
    product.desc.c.cols = 32;
    change(product.desc);
    EXPECT_FAILS(status, mentioned, marlin_gemm, nullptr, &product.desc);
    EXPECT_TRUE(product.untouched());
  }
  const mm::context context{MARLIN_BACKEND_CPU};
  const mm::weights weights = quantized(context, 64, 256);
};

TEST_F(Gates, NamesAreNumbers) {
  const auto named = result([](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SWIGLU_OAI; });
  const auto numbers = result([](marlin_gemm_desc& d) {
    d.epilogue = MARLIN_EPILOGUE_SWIGLU;
    d.gate_limit = d.up_limit = 7, d.gate_alpha = 1.702f, d.up_offset = 1;
  });
  EXPECT_EQ(named, numbers);
  const auto plain = result([](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SWIGLU; });
  const auto wide = result([](marlin_gemm_desc& d) {
    d.epilogue = MARLIN_EPILOGUE_SWIGLU;
    d.gate_limit = d.up_limit = 1e30f, d.gate_alpha = 1;
  });
  EXPECT_EQ(plain, wide);
  EXPECT_NE(plain, named);
}

TEST_F(Gates, AreChecked) {
  fails(MARLIN_E_ARGUMENT, "gate_limit is 0, expected a finite number above 0",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SITU, d.up_limit = 1; });
  fails(MARLIN_E_ARGUMENT, "up_limit is -1, expected a finite number",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SWIGLU, d.up_limit = -1; });
  fails(MARLIN_E_ARGUMENT, "gate_alpha is inf, expected a finite number",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SWIGLU, d.gate_alpha = INFINITY; });
  fails(MARLIN_E_ARGUMENT, "up_offset is nan",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SWIGLU, d.up_offset = NAN; });
  fails(MARLIN_E_UNSUPPORTED, "gate_alpha is 2, expected 0: epilogue 7 has none",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SITU, d.gate_limit = d.up_limit = 1, d.gate_alpha = 2; });
  fails(MARLIN_E_UNSUPPORTED, "gate_limit is 7, expected 0: epilogue 6 has none",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SWIGLU_OAI, d.gate_limit = 7; });
  fails(MARLIN_E_UNSUPPORTED, "gate_limit is 7, expected 0: epilogue 1 has none",
        [](marlin_gemm_desc& d) { d.epilogue = MARLIN_EPILOGUE_SILU, d.gate_limit = 7, d.c.cols = 64; });
}

}  // namespace
}  // namespace abi_test
