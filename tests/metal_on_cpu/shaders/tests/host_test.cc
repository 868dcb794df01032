// What a framework that runs hosts of Metal asks of the test-bed: memory by address, and what kernels say of themselves.
#include <sys/mman.h>

#include "support.h"

namespace metal_on_cpu {
namespace {

constexpr const char* kSource = R"(#include <metal_stdlib>
using namespace metal;
struct Places { device float* from; device float* to; };
kernel void by_address(constant Places& places [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  places.to[i] = places.from[i] * 2;
}
kernel void twice(device float4* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] *= 2; }
kernel void tiled(device float* y [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[100];
  threadgroup uint count;
  for (uint k = 0; k < n; ++k) tile[(i + k) % 100] = y[k];
  if (i == 0) count = n;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = tile[i] + count;
}
kernel void fill_some(device float* y [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  if (i < n) y[i] = 1;
}
)";

class Hosts : public ::testing::Test {
 protected:
  Hosts() : library(Library::from_source(kSource)) {}
  Report run(Dispatch& dispatch) {
    auto report = dispatch.check(checked).run();
    EXPECT_TRUE(report.ok()) << report.message();
    return report.ok() ? report.take() : Report{};
  }
  Dispatch by_address(float* from, float* to) {
    places[0] = from, places[1] = to;
    Dispatch dispatch = library.value().kernel("by_address").dispatch();
    dispatch.buffer(0, static_cast<void*>(places), sizeof places).groups(1).threads(8);
    return dispatch;
  }

  Result<Library> library;
  bool checked = true;
  float* places[2] = {};
};

TEST_F(Hosts, ResidentMemoryIsReachedByItsAddress) {
  for (const bool mode : {false, true}) {
    checked = mode;
    std::vector<float> from(8, 3), to(8);
    Dispatch dispatch = by_address(from.data(), to.data());
    EXPECT_EQ(run(dispatch.resident(from.data(), 32).resident(to.data(), 32)).text(), "");
    EXPECT_EQ(to, std::vector<float>(8, 6));
  }
}

TEST_F(Hosts, WhatIsNotResidentIsAWildPointer) {
  std::vector<float> from(8, 3), to(8);
  Dispatch dispatch = by_address(from.data(), to.data());
  EXPECT_THAT(run(dispatch.resident(from.data(), 32)).text(), HasSubstr("wild-pointer"));
  EXPECT_EQ(to, std::vector<float>(8));
}

TEST_F(Hosts, ResidentMemoryHasBounds) {
  std::vector<float> from(8, 3), to(8);
  Dispatch small = by_address(from.data(), to.data());
  EXPECT_THAT(run(small.resident(from.data(), 28).resident(to.data(), 32)).text(), HasSubstr("reads 4 bytes at address"));
  Dispatch straddling = by_address(from.data(), to.data());
  EXPECT_THAT(run(straddling.resident(from.data(), 30).resident(to.data(), 32)).text(), HasSubstr("out-of-bounds-read"));
}

TEST_F(Hosts, ABufferThatNoThreadWritesMayBeReadOnlyMemory) {
  constexpr size_t kBytes = 4096;
  void* const page = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const uint32_t none = 0;
  for (const bool mode : {false, true}) {
    checked = mode;
    Dispatch dispatch = library.value().kernel("fill_some").dispatch();
    EXPECT_EQ(run(dispatch.buffer(0, page, kBytes).bytes(1, &none, sizeof none).groups(1).threads(8)).text(), "");
  }
  munmap(page, kBytes);
}

TEST_F(Hosts, BuffersThatAreResidentAsWellAreOneMemory) {
  std::vector<float> all(16, 3);
  places[0] = all.data(), places[1] = all.data() + 8;
  Dispatch dispatch = by_address(all.data(), all.data() + 8);
  dispatch.buffer(4, all.data(), 64).resident(all.data(), 64);
  EXPECT_EQ(run(dispatch).text(), "");
  EXPECT_EQ(all[15], 6);
}

TEST_F(Hosts, ABufferThatBeginsAtAnOddAddressIsMisaligned) {
  alignas(256) float y[12] = {};
  const auto bound_at = [&](int first) {
    Dispatch dispatch = library.value().kernel("twice").dispatch();
    dispatch.buffer(0, static_cast<void*>(y + first), 32).threads(2);
    return run(dispatch).text();
  };
  EXPECT_EQ(bound_at(4), "");
  EXPECT_THAT(bound_at(1), HasSubstr("misaligned-access"));
}

TEST_F(Hosts, KernelsSayWhatTheyNeed) {
  const auto signature = must(library.value().kernel("tiled").signature());
  EXPECT_EQ(signature.arguments.size(), 2u);
  EXPECT_EQ(signature.threadgroup_memory, 404u);
  EXPECT_EQ(library.value().kernel("twice").signature().value().threadgroup_memory, 0u);
}

TEST_F(Hosts, ArgumentsThatDependOnConstantsAreNoErrors) {
  auto optional = Library::from_source(
      "constant bool kWith [[function_constant(0)]];\n"
      "kernel void k(device float* y [[buffer(0)]],\n"
      "              device float* x [[buffer(1), function_constant(kWith)]]) { y[0] = 1; }\n");
  EXPECT_EQ(optional.value().compile_errors(), "");
  auto wrong = Library::from_source(
      "constant bool kWith [[function_constant(0)]];\n"
      "kernel void k(device float* y [[buffer(0)]]) { y[0] = nothing; }\n");
  EXPECT_THAT(wrong.value().compile_errors(), HasSubstr("shader.metal:2"));
}

}  // namespace
}  // namespace metal_on_cpu
