// INT8 compute for many rows of FP4 with E4M3 scales in groups of 16 (NVFP4). With a scale every 16 slots, 8 dot products would
// need 4 multiplications beside them. Here the two groups of a block lie in neighbouring lanes: their sums, below 2^15, are
// packed to int16 and multiplied by the two scales and added by one vpmaddwd; scales are integers times a power of two that
// both share, and that is added to the exponent of d. That leaves 2 multiplications for 8 dot products, as groups of 32 have.
//
// A lane is then (column, group): 16 columns take two vectors, with columns 0 1 4 5 8 9 12 13 and 2 3 6 7 10 11 14 15, and
// vpackssdw brings them back into order.
//
// Two scales share a power of two when their exponents differ by 11 at most: 15 << 11 fits int16. A chunk with others, or with
// a NaN, is staged as the rest of INT8 is.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8_staged.h"

namespace metal_marlin::cpu {
namespace {

constexpr ActivationLayout kRecords{
    .form = ActivationForm::int8, .tile_rows = kStagedRows, .sums_per_block = 2, .paired = true};

/// Scales of two groups of 16 columns as two int16 integers and the power of two that multiplies both.
struct PairedScales {
  __m512i integers;  ///< dword: the first group's in its low half
  __m512 power;
  __mmask16 unfit;
};

MARLIN_AVX512 MARLIN_INLINE __m512i exponent_of(__m512i bits) {
  return _mm512_and_si512(_mm512_srli_epi32(bits, 23), _mm512_set1_epi32(255));
}

/// An E4M3 number is its highest 4 bits times 2^(exponent - 3).
MARLIN_AVX512 MARLIN_INLINE __m512i integer_of(__m512i bits, __mmask16 not_zero, __m512i shift) {
  const __m512i mantissa = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(7));
  const __m512i whole = _mm512_sllv_epi32(_mm512_maskz_or_epi32(not_zero, mantissa, _mm512_set1_epi32(8)), shift);
  return _mm512_mask_sub_epi32(whole, _mm512_movepi32_mask(bits), _mm512_setzero_si512(), whole);
}

MARLIN_AVX512 MARLIN_INLINE PairedScales pair_scales(__m512 first, __m512 second) {
  const __m512i a = _mm512_castps_si512(first), b = _mm512_castps_si512(second), all = _mm512_set1_epi32(0x7fffffff);
  const __mmask16 has_a = _mm512_test_epi32_mask(a, all), has_b = _mm512_test_epi32_mask(b, all);
  // A scale of 0 has any exponent: the other's, or that of 1.
  __m512i ea = exponent_of(a), eb = _mm512_mask_mov_epi32(ea, has_b, exponent_of(b));
  ea = _mm512_mask_mov_epi32(eb, has_a, ea);
  ea = _mm512_mask_mov_epi32(_mm512_set1_epi32(127), has_a | has_b, ea);
  eb = _mm512_mask_mov_epi32(_mm512_set1_epi32(127), has_a | has_b, eb);
  const __m512i least = _mm512_min_epi32(ea, eb), most = _mm512_max_epi32(ea, eb);
  PairedScales pair;
  pair.unfit = _mm512_cmpgt_epi32_mask(_mm512_sub_epi32(most, least), _mm512_set1_epi32(11)) |
               _mm512_cmpeq_epi32_mask(most, _mm512_set1_epi32(255));
  const __m512i low = integer_of(a, has_a, _mm512_sub_epi32(ea, least)),
                high = integer_of(b, has_b, _mm512_sub_epi32(eb, least));
  pair.integers = _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16));
  pair.power = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(least, _mm512_set1_epi32(3)), 23));
  return pair;
}

/// False, with `out` half written, when some scales do not fit.
template <bool kSparse>
MARLIN_AVX512 bool stage_pairs(const PackedLayout& layout, const uint8_t* super, int blocks, StagedInt8& out) {
  using Lines = CodeLines<CodeKind::fp4, kSparse>;
  const SuperShape shape(layout);
  alignas(64) float scales[8][kPanelColumns];
  Magnitudes powers = no_magnitudes();
  __mmask16 unfit = 0;
  for (int b = 0; b < blocks; ++b) {
    const int in_super = b % kBlocksPerSuper;
    if (in_super == 0) {
      if (b != 0) super += shape.bytes;
      decode_int8_scales<CodeKind::fp4>(shape, super, 0, kStagedVectors, scales[0], nullptr);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kStagedVectors; ++v) {
      const PairedScales pair =
          pair_scales(_mm512_load_ps(&scales[2 * in_super][16 * v]), _mm512_load_ps(&scales[2 * in_super + 1][16 * v]));
      unfit |= pair.unfit;
      widen(powers, {_mm512_castps_si512(pair.power), _mm512_castps_si512(pair.power)});
      _mm512_store_si512(&out.scale[2 * b][16 * v], pair.integers);
      _mm512_store_ps(&out.scale[2 * b + 1][16 * v], pair.power);
      const uint8_t* codes = super + (in_super * kStagedVectors + v) * Lines::kBytes;
      auto* const to = reinterpret_cast<uint8_t(*)[kStagedVectors][64]>(out.codes[b][v / 2 * 4][v % 2 * 2]);
#pragma GCC unroll 2
      for (int line = 0; line < 2; ++line) {
        const Codes one = Lines::read(codes, line, _mm512_setzero_si512());
        const Codes two = Lines::read(codes, line + 2, _mm512_setzero_si512());
        const __m512i a = unsigned_codes<CodeKind::fp4, kSparse, 0>(one), b2 = unsigned_codes<CodeKind::fp4, kSparse, 0>(two);
        const __m512i c = unsigned_codes<CodeKind::fp4, kSparse, 1>(one), d = unsigned_codes<CodeKind::fp4, kSparse, 1>(two);
        _mm512_store_si512(to[2 * line][0], _mm512_unpacklo_epi32(a, b2));
        _mm512_store_si512(to[2 * line][1], _mm512_unpackhi_epi32(a, b2));
        _mm512_store_si512(to[2 * line + 1][0], _mm512_unpacklo_epi32(c, d));
        _mm512_store_si512(to[2 * line + 1][1], _mm512_unpackhi_epi32(c, d));
      }
    }
  }
  out.smallest = _mm512_reduce_min_epu32(powers.smallest);
  out.largest = _mm512_reduce_max_epu32(powers.largest);
  out.paired = true;
  return unfit == 0;
}

void stage(const PanelArgs& args, const uint8_t* super, int blocks, StagedInt8& out) {
  const PackedLayout& layout = *args.layout;
  if (layout.sparse ? stage_pairs<true>(layout, super, blocks, out) : stage_pairs<false>(layout, super, blocks, out)) return;
  layout.sparse ? stage_int8<CodeKind::fp4, true>(layout, super, blocks, out)
                : stage_int8<CodeKind::fp4, false>(layout, super, blocks, out);
}

MARLIN_AVX512 MARLIN_INLINE __m512i broadcast_pair(const uint32_t* x) { return _mm512_set1_epi64(load<int64_t>(x)); }

/// 3 rows x 64 columns over the blocks of a chunk, 32 columns at a time: 12 sums of (column, group) and 12 float sums.
template <Factor kFactor>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_pairs(const StagedInt8& staged, int blocks, bool first,
                                                         const uint32_t* record, float* sums) {
  FloatSums acc;
  load_sums(first, sums, acc);
  for (int b = 0; b < blocks; ++b, record += kRecords.record_size()) {
    fetch_records(record);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Int8Sums dot;
#pragma GCC unroll 3
      for (int r = 0; r < kStagedRows; ++r) {
        const __m512i start = broadcast_pair(record + kRecords.sum_index(0, r));
#pragma GCC unroll 4
        for (int v = 0; v < kStagedVectors; ++v) dot[r][v] = start;
      }
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) {
        __m512i w[kStagedVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kStagedVectors; ++v) w[v] = _mm512_load_si512(staged.codes[b][half * 4 + step][v]);
#pragma GCC unroll 3
        for (int r = 0; r < kStagedRows; ++r) {
          const __m512i x = broadcast_pair(record + kRecords.step_index(step, r));
#pragma GCC unroll 4
          for (int v = 0; v < kStagedVectors; ++v) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], w[v], x);
        }
        fence();
      }
#pragma GCC unroll 3
      for (int r = 0; r < kStagedRows; ++r) {
        const __m512 d = _mm512_castsi512_ps(broadcast(record + 8 * kStagedRows + r));
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const int columns = half * 2 + v;
          const __m512i both = _mm512_madd_epi16(_mm512_packs_epi32(dot[r][2 * v], dot[r][2 * v + 1]),
                                                 _mm512_load_si512(&staged.scale[2 * b][16 * columns]));
          const __m512 factor = factor_of<kFactor>(_mm512_load_ps(&staged.scale[2 * b + 1][16 * columns]), d);
          acc[r][columns] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), factor, acc[r][columns]);
        }
      }
    }
  }
  store_sums(acc, sums);
}

void tile(const StagedInt8& staged, int blocks, bool first, const PanelArgs& args, int64_t tile, const uint32_t* record,
          float* sums) {
  const auto* facts = reinterpret_cast<const float*>(args.records + args.activations.rows_offset(tile));
  if (!staged.paired)
    multiply_blocks<2, true, false, Factor::finite>(staged, blocks, first, 0, record, sums);
  else if (ScaleRange::of<true>(facts, kStagedRows).holds(staged.smallest, staged.largest))
    multiply_pairs<Factor::exponents>(staged, blocks, first, record, sums);
  else
    multiply_pairs<Factor::finite>(staged, blocks, first, record, sums);
}

}  // namespace

void cpu_avx512vnni_int8_pairs_fp4(const PanelArgs& args) {
  args.activations.paired ? walk_chunks<StagedInt8, stage, tile>(args) : cpu_avx512vnni_int8_gemm_any(args);
}

}  // namespace metal_marlin::cpu

#endif
