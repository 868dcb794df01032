#if defined(__x86_64__)

#include <cpuid.h>

#include <cstring>

#include "backends/cpu/cpu_features.h"
#include "base/system.h"

namespace metal_marlin::cpu {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// All registers are 0 if the processor does not know the leaf.
Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(uint32_t word, int index) { return (word >> index & 1u) != 0; }

/// The register states that the operating system saves on a context switch. This uses the
/// instruction itself, because the intrinsic would need a target attribute. Call it only if CPUID
/// says OSXSAVE.
uint32_t read_xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

uint32_t detect_bits() {
  const Registers basic = cpuid(1);
  if (!bit(basic.ecx, 27)) return 0;  // OSXSAVE
  const uint32_t saved = read_xcr0();
  // SSE and AVX; opmasks, upper halves of ZMM 0-15 and ZMM 16-31 besides; tiles and their
  // configuration.
  constexpr uint32_t kYmm = 0x06, kZmm = 0xe6, kTiles = 0x60000;
  const Registers extended = cpuid(7), extended1 = extended.eax >= 1 ? cpuid(7, 1) : Registers{};

  uint32_t bits = 0;
  const bool fma = bit(basic.ecx, 12), f16c = bit(basic.ecx, 29), avx2 = bit(extended.ebx, 5);
  if ((saved & kYmm) == kYmm && fma && f16c && avx2) bits |= kAvx2;
  const bool f = bit(extended.ebx, 16), dq = bit(extended.ebx, 17), bw = bit(extended.ebx, 30),
             vl = bit(extended.ebx, 31);
  const bool vbmi = bit(extended.ecx, 1);
  if (bits != 0 && (saved & kZmm) == kZmm && f && dq && bw && vl && vbmi) {
    bits |= kAvx512;
    if (bit(extended.ecx, 11)) bits |= kAvx512Vnni;
    constexpr uint32_t kGenu = 0x756e6547;  // of "GenuineIntel"
    if (bit(extended1.eax, 5)) bits |= kAvx512Bf16 | (cpuid(0).ebx != kGenu ? kFastBf16Dot : 0u);
    const bool amx_bf16 = bit(extended.edx, 22), amx_tile = bit(extended.edx, 24),
               amx_int8 = bit(extended.edx, 25);
    if ((saved & kTiles) == kTiles && amx_bf16 && amx_tile && amx_int8) bits |= kAmx;
  }
  return bits;
}

std::string detect_model() {
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002 + i);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string model = text;
  model.erase(0, model.find_first_not_of(' '));
  model.erase(model.find_last_not_of(' ') + 1);
  return model.empty() ? "x86-64" : model;
}

}  // namespace

CpuFeatures detect_hardware(uint32_t allowed) {
  CpuFeatures out;
  out.bits = detect_bits() & allowed;
  if (out.has(kAmx) && !system::request_amx_tiles()) out.bits &= ~kAmx;
  out.model = detect_model();
  return out;
}

}  // namespace metal_marlin::cpu

#endif
