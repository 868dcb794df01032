// Default compute with AVX2 and FMA: weights are decoded to their value in F32, a superblock at a time into L1, and multiplied
// by tiles of up to 6 rows.
#if defined(__x86_64__)

#include <bit>

#include "backends/cpu/x86/avx2.h"

namespace metal_marlin::cpu {
namespace {

struct Staged {
  float weights[kSuperSlots][kPanelColumns];  ///< [step], in the order of activations.h
};

template <CodeKind kCode>
inline constexpr bool kEightBits = kCode == CodeKind::w8sym || kCode == CodeKind::w8add;

/// Step kStep (0..7 of a 4-bit line, 0..3 of an 8-bit one) of 8 columns: the integer or E2M1 value, without any zero.
template <CodeKind kCode, int kStep>
MARLIN_AVX2 MARLIN_INLINE __m256 code_value(__m256i line) {
  if constexpr (kEightBits<kCode>) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(line, 24 - 8 * kStep), 24));
  } else if constexpr (kCode == CodeKind::fp4) {
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(line, 28 - 4 * kStep), _mm256_set1_epi32(INT32_MIN));
    // vpermps looks at the lowest 3 bits only.
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, _mm256_srli_epi32(line, 4 * kStep)), _mm256_castsi256_ps(sign));
  } else {
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(line, 4 * kStep), _mm256_set1_epi32(15)));
  }
}

/// Steps kStep.. of a line, 8 columns. `zero`: integer zero or additive zero.
template <CodeKind kCode, int kStep = 0>
MARLIN_AVX2 MARLIN_INLINE void stage_line(__m256i line, __m256 scale, __m256 zero, float (*out)[kPanelColumns]) {
  if constexpr (kStep < (kEightBits<kCode> ? 4 : 8)) {
    __m256 value = code_value<kCode, kStep>(line);
    if constexpr (kCode == CodeKind::w4sym || kCode == CodeKind::w4zero) value = _mm256_sub_ps(value, zero);
    value = is_additive(kCode) ? _mm256_fmadd_ps(value, scale, zero) : _mm256_mul_ps(value, scale);
    _mm256_storeu_ps(out[kEightBits<kCode> ? 2 * kStep : kStep], value);
    stage_line<kCode, kStep + 1>(line, scale, zero, out);
  }
}

template <CodeKind kCode>
MARLIN_AVX2 void decode_zeros(const PackedLayout& layout, const uint8_t* zeros, float* out) {
  const int n = layout.groups_per_super() * kPanelColumns;
  if constexpr (is_additive(kCode)) return decode_scales_avx2(layout.zero_type, zeros, n, 1.0f, out);
  for (int i = 0; i < n; i += 8) {
    __m256 z = _mm256_set1_ps(8.0f);
    if constexpr (kCode == CodeKind::w4zero)
      z = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + i))));
    _mm256_storeu_ps(out + i, z);
  }
}

template <CodeKind kCode>
MARLIN_AVX2 void stage(const PackedLayout& layout, const uint8_t* super, Staged& out) {
  constexpr int kLines = kEightBits<kCode> ? 8 : 4;  // of a block
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  alignas(32) float scales[8][kPanelColumns], zeros[8][kPanelColumns];
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), layout.groups_per_super() * kPanelColumns, 1.0f,
                     &scales[0][0]);
  decode_zeros<kCode>(layout, super + layout.zeros_offset(), &zeros[0][0]);
  for (int line = 0; line < kBlocksPerSuper * kLines; ++line) {
    const int group = (line * 2 / kLines) >> shift;
    auto* to = out.weights + (kEightBits<kCode> ? line / 2 * 8 + line % 2 : line * 8);
    for (int v = 0; v < 8; ++v) {
      const uint8_t* from = super + ((line / kLines * 4 + v / 2) * kLines + line % kLines) * 64 + v % 2 * 32;
      if (v % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchAhead, _MM_HINT_T0);
      stage_line<kCode>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), _mm256_load_ps(&scales[group][8 * v]),
                        _mm256_load_ps(&zeros[group][8 * v]), reinterpret_cast<float(*)[kPanelColumns]>(&to[0][8 * v]));
    }
  }
}

void stage_any(const PanelArgs& args, const uint8_t* super, int, Staged& out) {
  const PackedLayout& layout = *args.layout;
  switch (args.code) {
    case CodeKind::w4sym:
      return stage<CodeKind::w4sym>(layout, super, out);
    case CodeKind::w4zero:
      return stage<CodeKind::w4zero>(layout, super, out);
    case CodeKind::w4add:
      return stage<CodeKind::w4add>(layout, super, out);
    case CodeKind::fp4:
      return stage<CodeKind::fp4>(layout, super, out);
    case CodeKind::w8sym:
      return stage<CodeKind::w8sym>(layout, super, out);
    case CodeKind::w8add:
      return stage<CodeKind::w8add>(layout, super, out);
  }
}

/// kRows rows x 8 kVectors columns: at most 12 sums, to leave room for weights and an activation in 16 registers.
template <int kRows, int kVectors>
MARLIN_AVX2 void multiply_columns(const float (*weights)[kPanelColumns], bool first, int64_t record_size,
                                  const uint32_t* record, float* sums) {
  __m256 acc[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = first ? _mm256_setzero_ps() : _mm256_load_ps(sums + r * kPanelColumns + 8 * v);
  for (int b = 0; b < kBlocksPerSuper; ++b, record += record_size, weights += kBlockSlots)
    for (int step = 0; step < kBlockSlots; ++step) {
      __m256 w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) w[v] = _mm256_load_ps(weights[step] + 8 * v);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(record[step * kRows + r])));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_fmadd_ps(w[v], x, acc[r][v]);
      }
    }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(sums + r * kPanelColumns + 8 * v, acc[r][v]);
}

template <int kRows>
void multiply_rows(const Staged& staged, bool first, int64_t record_size, const uint32_t* record, float* sums) {
  constexpr int kVectors = kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  for (int v = 0; v < 8; v += kVectors)
    multiply_columns<kRows, kVectors>(reinterpret_cast<const float(*)[kPanelColumns]>(&staged.weights[0][8 * v]), first,
                                      record_size, record, sums + 8 * v);
}

void multiply_tile(const Staged& staged, int, bool first, const PanelArgs& args, int64_t, const uint32_t* record, float* sums) {
  const int64_t size = args.activations.record_size();
  switch (args.activations.tile_rows) {
    case 1:
      return multiply_rows<1>(staged, first, size, record, sums);
    case 2:
      return multiply_rows<2>(staged, first, size, record, sums);
    case 3:
      return multiply_rows<3>(staged, first, size, record, sums);
    case 4:
      return multiply_rows<4>(staged, first, size, record, sums);
    case 5:
      return multiply_rows<5>(staged, first, size, record, sums);
    default:
      return multiply_rows<6>(staged, first, size, record, sums);
  }
}

}  // namespace

void cpu_avx2_f32_fold_any(const PanelArgs& args) { walk_chunks<Staged, stage_any, multiply_tile>(args); }

}  // namespace metal_marlin::cpu

#endif
