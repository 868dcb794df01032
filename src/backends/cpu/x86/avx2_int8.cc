// INT8 compute with AVX2: codes are staged as bytes, a superblock at a time, and multiplied by vpmaddubsw, whose pair sums must
// stay inside int16:
//   4-bit  unsigned code u <= 15 (w4sym, w4add), 24 (fp4: 2 * value + 12), 31 (w4zero: code + 16 - zero), times |x| <= 127:
//          4 steps of pair sums are at most 4 * 2 * 31 * 127 = 31496 and are added as int16
//   8-bit  |code| <= 128 unsigned times x with the code's sign: 2 * 128 * 127 = 32512, widened every step
#if defined(__x86_64__)

#include <bit>
#include <cfloat>

#include "backends/cpu/x86/avx2.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kStepsPerSuper = kSuperSlots / 4;

struct Staged {
  uint8_t codes[kStepsPerSuper][kPanelColumns][4];
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];  ///< additive zeros
  /// 1 where a code is kept, 0 elsewhere: 2:4 sparse with additive zeros
  uint8_t kept[kStepsPerSuper][kPanelColumns][4];
};

/// Quad kQuad of 8 columns as the unsigned bytes of the table above.
template <CodeKind kCode, bool kSparse, int kQuad>
MARLIN_AVX2 MARLIN_INLINE __m256i unsigned_codes(Codes8 codes) {
  const __m256i bytes = CodeLines8<kCode, kSparse>::template bytes<kQuad>(codes);
  if constexpr (kCode == CodeKind::w4zero) return bytes;
  const __m256i code = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
  if constexpr (kCode == CodeKind::fp4) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), code);
  }
  return code;
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX2 void stage(const PackedLayout& layout, const uint8_t* super, Staged& out) {
  using Lines = CodeLines8<kCode, kSparse>;
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  const int n = layout.groups_per_super() * kPanelColumns;
  const uint8_t* zeros = super + layout.zeros_offset();
  // FP4 codes are multiplied as 2 * value.
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n, kCode == CodeKind::fp4 ? 0.5f : 1.0f,
                     &out.scale[0][0]);
  if constexpr (is_additive(kCode)) decode_scales_avx2(layout.zero_type, zeros, n, 1.0f, &out.zero[0][0]);
  const int64_t ahead = fetch_distance(layout.super_bytes());
  fetch_lines(super + ahead + layout.scales_offset(), layout.super_bytes() - layout.scales_offset());
  for (int line = 0; line < kBlocksPerSuper * Lines::kLines; ++line)
    for (int v = 0; v < 8; ++v) {
      const int in_block = line % Lines::kLines, group = (line * 2 / Lines::kLines) >> shift;
      const uint8_t* from = super + (line / Lines::kLines * kColumnGroups + v / 2) * Lines::kBytes;
      if (v % 2 == 0) Lines::fetch(from, in_block, ahead);
      const Codes8 codes = Lines::read(from, in_block, v % 2, zeros + group * kPanelColumns + 8 * v);
      const auto to = [&](int step) { return reinterpret_cast<__m256i*>(out.codes[step][8 * v]); };
      if constexpr (is_eight_bits(kCode)) {
        _mm256_store_si256(to(line), codes.low);
      } else {
        _mm256_store_si256(to(2 * line), unsigned_codes<kCode, kSparse, 0>(codes));
        _mm256_store_si256(to(2 * line + 1), unsigned_codes<kCode, kSparse, 1>(codes));
      }
      if constexpr (Lines::kCountsKept) {
        const Codes8 kept = Lines::kept(from, in_block, v % 2);
        _mm256_store_si256(reinterpret_cast<__m256i*>(out.kept[2 * line][8 * v]), kept.low);
        _mm256_store_si256(reinterpret_cast<__m256i*>(out.kept[2 * line + 1][8 * v]), kept.high);
      }
    }
}

void stage_any(const PanelArgs& args, const uint8_t* super, int, Staged& out) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() { stage<kCode, kSparse>(*args.layout, super, out); });
}

/// How a tile walks a superblock.
struct Walk {
  const Staged* staged;
  int parts;        ///< of a block: 2 with groups of 16
  int group_shift;  ///< log2 of the parts of 16 slots in a group
  bool additive, eight_bits;
  bool counts_kept;  ///< zeros take part where codes are kept: their sums are a dot product of their own
  int64_t record_size;
};

/// Integer sums of 16 slots, 8 columns.
template <int kRows, int kVectors, bool kEight>
MARLIN_AVX2 MARLIN_INLINE void dot_16(const uint8_t (*codes)[kPanelColumns][4], const uint32_t* x,
                                      __m256i (&dot)[kRows][kVectors]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[kRows][kVectors];
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i b = _mm256_set1_epi32(static_cast<int>(x[step * kRows + r]));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes[step][8 * v]));
        if constexpr (kEight) {
          const __m256i product = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(b, w));
          dot[r][v] = _mm256_add_epi32(dot[r][v], _mm256_madd_epi16(product, ones));
        } else {
          const __m256i product = _mm256_maddubs_epi16(w, b);
          pairs[r][v] = step == 0 ? product : _mm256_add_epi16(pairs[r][v], product);
        }
      }
    }
  if constexpr (!kEight)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm256_add_epi32(dot[r][v], _mm256_madd_epi16(pairs[r][v], ones));
}

/// Scaled integer sums of 8 columns, added to the float sums. A finite scale times d is kept finite: where the integer sum is 0
/// an infinite factor would give NaN.
MARLIN_AVX2 MARLIN_INLINE void add_scaled(__m256i dot, const float* scale, const float* zero, float d, float block_sum,
                                          float* sums) {
  const __m256 limit = _mm256_set1_ps(FLT_MAX), lowest = _mm256_set1_ps(-FLT_MAX), s = _mm256_load_ps(scale);
  __m256 sum = _mm256_load_ps(sums);
  if (zero != nullptr) sum = _mm256_fmadd_ps(_mm256_set1_ps(block_sum * d), _mm256_load_ps(zero), sum);
  const __m256 factor = _mm256_mul_ps(s, _mm256_set1_ps(d));
  const __m256 clamped = _mm256_max_ps(lowest, _mm256_min_ps(limit, factor));  // NaN stays NaN
  const __m256 infinite = _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), s), limit, _CMP_GT_OQ);
  _mm256_store_ps(sums, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_blendv_ps(clamped, factor, infinite), sum));
}

/// Additive zeros of 2:4 sparse weights: zero * d * sum of the activations where a code is kept, for steps [first, end) of
/// block b.
template <int kRows, int kVectors>
MARLIN_AVX2 MARLIN_INLINE void add_kept(const Walk& walk, int b, int first, int end, int group, int column,
                                        const uint32_t* record, float* sums) {
  __m256i dot[kRows][kVectors] = {};
  for (int step = first; step < end; step += 4)
    dot_16<kRows, kVectors, false>(
        reinterpret_cast<const uint8_t(*)[kPanelColumns][4]>(walk.staged->kept[b * 8 + step][column]), record + step * kRows,
        dot);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m256 d = _mm256_set1_ps(std::bit_cast<float>(record[8 * kRows + r]));
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + r * kPanelColumns + column + 8 * v;
      const __m256 zero = _mm256_load_ps(&walk.staged->zero[group][column + 8 * v]);
      _mm256_store_ps(to, _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot[r][v]), d), zero, _mm256_load_ps(to)));
    }
  }
}

/// kRows rows x 16 columns of a superblock. Bytes of 8-bit codes are signed here, so they need no correction by the sums.
template <int kRows, bool kEight>
MARLIN_AVX2 void multiply_columns(const Walk& walk, int column, const uint32_t* record, float* sums) {
  constexpr int kVectors = 2;
  for (int b = 0; b < kBlocksPerSuper; ++b, record += walk.record_size)
    for (int part = 0; part < walk.parts; ++part) {
      const uint32_t* extra = record + (9 + part) * kRows;
      __m256i dot[kRows][kVectors];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          dot[r][v] = walk.additive || kEight ? _mm256_setzero_si256() : _mm256_set1_epi32(static_cast<int>(extra[r]));
      const int first = part * 4, end = walk.parts == 2 ? first + 4 : 8, group = (b * 2 + part) >> walk.group_shift;
      if (walk.counts_kept) add_kept<kRows, kVectors>(walk, b, first, end, group, column, record, sums);
      for (int step = first; step < end; step += 4)
        dot_16<kRows, kVectors, kEight>(
            reinterpret_cast<const uint8_t(*)[kPanelColumns][4]>(walk.staged->codes[b * 8 + step][column]),
            record + step * kRows, dot);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          add_scaled(dot[r][v], &walk.staged->scale[group][column + 8 * v],
                     walk.additive && !walk.counts_kept ? &walk.staged->zero[group][column + 8 * v] : nullptr,
                     std::bit_cast<float>(record[8 * kRows + r]), static_cast<float>(static_cast<int32_t>(extra[r])),
                     sums + r * kPanelColumns + column + 8 * v);
    }
}

template <int kRows>
MARLIN_AVX2 void multiply_rows(const Walk& walk, bool first, const uint32_t* record, float* sums) {
  if (first)
    for (int i = 0; i < kRows * kPanelColumns; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  for (int column = 0; column < kPanelColumns; column += 16)
    if (walk.eight_bits)
      multiply_columns<kRows, true>(walk, column, record, sums);
    else
      multiply_columns<kRows, false>(walk, column, record, sums);
}

void multiply_tile(const Staged& staged, int, bool first, const PanelArgs& args, int64_t, const uint32_t* record, float* sums) {
  const int group = args.layout->slot_group;
  const Walk walk{&staged,
                  group == 16 ? 2 : 1,
                  std::countr_zero(static_cast<unsigned>(group / 16)),
                  is_additive(args.code),
                  args.layout->code_bits == 8,
                  is_additive(args.code) && args.layout->sparse,
                  args.activations.record_size()};
  switch (args.activations.tile_rows) {
    case 1:
      return multiply_rows<1>(walk, first, record, sums);
    case 2:
      return multiply_rows<2>(walk, first, record, sums);
    case 3:
      return multiply_rows<3>(walk, first, record, sums);
    default:
      return multiply_rows<4>(walk, first, record, sums);
  }
}

}  // namespace

void cpu_avx2_int8_gemm_any(const PanelArgs& args) { walk_chunks<Staged, stage_any, multiply_tile>(args); }

}  // namespace metal_marlin::cpu

#endif
