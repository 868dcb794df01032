#include "backends/cpu/cpu_features.h"

#include <string_view>

#include "base/environment.h"

namespace metal_marlin::cpu {
namespace {

struct IsaLevel {
  std::string_view name;
  uint32_t allowed;
};
constexpr IsaLevel kIsaLevels[] = {
    {"generic", 0},
    {"avx2", kAvx2},
    {"avx512", kAvx2 | kAvx512},
    {"avx512-vnni", kAvx2 | kAvx512 | kAvx512Vnni},
    {"avx512-vnni-bf16", kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Bf16 | kFastBf16Dot},
    {"neon", kNeon},
    {"dotprod", kNeon | kDotprod},
    {"i8mm", kNeon | kDotprod | kI8mm},
};

}  // namespace

std::string feature_name(uint32_t bits) {
  const auto has = [bits](uint32_t one) { return (bits & one) != 0; };
  if (has(kAvx512))
    return std::string("avx512") + (has(kAvx512Vnni) ? "-vnni" : "") +
           (has(kAvx512Bf16) ? "-bf16" : "") + (has(kAmx) ? "-amx" : "");
  if (has(kAvx2)) return "avx2";
  if (has(kNeon))
    return std::string("neon") + (has(kDotprod) ? "-dotprod" : "") + (has(kI8mm) ? "-i8mm" : "") +
           (has(kArmBf16) ? "-bf16" : "");
  return "generic";
}

CpuFeatures detect_cpu_features(const char* isa, std::string* warning) {
  uint32_t allowed = ~0u;
  if (isa != nullptr && *isa != '\0') {
    const IsaLevel* found = nullptr;
    std::string known;
    for (const IsaLevel& level : kIsaLevels) {
      if (level.name == isa) found = &level;
      known.append(known.empty() ? "" : ", ").append(level.name);
    }
    if (found != nullptr)
      allowed = found->allowed;
    else
      *warning = "METAL_MARLIN_ISA is \"" + std::string(isa) + "\", expected one of " + known +
                 "; ignored";
  }
  CpuFeatures features = detect_hardware(allowed);
  features.name = feature_name(features.bits);
  return features;
}

CpuFeatures detect_cpu_features(std::string* warning) {
  return detect_cpu_features(environment("METAL_MARLIN_ISA"), warning);
}

}  // namespace metal_marlin::cpu
