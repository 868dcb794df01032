// What an x86-64 processor says that it has, as far as the operating system saves its registers.
#pragma once
#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace metal_marlin {

struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// All registers are 0 if the processor does not know the leaf.
inline CpuidRegisters cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  CpuidRegisters r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

/// The register states that the operating system saves on a context switch. This uses the
/// instruction itself, because the intrinsic would need a target attribute. Call it only if CPUID
/// says OSXSAVE.
inline uint32_t read_xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/// __builtin_cpu_supports() would say the same, but not of every feature, nor with every compiler's
/// runtime library.
struct X86Features {
  bool f16c = false, fma = false, avx2 = false, avx_vnni = false;
  bool avx512f = false, avx512dq = false, avx512bw = false, avx512vl = false, avx512vbmi = false,
       avx512vnni = false, avx512bf16 = false;
  bool amx = false;  // tiles, INT8, BF16; a process may have to ask for the tiles
  bool is_intel = false;
};

inline X86Features x86_features() {
  const auto bit = [](uint32_t word, int index) { return (word >> index & 1u) != 0; };
  X86Features f;
  constexpr uint32_t kGenu = 0x756e6547;  // of "GenuineIntel"
  f.is_intel = cpuid(0).ebx == kGenu;
  const CpuidRegisters basic = cpuid(1);
  if (!bit(basic.ecx, 27)) return f;  // OSXSAVE
  const uint32_t saved = read_xcr0();
  // SSE and AVX; opmasks, upper halves of ZMM 0-15 and ZMM 16-31 besides; tiles and their
  // configuration.
  constexpr uint32_t kYmm = 0x06, kZmm = 0xe6, kTiles = 0x60000;
  const CpuidRegisters extended = cpuid(7),
                       extended1 = extended.eax >= 1 ? cpuid(7, 1) : CpuidRegisters{};
  if ((saved & kYmm) != kYmm) return f;
  f.fma = bit(basic.ecx, 12);
  f.f16c = bit(basic.ecx, 29);
  f.avx2 = bit(extended.ebx, 5);
  f.avx_vnni = bit(extended1.eax, 4);
  if ((saved & kZmm) != kZmm) return f;
  f.avx512f = bit(extended.ebx, 16);
  f.avx512dq = bit(extended.ebx, 17);
  f.avx512bw = bit(extended.ebx, 30);
  f.avx512vl = bit(extended.ebx, 31);
  f.avx512vbmi = bit(extended.ecx, 1);
  f.avx512vnni = bit(extended.ecx, 11);
  f.avx512bf16 = bit(extended1.eax, 5);
  f.amx = (saved & kTiles) == kTiles && bit(extended.edx, 22) && bit(extended.edx, 24) &&
          bit(extended.edx, 25);
  return f;
}

}  // namespace metal_marlin

#endif
