// The GPU backend without memory, over a device that has memory and computes nothing.
#include "memory_calls.h"

namespace gpu_memory_tests {
namespace {

class GpuMemory : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, GpuMemory, testing::Bool(),
                         [](const auto& info) { return info.param ? "unified" : "discrete"; });

TEST_P(GpuMemory, EveryFailureIsTypedHarmlessAndLosesNothing) {
  Operands operands;
  const auto attempt = [&](int64_t n) {
    Record record;
    auto device = std::make_shared<IdleDevice>(record);
    device->change().unified_memory = GetParam();
    marlin_status status = MARLIN_OK;
    {
      const mm::context context(gpu_context(std::move(device), {.probe = false}));
      status = run_all(context, operands, n);
      if (status != MARLIN_OK) EXPECT_EQ(run_all(context, operands, -1), MARLIN_OK) << "after allocation " << n << " failed";
    }
    EXPECT_EQ(record.buffers, 0);
    EXPECT_EQ(record.streams, 0);
    return status;
  };
  fail_allocations(attempt);
}

}  // namespace
}  // namespace gpu_memory_tests
