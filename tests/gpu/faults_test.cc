// Every call of the device, failing in every way, in every public operation: the error reaches the caller, nothing leaks, and
// the context serves the next caller.
#include "test.h"
#include "world.h"

namespace gpu_faults_tests {
namespace {

using namespace device_test;

/// One public operation with all that it needs; returns the status of the first call that failed.
struct Operation {
  const char* name;
  std::function<marlin_status(const mm::context&)> run;
  const char* call = "allocate";  ///< one of the device's that it makes where memory is unified
};

#define RETURN_IF_FAILED(call) \
  if (const marlin_status s_ = (call); s_ != MARLIN_OK) return s_

/// Of what is packed: few columns, so that K is split.
constexpr int64_t kN = 16;

marlin_status pack(const mm::context& context, int64_t n, int64_t k, mm::weights& out) {
  static const auto values = abi_test::numbers(kN * 2048, 3);
  const auto d = abi_test::pack_desc(values, n, k);
  const marlin_pack_desc* const parts[] = {&d};
  return marlin_weights_pack(context.get(), parts, 1, 0, out.out(), nullptr);
}

marlin_status make_buffer(const mm::context& context, uint64_t bytes, mm::buffer& out, marlin_matrix& view, int64_t rows,
                          int64_t cols, marlin_dtype dtype) {
  RETURN_IF_FAILED(marlin_buffer_create(context.get(), bytes, out.out(), nullptr));
  view = {};
  view.data = out.get();
  view.rows = rows;
  view.cols = cols;
  view.dtype = dtype;
  view.memory = MARLIN_MEM_BUFFER;
  return MARLIN_OK;
}

/// A product on a stream: prepared if `prepare`, with INT8 activations, split K and a finish. In scratch of the host's own on
/// its device, if `scratch`.
marlin_status on_stream(const mm::context& context, bool prepare, bool wait, bool scratch = false) {
  mm::weights w;
  mm::buffer a_memory, c_memory;
  mm::stream stream;
  auto d = mm::make<marlin_gemm_desc>();
  RETURN_IF_FAILED(pack(context, kN, 2048, w));
  RETURN_IF_FAILED(make_buffer(context, 2 * 2048 * 4, a_memory, d.a, 2, 2048, MARLIN_F32));
  RETURN_IF_FAILED(make_buffer(context, 2 * kN * 4, c_memory, d.c, 2, kN, MARLIN_F32));
  constexpr int64_t kScratch = 1 << 20;
  Record record;
  HostBuffer theirs(record, nullptr, kScratch);
  auto s = mm::make<marlin_stream_desc>();
  if (scratch) s.scratch = {&theirs, 0, 1, kScratch, 0, MARLIN_U8, MARLIN_MEM_METAL};
  RETURN_IF_FAILED(marlin_stream_create(context.get(), &s, stream.out(), nullptr));
  d.weights = w.get();
  d.compute = MARLIN_COMPUTE_INT8;
  const marlin_gemm_desc* const descs[] = {&d};
  if (prepare) RETURN_IF_FAILED(marlin_prepare(stream.get(), descs, 1, 4, nullptr, nullptr));
  RETURN_IF_FAILED(marlin_gemm(stream.get(), &d, nullptr));
  RETURN_IF_FAILED(marlin_gemm(stream.get(), &d, nullptr));
  RETURN_IF_FAILED(marlin_weights_unpack(stream.get(), w.get(), nullptr, 0, &d.a, nullptr));
  if (wait) return marlin_stream_wait(stream.get(), UINT64_MAX, nullptr);
  RETURN_IF_FAILED(marlin_stream_flush(stream.get(), nullptr));
  return marlin_stream_flush(stream.get(), nullptr);
}

enum class Operands : uint8_t { host, pages, native };

/// Floats that begin at a page, of the device's 4 KiB.
struct Pages {
  explicit Pages(size_t count) : data(static_cast<float*>(std::aligned_alloc(4096, count * sizeof(float)))) {
    std::fill_n(data, count, 1.0f);
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  float* const data;
};

/// A product and rows by their ids, both without a stream.
marlin_status at_once(const mm::context& context, Operands operands) {
  constexpr int64_t kRows = 64;  // whole pages of A and of C
  mm::weights w;
  RETURN_IF_FAILED(pack(context, kN, 2048, w));
  const Pages a(kRows * 2048 + 1024), c(kRows * kN + 1024);
  const int64_t skip = operands == Operands::pages ? 0 : 1;
  Record record;
  HostBuffer theirs(record, nullptr, kRows * kN * 4), their_ids(record, nullptr, 2 * 4);
  std::vector<int32_t> ids = {5, 6};
  std::memcpy(their_ids.data(), ids.data(), 2 * 4);
  auto d = mm::make<marlin_gemm_desc>();
  d.weights = w.get();
  d.a = mm::matrix_view(a.data + skip, kRows, 2048);
  d.c = mm::matrix_view(c.data + skip, kRows, kN);
  marlin_matrix list = mm::matrix_view(ids.data(), 2, 1);
  if (operands == Operands::native) {
    d.c.data = &theirs;
    list.data = &their_ids;
    d.c.memory = list.memory = MARLIN_MEM_METAL;
  }
  RETURN_IF_FAILED(marlin_gemm(nullptr, &d, nullptr));
  const marlin_matrix out = mm::matrix_view(a.data + skip, 2, 2048);
  return marlin_weights_unpack(nullptr, w.get(), &list, 0, &out, nullptr);
}

const Operation kOperations[] = {
    {"stream", [](const mm::context& c) { return on_stream(c, false, true); }},
    {"prepared stream", [](const mm::context& c) { return on_stream(c, true, true); }},
    {"flushed stream", [](const mm::context& c) { return on_stream(c, false, false); }},
    {"stream, native scratch", [](const mm::context& c) { return on_stream(c, true, true, true); }, "wrap_native"},
    {"at once", [](const mm::context& c) { return at_once(c, Operands::host); }},
    {"at once, whole pages", [](const mm::context& c) { return at_once(c, Operands::pages); }, "wrap"},
    {"at once, native memory", [](const mm::context& c) { return at_once(c, Operands::native); }, "wrap_native"},
};
constexpr int kOperationCount = std::size(kOperations);

marlin_status expected(const FaultPlan& plan) {
  return plan.fault == Fault::memory ? MARLIN_E_MEMORY : plan.fault == Fault::timeout ? MARLIN_E_TIMEOUT : MARLIN_E_DEVICE;
}

class Faults : public testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(Faults, ReachTheCallerAndLeaveNothingBehind) {
  const Operation& operation = kOperations[std::get<0>(GetParam())];
  const auto fault = static_cast<Fault>(std::get<1>(GetParam()));
  const bool unified = std::get<2>(GetParam());
  std::set<std::string> struck;
  for (int n = 1;; ++n) {
    SCOPED_TRACE(std::string(operation.name) + ", " + kFaultNames[static_cast<int>(fault)] + " at call " + std::to_string(n));
    ASSERT_LT(n, 500) << "never ends";
    Record record;
    FaultPlan faults;
    bool over = false;
    {
      auto device = std::make_shared<IdleDevice>(record);
      device->change().unified_memory = unified;
      mm::context context(gpu_context(std::make_shared<testing::NiceMock<MockDevice>>(device, faults), {.probe = false}));
      faults.arm(fault, n);
      const marlin_status status = operation.run(context);
      over = faults.calls < n;
      if (!faults.struck) {
        EXPECT_EQ(status, MARLIN_OK);
      } else {
        struck.insert(faults.where);
        // Nobody asks after the last flush whether what was submitted has failed.
        // What is not wrapped is copied, and memory is asked for again when kept scratch was freed.
        const bool again = fault == Fault::memory && faults.where == "allocate" && faults.calls > n;
        const bool ignored = fault == Fault::late || faults.where == "wrap" || again;
        if (status != MARLIN_OK || !ignored) {
          EXPECT_EQ(status, expected(faults)) << faults.where;
        }
      }
      const bool lost = faults.lost;
      faults.disarm();
      if (!lost) {
        EXPECT_EQ(operation.run(context), MARLIN_OK) << "after a failure in " << faults.where;
      }
    }
    EXPECT_EQ(record.buffers, 0) << faults.where;
    EXPECT_EQ(record.streams, 0) << faults.where;
    if (over) break;
  }
  if (fault == Fault::error) {
    for (const char* call : {"allocate", "kernel", "stream", "dispatch", "barrier", "commit"})
      EXPECT_TRUE(struck.contains(call)) << call << " was never reached";
    EXPECT_TRUE(struck.contains(unified ? operation.call : "copy")) << "not reached";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Combine(testing::Range(0, kOperationCount), testing::Range(0, 5), testing::Bool()),
                         [](const auto& info) {
                           std::string name = kOperations[std::get<0>(info.param)].name;
                           std::erase_if(name, [](char c) { return c == ' ' || c == ','; });
                           return name + "_" + kFaultNames[std::get<1>(info.param)] +
                                  (std::get<2>(info.param) ? "" : "_discrete");
                         });

TEST(ALostDevice, SaysSoForEver) {
  World world;
  mm::weights w;
  ASSERT_EQ(pack(world.context, kN, 64, w), MARLIN_OK);
  world.faults.arm(Fault::lost, 1);
  for (int i = 0; i < 3; ++i) {
    mm::buffer buffer;
    EXPECT_FAILS(MARLIN_E_DEVICE, "device failed", marlin_buffer_create, world.context.get(), uint64_t{8}, buffer.out());
    mm::stream stream;
    EXPECT_FAILS(MARLIN_E_DEVICE, "device failed", marlin_stream_create, world.context.get(), nullptr, stream.out());
  }
}

}  // namespace
}  // namespace gpu_faults_tests
