// Default compute with AVX2 and FMA for few rows. The kernel reads the packed stream once and
// decodes codes in registers.
//
//   packed stream        registers, for 2 vectors v of 8 columns
//   half of lines   ---> w[v][4]    4 steps as floats (avx2_f32.h)
//   packed A block  ---> x          a step of a row, in all lanes
//                        part[v][r] += w[v] * x             those of both halves apart
//   sums (in L1)    <--- sums[r][v] += part[v][r] * scale[v]    after a block (groups of 16: half)
//
// Codes that are floats, and indices of floats, are multiplied by their scales first, and are added
// to the sums step by step, like those of the kernel for many rows (avx2_f32.cc): a row has the
// same bits.
//
//   M: a pass over the panel for each tile of kRows rows. N and K as memory has them: superblock,
//   block of 32 slots, column group of 16 columns, 8 slots, 4 steps.
//
// Template parameters: Decoder; kRows 1 to 4; kScalesSums, else weights are scaled.
//
// Limits: FMA, multiplications, shuffles and shifts share three ports. 32 weights of 4-bit codes
// take 16 of these instructions with one row (NF4: 22, which take 10 cycles on Zen 3; E4M3: 20
// among 30). Floats take 8 to 28, and memory is the limit.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_f32.h"

namespace metal_marlin::cpu {
namespace {

/// One tile and one superblock.
struct FloatWalk {
  const uint8_t* codes;
  const float* scale;  ///< [group][kPanelColumns]
  const float* zero;   ///< additive zeros, or offsets of integer zeros
  bool additive;       ///< these multiply the sums of the activations of parts
  int group_shift;     ///< from 16 slots to groups
  int octets;          ///< of 8 slots, in a part
  int64_t ahead;
  const uint32_t* a_block;
  int64_t a_block_size;
};

/// The sums of 16 columns.
template <int kRows>
using Sums = __m256[2][kRows];

/// Adds the products of half kHalf of an octet of 16 columns. The vectors take turns: if many
/// products wait for the one before them, they fill the queue of the multipliers. `scales` may be
/// null.
template <class Decoder, bool kScalesSums, int kRows, int kHalf>
MARLIN_AVX2 MARLIN_INLINE void multiply_half(const Decoder& decoder,
                                             const typename Decoder::Octet (&octet)[2],
                                             const float* scales, const uint32_t* x,
                                             Sums<kRows>& acc) {
  __m256 scaled[2][4];
  if constexpr (!kScalesSums)
    MARLIN_UNROLLED(v, 2) {
      const auto half = decoder.template decode<kHalf>(octet[v]);
      MARLIN_UNROLLED(i, 4)
        scaled[v][i] =
            _mm256_mul_ps(Decoder::template step<kHalf>(half, i), _mm256_load_ps(scales + 8 * v));
    }
  const auto first = decoder.template decode<kHalf>(octet[0]),
             second = decoder.template decode<kHalf>(octet[1]);
  MARLIN_UNROLLED(i, 4) {
    const __m256 w[2] = {kScalesSums ? Decoder::template step<kHalf>(first, i) : scaled[0][i],
                         kScalesSums ? Decoder::template step<kHalf>(second, i) : scaled[1][i]};
    MARLIN_UNROLLED(r, kRows) {
      const __m256 x_r = broadcast_float(x + Decoder::step_of(kHalf, i) * kRows + r);
      MARLIN_UNROLLED(v, 2) acc[v][r] = _mm256_fmadd_ps(w[v], x_r, acc[v][r]);
    }
  }
  fence();  // else the compiler loads the activations of all steps first
}

/// What a scale is for: a block, or half of it, of 16 columns.
struct ScaledPart {
  const uint8_t* lines;  ///< of the block
  int octet, end;
  const float *scales, *zeros;
  const uint32_t* x;  ///< of the first octet
  int64_t ahead;
};

/// Adds the products of half 0 to one set of sums and those of half 1 to another, which may be the
/// same; or those of one half alone.
template <class Decoder, bool kFirst, bool kSecond, int kRows>
MARLIN_AVX2 MARLIN_INLINE void multiply_octets(const Decoder& decoder, const ScaledPart& part,
                                               Sums<kRows>& first, Sums<kRows>& second) {
  constexpr int kOctetBytes = Decoder::kBytes / 4;
  const uint32_t* x = part.x;
  for (int octet = part.octet; octet < part.end; ++octet, x += 8 * kRows) {
    if (kFirst && part.ahead != 0)
      fetch_lines(part.lines + octet * kOctetBytes + part.ahead, kOctetBytes);
    const typename Decoder::Octet read[2] = {
        decoder.read(part.lines, octet, Vec::load(part.zeros)),
        decoder.read(part.lines + 32, octet, Vec::load(part.zeros + 8))};
    if constexpr (kFirst) multiply_half<Decoder, true, kRows, 0>(decoder, read, nullptr, x, first);
    if constexpr (kSecond)
      multiply_half<Decoder, true, kRows, 1>(decoder, read, nullptr, x, second);
  }
}

/// sums += the sums of a part times its scales, and the sums of its activations times its zeros, if
/// `x_sums` is not null. Halves have sums of their own, else those of one row would wait for each
/// other. More rows have no registers for that, and take one half after the other.
template <class Decoder, int kRows>
MARLIN_AVX2 MARLIN_INLINE void add_scaled(const Decoder& decoder, const ScaledPart& part,
                                          const uint32_t* x_sums, float* sums) {
  Sums<kRows> first, second;
  MARLIN_UNROLLED_2(v, 2, r, kRows) first[v][r] = second[v][r] = _mm256_setzero_ps();
  if constexpr (kRows <= 2) {
    multiply_octets<Decoder, true, true>(decoder, part, first, second);
  } else {
    multiply_octets<Decoder, true, false>(decoder, part, first, first);
    multiply_octets<Decoder, false, true>(decoder, part, second, second);
  }
  MARLIN_UNROLLED_2(r, kRows, v, 2) {
    float* const to = sums + r * kPanelColumns + 8 * v;
    __m256 sum = _mm256_load_ps(to);
    if (x_sums != nullptr)
      sum = _mm256_fmadd_ps(broadcast_float(x_sums + r), _mm256_load_ps(part.zeros + 8 * v), sum);
    const __m256 all = _mm256_add_ps(first[v][r], second[v][r]);
    _mm256_store_ps(to, _mm256_fmadd_ps(all, _mm256_load_ps(part.scales + 8 * v), sum));
  }
}

/// Multiplies kRows rows by a block of 16 columns from `column` on, whose codes are at `lines`. The
/// columns are two vectors, which share their lines, so that memory is read in order.
template <class Decoder, int kRows>
MARLIN_AVX2 MARLIN_INLINE void multiply_parts(const Decoder& decoder, const FloatWalk& walk,
                                              const uint8_t* lines, int block, int column,
                                              float* sums) {
  const uint32_t *const x = walk.a_block + block * walk.a_block_size, *const x_sums =
                                                                          x + kBlockSlots * kRows;
  for (int i = 0; i < 4 / walk.octets; ++i) {
    const int place = ((2 * block + i) >> walk.group_shift) * kPanelColumns + column;
    const ScaledPart part{lines,
                          i * walk.octets,
                          (i + 1) * walk.octets,
                          walk.scale + place,
                          walk.zero + place,
                          x + i * walk.octets * 8 * kRows,
                          walk.ahead};
    add_scaled<Decoder, kRows>(decoder, part, walk.additive ? x_sums + i * kRows : nullptr, sums);
  }
}

/// The same with weights that are scaled. More instructions around the loop would leave a row
/// waiting for its chain of additions.
template <class Decoder, int kRows>
MARLIN_AVX2 MARLIN_INLINE void multiply_steps(const Decoder& decoder, const FloatWalk& walk,
                                              const uint8_t* lines, int block, int column,
                                              float* sums) {
  constexpr int kOctetBytes = Decoder::kBytes / 4;
  const uint32_t* x = walk.a_block + block * walk.a_block_size;
  Sums<kRows> acc;
  MARLIN_UNROLLED_2(v, 2, r, kRows) acc[v][r] = _mm256_load_ps(sums + r * kPanelColumns + 8 * v);
  for (int octet = 0; octet < 4; ++octet, lines += kOctetBytes, x += 8 * kRows) {
    const float* const scales =
        walk.scale + ((2 * block + octet / 2) >> walk.group_shift) * kPanelColumns + column;
    fetch_lines(lines + walk.ahead, kOctetBytes);
    const typename Decoder::Octet read[2] = {decoder.read(lines, 0, __m256i{}),
                                             decoder.read(lines + 32, 0, __m256i{})};
    multiply_half<Decoder, false, kRows, 0>(decoder, read, scales, x, acc);
    multiply_half<Decoder, false, kRows, 1>(decoder, read, scales, x, acc);
  }
  MARLIN_UNROLLED_2(v, 2, r, kRows) _mm256_store_ps(sums + r * kPanelColumns + 8 * v, acc[v][r]);
}

template <class Decoder, bool kScalesSums, int kRows>
MARLIN_AVX2 MARLIN_INLINE void multiply_super(const Decoder& decoder, const FloatWalk& walk,
                                              float* sums) {
  const uint8_t* lines = walk.codes;
  for (int block = 0; block < kBlocksPerSuper; ++block)
    for (int c = 0; c < kPanelColumns; c += kGroupColumns, lines += Decoder::kBytes)
      if constexpr (kScalesSums)
        multiply_parts<Decoder, kRows>(decoder, walk, lines, block, c, sums + c);
      else
        multiply_steps<Decoder, kRows>(decoder, walk, lines, block, c, sums + c);
}

/// One tile and one panel. Additive zeros of sparse weights are the scales of codes that are 1
/// where a slot is kept.
template <class Decoder, bool kScalesSums, int kRows>
MARLIN_AVX2 [[gnu::noinline]] void run_tile(const PanelArgs& args, const uint32_t* a_block,
                                            float* sums) {
  const PanelLayout& layout = *args.layout;
  const SuperShape shape(layout, args.panel);
  const bool expands = multiplies_expanded(args), counts = counts_kept(args);
  const int64_t size = args.activations.a_block_size();
  const Decoder decoder(layout, args.code);
  SuperScales scales;
  ExpandedCodes<CodeKind::i8> expanded;
  std::fill_n(sums, kRows * kPanelColumns, 0.0f);
  const uint8_t* super = args.panel;
  for (int64_t s = 0; s < layout.superblocks(); ++s, super += shape.bytes) {
    shape.fetch_scales(super);
    decode_super(args.code, shape, super, scales, float_factor(args));
    if (expands) expand_integers(args, super, shape.ahead, expanded.bytes);
    FloatWalk walk{.codes = expands ? expanded.bytes : super,
                   .scale = scales.scale[0],
                   .zero = scales.zero[0],
                   .additive = !counts && is_additive(args.code),
                   .group_shift = shape.shift,
                   .octets = shape.shift == 0 ? 2 : 4,
                   .ahead = expands ? 0 : shape.ahead,
                   .a_block = a_block + s * kBlocksPerSuper * size,
                   .a_block_size = size};
    for (;;) {
      multiply_super<Decoder, kScalesSums, kRows>(decoder, walk, sums);
      if (!counts || walk.scale == scales.zero[0]) break;
      expand_kept(layout, super, expanded.bytes);
      walk.scale = scales.zero[0];
    }
  }
}

template <class Decoder, bool kScalesSums, int kMostRows>
void run_tiles(const PanelArgs& args) {
  const int rows = args.activations.tile_rows;
  with_rows<kMostRows>(rows, [&]<int kRows>() {
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
      run_tile<Decoder, kScalesSums, kRows>(
          args, args.packed_a + args.activations.offset(tile, 0),
          args.sums + (tile - args.tile_begin) * kRows * kPanelColumns);
  });
}

}  // namespace

void cpu_avx2_gemv_any_f32(const PanelArgs& args) {
  with_integer_codes(args, [&]<class Decoder>() { run_tiles<Decoder, true, 4>(args); });
}
void cpu_avx2_gemv_real_f32(const PanelArgs& args) {
  with_real_codes(args, [&]<class Decoder>() { run_tiles<Decoder, false, 3>(args); });
}

}  // namespace metal_marlin::cpu

#endif
