// Shaders that never end: the time limit of fast mode, and what is left behind.
#include <ctime>

#include "support.h"

namespace metal_on_cpu {
namespace {

const Library& library() {
  static const auto all = Library::from_source(R"(#include <metal_stdlib>
using namespace metal;
kernel void alone(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float x = y[i];
  while (x >= 0) x = x * 0.5f + 1;
  y[i] = x;
}
kernel void at_collectives(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float x = y[i];
  while (x >= 0) x = simd_sum(x) * 0.01f;
  y[i] = x;
}
kernel void at_barriers(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  while (y[i] >= 0) threadgroup_barrier(mem_flags::mem_device);
}
kernel void in_functions_of_the_host(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float x = y[i];
  while (x >= 0) x = precise::exp(-x);
  y[i] = x;
}
kernel void in_one_thread_of_the_last_group(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float x = y[i];
  while (i == 1023 && x >= 0) x = x * 0.5f + 1;
  y[i] = 2;
}
kernel void ends(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = simd_sum(float(i % 32)); }
)");
  return all.value();
}

Dispatch dispatch_of(const std::string& kernel, std::vector<float>& y) {
  return library().kernel(kernel).dispatch().buffer(0, y).groups(16).threads(64);
}

struct sigaction disposition() {
  struct sigaction now = {};
  sigaction(SIGXCPU, nullptr, &now);
  return now;
}

class Endless : public ::testing::TestWithParam<const char*> {};

TEST_P(Endless, IsEndedWithAFindingAndTheHostThreadGoesOn) {
  for (const bool checked : {false, true}) {
    std::vector<float> y(1024, 1);
    auto report = must(dispatch_of(GetParam(), y).check(checked).time_limit(0.05).run());
    ASSERT_FALSE(report.findings.empty());
    for (const Finding& f : report.findings) {
      EXPECT_EQ(f.kind, "time-limit");
      EXPECT_EQ(f.kernel, GetParam());
      EXPECT_EQ(f.file, "shader.metal") << f.text();
      EXPECT_GE(f.line, 3u);
      EXPECT_THAT(f.message, HasSubstr("0.05 s"));
    }
    EXPECT_FALSE(report.complete);
    EXPECT_GE(report.cpu_seconds, 0.05);

    auto after = must(dispatch_of("ends", y).check(checked).time_limit(60).run());
    EXPECT_EQ(after.text(), "");
    EXPECT_TRUE(after.complete);
    EXPECT_EQ(y, std::vector<float>(1024, 496));
  }
  EXPECT_EQ(disposition().sa_handler, SIG_DFL);
}

INSTANTIATE_TEST_SUITE_P(Loops, Endless,
                         ::testing::Values("alone", "at_collectives", "at_barriers", "in_functions_of_the_host",
                                           "in_one_thread_of_the_last_group"),
                         [](const auto& test) { return std::string(test.param); });

// A barrier in each turn makes a step long, so that the budget of steps is far away.
TEST(TimeLimit, EndsWhatHasManyStepsLeft) {
  std::vector<float> y(1024, 1);
  auto report = must(dispatch_of("at_barriers", y).check().time_limit(0.05).run());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, "time-limit");
  auto steps = must(dispatch_of("at_barriers", y).check().step_budget(1000).run());
  EXPECT_EQ(steps.findings.at(0).kind, "step-budget");
  EXPECT_THAT(steps.findings.at(0).message, HasSubstr("1000 basic blocks"));
}

TEST(TimeLimit, LeavesWhatTheOtherGroupsWrote) {
  std::vector<float> y(1024, 1);
  auto report = must(dispatch_of("in_one_thread_of_the_last_group", y).time_limit(0.02).run());
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 960), std::vector<float>(960, 2));
  EXPECT_EQ(report.findings.at(0).threadgroup.x, 15u);
  EXPECT_EQ(report.findings.at(0).thread.x, 63u);
}

// The host's own handler gets the signals that are not of the timer, and has its place back afterwards.
volatile sig_atomic_t g_own = 0;
TEST(TimeLimit, KeepsTheHostsHandlerOfItsSignal) {
  struct sigaction own = {}, before = {};
  own.sa_handler = [](int) { g_own = g_own + 1; };
  sigaction(SIGXCPU, &own, &before);
  sigset_t blocked, mask;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGXCPU);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  raise(SIGXCPU);  // waits until the dispatch lets this signal through
  std::vector<float> y(1024, 1);
  auto report = dispatch_of("ends", y).time_limit(60).run();
  EXPECT_EQ(g_own, 1);
  EXPECT_EQ(disposition().sa_handler, own.sa_handler);
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, &mask, &now);
  EXPECT_TRUE(sigismember(&now, SIGXCPU));
  sigaction(SIGXCPU, &before, nullptr);
}

}  // namespace
}  // namespace metal_on_cpu
