// The limits of x86-64: products of tiles, 64-byte and 32-byte dot products and multiply-adds, and
// reading.
#include <immintrin.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstring>

#include "base/x86.h"
#include "machine_limits.h"

namespace metal_marlin::tools {
namespace {

// This is assembly, so that no compiler at any optimization level folds or spills the chains.
// vdpbf16ps takes six cycles, and two start per cycle on the fastest processor that we tried (AMD
// Zen 5). It therefore needs 12 chains, and 14 fit beside the two operands. The operands are zero,
// because the time of the instructions does not depend on them.
#define MARLIN_CHAIN(op, v, n) op " %%" v "14, %%" v "15, %%" v #n "\n\t"
#define MARLIN_CHAINS(op, v) \
  MARLIN_CHAIN(op, v, 0)     \
  MARLIN_CHAIN(op, v, 1)     \
  MARLIN_CHAIN(op, v, 2)     \
  MARLIN_CHAIN(op, v, 3)     \
  MARLIN_CHAIN(op, v, 4)     \
  MARLIN_CHAIN(op, v, 5)     \
  MARLIN_CHAIN(op, v, 6)     \
  MARLIN_CHAIN(op, v, 7)     \
  MARLIN_CHAIN(op, v, 8)     \
  MARLIN_CHAIN(op, v, 9)     \
  MARLIN_CHAIN(op, v, 10) MARLIN_CHAIN(op, v, 11) MARLIN_CHAIN(op, v, 12) MARLIN_CHAIN(op, v, 13)
// Without VNNI, a product of bytes is vpmaddubsw and an addition that keeps the result.
#define MARLIN_PAIR(v, product, n)                                                        \
  "vpmaddubsw %%" v "14, %%" v "15, %%" v #product "\n\tvpaddw %%" v #product ", %%" v #n \
  ", %%" v #n "\n\t"
#define MARLIN_PAIRS(v) \
  MARLIN_PAIR(v, 7, 0)  \
  MARLIN_PAIR(v, 8, 1)  \
  MARLIN_PAIR(v, 9, 2)  \
  MARLIN_PAIR(v, 10, 3) MARLIN_PAIR(v, 11, 4) MARLIN_PAIR(v, 12, 5) MARLIN_PAIR(v, 13, 6)
#define MARLIN_LOOP(name, isa, body)                                                               \
  __attribute__((target(isa))) void name(int64_t rounds) {                                         \
    asm volatile("vpxor %%xmm14, %%xmm14, %%xmm14\n\tvpxor %%xmm15, %%xmm15, %%xmm15\n1:\n\t" body \
                 "dec %0\n\tjnz 1b\n\tvzeroupper"                                                  \
                 : "+r"(rounds)                                                                    \
                 :                                                                                 \
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
                   "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");                    \
  }

MARLIN_LOOP(vpdpbusd_zmm, "avx512f,avx512vnni", MARLIN_CHAINS("vpdpbusd", "zmm"))
MARLIN_LOOP(vpmaddubsw_zmm, "avx512f,avx512bw", MARLIN_PAIRS("zmm"))
MARLIN_LOOP(vdpbf16ps_zmm, "avx512f,avx512bf16", MARLIN_CHAINS("vdpbf16ps", "zmm"))
MARLIN_LOOP(vfmadd231ps_zmm, "avx512f", MARLIN_CHAINS("vfmadd231ps", "zmm"))
MARLIN_LOOP(vpdpbusd_ymm, "avx2,avxvnni", MARLIN_CHAINS("%{vex%} vpdpbusd", "ymm"))
MARLIN_LOOP(vpmaddubsw_ymm, "avx2", MARLIN_PAIRS("ymm"))
MARLIN_LOOP(vfmadd231ps_ymm, "avx2,fma", MARLIN_CHAINS("vfmadd231ps", "ymm"))

constexpr int64_t kChains = 14, kPairs = 7, kMultiplyAdd = 2;

/// The operand of ldtilecfg: palette 1, and eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kTileConfig;

// Four chains of products of tiles: two tiles of A, in 4 and 5, by two tiles of B, in 6 and 7.
#define MARLIN_TILE_LOOP(name, op)                                                 \
  void name(int64_t rounds) {                                                      \
    asm volatile("ldtilecfg %1\n1:\n\t" op " %%tmm6, %%tmm4, %%tmm0\n\t" op        \
                 " %%tmm7, %%tmm4, %%tmm1\n\t" op " %%tmm6, %%tmm5, %%tmm2\n\t" op \
                 " %%tmm7, %%tmm5, %%tmm3\n\tdec %0\n\tjnz 1b\n\ttilerelease"      \
                 : "+r"(rounds)                                                    \
                 : "m"(kTileConfig)                                                \
                 : "cc");                                                          \
  }
MARLIN_TILE_LOOP(tdpbssd_tiles, "tdpbssd")
MARLIN_TILE_LOOP(tdpbf16ps_tiles, "tdpbf16ps")
constexpr int64_t kTileChains = 4, kTileSums = 16 * 16;

/// Reduces through memory, because g++ 12 warns about its own _mm512_reduce_*.
template <class Vector>
uint64_t reduce(const Vector& vector) {
  uint64_t words[sizeof(Vector) / sizeof(uint64_t)], all = 0;
  std::memcpy(words, &vector, sizeof words);
  for (uint64_t word : words) all ^= word;
  return all;
}

/// Prefetches both cache lines at `p`.
template <bool kOnce>
void prefetch(const std::byte* p) {
  constexpr auto kHint = kOnce ? _MM_HINT_NTA : _MM_HINT_T0;
  _mm_prefetch(reinterpret_cast<const char*>(p), kHint);
  _mm_prefetch(reinterpret_cast<const char*>(p + 64), kHint);
}

template <size_t kStreams, size_t kAhead, bool kOnce = false>
__attribute__((target("avx512f"))) uint64_t read_zmm(const std::byte* p, size_t bytes) {
  __m512i sums[kStreams];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  const size_t stream = bytes / kStreams;
  for (size_t i = 0; i < stream; i += 128) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* q = p + s * stream + i;
      if constexpr (kAhead != 0) prefetch<kOnce>(q + kAhead);
      sums[s] = _mm512_xor_si512(sums[s], _mm512_load_si512(q));
      sums[s] = _mm512_xor_si512(sums[s], _mm512_load_si512(q + 64));
    }
  }
  __m512i all = sums[0];
  for (size_t s = 1; s < kStreams; ++s) all = _mm512_xor_si512(all, sums[s]);
  return reduce(all);
}

template <size_t kStreams, size_t kAhead, bool kOnce = false>
__attribute__((target("avx2"))) uint64_t read_ymm(const std::byte* p, size_t bytes) {
  __m256i sums[kStreams];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const size_t stream = bytes / kStreams;
  for (size_t i = 0; i < stream; i += 128) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* q = p + s * stream + i;
      if constexpr (kAhead != 0) prefetch<kOnce>(q + kAhead);
      for (size_t part = 0; part < 4; ++part)
        sums[s] = _mm256_xor_si256(
            sums[s], _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 32 * part)));
    }
  }
  __m256i all = sums[0];
  for (size_t s = 1; s < kStreams; ++s) all = _mm256_xor_si256(all, sums[s]);
  return reduce(all);
}

template <size_t kStreams, size_t kAhead, bool kOnce = false>
ReadKernel zmm() {
  return {read_kernel_name(64, kStreams, kAhead, kOnce), read_zmm<kStreams, kAhead, kOnce>};
}
template <size_t kStreams, size_t kAhead, bool kOnce = false>
ReadKernel ymm() {
  return {read_kernel_name(32, kStreams, kAhead, kOnce), read_ymm<kStreams, kAhead, kOnce>};
}

/// Linux gives a process the tile registers on request.
bool has_amx([[maybe_unused]] const X86Features& has) {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return has.amx && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

std::vector<DotLoop> arch_dot_loops() {
  const X86Features has = x86_features();
  std::vector<DotLoop> loops;
  if (has_amx(has)) {
    constexpr int64_t kBf16 = kTileChains * kTileSums * 32 * kMultiplyAdd;
    loops.push_back({"tdpbssd", kTileChains * kTileSums * 64 * kMultiplyAdd, tdpbssd_tiles});
    loops.push_back({"tdpbf16ps", kBf16, tdpbf16ps_tiles});
    loops.push_back({"3 tdpbf16ps", kBf16 / 3, tdpbf16ps_tiles});  // of floats in three pieces
  }
  if (has.avx512f) {
    if (has.avx512vnni) loops.push_back({"vpdpbusd", kChains * 64 * kMultiplyAdd, vpdpbusd_zmm});
    // On Intel's processors it multiplies half as much as vfmadd231ps: no limit of a product.
    if (has.avx512bf16 && !has.is_intel)
      loops.push_back({"vdpbf16ps", kChains * 32 * kMultiplyAdd, vdpbf16ps_zmm});
    loops.push_back({"vfmadd231ps", kChains * 16 * kMultiplyAdd, vfmadd231ps_zmm});
    if (has.avx512bw) loops.push_back({"vpmaddubsw", kPairs * 64 * kMultiplyAdd, vpmaddubsw_zmm});
  }
  if (has.avx2 && has.fma) {
    if (has.avx_vnni) loops.push_back({"vpdpbusd.ymm", kChains * 32 * kMultiplyAdd, vpdpbusd_ymm});
    loops.push_back({"vfmadd231ps.ymm", kChains * 8 * kMultiplyAdd, vfmadd231ps_ymm});
    loops.push_back({"vpmaddubsw.ymm", kPairs * 32 * kMultiplyAdd, vpmaddubsw_ymm});
  }
  return loops;
}

// The first of them is within 2% of the best on AMD Zen 5, with busy and with quiet memory. Other
// processors want more or fewer streams, or farther prefetches.
std::vector<ReadKernel> arch_read_kernels() {
  if (x86_features().avx512f)
    return {zmm<4, 2048>(), zmm<1, 2048>(), zmm<2, 2048>(),       zmm<8, 2048>(),
            zmm<1, 8192>(), zmm<4, 8192>(), zmm<4, 2048, true>(), zmm<8, 512>(),
            zmm<1, 0>(),    zmm<4, 0>(),    ymm<4, 2048>(),       ymm<8, 2048>()};
  if (x86_features().avx2)
    return {ymm<4, 2048>(), ymm<1, 2048>(), ymm<2, 2048>(),       ymm<8, 2048>(), ymm<1, 8192>(),
            ymm<4, 8192>(), ymm<8, 512>(),  ymm<4, 2048, true>(), ymm<1, 0>(),    ymm<4, 0>()};
  return {};
}

}  // namespace metal_marlin::tools
