// What a shader does outside of its memory in fast mode, where nothing but the processor looks: the host lives, and is told.
#include "support.h"

namespace metal_on_cpu {
namespace {

const Library& library() {
  static const auto all = Library::from_source(R"(#include <metal_stdlib>
using namespace metal;
kernel void above(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  y[i] = i;
}
kernel void below(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  y[-int(i)] = i;
}
kernel void far(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  y[i * 65537u] = i;
}
kernel void read(device int* y [[buffer(0)]], device const int* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i & 3] = x[i];
}
kernel void threadgroup_memory(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  threadgroup int all[16]; threadgroup int* t = all + i * 4096; *t = i;
  y[0] = all[0];
}
kernel void thread_array(device int* y [[buffer(0)]], device const int* n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  int a[8];
  for (int k = 0; k < 8; k++) a[k] = k;
  a[n[0] + (int(i) << 18)] = 1;
  y[0] = a[n[0]];
}
kernel void smashed(device int* y [[buffer(0)]], device const int* n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  int a[8];
  for (int k = 0; k < 8; k++) a[k] = k;
  for (uint k = 0; k < 9 + 64 * i; k++) a[k] = n[0] + i;
  y[0] = a[n[0]];
}
kernel void anywhere(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  ulong h = (i + 1) * 0x9e3779b97f4a7c15ul;
  h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9ul;
  *(device int*)(h & ~3ul) = 3;
}
kernel void misaligned(device uchar* y [[buffer(0)]]) {
  *(device float4*)(y + 4) = *(device const float4*)y;
}
kernel void against_const(device const int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  ((device int*)y)[i] = 3;
}
kernel void shared(device int* y [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup int all[64];
  all[t] = t;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) y[0] = all[63];
}
kernel void good(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = 2 * i; }
)");
  return all.value();
}

struct Stray {
  const char* kernel;
  uint32_t line;
  const char *kind, *other;  // of the findings that there may be
};

void PrintTo(const Stray& w, std::ostream* out) { *out << w.kernel; }

class FastMode : public ::testing::TestWithParam<Stray> {};

TEST_P(FastMode, SurvivesAnAccessOutsideAndSaysWhere) {
  for (const size_t bytes : {size_t{1024}, size_t{64}, size_t{20}}) {
    std::vector<int> y(bytes / 4), before(1000, 7), x(bytes / 4), after(1000, 7);
    const auto report =
        must(library().kernel(GetParam().kernel).dispatch().buffer(0, y).buffer(1, x).groups(64).threads(1024).run());
    ASSERT_FALSE(report.findings.empty());
    EXPECT_FALSE(report.complete);
    for (const Finding& f : report.findings) {
      EXPECT_TRUE(f.kind == GetParam().kind || f.kind == GetParam().other) << f.text();
      EXPECT_EQ(f.file + ":" + std::to_string(f.line), "shader.metal:" + std::to_string(GetParam().line)) << f.text();
      if (f.kind == std::string("out-of-bounds-write")) {
        EXPECT_EQ(f.buffer, 0);
        EXPECT_THAT(f.message, HasSubstr(" of buffer(0), which has " + std::to_string(bytes) + " bytes"));
      }
    }
    EXPECT_EQ(before, std::vector<int>(1000, 7));
    EXPECT_EQ(after, std::vector<int>(1000, 7));
  }
}

const Stray kStray[] = {{"above", 4, "out-of-bounds-write", ""},
                        {"below", 7, "out-of-bounds-write", ""},
                        {"far", 10, "out-of-bounds-write", ""},
                        {"read", 13, "out-of-bounds-read", ""},
                        {"threadgroup_memory", 16, "out-of-bounds-threadgroup-write", ""},
                        {"thread_array", 22, "out-of-bounds-thread-array", "stack-overflow"},
                        {"anywhere", 34, "wild-pointer", ""}};
INSTANTIATE_TEST_SUITE_P(Writes, FastMode, ::testing::ValuesIn(kStray), [](const auto& p) { return p.param.kernel; });

// Where the thread goes on with a smashed stack is not known, but it gets no further than its own fiber.
TEST(FastMode, SurvivesASmashedStack) {
  std::vector<int> y(64), n(64);
  const auto report = must(library().kernel("smashed").dispatch().buffer(0, y).buffer(1, n).groups(4).threads(1024).run());
  EXPECT_FALSE(report.findings.empty());
  const auto after = must(library().kernel("good").dispatch().buffer(0, y).groups(2).threads(32).run());
  EXPECT_EQ(after.text(), "");
  EXPECT_EQ(y[63], 126);
}

// Its processor does not tell the address of a vector that is misaligned.
TEST(FastMode, CallsMisalignedVectorsByTheirName) {
  std::vector<float> y(64);
  const auto report = must(library().kernel("misaligned").dispatch().buffer(0, y).run());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, "misaligned-access");
  EXPECT_EQ(report.findings[0].line, 37u);
}

TEST(FastMode, BuffersKeepTheMisalignmentOfTheHost) {
  alignas(64) std::array<int, 64> y{};
  for (const int first : {0, 1, 3, 8}) {
    const auto report = must(library().kernel("good").dispatch().buffer(0, y.data() + first, 32).threads(8).run());
    EXPECT_EQ(report.text(), "") << first;
    EXPECT_EQ(y[static_cast<size_t>(first) + 7], 14);
  }
}

// As on a GPU, and although checked mode has a finding.
TEST(FastMode, WritesThroughACastAwayFromConst) {
  std::vector<int> y(8);
  Dispatch dispatch = library().kernel("against_const").dispatch();
  dispatch.buffer(0, y).threads(8);
  EXPECT_THAT(dispatch.check().run().value().text(), HasSubstr("write-to-constant"));
  EXPECT_EQ(dispatch.check(false).run().value().text(), "");
  EXPECT_EQ(y, std::vector<int>(8, 3));
}

// What a checked dispatch has recorded of threadgroup memory is of no concern to the next one, even if a fast one is between.
TEST(FastMode, LeavesNoHistoryToTheNextCheckedDispatch) {
  std::vector<int> y(64);
  const auto text = [&](const char* kernel, uint32_t groups, bool checked) {
    const auto report = library().kernel(kernel).dispatch().buffer(0, y).groups(groups).threads(64).check(checked).run();
    return report ? report.value().text() : report.message();
  };
  text("shared", 6, true);  // of several threadgroups, which all write y[0]
  EXPECT_EQ(text("good", 1, false), "");
  EXPECT_EQ(text("shared", 1, true), "");
}

TEST(CheckedMode, RefusesBuffersThatNoSlotHolds) {
  int one = 0;
  const auto report = library().kernel("good").dispatch().buffer(0, &one, size_t{1} << 33).check(true).run();
  EXPECT_THAT(report.message(), HasSubstr("a buffer has 8589934592 bytes; less than 8589934592 are possible"));
}

}  // namespace
}  // namespace metal_on_cpu
