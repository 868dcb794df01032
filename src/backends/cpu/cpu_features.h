// The features that this processor, the operating system and METAL_MARLIN_ISA allow.
#pragma once

#include <cstdint>
#include <string>

namespace metal_marlin::cpu {

enum Feature : uint32_t {
  kAvx2 = 1u << 0,    // with FMA, F16C
  kAvx512 = 1u << 1,  // F, BW, DQ, VL, VBMI
  kAvx512Vnni = 1u << 2,
  kAvx512Bf16 = 1u << 3,
  kAmx = 1u << 4,  // tiles, INT8, BF16; the process may use the tiles
  /// VDPBF16PS multiplies more numbers per cycle than VFMADD231PS. On Intel's processors it
  /// multiplies half as many (Sapphire Rapids: 170 against 350 Gop/s on two threads).
  kFastBf16Dot = 1u << 5,
  kNeon = 1u << 8,
  kDotprod = 1u << 9,
  kI8mm = 1u << 10,
  kArmBf16 = 1u << 11,
};

struct CpuFeatures {
  uint32_t bits = 0;  // of Feature
  std::string name;   // "avx512-vnni-bf16-amx", "avx2", "generic"
  std::string model;  // the processor's own name
  bool has(uint32_t all) const { return (bits & all) == all; }
};

/// Called once for each context. METAL_MARLIN_ISA (generic, avx2, avx512, avx512-vnni,
/// avx512-vnni-bf16, neon, dotprod, i8mm) can only lower the level: it allows the named level and
/// the levels below. An unknown value is ignored with a warning text in *warning.
///
/// If the level allows AMX, this asks the operating system for its registers on behalf of the
/// process. From then on, alternate signal stacks of the process need room for them.
CpuFeatures detect_cpu_features(std::string* warning);
/// The same with the value of METAL_MARLIN_ISA as an argument; null: not set.
CpuFeatures detect_cpu_features(const char* isa, std::string* warning);

/// "avx512-vnni-bf16-amx", "avx2", "neon-dotprod-i8mm-bf16", "generic".
std::string feature_name(uint32_t bits);

/// The features of `allowed` that the hardware and the operating system offer: bits and model, but
/// no name. Each architecture has a file with this function. On x86 it asks for the tile registers
/// if AMX is allowed.
CpuFeatures detect_hardware(uint32_t allowed);

}  // namespace metal_marlin::cpu
