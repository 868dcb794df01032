// Default compute with AVX2 and FMA for many rows. Weights are decoded to their value in F32, a
// superblock at a time into L1, and multiplied by all tiles.
//
//   packed stream --decode--> superblock in L1        registers
//                             weights [step][64] ---> w[v]       8 columns, a slot
//   packed A block            ----------------------> x          a slot of a row, in all lanes
//                                                     acc[r][v]  += w[v] * x
//   sums (in L1)              <---------------------> acc[r][v]  loaded and stored for each
//                                                                superblock
//
//   M: tiles of up to 6 rows. N: 64 columns at a time with one row, 32 with two, 16 with more. K:
//   superblock, block, step of a slot.
//
// Template parameters: kRows 1 to 6; kVectors of 8 columns follows from it; Decoder (avx2_f32.h).
//
// Limits: at most 12 sums, to leave room for 2 vectors of weights and an activation in 16
// registers. Decoded weights take 32 KB, all of a small L1.
#if defined(__x86_64__)

#include <bit>

#include "backends/cpu/x86/avx2_f32.h"

namespace metal_marlin::cpu {
namespace {

struct Avx2DequantizedF32 {
  float weights[kSuperSlots][kPanelColumns];  ///< [step], in the order of activations.h
};

/// Stores half kHalf of an octet, times scales and plus zeros, if any. With kKept, at the slots of
/// which a byte at `kept` is 1.
template <class Decoder, bool kKept, int kHalf>
MARLIN_AVX2 MARLIN_INLINE void store_half(const Decoder& decoder,
                                          const typename Decoder::Octet& octet, const float* scale,
                                          const float* zero, const uint8_t* kept, float* to) {
  const auto codes = decoder.template decode<kHalf>(octet);
  MARLIN_UNROLLED(i, 4) {
    const __m256 w = Decoder::template step<kHalf>(codes, i), s = _mm256_load_ps(scale);
    __m256 value =
        zero != nullptr ? _mm256_fmadd_ps(w, s, _mm256_load_ps(zero)) : _mm256_mul_ps(w, s);
    if constexpr (kKept) {
      const __m256 one = QuadsOfBytes::step<kHalf>(Vec::load(kept + 64 * kHalf), i);
      value = _mm256_and_ps(value, _mm256_cmp_ps(one, _mm256_setzero_ps(), _CMP_NEQ_OQ));
    }
    _mm256_store_ps(to + Decoder::step_of(kHalf, i) * kPanelColumns, value);
  }
}

template <class Decoder, bool kKept = false>
MARLIN_AVX2 void dequantize_as(const PanelArgs& args, const uint8_t* super,
                               Avx2DequantizedF32& out) {
  const SuperShape shape(*args.layout, args.panel);
  const bool additive = is_additive(args.code);
  const uint8_t* codes = super;
  SuperScales scales;
  decode_super(args.code, shape, super, scales, float_factor(args));
  ExpandedCodes<CodeKind::i8> expanded, kept;
  if (multiplies_expanded(args)) {
    expand_integers(args, super, 0, expanded.bytes);
    codes = expanded.bytes;
  }
  if constexpr (kKept) expand_kept(*args.layout, super, kept.bytes);
  const Decoder decoder(*args.layout, args.code);
  for (int octet = 0; octet < kSuperSlots / 8; ++octet)
    for (int v = 0; v < 8; ++v) {
      const int row = octet / 2 >> shape.shift, column = 8 * v,
                group = octet / 4 * kColumnGroups + v / 2;
      const auto read = decoder.read(codes + group * Decoder::kBytes + v % 2 * 32, octet % 4,
                                     Vec::load(&scales.offset[row][column]));
      const float *const scale = &scales.scale[row][column], *const zero =
                                                                 additive
                                                                     ? &scales.zero[row][column]
                                                                     : nullptr;
      const uint8_t* const ones =
          kept.bytes + group * kExpandedGroupBytes + octet % 4 * 128 + v % 2 * 32;
      float* const to = &out.weights[8 * octet][column];
      store_half<Decoder, kKept, 0>(decoder, read, scale, zero, ones, to);
      store_half<Decoder, kKept, 1>(decoder, read, scale, zero, ones, to);
    }
}

void dequantize(const PanelArgs& args, const uint8_t* super, int, Avx2DequantizedF32& out) {
  if (counts_kept(args)) return dequantize_as<Codes8Bits, true>(args, super, out);
  const auto as = [&]<class Decoder>() { dequantize_as<Decoder>(args, super, out); };
  is_real(args.code) ? with_real_codes(args, as) : with_integer_codes(args, as);
}

/// Multiplies kRows rows x 8 kVectors columns, with at most 12 sums, to leave room for weights and
/// an activation in 16 registers.
template <int kRows, int kVectors>
MARLIN_AVX2 void multiply_columns(const float (*weights)[kPanelColumns], bool first,
                                  int64_t a_block_size, const uint32_t* a_block, float* sums) {
  __m256 acc[kRows][kVectors];
  MARLIN_UNROLLED_2(r, kRows, v, kVectors)
    acc[r][v] = first ? _mm256_setzero_ps() : _mm256_load_ps(sums + r * kPanelColumns + 8 * v);
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += a_block_size, weights += kBlockSlots)
    for (int step = 0; step < kBlockSlots; ++step) {
      __m256 w[kVectors];
      MARLIN_UNROLLED(v, kVectors) w[v] = _mm256_load_ps(weights[step] + 8 * v);
      MARLIN_UNROLLED(r, kRows) {
        const __m256 x =
            _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(a_block[step * kRows + r])));
        MARLIN_UNROLLED(v, kVectors) acc[r][v] = _mm256_fmadd_ps(w[v], x, acc[r][v]);
      }
    }
  MARLIN_UNROLLED_2(r, kRows, v, kVectors)
    _mm256_store_ps(sums + r * kPanelColumns + 8 * v, acc[r][v]);
}

/// The vectors of a tile with this many rows.
template <int kRows>
constexpr int vectors_of_tile() {
  if (kRows == 1) return 8;
  return kRows == 2 ? 4 : 2;
}

template <int kRows>
void multiply_rows(const Avx2DequantizedF32& dequantized, bool first, int64_t a_block_size,
                   const uint32_t* a_block, float* sums) {
  constexpr int kVectors = vectors_of_tile<kRows>();
  for (int v = 0; v < 8; v += kVectors)
    multiply_columns<kRows, kVectors>(
        reinterpret_cast<const float(*)[kPanelColumns]>(&dequantized.weights[0][8 * v]), first,
        a_block_size, a_block, sums + 8 * v);
}

void multiply_tile(const Avx2DequantizedF32& dequantized, int, bool first, const PanelArgs& args,
                   int64_t, const uint32_t* a_block, float* sums) {
  const int64_t size = args.activations.a_block_size();
  with_rows<6>(args.activations.tile_rows,
               [&]<int kRows>() { multiply_rows<kRows>(dequantized, first, size, a_block, sums); });
}

}  // namespace

void cpu_avx2_prescaled_any_f32(const PanelArgs& args) {
  walk_chunks<Avx2DequantizedF32, dequantize, multiply_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
