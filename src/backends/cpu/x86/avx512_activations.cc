// Preparing activations 16 at a time. The same bits as prepare_activations gives, but for the order of float sums.
#if defined(__x86_64__)

#include <cmath>
#include <limits>

#include "backends/cpu/x86/avx512.h"
#include "core/shapes.h"

namespace metal_marlin::cpu {
namespace {

/// 32 slots of one row.
struct Block32 {
  __m512 low, high;
};

MARLIN_AVX512 MARLIN_INLINE __m512 load_16(marlin_dtype dtype, const std::byte* p, __mmask16 mask) {
  if (dtype == MARLIN_F32) return _mm512_maskz_loadu_ps(mask, p);
  const __m256i half = _mm256_maskz_loadu_epi16(mask, p);
  if (dtype == MARLIN_F16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Lanes beyond the row's end are masked off, so nothing outside it is touched.
MARLIN_AVX512 MARLIN_INLINE Block32 load_block(const PrepareArgs& args, int64_t row, int64_t block) {
  const MatrixView& a = *args.a;
  if (args.slot_to_k != nullptr) {
    alignas(64) float x[kBlockSlots];
    gather_block(args, row, block, x);
    return {_mm512_load_ps(x), _mm512_load_ps(x + 16)};
  }
  const int64_t element = static_cast<int64_t>(float_bytes(a.dtype)), first = block * kBlockSlots, left = a.cols - first;
  const uint32_t mask = left >= 32 ? ~0u : left <= 0 ? 0 : (1u << left) - 1;
  const std::byte* from = static_cast<const std::byte*>(a.data) + (row * a.stride + (left > 0 ? first : 0)) * element;
  return {load_16(a.dtype, from, static_cast<__mmask16>(mask)),
          load_16(a.dtype, from + 16 * element, static_cast<__mmask16>(mask >> 16))};
}

/// Element i to to[i * rows].
MARLIN_AVX512 MARLIN_INLINE void store_strided(__m512i x, int rows, uint32_t* to) {
  if (rows == 1) return _mm512_storeu_si512(to, x);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  _mm512_i32scatter_epi32(to, _mm512_mullo_epi32(lane, _mm512_set1_epi32(rows)), x, 4);
}

/// 16 steps of a row, from `first` on.
MARLIN_AVX512 MARLIN_INLINE void store_steps(__m512i x, const ActivationLayout& layout, int first, int row, uint32_t* record) {
  const int rows = layout.tile_rows;
  if (!layout.gathered || rows == 1) return store_strided(x, rows, record + first * rows + row);
  alignas(64) uint32_t steps[16];
  _mm512_store_si512(steps, x);
  for (int s = 0; s < 16; ++s) record[layout.step_index(first + s, row)] = steps[s];
}

/// Returns d.
MARLIN_AVX512 MARLIN_INLINE float write_int8(Block32 x, const ActivationLayout& layout, int row, uint32_t* record) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i low = _mm512_and_si512(_mm512_castps_si512(x.low), magnitude);
  const uint32_t largest =
      _mm512_reduce_max_epu32(_mm512_max_epu32(low, _mm512_and_si512(_mm512_castps_si512(x.high), magnitude)));
  float d = largest >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(largest) / 127.0f;
  if (d == 0) d = 1;
  __m512i q[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  if (!std::isnan(d)) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    // Next to the smallest float d may be much less than max / 127, and the quotient more than 127.
    const __m512 most = _mm512_set1_ps(127.0f), least = _mm512_set1_ps(-127.0f);
    for (int i = 0; i < 2; ++i) {
      const __m512 quotient = _mm512_div_ps(i == 0 ? x.low : x.high, _mm512_set1_ps(d));
      q[i] = _mm512_cvt_roundps_epi32(_mm512_max_ps(least, _mm512_min_ps(most, quotient)), kNearestEven);
    }
  }
  alignas(32) uint32_t bytes[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm512_cvtepi32_epi8(q[0]));
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes) + 1, _mm512_cvtepi32_epi8(q[1]));
  const uint32_t bias = layout.gathered ? 0x80808080u : 0;
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) record[layout.step_index(s, row)] = bytes[s] ^ bias;
  record[8 * layout.tile_rows + row] = std::bit_cast<uint32_t>(d);
  int32_t sums[2] = {_mm512_reduce_add_epi32(q[0]), _mm512_reduce_add_epi32(q[1])};
  if (layout.sums_per_block == 1) sums[0] += sums[1];
  for (int p = 0; p < layout.sums_per_block; ++p)
    record[layout.sum_index(p, row)] = static_cast<uint32_t>(sums[p] * layout.sum_factor);
  return d;
}

MARLIN_AVX512 MARLIN_INLINE void write_float_sums(Block32 x, const ActivationLayout& layout, uint32_t* extras) {
  if (layout.sums_per_block == 1) extras[0] = std::bit_cast<uint32_t>(_mm512_reduce_add_ps(_mm512_add_ps(x.low, x.high)));
  if (layout.sums_per_block == 2) {
    extras[0] = std::bit_cast<uint32_t>(_mm512_reduce_add_ps(x.low));
    extras[layout.tile_rows] = std::bit_cast<uint32_t>(_mm512_reduce_add_ps(x.high));
  }
}

MARLIN_AVX512 MARLIN_INLINE void write_bf16(Block32 x, const ActivationLayout& layout, int row, uint32_t* record) {
  // Within 8 slots the steps hold slots (0, 2) (4, 6) (1, 3) (5, 7); gathered, neighbours.
  const __m512i pairs_of_8 = _mm512_setr_epi32(0, 4, 1, 5, 8, 12, 9, 13, 16, 20, 17, 21, 24, 28, 25, 29);
  const __m512i neighbours = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i first = layout.gathered ? neighbours : pairs_of_8;
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(layout.gathered ? 1 : 2));
  const __m512 a = _mm512_permutex2var_ps(x.low, first, x.high), b = _mm512_permutex2var_ps(x.low, second, x.high);
  const __m512i pairs = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b));
  store_steps(pairs, layout, 0, row, record);
  write_float_sums(x, layout, record + 16 * layout.tile_rows + row);
}

MARLIN_AVX512 MARLIN_INLINE void write_f32(Block32 x, const ActivationLayout& layout, int row, uint32_t* record) {
  const __m512i order = layout.gathered ? _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                                        : _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  store_steps(_mm512_castps_si512(_mm512_permutexvar_ps(order, x.low)), layout, 0, row, record);
  store_steps(_mm512_castps_si512(_mm512_permutexvar_ps(order, x.high)), layout, 16, row, record);
  write_float_sums(x, layout, record + 32 * layout.tile_rows + row);
}

/// Whether the block holds NaN or an infinity.
MARLIN_AVX512 MARLIN_INLINE bool non_finite(Block32 x) {
  constexpr int kNanOrInfinity = 0x01 | 0x08 | 0x10 | 0x80;  // quiet NaN, +infinity, -infinity, signalling NaN
  return (_mm512_fpclass_ps_mask(x.low, kNanOrInfinity) | _mm512_fpclass_ps_mask(x.high, kNanOrInfinity)) != 0;
}

}  // namespace

MARLIN_AVX512 void prepare_activations_avx512(const PrepareArgs& args, int64_t tile_begin, int64_t tile_end) {
  const ActivationLayout& layout = args.layout;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const bool int8 = layout.form == ActivationForm::int8, poisons = layout.gathered && !int8;
    uint32_t* const facts = args.out + layout.rows_offset(tile);
    DRange range(facts, int8 ? layout.tile_rows : 0);
    for (int r = 0; poisons && r < layout.tile_rows; ++r) facts[r] = 0;
    for (int64_t block = 0; block < layout.blocks; ++block) {
      uint32_t* const record = args.out + layout.offset(tile, block);
      for (int r = 0; r < layout.written_rows(tile); ++r) {
        const int64_t row = tile * layout.tile_rows + r;
        Block32 x{_mm512_setzero_ps(), _mm512_setzero_ps()};
        if (row < args.rows) x = load_block(args, args.row_of_a(row), block);
        if (layout.form == ActivationForm::int8) {
          range.add(r, write_int8(x, layout, r, record));
        } else if (layout.form == ActivationForm::bf16) {
          write_bf16(x, layout, r, record);
        } else {
          write_f32(x, layout, r, record);
        }
        if (poisons && non_finite(x)) facts[r] = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

}  // namespace metal_marlin::cpu

#endif
