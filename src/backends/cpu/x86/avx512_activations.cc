// Prepares activations 16 at a time. The results have the same bits as those of
// prepare_activations, except for the order of float sums.
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

// Classes of _mm512_fpclass_ps_mask: quiet and signalling NaN; +infinity and -infinity besides.
constexpr int kNan = 0x01 | 0x80, kNanOrInfinity = kNan | 0x08 | 0x10;

/// A mask of 32 bits whose lowest n bits are ones.
MARLIN_INLINE uint32_t lowest_bits(int64_t n) {
  if (n >= 32) return ~0u;
  return n <= 0 ? 0 : (1u << n) - 1;
}

/// Lanes beyond the end of the row are masked off, so no memory outside the row is accessed.
MARLIN_AVX512 MARLIN_INLINE Block32 load_block(const PrepareArgs& args, int64_t row,
                                               int64_t block) {
  const MatrixView& a = *args.a;
  if (args.slot_to_k != nullptr) {
    alignas(64) float x[kBlockSlots];
    gather_block(args, row, block, x);
    return {_mm512_load_ps(x), _mm512_load_ps(x + 16)};
  }
  const int64_t element = static_cast<int64_t>(float_bytes(a.dtype)), first = block * kBlockSlots,
                left = a.cols - first;
  const uint32_t mask = lowest_bits(left);
  const std::byte* from =
      static_cast<const std::byte*>(a.data) + (row * a.stride + (left > 0 ? first : 0)) * element;
  return {load_16(a.dtype, from, static_cast<__mmask16>(mask)),
          load_16(a.dtype, from + 16 * element, static_cast<__mmask16>(mask >> 16))};
}

/// Loads a block of row `row` of the product, or zeros past the last row.
MARLIN_AVX512 MARLIN_INLINE Block32 load_row(const PrepareArgs& args, int64_t row, int64_t block) {
  if (row < args.rows) return load_block(args, args.row_of_a(row), block);
  return {_mm512_setzero_ps(), _mm512_setzero_ps()};
}

/// Stores element i to to[i * rows].
MARLIN_AVX512 MARLIN_INLINE void store_strided(__m512i x, int rows, uint32_t* to) {
  if (rows == 1) return _mm512_storeu_si512(to, x);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  _mm512_i32scatter_epi32(to, _mm512_mullo_epi32(lane, _mm512_set1_epi32(rows)), x, 4);
}

/// Stores 16 steps of a row, from `first` on.
MARLIN_AVX512 MARLIN_INLINE void store_steps(__m512i x, const ActivationLayout& layout, int first,
                                             int row, uint32_t* a_block) {
  const int rows = layout.tile_rows;
  if (layout.has_whole_rows())
    return _mm512_storeu_si512(a_block + layout.step_index(first, row), x);
  if (!layout.gathered || rows == 1) return store_strided(x, rows, a_block + first * rows + row);
  alignas(64) uint32_t steps[16];
  _mm512_store_si512(steps, x);
  for (int s = 0; s < 16; ++s) a_block[layout.step_index(first + s, row)] = steps[s];
}

MARLIN_AVX512 MARLIN_INLINE __m512i quotient(__m512 x, __m512 d) {
  constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  // Near the smallest float, d may be much less than max / 127, and the quotient may exceed 127.
  const __m512 most = _mm512_set1_ps(127.0f), least = _mm512_set1_ps(-127.0f);
  return _mm512_cvt_roundps_epi32(_mm512_max_ps(least, _mm512_min_ps(most, _mm512_div_ps(x, d))),
                                  kNearestEven);
}

/// Returns d.
MARLIN_AVX512 MARLIN_INLINE float write_int8(Block32 x, const ActivationLayout& layout, int row,
                                             uint32_t* a_block) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i low = _mm512_and_si512(_mm512_castps_si512(x.low), magnitude);
  const uint32_t largest = _mm512_reduce_max_epu32(
      _mm512_max_epu32(low, _mm512_and_si512(_mm512_castps_si512(x.high), magnitude)));
  float d = largest >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN()
                                   : std::bit_cast<float>(largest) / 127.0f;
  if (d == 0) d = 1;
  __m512i q[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  if (!std::isnan(d)) {
    q[0] = quotient(x.low, _mm512_set1_ps(d));
    q[1] = quotient(x.high, _mm512_set1_ps(d));
  }
  alignas(32) uint32_t bytes[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm512_cvtepi32_epi8(q[0]));
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes) + 1, _mm512_cvtepi32_epi8(q[1]));
  const uint32_t bias = layout.gathered ? 0x80808080u : 0;
  MARLIN_UNROLLED(s, 8) a_block[layout.step_index(s, row)] = bytes[s] ^ bias;
  a_block[8 * layout.tile_rows + row] = std::bit_cast<uint32_t>(d);
  int32_t sums[2] = {_mm512_reduce_add_epi32(q[0]), _mm512_reduce_add_epi32(q[1])};
  if (layout.sums_per_block == 1) sums[0] += sums[1];
  for (int p = 0; p < layout.sums_per_block; ++p)
    a_block[layout.sum_index(p, row)] = static_cast<uint32_t>(sums[p] * layout.sum_factor);
  return d;
}

MARLIN_AVX512 MARLIN_INLINE void write_float_sums(Block32 x, const ActivationLayout& layout,
                                                  uint32_t* extras) {
  if (layout.sums_per_block == 1)
    extras[0] = std::bit_cast<uint32_t>(_mm512_reduce_add_ps(_mm512_add_ps(x.low, x.high)));
  if (layout.sums_per_block == 2) {
    extras[0] = std::bit_cast<uint32_t>(_mm512_reduce_add_ps(x.low));
    extras[layout.tile_rows] = std::bit_cast<uint32_t>(_mm512_reduce_add_ps(x.high));
  }
}

/// The 16 steps of a block in BF16.
MARLIN_AVX512 MARLIN_INLINE __m512i bf16_steps(Block32 x, const ActivationLayout& layout) {
  // Within 8 slots, the steps hold slots (0, 2) (4, 6) (1, 3) (5, 7); if gathered, neighbors.
  const __m512i pairs_of_8 =
      _mm512_setr_epi32(0, 4, 1, 5, 8, 12, 9, 13, 16, 20, 17, 21, 24, 28, 25, 29);
  const __m512i neighbors =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i first = layout.gathered ? neighbors : pairs_of_8;
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(layout.gathered ? 1 : 2));
  const __m512 a = _mm512_permutex2var_ps(x.low, first, x.high),
               b = _mm512_permutex2var_ps(x.low, second, x.high);
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b));
}

/// Returns the BF16 pieces of floats (activations.h), and leaves the rest in x.
MARLIN_AVX512 MARLIN_INLINE __m512 take_piece(__m512& x) {
  const __m512i bits =
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  const __m512 piece = _mm512_castsi512_ps(_mm512_mask_or_epi32(
      bits, _mm512_fpclass_ps_mask(x, kNan), bits, _mm512_set1_epi32(0x400000)));
  x = _mm512_maskz_sub_ps(_knot_mask16(_mm512_fpclass_ps_mask(x, kNanOrInfinity)), x, piece);
  return piece;
}
MARLIN_AVX512 MARLIN_INLINE Block32 take_pieces(Block32& x) {
  const __m512 low = take_piece(x.low);
  return {low, take_piece(x.high)};
}

MARLIN_AVX512 MARLIN_INLINE void write_bf16x3(Block32 x, const ActivationLayout& layout, int row,
                                              uint32_t* a_block) {
  Block32 rest = x;
  for (int p = 0; p < kPieces; ++p)
    store_steps(bf16_steps(take_pieces(rest), layout), layout, 16 * p, row, a_block);
  write_float_sums(x, layout, a_block + layout.steps() * layout.tile_rows + row);
}

MARLIN_AVX512 MARLIN_INLINE void write_bf16(Block32 x, const ActivationLayout& layout, int row,
                                            uint32_t* a_block) {
  store_steps(bf16_steps(x, layout), layout, 0, row, a_block);
  write_float_sums(x, layout, a_block + 16 * layout.tile_rows + row);
}

/// 16 of the steps of a block in F32.
MARLIN_AVX512 MARLIN_INLINE __m512i f32_steps(__m512 x, const ActivationLayout& layout) {
  const __m512i order =
      layout.gathered ? _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                      : _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return _mm512_castps_si512(_mm512_permutexvar_ps(order, x));
}

MARLIN_AVX512 MARLIN_INLINE void write_f32(Block32 x, const ActivationLayout& layout, int row,
                                           uint32_t* a_block) {
  store_steps(f32_steps(x.low, layout), layout, 0, row, a_block);
  store_steps(f32_steps(x.high, layout), layout, 16, row, a_block);
  write_float_sums(x, layout, a_block + 32 * layout.tile_rows + row);
}

/// Brings a later block of rows `row` to `row` + 3 of the product near. Rows lie far apart, and a
/// tile takes a little of each in turn, which no prefetcher of the processor foresees.
MARLIN_AVX512 MARLIN_INLINE void prefetch_rows(const PrepareArgs& args, int64_t row,
                                               int64_t block) {
  constexpr int64_t kAhead = 4, kLine = 64;
  const MatrixView& a = *args.a;
  const int64_t element = static_cast<int64_t>(float_bytes(a.dtype)),
                first = (block + kAhead) * kBlockSlots, bytes = kBlockSlots * element;
  if (args.slot_to_k != nullptr || first + kBlockSlots > a.cols || row + 4 > args.rows) return;
  for (int64_t r = row; r < row + 4; ++r) {
    const std::byte* const from =
        static_cast<const std::byte*>(a.data) + (args.row_of_a(r) * a.stride + first) * element;
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at);
  }
}

struct Largest {
  MARLIN_AVX512 MARLIN_INLINE static __m256i of(__m256i a, __m256i b) {
    return _mm256_max_epu32(a, b);
  }
  MARLIN_AVX512 MARLIN_INLINE static __m128i of(__m128i a, __m128i b) {
    return _mm_max_epu32(a, b);
  }
};
struct Sum {
  MARLIN_AVX512 MARLIN_INLINE static __m256i of(__m256i a, __m256i b) {
    return _mm256_add_epi32(a, b);
  }
  MARLIN_AVX512 MARLIN_INLINE static __m128i of(__m128i a, __m128i b) {
    return _mm_add_epi32(a, b);
  }
};

/// Reduces the vectors of four rows; the result of row i is dword i.
template <class Reduction>
MARLIN_AVX512 MARLIN_INLINE __m128i reduce_rows(const __m512i (&x)[4]) {
  __m128i row[4];
  MARLIN_UNROLLED(i, 4) {
    const __m256i half =
        Reduction::of(_mm512_castsi512_si256(x[i]), _mm512_extracti64x4_epi64(x[i], 1));
    row[i] = Reduction::of(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  }
  const __m128i first =
      Reduction::of(_mm_unpacklo_epi32(row[0], row[1]), _mm_unpackhi_epi32(row[0], row[1]));
  const __m128i second =
      Reduction::of(_mm_unpacklo_epi32(row[2], row[3]), _mm_unpackhi_epi32(row[2], row[3]));
  return Reduction::of(_mm_unpacklo_epi64(first, second), _mm_unpackhi_epi64(first, second));
}

MARLIN_AVX512 MARLIN_INLINE void store_dwords(__m128i x, uint32_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), x);
}

/// Stores steps [first, first + 4 kLanes) of rows `row` to `row` + 3, which lie together (run 1),
/// or each of which lies together (a run of that many steps). Scattering dwords would take several
/// times as long.
template <int kLanes>
MARLIN_AVX512 MARLIN_INLINE void store_rows(const __m512i (&x)[4], const ActivationLayout& layout,
                                            int first, int row, uint32_t* a_block) {
  if (layout.run != 1) {
    MARLIN_UNROLLED(i, 4)
      _mm512_mask_storeu_epi32(a_block + layout.step_index(first, row + i),
                               static_cast<__mmask16>((1 << 4 * kLanes) - 1), x[i]);
    return;
  }
  const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
  const __m512i c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
  // Lane l of vector i holds step 4 l + i.
  const __m512i steps[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c),
                            _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
  uint32_t* const to = a_block + first * layout.tile_rows + row;
  MARLIN_UNROLLED(i, 4) {
    store_dwords(_mm512_castsi512_si128(steps[i]), to + i * layout.tile_rows);
    store_dwords(_mm512_extracti32x4_epi32(steps[i], 1), to + (4 + i) * layout.tile_rows);
    if constexpr (kLanes == 4) {
      store_dwords(_mm512_extracti32x4_epi32(steps[i], 2), to + (8 + i) * layout.tile_rows);
      store_dwords(_mm512_extracti32x4_epi32(steps[i], 3), to + (12 + i) * layout.tile_rows);
    }
  }
}

/// DRange::add for the d of four rows.
MARLIN_AVX512 MARLIN_INLINE void add_to_range(__m128 d, int row, DRange& range) {
  float *const largest = range.largest() + row, *const smallest = range.smallest() + row;
  // max returns its second operand if one is NaN.
  _mm_storeu_ps(largest, _mm_max_ps(d, _mm_loadu_ps(largest)));
  const __m128 before = _mm_loadu_ps(smallest);
  const __m128 less = _mm_mask_mov_ps(before, _mm_cmp_ps_mask(d, before, _CMP_LT_OQ), d);
  _mm_storeu_ps(smallest, _mm_maskz_mov_ps(_mm_cmp_ps_mask(d, d, _CMP_ORD_Q), less));
}

/// Does the work of write_int8 for four rows.
MARLIN_AVX512 MARLIN_INLINE void write_int8_rows(const Block32 (&x)[4],
                                                 const ActivationLayout& layout, int row,
                                                 uint32_t* a_block, DRange& range) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest[4];
  MARLIN_UNROLLED(i, 4)
    largest[i] = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x[i].low), magnitude),
                                  _mm512_and_si512(_mm512_castps_si512(x[i].high), magnitude));
  const __m128i most_of_row = reduce_rows<Largest>(largest);
  __m128 d = _mm_div_ps(_mm_castsi128_ps(most_of_row), _mm_set1_ps(127.0f));
  d = _mm_mask_mov_ps(d, _mm_cmp_ps_mask(d, _mm_setzero_ps(), _CMP_EQ_OQ), _mm_set1_ps(1.0f));
  const __mmask8 bad = _mm_cmpge_epu32_mask(most_of_row, _mm_set1_epi32(0x7f800000));
  d = _mm_mask_mov_ps(d, bad, _mm_set1_ps(std::numeric_limits<float>::quiet_NaN()));
  add_to_range(d, row, range);
  _mm_storeu_ps(reinterpret_cast<float*>(a_block + 8 * layout.tile_rows + row), d);
  __m512i steps[4], sums[2][4];
  MARLIN_UNROLLED(i, 4) {
    const __m512 divisor = _mm512_broadcastss_ps(_mm_permutevar_ps(d, _mm_set1_epi32(i)));
    // If d is NaN, all values are -2^31, whose bytes are 0. 16 of them sum to 0.
    sums[0][i] = quotient(x[i].low, divisor);
    sums[1][i] = quotient(x[i].high, divisor);
    steps[i] = _mm512_castsi256_si512(
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(sums[0][i])),
                                _mm512_cvtepi32_epi8(sums[1][i]), 1));
    if (layout.sums_per_block == 1) sums[0][i] = _mm512_add_epi32(sums[0][i], sums[1][i]);
  }
  store_rows<2>(steps, layout, 0, row, a_block);
  for (int p = 0; p < layout.sums_per_block; ++p) {
    const __m128i sum = reduce_rows<Sum>(sums[p]);
    store_dwords(_mm_mullo_epi32(sum, _mm_set1_epi32(layout.sum_factor)),
                 a_block + layout.sum_index(p, row));
  }
}

/// Whether the block holds NaN or an infinity.
MARLIN_AVX512 MARLIN_INLINE bool non_finite(Block32 x) {
  return (_mm512_fpclass_ps_mask(x.low, kNanOrInfinity) |
          _mm512_fpclass_ps_mask(x.high, kNanOrInfinity)) != 0;
}

/// Writes rows `row` to `row` + 3 of a tile, for layouts that store_rows writes.
MARLIN_AVX512 MARLIN_INLINE void write_rows(const Block32 (&x)[4], const ActivationLayout& layout,
                                            int row, uint32_t* a_block, DRange& range) {
  __m512i steps[4];
  if (layout.form == ActivationForm::int8) {
    write_int8_rows(x, layout, row, a_block, range);
    return;
  }
  if (layout.form == ActivationForm::bf16) {
    for (int i = 0; i < 4; ++i) steps[i] = bf16_steps(x[i], layout);
    store_rows<4>(steps, layout, 0, row, a_block);
  } else if (layout.form == ActivationForm::bf16x3) {
    Block32 rest[4] = {x[0], x[1], x[2], x[3]};
    for (int p = 0; p < kPieces; ++p) {
      for (int i = 0; i < 4; ++i) steps[i] = bf16_steps(take_pieces(rest[i]), layout);
      store_rows<4>(steps, layout, 16 * p, row, a_block);
    }
  } else {
    for (int i = 0; i < 4; ++i) steps[i] = f32_steps(x[i].low, layout);
    store_rows<4>(steps, layout, 0, row, a_block);
    for (int i = 0; i < 4; ++i) steps[i] = f32_steps(x[i].high, layout);
    store_rows<4>(steps, layout, 16, row, a_block);
  }
  for (int i = 0; layout.sums_per_block != 0 && i < 4; ++i)
    write_float_sums(x[i], layout, a_block + layout.steps() * layout.tile_rows + row + i);
}

MARLIN_AVX512 MARLIN_INLINE void write_row(Block32 x, const ActivationLayout& layout, int row,
                                           uint32_t* a_block, DRange& range) {
  if (layout.form == ActivationForm::int8) {
    range.add(row, write_int8(x, layout, row, a_block));
  } else if (layout.form == ActivationForm::bf16) {
    write_bf16(x, layout, row, a_block);
  } else if (layout.form == ActivationForm::bf16x3) {
    write_bf16x3(x, layout, row, a_block);
  } else {
    write_f32(x, layout, row, a_block);
  }
}

}  // namespace

MARLIN_AVX512 void prepare_activations_avx512(const PrepareArgs& args, int64_t tile_begin,
                                              int64_t tile_end) {
  if (args.group_blocks != 1) return prepare_activations(args, tile_begin, tile_end);
  const ActivationLayout& layout = args.layout;
  const bool int8 = layout.form == ActivationForm::int8, seeds_nan = layout.gathered && !int8;
  const bool together = (layout.run == 1 || layout.has_whole_rows()) && !layout.gathered;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    uint32_t* const row_stats = args.out + layout.rows_offset(tile);
    DRange range(row_stats, int8 ? layout.tile_rows : 0);
    for (int r = 0; seeds_nan && r < layout.tile_rows; ++r) row_stats[r] = 0;
    const int64_t first = tile * layout.tile_rows;
    const int rows = layout.written_rows(tile);
    for (int64_t block = 0; block < layout.blocks; ++block) {
      uint32_t* const a_block = args.out + layout.offset(tile, block);
      int r = 0;
      for (; together && r + 4 <= rows; r += 4) {
        prefetch_rows(args, first + r, block);
        write_rows({load_row(args, first + r, block), load_row(args, first + r + 1, block),
                    load_row(args, first + r + 2, block), load_row(args, first + r + 3, block)},
                   layout, r, a_block, range);
      }
      for (; r < rows; ++r) {
        const Block32 x = load_row(args, first + r, block);
        write_row(x, layout, r, a_block, range);
        if (seeds_nan && non_finite(x))
          row_stats[r] = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

}  // namespace metal_marlin::cpu

#endif
