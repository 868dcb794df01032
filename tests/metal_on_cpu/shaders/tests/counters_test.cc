// Counters against numbers found by hand, and results that do not depend on other threads.
#include "support.h"

namespace metal_on_cpu {
namespace {

Library library() {
  auto l = Library::from_source(R"(
#include <metal_stdlib>
using namespace metal;
constant int which [[function_constant(0)]];
kernel void copy4(device const float4* x [[buffer(0)]], device float4* y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
kernel void strided(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = x[16 * i] * 2.0f; }
kernel void column(device float* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float a[1024];
  a[32 * t] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = a[32 * t];
}
kernel void value(device int* y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = which; }
)");
  EXPECT_TRUE(l.ok()) << l.message();
  return l.take();
}

TEST(Counters, OfACopy) {
  std::vector<float> x(512), y(512);
  auto r =
      must(library().kernel("copy4").dispatch().buffer(0, std::as_const(x)).buffer(1, y).groups(2).threads(64).count().run());
  const Counters& c = r.counters;
  EXPECT_EQ(c.threads, 128u);
  EXPECT_EQ(c.buffers.at(0).bytes_read, 2048u);
  EXPECT_EQ(c.buffers.at(0).unique_bytes_read, 2048u);
  EXPECT_EQ(c.buffers.at(0).simdgroup_lines, 32u);
  EXPECT_EQ(c.buffers.at(0).unique_lines, 32u);
  EXPECT_EQ(c.buffers.at(1).bytes_written, 2048u);
}

TEST(Counters, OfStridedReadsAndArithmetic) {
  std::vector<float> x(512), y(32);
  auto r = must(library().kernel("strided").dispatch().buffer(0, std::as_const(x)).buffer(1, y).threads(32).count().run());
  const Counters& c = r.counters;
  EXPECT_EQ(c.buffers.at(0).bytes_read, 128u);
  EXPECT_EQ(c.buffers.at(0).simdgroup_lines, 32u);  // each lane a line of its own
  EXPECT_EQ(c.operations.count("float add") + c.operations.count("float multiply"), 1u);
  EXPECT_EQ(c.operations.count("float add") ? c.operations.at("float add") : c.operations.at("float multiply"), 32u);
}

TEST(Counters, OfThreadgroupMemory) {
  std::vector<float> y(32);
  auto r = must(library().kernel("column").dispatch().buffer(1, y).threads(32).count().run());
  EXPECT_EQ(r.text(), "");
  EXPECT_EQ(r.counters.threadgroup_bytes_written, 128u);
  EXPECT_EQ(r.counters.threadgroup_memory, 4096u);
  EXPECT_EQ(r.counters.threadgroup_barriers, 1u);
}

TEST(FunctionConstants, OfTwoThreadsDoNotMeet) {
  const Library l = library();
  const auto fill = [&](int value, bool& right) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<int> y(64);
      auto r = l.kernel("value")
                   .constant(0, int64_t{value})
                   .dispatch()
                   .buffer(1, y)
                   .groups(2)
                   .threads(32)
                   .check(repeat % 2 == 0)
                   .run();
      right = right && r.ok() && r.value().text().empty() && y == std::vector<int>(64, value);
    }
  };
  bool one = true, two = true;
  std::thread other(fill, -5, std::ref(two));
  fill(7, one);
  other.join();
  EXPECT_TRUE(one && two);
}

}  // namespace
}  // namespace metal_on_cpu
