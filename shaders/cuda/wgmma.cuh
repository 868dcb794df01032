// wgmma.mma_async: 64 rows of W by COLUMNS rows of A, 16 slots, or 32 of bytes. Operand A, the
// weights, is in registers or in shared memory, and operand B is in shared memory: K-major, in rows
// of 128 bytes with pieces of 16 swizzled. The long lists are what PTX wants.
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

/// The descriptor of an operand at an address, a multiple of 1024 but for steps of 32 bytes.
__device__ inline u64 wgmma_operand(u32 address) {
  constexpr u64 kSwizzle128 = 1ull << 62, kEightRows = u64(1024 >> 4) << 32, kUnused = 1ull << 16;
  return u64((address & 0x3FFFF) >> 4) | kUnused | kEightRows | kSwizzle128;
}

template <int COLUMNS>
struct Wgmma;
/// Of bytes: 32 slots, and of INT8 sums that are integers.
struct Int8 {
  typedef int Sum;
};
struct E4m3Bytes {
  typedef float Sum;
};

#define MARLIN_PTX_F16 "f16"
#define MARLIN_PTX_Bf16 "bf16"
#define MARLIN_WGMMA_ADD(columns, count, names, a0, a1, a2, a3, b, to, type, list)                 \
  __device__ static void add(type, float(&d)[count], const u32(&a)[4], u64 descriptor,             \
                             bool accumulates) {                                                   \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, " to                                                     \
        ", 0;\n"                                                                                   \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." MARLIN_PTX_##type                  \
        "." MARLIN_PTX_##type " {" names "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", p, 1, 1, 0;\n}" \
        : list("+f")                                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(int(accumulates)));     \
  }                                                                                                \
  __device__ static void add(type, float(&d)[count], u64 weights, u64 rows, bool accumulates) {    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " a2                                            \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." MARLIN_PTX_##type         \
                 "." MARLIN_PTX_##type " {" names "}, " a0 ", " a1 ", p, 1, 1, 0, 0;\n}"           \
                 : list("+f")                                                                      \
                 : "l"(weights), "l"(rows), "r"(int(accumulates)));                                \
  }
#define MARLIN_WGMMA_ADD_BYTES(columns, count, names, a0, a1, a2, a3, b, to, list, type, ptx, \
                               factors)                                                       \
  __device__ static void add(type, type::Sum(&d)[count], const u32(&a)[4], u64 descriptor,    \
                             bool accumulates) {                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " to                                       \
                 ", 0;\n"                                                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k32." ptx " {" names "}, {" a0 \
                 "," a1 "," a2 "," a3 "}, " b ", p" factors ";\n}"                            \
                 : list                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor),               \
                   "r"(int(accumulates)));                                                    \
  }
#define MARLIN_WGMMA(columns, count, names, a0, a1, a2, a3, b, to, list)                        \
  template <>                                                                                   \
  struct Wgmma<columns> {                                                                       \
    MARLIN_WGMMA_ADD(columns, count, names, a0, a1, a2, a3, b, to, F16, list)                   \
    MARLIN_WGMMA_ADD(columns, count, names, a0, a1, a2, a3, b, to, Bf16, list)                  \
    MARLIN_WGMMA_ADD_BYTES(columns, count, names, a0, a1, a2, a3, b, to, list("+r"), Int8,      \
                           "s32.s8.s8", "")                                                     \
    MARLIN_WGMMA_ADD_BYTES(columns, count, names, a0, a1, a2, a3, b, to, list("+f"), E4m3Bytes, \
                           "f32.e4m3.e4m3", ", 1, 1")                                           \
  };
#define MARLIN_D4(f, i) f(d[i]), f(d[i + 1]), f(d[i + 2]), f(d[i + 3])
#define MARLIN_D16(f, i) \
  MARLIN_D4(f, i), MARLIN_D4(f, i + 4), MARLIN_D4(f, i + 8), MARLIN_D4(f, i + 12)
#define MARLIN_D32(f) MARLIN_D16(f, 0), MARLIN_D16(f, 16)
#define MARLIN_D48(f) MARLIN_D32(f), MARLIN_D16(f, 32)
#define MARLIN_D64(f) MARLIN_D48(f), MARLIN_D16(f, 48)
#define MARLIN_D96(f) MARLIN_D64(f), MARLIN_D16(f, 64), MARLIN_D16(f, 80)
#define MARLIN_D128(f) MARLIN_D96(f), MARLIN_D16(f, 96), MARLIN_D16(f, 112)

#define MARLIN_NAMES_32                                                                    \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define MARLIN_NAMES_48 \
  MARLIN_NAMES_32       \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define MARLIN_NAMES_64 \
  MARLIN_NAMES_48       \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define MARLIN_NAMES_96                                                                   \
  MARLIN_NAMES_64                                                                         \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84," \
  "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define MARLIN_NAMES_128                                                                    \
  MARLIN_NAMES_96                                                                           \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113," \
  "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

MARLIN_WGMMA(64, 32, MARLIN_NAMES_32, "%32", "%33", "%34", "%35", "%36", "%37", MARLIN_D32)
MARLIN_WGMMA(96, 48, MARLIN_NAMES_48, "%48", "%49", "%50", "%51", "%52", "%53", MARLIN_D48)
MARLIN_WGMMA(128, 64, MARLIN_NAMES_64, "%64", "%65", "%66", "%67", "%68", "%69", MARLIN_D64)
MARLIN_WGMMA(192, 96, MARLIN_NAMES_96, "%96", "%97", "%98", "%99", "%100", "%101", MARLIN_D96)
MARLIN_WGMMA(256, 128, MARLIN_NAMES_128, "%128", "%129", "%130", "%131", "%132", "%133",
             MARLIN_D128)
