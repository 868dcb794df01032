#include "backends/cpu/cpu_features.h"
#include "test.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#endif

namespace metal_marlin::cpu {
namespace {

TEST(CpuFeatures, NamesWhatIsThere) {
  EXPECT_EQ(feature_name(0), "generic");
  EXPECT_EQ(feature_name(kAvx2), "avx2");
  EXPECT_EQ(feature_name(kAvx2 | kAvx512), "avx512");
  EXPECT_EQ(feature_name(kAvx2 | kAvx512 | kAvx512Vnni), "avx512-vnni");
  EXPECT_EQ(feature_name(kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Bf16), "avx512-vnni-bf16");
  EXPECT_EQ(feature_name(kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Bf16 | kAmx), "avx512-vnni-bf16-amx");
  EXPECT_EQ(feature_name(kNeon | kDotprod), "neon-dotprod");
  EXPECT_EQ(feature_name(kNeon | kDotprod | kI8mm | kArmBf16), "neon-dotprod-i8mm-bf16");
}

TEST(CpuFeatures, EnvironmentOnlyLowers) {
  std::string warning;
  const CpuFeatures full = detect_cpu_features(nullptr, &warning);
  for (const char* isa : {"generic", "avx2", "avx512", "avx512-vnni", "avx512-vnni-bf16", "neon", "dotprod", "i8mm"}) {
    const CpuFeatures lowered = detect_cpu_features(isa, &warning);
    EXPECT_EQ(lowered.bits & ~full.bits, 0u) << isa;
    EXPECT_EQ(lowered.name, feature_name(lowered.bits)) << isa;
    EXPECT_EQ(lowered.model, full.model);
  }
  EXPECT_EQ(detect_cpu_features("generic", &warning).bits, 0u);
  EXPECT_EQ(detect_cpu_features("avx2", &warning).bits, full.bits & kAvx2);
  EXPECT_EQ(detect_cpu_features("avx512-vnni-bf16", &warning).bits,
            full.bits & (kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Bf16 | kFastBf16Dot));
  EXPECT_EQ(detect_cpu_features("", &warning).bits, full.bits);
  EXPECT_EQ(warning, "");
}

TEST(CpuFeatures, UnknownValueIsIgnoredWithAWarning) {
  std::string warning;
  EXPECT_EQ(detect_cpu_features("avx1024", &warning).bits, detect_cpu_features(nullptr, &warning).bits);
  EXPECT_THAT(warning, testing::HasSubstr("\"avx1024\""));
  EXPECT_THAT(warning, testing::HasSubstr("avx512-vnni"));
}

#if defined(__linux__) && defined(__x86_64__)
/// In a process of its own, because Linux gives the tile registers to a process for good.
TEST(CpuFeaturesDeathTest, LeaveAmxAloneWhereASignalStackHasNoRoomForItsRegisters) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto detect = [] {
    static std::byte memory[4096];
    stack_t small{};
    small.ss_sp = memory;
    small.ss_size = sizeof memory;
    if (sigaltstack(&small, nullptr) != 0) std::exit(2);
    std::string warning;
    std::exit(detect_cpu_features(nullptr, &warning).has(kAmx) ? 1 : 0);
  };
  EXPECT_EXIT(detect(), testing::ExitedWithCode(0), "");
}

TEST(CpuFeaturesDeathTest, AskForNoRegistersThatTheLevelExcludes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto detect = [] {
    std::string warning;
    detect_cpu_features("avx512-vnni-bf16", &warning);
    constexpr int kGetPermission = 0x1022, kTileData = 18;
    uint64_t granted = 0;
    syscall(SYS_arch_prctl, kGetPermission, &granted);
    std::exit((granted >> kTileData & 1) != 0 ? 1 : 0);
  };
  EXPECT_EXIT(detect(), testing::ExitedWithCode(0), "");
}
#endif

#if defined(__x86_64__)
TEST(CpuFeatures, AgreesWithTheCompilersDetection) {
  std::string warning;
  const CpuFeatures features = detect_cpu_features(nullptr, &warning);
  EXPECT_EQ(features.has(kAvx2), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi");
  EXPECT_EQ(features.has(kAvx512), avx512);
  EXPECT_EQ(features.has(kAvx512Vnni), avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(features.has(kAvx512Bf16), avx512 && __builtin_cpu_supports("avx512bf16"));
  EXPECT_NE(features.model, "");
}
#endif

}  // namespace
}  // namespace metal_marlin::cpu
