// The choice of the fastest way of reading memory, with planted rates.
#include <sys/resource.h>

#include "test.h"
#include "tools/cpu_info.h"
#include "tools/machine_limits.h"
#include "tools/read_kernels.h"

namespace metal_marlin::tools {
namespace {

const auto kNever = [] { return false; };

TEST(Fastest, HasTheLargestMedianAndNotTheLargestRate) {
  const std::vector<std::vector<double>> planted = {{20, 21, 20, 20, 22}, {99, 17, 18, 99, 17}, {22, 22, 23, 3, 23}};
  std::vector<size_t> rounds(planted.size());
  const auto rate = [&](size_t i) { return planted[i][rounds[i]++]; };
  EXPECT_EQ(fastest(planted.size(), 5, rate, kNever), 2u);
}

TEST(Fastest, OfEqualsIsTheFirst) {
  EXPECT_EQ(fastest(3, 4, [](size_t i) { return i == 0 ? 1.0 : 2.0; }, kNever), 1u);
}

TEST(Fastest, AsksInTurnsSoThatASlowMinuteSlowsAll) {
  std::vector<size_t> asked;
  double machine = 10;
  const auto rate = [&](size_t i) {
    asked.push_back(i);
    if (asked.size() > 3) machine = 6;  // from the second round on
    return machine * (i == 1 ? 1.05 : 1.0);
  };
  EXPECT_EQ(fastest(3, 3, rate, kNever), 1u);
  EXPECT_THAT(asked, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2));
}

TEST(Fastest, LeavesOutWhatIsFarBehind) {
  std::vector<int> asked(3);
  const auto rate = [&](size_t i) { return ++asked[i], i == 2 ? 7.9 : i == 1 ? 10.0 : 8.1; };
  EXPECT_EQ(fastest(3, 6, rate, kNever), 1u);
  EXPECT_THAT(asked, ElementsAre(6, 6, 1));
}

TEST(Fastest, EndsWithTheRoundInWhichTheTimeIsOver) {
  int asked = 0;
  const auto rate = [&](size_t i) { return ++asked, static_cast<double>(i + 1); };
  EXPECT_EQ(fastest(4, 100, rate, [] { return true; }), 3u);
  EXPECT_EQ(asked, 4);
}

TEST(ReadKernels, HaveNamesOfTheirOwnAndDependOnEveryByte) {
  constexpr size_t kBytes = 8 * 4096, kBeyond = 16384 + 128;
  std::vector<std::byte> buffer(kBytes + kBeyond + 64);
  std::byte* p = buffer.data() + (64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64) % 64;
  std::vector<std::string> names;
  for (const ReadKernel& kernel : read_kernels()) {
    names.push_back(kernel.name);
    std::memset(p, 0, kBytes);
    EXPECT_EQ(kernel.run(p, kBytes), 0u) << kernel.name;
    for (size_t i = 0; i < kBytes; i += 8) {
      p[i + i / 8 % 8] = std::byte{0x40};
      ASSERT_NE(kernel.run(p, kBytes), 0u) << kernel.name << ": byte " << i + i / 8 % 8 << " is not read";
      p[i + i / 8 % 8] = std::byte{0};
    }
  }
  EXPECT_GE(names.size(), 8u);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << *std::adjacent_find(names.begin(), names.end());
}

TEST(ReadKernels, AreNamedByWhatTheyDo) {
  EXPECT_EQ(read_kernel_name(64, 4, 2048, false), "64-byte loads, 4 streams, prefetched 2 KB ahead");
  EXPECT_EQ(read_kernel_name(32, 1, 512, true), "32-byte loads, 1 stream, prefetched 0.5 KB ahead for one use");
  EXPECT_EQ(read_kernel_name(16, 2, 0, false), "16-byte loads, 2 streams, not prefetched");
}

/// In a quarter of what the process may have.
TEST(Limits, SayHowMemoryIsRead) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  [[maybe_unused]] const rlimit less{std::min<rlim_t>(before.rlim_max, rlim_t{1} << 30), before.rlim_max};
#if defined(__linux__) && !defined(MARLIN_COMMAND_SANITIZED)
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &less), 0);
  EXPECT_LE(free_memory(), less.rlim_cur);
#endif
  Limits limits(1);
  EXPECT_THAT(limits.reading(), HasSubstr("-byte loads, "));
  EXPECT_GT(limits.read_sample(), 0);
  EXPECT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
}

}  // namespace
}  // namespace metal_marlin::tools
