// INT8 compute for many rows: 12 blocks of a panel are decoded into L1 and multiplied by tiles of 3 rows x 64 columns, whose
// integer and float sums all stay in registers.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512_int8.h"
#include "backends/cpu/chunks.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kRows = 3, kVectors = 4, kChunk = 12;

/// A chunk as the tiles read it. Scales: one row a block, or two with groups of 16.
struct Staged {
  uint8_t codes[kChunk][8][kVectors][64];  ///< [block][step]
  float scale[kChunk][2][kPanelColumns];
  uint32_t largest[16];                  ///< magnitudes of scales, as bits
  float zero[kChunk][2][kPanelColumns];  ///< additive zeros
};

template <CodeKind kCode, bool kSparse>
MARLIN_AVX512 void stage(const PackedLayout& layout, const uint8_t* super, int blocks, Staged& out) {
  using Lines = CodeLines<kCode, kSparse>;
  const SuperShape shape(layout);
  const int parts = shape.shift == 0 ? 2 : 1;
  Int8Super scales;
  __m512i largest = _mm512_setzero_si512();
  for (int b = 0; b < blocks; ++b) {
    if (b % kBlocksPerSuper == 0) {
      if (b != 0) super += shape.bytes;
      largest = _mm512_max_epu32(largest, decode_int8_super<kCode>(shape, super, 0, kVectors, scales));
    }
    const uint8_t* codes = super + b % kBlocksPerSuper * kVectors * Lines::kBytes;
    for (int line = 0; line < Lines::kLines; ++line)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* from = codes + v * Lines::kBytes;
        Lines::fetch(from, line, shape.ahead);
        const int group = (b % kBlocksPerSuper * 2 + line * 2 / Lines::kLines) >> shape.shift;
        const Codes packed = Lines::read(from, line, _mm512_load_si512(&scales.offset[group][16 * v]));
        if constexpr (is_eight_bits(kCode)) {
          _mm512_store_si512(out.codes[b][line][v], unsigned_codes<kCode, kSparse, 0>(packed));
        } else {
          _mm512_store_si512(out.codes[b][2 * line][v], unsigned_codes<kCode, kSparse, 0>(packed));
          _mm512_store_si512(out.codes[b][2 * line + 1][v], unsigned_codes<kCode, kSparse, 1>(packed));
        }
      }
    for (int part = 0; part < parts; ++part)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int group = (b % kBlocksPerSuper * 2 + part) >> shape.shift;
        _mm512_store_ps(&out.scale[b][part][16 * v], _mm512_load_ps(&scales.scale[group][16 * v]));
        if constexpr (is_additive(kCode))
          _mm512_store_ps(&out.zero[b][part][16 * v], _mm512_load_ps(&scales.zero[group][16 * v]));
      }
  }
  _mm512_store_si512(out.largest, largest);
}

void stage_any(const PanelArgs& args, const uint8_t* super, int blocks, Staged& out) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() { stage<kCode, kSparse>(*args.layout, super, blocks, out); });
}

/// Scales the integer sums of one part of a block and adds them to the float sums.
template <bool kAdditive, bool kClamp>
MARLIN_AVX512_VNNI MARLIN_INLINE void add_scaled(const __m512i (&dot)[kRows][kVectors], const float* scale, const float* zero,
                                                 const uint32_t* d, const uint32_t* sums, __m512 (&acc)[kRows][kVectors]) {
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    const __m512 scale_of_row = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(d[r])));
    if constexpr (kAdditive) {
      const __m512 sum = _mm512_mul_ps(_mm512_set1_ps(static_cast<float>(static_cast<int32_t>(sums[r]))), scale_of_row);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_fmadd_ps(sum, _mm512_load_ps(zero + 16 * v), acc[r][v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 s = _mm512_load_ps(scale + 16 * v);
      const __m512 factor = kClamp ? finite_product(s, scale_of_row) : _mm512_mul_ps(s, scale_of_row);
      acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][v]), factor, acc[r][v]);
    }
  }
}

/// 3 rows x 64 columns over the blocks of a chunk: 12 integer and 12 float sums, 4 vectors of codes and one of activations.
template <int kParts, bool kAdditive, bool kClamp>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_tile(const Staged& staged, int blocks, bool first, int uncorrected,
                                                        const uint32_t* record, float* sums) {
  constexpr int kSteps = 8 / kParts, kRecord = (9 + kParts) * kRows;
  __m512 acc[kRows][kVectors];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kPanelColumns + 16 * v);
  for (int b = 0; b < blocks; ++b, record += kRecord) {
    _mm_prefetch(reinterpret_cast<const char*>(record) + 2048, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(record) + 2112, _MM_HINT_T0);
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      const uint32_t* extra = record + (9 + part) * kRows;
      __m512i dot[kRows][kVectors];
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        const auto sum = static_cast<int32_t>(extra[r]);
        const __m512i start = _mm512_set1_epi32(kAdditive ? -uncorrected * sum : sum);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) dot[r][v] = start;
      }
#pragma GCC unroll 8
      for (int step = part * kSteps; step < (part + 1) * kSteps; ++step) {
        __m512i w[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) w[v] = _mm512_load_si512(staged.codes[b][step][v]);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) {
          const __m512i x = _mm512_set1_epi32(static_cast<int>(record[step * kRows + r]));
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], w[v], x);
        }
        fence();
      }
      add_scaled<kAdditive, kClamp>(dot, staged.scale[b][part], staged.zero[b][part], record + 8 * kRows, extra, acc);
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(sums + r * kPanelColumns + 16 * v, acc[r][v]);
}

template <int kParts>
void tile_of_parts(const Staged& staged, int blocks, bool first, CodeKind code, bool clamp, const uint32_t* record,
                   float* sums) {
  if (is_additive(code)) {
    const int uncorrected = code == CodeKind::w8add ? 128 : 0;
    return clamp ? multiply_tile<kParts, true, true>(staged, blocks, first, uncorrected, record, sums)
                 : multiply_tile<kParts, true, false>(staged, blocks, first, uncorrected, record, sums);
  }
  return clamp ? multiply_tile<kParts, false, true>(staged, blocks, first, 0, record, sums)
               : multiply_tile<kParts, false, false>(staged, blocks, first, 0, record, sums);
}

MARLIN_AVX512 void tile_any(const Staged& staged, int blocks, bool first, const PanelArgs& args, int64_t tile,
                            const uint32_t* record, float* sums) {
  const float largest_d = std::bit_cast<float>(args.records[args.activations.largest_d_offset() + tile]);
  const bool clamp = may_overflow(_mm512_load_si512(staged.largest), scale_limit(largest_d));
  if (args.layout->slot_group == 16)
    tile_of_parts<2>(staged, blocks, first, args.code, clamp, record, sums);
  else
    tile_of_parts<1>(staged, blocks, first, args.code, clamp, record, sums);
}

}  // namespace

void cpu_avx512vnni_int8_gemm_any(const PanelArgs& args) { walk_chunks<Staged, stage_any, tile_any>(args); }

}  // namespace metal_marlin::cpu

#endif
