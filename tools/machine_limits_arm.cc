// The limits of arm64: NEON multiply-adds and the integer dot products.
#include "machine_limits.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#endif

namespace metal_marlin::tools {
namespace {

// As in machine_limits_x86.cc, this is assembly. It has enough chains (16 beside two operands) for
// instructions of four cycles of which four start per cycle.
#define MARLIN_CHAIN(op, n, d, s) op " v" #n "." d ", v30." s ", v31." s "\n\t"
// clang-format off: it never comes to rest here
#define MARLIN_CHAINS(op, d, s) \
  MARLIN_CHAIN(op, 0, d, s) MARLIN_CHAIN(op, 1, d, s) MARLIN_CHAIN(op, 2, d, s) MARLIN_CHAIN(op, 3, d, s) \
  MARLIN_CHAIN(op, 4, d, s) MARLIN_CHAIN(op, 5, d, s) MARLIN_CHAIN(op, 6, d, s) MARLIN_CHAIN(op, 7, d, s) \
  MARLIN_CHAIN(op, 16, d, s) MARLIN_CHAIN(op, 17, d, s) MARLIN_CHAIN(op, 18, d, s) MARLIN_CHAIN(op, 19, d, s) \
  MARLIN_CHAIN(op, 20, d, s) MARLIN_CHAIN(op, 21, d, s) MARLIN_CHAIN(op, 22, d, s) MARLIN_CHAIN(op, 23, d, s)
// clang-format on
#define MARLIN_LOOP(name, isa, body)                                                              \
  __attribute__((target(isa))) void name(int64_t rounds) {                                        \
    asm volatile("movi v30.16b, #0\n\tmovi v31.16b, #0\n1:\n\t" body "subs %0, %0, #1\n\tb.ne 1b" \
                 : "+r"(rounds)                                                                   \
                 :                                                                                \
                 : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",    \
                   "v20", "v21", "v22", "v23", "v30", "v31", "cc");                               \
  }

MARLIN_LOOP(fmla_4s, "arch=armv8-a", MARLIN_CHAINS("fmla", "4s", "4s"))
MARLIN_LOOP(smlal_8h, "arch=armv8-a", MARLIN_CHAINS("smlal", "8h", "8b"))
MARLIN_LOOP(sdot_16b, "arch=armv8.2-a+dotprod", MARLIN_CHAINS("sdot", "4s", "16b"))
MARLIN_LOOP(smmla_16b, "arch=armv8.2-a+i8mm", MARLIN_CHAINS("smmla", "4s", "16b"))

constexpr int64_t kChains = 16, kMultiplyAdd = 2;

#if defined(__APPLE__)
bool has(const char* feature) {
  int value = 0;
  size_t bytes = sizeof value;
  return sysctlbyname(feature, &value, &bytes, nullptr, 0) == 0 && value;
}
bool has_dotprod() { return has("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return has("hw.optional.arm.FEAT_I8MM"); }
#else
// Bits of the kernel's ABI (asm/hwcap.h), by value because older headers lack the second.
bool has_dotprod() { return getauxval(AT_HWCAP) & (1ul << 20); }
bool has_i8mm() { return getauxval(AT_HWCAP2) & (1ul << 13); }
#endif

}  // namespace

std::vector<DotLoop> arch_dot_loops() {
  std::vector<DotLoop> loops;
  if (has_i8mm()) loops.push_back({"smmla", kChains * 32 * kMultiplyAdd, smmla_16b});
  if (has_dotprod()) loops.push_back({"sdot", kChains * 16 * kMultiplyAdd, sdot_16b});
  loops.push_back({"smlal", kChains * 8 * kMultiplyAdd, smlal_8h});
  loops.push_back({"fmla", kChains * 4 * kMultiplyAdd, fmla_4s});
  return loops;
}

// The portable kernels compile to paired 16-byte loads and prefetches. NEON has no wider loads.
std::vector<ReadKernel> arch_read_kernels() { return {}; }

}  // namespace metal_marlin::tools
