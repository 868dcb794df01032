#if defined(__x86_64__)

#include <cstring>

#include "backends/cpu/cpu_features.h"
#include "base/system.h"
#include "base/x86.h"

namespace metal_marlin::cpu {
namespace {

uint32_t detect_bits() {
  const X86Features f = x86_features();
  uint32_t bits = 0;
  if (f.fma && f.f16c && f.avx2) bits |= kAvx2;
  if (bits != 0 && f.avx512f && f.avx512dq && f.avx512bw && f.avx512vl && f.avx512vbmi) {
    bits |= kAvx512;
    if (f.avx512vnni) bits |= kAvx512Vnni;
    if (f.avx512bf16) bits |= kAvx512Bf16 | (f.is_intel ? 0u : kFastBf16Dot);
    if (f.amx) bits |= kAmx;
  }
  return bits;
}

std::string detect_model() {
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const CpuidRegisters r = cpuid(0x80000002 + i);
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
