// wgmma.mma_async with operand A in registers: 64 rows of W by COLUMNS rows of A, 16 slots. Operand
// B is in shared memory, K-major, in rows of 128 bytes with pieces of 16 swizzled. The long lists
// are what PTX wants.
#pragma once
#include "hopper.cuh"

/// Orders register accesses before the instructions that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most PENDING groups run.
template <int PENDING>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/// The descriptor of operand B at an address, a multiple of 1024 but for steps of 32 bytes.
__device__ inline u64 operand_b(u32 address) {
  constexpr u64 kSwizzle128 = 1ull << 62, kEightRows = u64(1024 >> 4) << 32, kUnused = 1ull << 16;
  return u64((address & 0x3FFFF) >> 4) | kUnused | kEightRows | kSwizzle128;
}

template <int COLUMNS>
struct Wgmma;

#define MARLIN_WGMMA(columns, count, names, a0, a1, a2, a3, b, to, type, ...)                      \
  __device__ static void add(type, float(&d)[count], const u32(&a)[4], u64 descriptor,             \
                             bool accumulates) {                                                   \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, " to                                                     \
        ", 0;\n"                                                                                   \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." MARLIN_PTX_##type                  \
        "." MARLIN_PTX_##type " {" names "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", p, 1, 1, 0;\n}" \
        : __VA_ARGS__                                                                              \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(int(accumulates)));     \
  }
#define MARLIN_PTX_F16 "f16"
#define MARLIN_PTX_Bf16 "bf16"
#define MARLIN_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MARLIN_D16(i) MARLIN_D4(i), MARLIN_D4(i + 4), MARLIN_D4(i + 8), MARLIN_D4(i + 12)
#define MARLIN_D64(i) MARLIN_D16(i), MARLIN_D16(i + 16), MARLIN_D16(i + 32), MARLIN_D16(i + 48)

#define MARLIN_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7"
template <>
struct Wgmma<16> {
  MARLIN_WGMMA(16, 8, MARLIN_NAMES_16, "%8", "%9", "%10", "%11", "%12", "%13", F16, MARLIN_D4(0),
               MARLIN_D4(4))
  MARLIN_WGMMA(16, 8, MARLIN_NAMES_16, "%8", "%9", "%10", "%11", "%12", "%13", Bf16, MARLIN_D4(0),
               MARLIN_D4(4))
};

#define MARLIN_NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
template <>
struct Wgmma<32> {
  MARLIN_WGMMA(32, 16, MARLIN_NAMES_32, "%16", "%17", "%18", "%19", "%20", "%21", F16,
               MARLIN_D16(0))
  MARLIN_WGMMA(32, 16, MARLIN_NAMES_32, "%16", "%17", "%18", "%19", "%20", "%21", Bf16,
               MARLIN_D16(0))
};

#define MARLIN_NAMES_64                                                                    \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
template <>
struct Wgmma<64> {
  MARLIN_WGMMA(64, 32, MARLIN_NAMES_64, "%32", "%33", "%34", "%35", "%36", "%37", F16,
               MARLIN_D16(0), MARLIN_D16(16))
  MARLIN_WGMMA(64, 32, MARLIN_NAMES_64, "%32", "%33", "%34", "%35", "%36", "%37", Bf16,
               MARLIN_D16(0), MARLIN_D16(16))
};

#define MARLIN_NAMES_128                                                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
  "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
template <>
struct Wgmma<128> {
  MARLIN_WGMMA(128, 64, MARLIN_NAMES_128, "%64", "%65", "%66", "%67", "%68", "%69", F16,
               MARLIN_D64(0))
  MARLIN_WGMMA(128, 64, MARLIN_NAMES_128, "%64", "%65", "%66", "%67", "%68", "%69", Bf16,
               MARLIN_D64(0))
};

#define MARLIN_NAMES_256                                                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
  "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67," \
  "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
  "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,"    \
  "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,"    \
  "%126,%127"
template <>
struct Wgmma<256> {
  MARLIN_WGMMA(256, 128, MARLIN_NAMES_256, "%128", "%129", "%130", "%131", "%132", "%133", F16,
               MARLIN_D64(0), MARLIN_D64(64))
  MARLIN_WGMMA(256, 128, MARLIN_NAMES_256, "%128", "%129", "%130", "%131", "%132", "%133", Bf16,
               MARLIN_D64(0), MARLIN_D64(64))
};

#define MARLIN_NAMES_96                                                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
  "%46,%47"
template <>
struct Wgmma<96> {
  MARLIN_WGMMA(96, 48, MARLIN_NAMES_96, "%48", "%49", "%50", "%51", "%52", "%53", F16,
               MARLIN_D16(0), MARLIN_D16(16), MARLIN_D16(32))
  MARLIN_WGMMA(96, 48, MARLIN_NAMES_96, "%48", "%49", "%50", "%51", "%52", "%53", Bf16,
               MARLIN_D16(0), MARLIN_D16(16), MARLIN_D16(32))
};

#define MARLIN_NAMES_192                                                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
  "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67," \
  "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
  "%90,%91,%92,%93,%94,%95"
template <>
struct Wgmma<192> {
  MARLIN_WGMMA(192, 96, MARLIN_NAMES_192, "%96", "%97", "%98", "%99", "%100", "%101", F16,
               MARLIN_D64(0), MARLIN_D16(64), MARLIN_D16(80))
  MARLIN_WGMMA(192, 96, MARLIN_NAMES_192, "%96", "%97", "%98", "%99", "%100", "%101", Bf16,
               MARLIN_D64(0), MARLIN_D16(64), MARLIN_D16(80))
};
