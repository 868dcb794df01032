// Default compute with AVX2 and FMA for few rows. The kernel reads the packed stream once, decodes
// codes in registers, and multiplies the partial sums of a group by its scale.
//
//   packed stream         registers, for 8 columns
//   half a line      ---> codes            8 columns x 4 slots, one per byte
//     two vpshufb    ---> low, high        the bytes of the values in BF16
//     interleave     ---> pairs[i]         i = 0, 1: columns 0 1 4 5 and 2 3 6 7, 2 slots a dword
//     << 16, mask    ---> first, second    the slots of a pair as floats
//   packed A block   ---> even, odd        slots 0 and 2, 1 and 3 of a row, alternating lanes
//                         parts[v][r][i]   += first * even, += second * odd
//     vhaddps        ---> sums (in L1)     += total * scale, at the end of a scale group
//
//   4-bit codes are looked up as bytes, because BF16 holds all of their values exactly. This takes
//   19 instructions for 64 weights; a shift, a vpermps and a sign for every 8 would take 40. 8-bit
//   codes are shifted and converted, 8 columns x one slot at a time. Activations have a run of 2
//   (activations.h).
//
//   M: a pass over the panel for each tile of kRows rows. N: 8 columns at a time (16 if kVectors is
//   2). K: superblock, scale group, unit of 16 slots, line.
//
// Template parameters: kCode and kSparse in every combination except 8-bit codes with 2:4 sparsity;
// kRows 1 to 4; kVectors 2 for one row of dense codes without integer zeros, else 1; kKept takes 1
// for kept codes instead of their value, for the additive zeros of sparse weights.
//
// Limits: 16 registers, of which 2 kRows kVectors hold sums. FMA, shuffles and shifts share three
// ports; 64 weights take 42 instructions with one row (58 with integer zeros, whose 32 values need
// four tables).
#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>

#include "backends/cpu/x86/avx2.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {
namespace {

struct alignas(32) Scales {
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];  ///< additive zeros
};

/// Byte kByte (0 is the low one) of the BF16 value of every code. Integer codes count from kFirst.
template <CodeKind kCode, int kByte, int kFirst>
constexpr auto bytes_of_values() {
  std::array<uint8_t, 16> bytes{};
  for (int i = 0; i < 16; ++i) {
    const float value = kCode == CodeKind::fp4 ? kE2m1[i] : static_cast<float>(kFirst + i);
    bytes[static_cast<size_t>(i)] =
        static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> (16 + 8 * kByte));
  }
  return bytes;
}

template <CodeKind kCode, int kByte, int kFirst = kCode == CodeKind::u4 ? -8 : 0>
MARLIN_AVX2 MARLIN_INLINE __m256i look_up(__m256i index) {
  alignas(16) static constexpr auto kBytes = bytes_of_values<kCode, kByte, kFirst>();
  const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kBytes.data()));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
}

/// Turns 4 slots x 8 columns of codes, one per byte, into pairs of BF16: columns 0 1 4 5, then 2 3
/// 6 7.
template <CodeKind kCode>
MARLIN_AVX2 MARLIN_INLINE void decode(__m256i codes, __m256i (&pairs)[2]) {
  __m256i low, high;
  if constexpr (kCode == CodeKind::u4zero) {  // code + 16 - zero; vpshufb gives 0 where bit 7 of an
                                              // index is set
    const __m256i positive = _mm256_sub_epi8(codes, _mm256_set1_epi8(16));
    const __m256i negative = _mm256_xor_si256(positive, _mm256_set1_epi8(-128));
    low = _mm256_or_si256(look_up<kCode, 0>(positive), look_up<kCode, 0, -16>(negative));
    high = _mm256_or_si256(look_up<kCode, 1>(positive), look_up<kCode, 1, -16>(negative));
  } else {
    const __m256i index = _mm256_and_si256(codes, _mm256_set1_epi8(15));
    low = look_up<kCode, 0>(index);
    high = look_up<kCode, 1>(index);
  }
  pairs[0] = _mm256_unpacklo_epi8(low, high);
  pairs[1] = _mm256_unpackhi_epi8(low, high);
}

/// The sums of kRows rows x 8 columns, in two parts: the pairs above, or the even and odd slots of
/// 8-bit codes.
template <int kRows>
using PartSums = __m256[kRows][2];

/// Adds the products of 4 slots of 4-bit codes. `x` has slots 0 and 2 of every row, then 1 and 3.
template <CodeKind kCode, int kRows>
MARLIN_AVX2 MARLIN_INLINE void multiply_quad(__m256i codes, const uint32_t* x,
                                             PartSums<kRows>& sum) {
  __m256i pairs[2];
  decode<kCode>(codes, pairs);
  __m256 first[2], second[2];
  MARLIN_UNROLLED(i, 2) {
    first[i] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs[i], 16));
    second[i] = _mm256_castsi256_ps(
        _mm256_and_si256(pairs[i], _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  MARLIN_UNROLLED(r, kRows) {
    const __m256 even =
        _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(x + 2 * r)));
    const __m256 odd =
        _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(x + 2 * (kRows + r))));
    MARLIN_UNROLLED(i, 2) sum[r][i] = _mm256_fmadd_ps(first[i], even, sum[r][i]);
    MARLIN_UNROLLED(i, 2) sum[r][i] = _mm256_fmadd_ps(second[i], odd, sum[r][i]);
  }
}

/// Adds the products of 4 slots of 8-bit codes.
template <int kRows, int kSlot = 0>
MARLIN_AVX2 MARLIN_INLINE void multiply_bytes(__m256i codes, const uint32_t* x,
                                              PartSums<kRows>& sum) {
  if constexpr (kSlot < 4) {
    const __m256i top = kSlot == 3 ? codes : _mm256_slli_epi32(codes, 24 - 8 * kSlot);
    const __m256 w = _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24));
    MARLIN_UNROLLED(r, kRows) {
      const uint32_t* own = x + 2 * (kSlot % 2 * kRows + r) + kSlot / 2;
      sum[r][kSlot % 2] = _mm256_fmadd_ps(
          w, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*own))), sum[r][kSlot % 2]);
    }
    multiply_bytes<kRows, kSlot + 1>(codes, x, sum);
  }
}

/// The sums of 8 columns, in their order.
template <CodeKind kCode>
MARLIN_AVX2 MARLIN_INLINE __m256 total(const __m256 (&parts)[2]) {
  return is_eight_bits(kCode) ? _mm256_add_ps(parts[0], parts[1])
                              : _mm256_hadd_ps(parts[0], parts[1]);
}

/// One tile and one superblock.
struct CodeWalk {
  const uint8_t* codes;
  const uint8_t* zeros;  ///< integer zeros
  int units;             ///< of 16 slots, in a group
  int64_t ahead;
  const uint32_t* a_block;
  int64_t a_block_size;
};

/// The vectors of 8 columns at a time. Two vectors for one row hide the latency of FMA, if decoding
/// leaves enough registers.
template <CodeKind kCode, bool kSparse, int kRows>
constexpr int kVectors = kRows == 1 && !kSparse && kCode != CodeKind::u4zero ? 2 : 1;

/// Multiplies kRows rows by 8 columns of kVectors vectors, and adds the scaled products to the
/// sums. With kKept, it multiplies by 1 for kept codes of 2:4 sparse weights, for their additive
/// zeros.
template <CodeKind kCode, bool kSparse, int kRows, bool kKept = false>
MARLIN_AVX2 MARLIN_INLINE void multiply_columns(const CodeWalk& walk, int first_vector,
                                                const float (*scales)[kPanelColumns], float* sums) {
  using Lines = CodeLines8<kCode, kSparse>;
  constexpr int kLines = Lines::kLines / 2;  // of a unit
  constexpr int kAtOnce = kVectors<kCode, kSparse, kRows>;
  for (int unit = 0, group = 0; unit < 2 * kBlocksPerSuper; ++group) {
    PartSums<kRows> parts[kAtOnce];
    for (auto& part : parts)
      for (auto& row : part) row[0] = row[1] = _mm256_setzero_ps();
    for (const int end = unit + walk.units; unit < end; ++unit) {
      const uint8_t* block = walk.codes + unit / 2 * kColumnGroups * Lines::kBytes;
      const uint32_t* x =
          walk.a_block + unit / 2 * walk.a_block_size + unit % 2 * (kBlockSlots / 2) * kRows;
#pragma GCC unroll 4
      for (int i = 0; i < kLines; ++i, x += kBlockSlots / Lines::kLines * kRows) {
        const int line = unit % 2 * kLines + i;
        MARLIN_UNROLLED(v, kAtOnce) {
          const int vector = first_vector + v;
          const uint8_t* from = block + vector / 2 * Lines::kBytes;
          if (vector % 2 == 0) Lines::fetch(from, line, walk.ahead);
          const Codes8 codes = kKept ? Lines::kept(from, line, vector % 2)
                                     : Lines::read(from, line, vector % 2,
                                                   walk.zeros + group * kPanelColumns + 8 * vector);
          if constexpr (is_eight_bits(kCode)) {
            multiply_bytes<kRows>(codes.low, x, parts[v]);
          } else {
            multiply_quad<kCode, kRows>(Lines::template bytes<0>(codes), x, parts[v]);
            multiply_quad<kCode, kRows>(Lines::template bytes<1>(codes), x + 4 * kRows, parts[v]);
          }
          fence();
        }
      }
    }
    MARLIN_UNROLLED_2(r, kRows, v, kAtOnce) {
      float* sum = sums + r * kPanelColumns + 8 * (first_vector + v);
      const __m256 scale = _mm256_load_ps(&scales[group][8 * (first_vector + v)]);
      _mm256_store_ps(sum, _mm256_fmadd_ps(total<kCode>(parts[v][r]), scale, _mm256_load_ps(sum)));
    }
  }
}

/// Adds additive zeros times the sums of the activations, one or two per block.
template <int kRows>
MARLIN_AVX2 void add_zeros(const CodeWalk& walk, int sums_per_block,
                           const float (*zeros)[kPanelColumns], float* sums) {
  for (int b = 0; b < kBlocksPerSuper; ++b)
    for (int part = 0; part < sums_per_block; ++part) {
      const float* zero = zeros[(2 * b + part) / walk.units];
      const uint32_t* of_rows = walk.a_block + b * walk.a_block_size + (kBlockSlots + part) * kRows;
      for (int r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_set1_ps(std::bit_cast<float>(of_rows[r]));
        float* sum = sums + r * kPanelColumns;
        for (int c = 0; c < kPanelColumns; c += 8)
          _mm256_store_ps(sum + c,
                          _mm256_fmadd_ps(x, _mm256_load_ps(zero + c), _mm256_load_ps(sum + c)));
        fence();  // else the compiler loads the sums of all rows first
      }
    }
}

/// One tile and one panel.
template <CodeKind kCode, bool kSparse, int kRows>
MARLIN_AVX2 [[gnu::noinline]] void run_tile(const PanelArgs& args, const uint32_t* a_block,
                                            float* sums) {
  const PanelLayout& layout = *args.layout;
  const int64_t bytes = layout.super_bytes(), ahead = fetch_distance(bytes),
                size = args.activations.a_block_size();
  const int n = layout.groups_per_super() * kPanelColumns;
  constexpr bool kCountsKept = CodeLines8<kCode, kSparse>::kCountsKept;
  Scales scales;
  ExpandedCodes<kCode> expanded;
  std::fill_n(sums, kRows * kPanelColumns, 0.0f);
  for (int64_t s = 0; s < layout.superblocks(); ++s) {
    const uint8_t *super = args.panel + s * bytes, *zeros = super + layout.zeros_offset();
    fetch_lines(super + ahead + layout.scales_offset(), bytes - layout.scales_offset());
    decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n, 1.0f,
                       &scales.scale[0][0]);
    if constexpr (is_additive(kCode))
      decode_zeros_avx2(layout, super, n, &scales.scale[0][0], &scales.zero[0][0]);
    const uint8_t* const codes = codes_of_super<kCode>(layout, super, ahead, expanded);
    const CodeWalk walk{codes,
                        zeros,
                        layout.slot_group / 16,
                        codes == super ? ahead : 0,
                        a_block + s * kBlocksPerSuper * size,
                        size};
    for (int v = 0; v < 8; v += kVectors<kCode, kSparse, kRows>) {
      multiply_columns<kCode, kSparse, kRows>(walk, v, scales.scale, sums);
      if constexpr (kCountsKept)
        multiply_columns<kCode, kSparse, kRows, true>(walk, v, scales.zero, sums);
    }
    if constexpr (is_additive(kCode) && !kCountsKept)
      add_zeros<kRows>(walk, args.activations.sums_per_block, scales.zero, sums);
  }
}

template <int kRows>
void run_tiles(const PanelArgs& args) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
      run_tile<kCode, kSparse, kRows>(args, args.packed_a + args.activations.offset(tile, 0),
                                      args.sums + (tile - args.tile_begin) * kRows * kPanelColumns);
  });
}

}  // namespace

void cpu_avx2_gemv_any_f32(const PanelArgs& args) {
  switch (args.activations.tile_rows) {
    case 1:
      return run_tiles<1>(args);
    case 2:
      return run_tiles<2>(args);
    case 3:
      return run_tiles<3>(args);
    default:
      return run_tiles<4>(args);
  }
}

}  // namespace metal_marlin::cpu

#endif
