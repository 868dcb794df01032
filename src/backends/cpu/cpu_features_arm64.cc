#if defined(__aarch64__)

#include "backends/cpu/cpu_features.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>

#include <fstream>
#endif

namespace metal_marlin::cpu {
namespace {

#if defined(__APPLE__)

/// Returns 0 if the system does not know the name.
uint64_t read_number(const char* name) {
  uint64_t value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}

uint32_t detect_bits() {
  return kNeon | (read_number("hw.optional.arm.FEAT_DotProd") != 0 ? kDotprod : 0u) |
         (read_number("hw.optional.arm.FEAT_I8MM") != 0 ? kI8mm : 0u) |
         (read_number("hw.optional.arm.FEAT_BF16") != 0 ? kArmBf16 : 0u);
}

std::string detect_model() {
  char text[128] = {};
  size_t size = sizeof text - 1;
  return sysctlbyname("machdep.cpu.brand_string", text, &size, nullptr, 0) == 0 ? text : "arm64";
}

#else

// Bits of AT_HWCAP and AT_HWCAP2 (Linux, arch/arm64/include/uapi/asm/hwcap.h). They are defined
// here because old headers lack some of them.
constexpr unsigned long kHwcapDotprod = 1ul << 20, kHwcap2I8mm = 1ul << 13, kHwcap2Bf16 = 1ul << 14;

uint32_t detect_bits() {
  return kNeon | ((getauxval(AT_HWCAP) & kHwcapDotprod) != 0 ? kDotprod : 0u) |
         ((getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0 ? kI8mm : 0u) |
         ((getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0 ? kArmBf16 : 0u);
}

std::string read_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  while (!line.empty() && line.back() == '\0')
    line.pop_back();  // the device tree ends its strings so
  return line;
}

std::string detect_model() {
  const std::string model = read_line("/proc/device-tree/model");
  return model.empty() ? "arm64" : model;
}

#endif

}  // namespace

CpuFeatures detect_hardware(uint32_t allowed) {
  CpuFeatures out;
  out.bits = detect_bits() & allowed;
  out.model = detect_model();
  return out;
}

}  // namespace metal_marlin::cpu

#endif
