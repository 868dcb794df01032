// Default compute with AVX2 and FMA for few rows of floats and of indices of floats. The kernel
// reads the packed stream once and decodes codes in registers. It multiplies and adds like the
// kernel for many rows (avx2_f32.cc), step by step, so that a row has the same bits.
//
//   packed stream        registers, for 2 vectors v of 8 columns
//   half of lines   ---> w[v][4]    4 steps as floats (avx2_real.h), times their scales, which the
//                                   kernel for many rows stores in L1
//   packed A block  ---> x          a step of a row, in all lanes
//                        acc[v][r]  += w[v] * x
//   sums (in L1)    <--> acc[v][r]  loaded and stored for each block of 16 columns
//
//   M: a pass over the panel for each tile of kRows rows. N and K as memory has them: superblock,
//   block of 32 slots, column group of 16 columns, 8 slots, 4 steps.
//
// Template parameters: Decoder for 16 floats of 4-bit codes, E4M3, BF16, F16 and F32; kRows 1 to 3.
//
// Limits: FMA, multiplications, shuffles and shifts share three ports. 32 weights of 4-bit codes
// take 22 of these instructions with one row: 7.3 cycles (10 measured on Zen 3), and reading them
// takes 5. E4M3 takes 20 of them among 30. Floats take 8 to 28, and memory is the limit.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_real.h"

namespace metal_marlin::cpu {
namespace {

/// One tile and one superblock.
struct RealWalk {
  const uint8_t* codes;
  const float (*scales)[kPanelColumns];  ///< of groups
  int group_shift;                       ///< from 16 slots to groups
  int64_t ahead;
  const uint32_t* a_block;
  int64_t a_block_size;
};

/// Adds the products of steps 4 kHalf .. 4 kHalf + 3 of an octet of 16 columns. The vectors take
/// turns: if many products wait for the one before them, they fill the queue of the multipliers.
template <class Decoder, int kRows, int kHalf>
MARLIN_AVX2 MARLIN_INLINE void multiply_steps(const Decoder& decoder,
                                              const typename Decoder::Octet (&octet)[2],
                                              const float* scales, const uint32_t* x,
                                              __m256 (&acc)[2][kRows]) {
  __m256 w[2][4];
  MARLIN_UNROLLED(v, 2) {
    decoder.template decode<kHalf>(octet[v], w[v]);
    MARLIN_UNROLLED(i, 4) w[v][i] = _mm256_mul_ps(w[v][i], _mm256_load_ps(scales + 8 * v));
  }
  MARLIN_UNROLLED_2(i, 4, r, kRows) {
    const __m256 x_r =
        _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(x[(4 * kHalf + i) * kRows + r])));
    MARLIN_UNROLLED(v, 2) acc[v][r] = _mm256_fmadd_ps(w[v][i], x_r, acc[v][r]);
  }
  fence();  // else the compiler loads the activations of all steps first
}

/// Multiplies kRows rows by a block of column group `group`: 16 columns, which are two vectors. Two
/// vectors share their lines, so that memory is read in order.
template <class Decoder, int kRows>
MARLIN_AVX2 MARLIN_INLINE void multiply_group(const Decoder& decoder, const RealWalk& walk,
                                              int block, int group, float* sums) {
  constexpr int kOctetBytes = Decoder::kLines / 4 * 64;
  const uint8_t* lines = walk.codes + (block * kColumnGroups + group) * 4 * kOctetBytes;
  const uint32_t* x = walk.a_block + block * walk.a_block_size;
  __m256 acc[2][kRows];
  MARLIN_UNROLLED_2(v, 2, r, kRows) acc[v][r] = _mm256_load_ps(sums + r * kPanelColumns + 8 * v);
  for (int octet = 0; octet < 4; ++octet, lines += kOctetBytes, x += 8 * kRows) {
    const float* const scales =
        walk.scales[(2 * block + octet / 2) >> walk.group_shift] + kGroupColumns * group;
    fetch_lines(lines + walk.ahead, kOctetBytes);
    const typename Decoder::Octet read[2] = {decoder.read(lines), decoder.read(lines + 32)};
    multiply_steps<Decoder, kRows, 0>(decoder, read, scales, x, acc);
    multiply_steps<Decoder, kRows, 1>(decoder, read, scales, x, acc);
  }
  MARLIN_UNROLLED_2(v, 2, r, kRows) _mm256_store_ps(sums + r * kPanelColumns + 8 * v, acc[v][r]);
}

/// One tile and one panel.
template <class Decoder, int kRows>
MARLIN_AVX2 [[gnu::noinline]] void run_tile(const PanelArgs& args, const uint32_t* a_block,
                                            float* sums) {
  const PanelLayout& layout = *args.layout;
  const int64_t bytes = layout.super_bytes(), ahead = fetch_distance(bytes),
                size = args.activations.a_block_size();
  const Decoder decoder(layout);
  alignas(32) float scales[8][kPanelColumns];
  std::fill_n(sums, kRows * kPanelColumns, 0.0f);
  const uint8_t* super = args.panel;
  for (int64_t s = 0; s < layout.superblocks(); ++s, super += bytes) {
    fetch_lines(super + ahead + layout.scales_offset(), bytes - layout.scales_offset());
    decode_real_scales_avx2(layout, args.panel, super, &scales[0][0]);
    const RealWalk walk{super,
                        scales,
                        std::countr_zero(static_cast<unsigned>(layout.slot_group / 16)),
                        ahead,
                        a_block + s * kBlocksPerSuper * size,
                        size};
    for (int block = 0; block < kBlocksPerSuper; ++block)
      for (int group = 0; group < kColumnGroups; ++group)
        multiply_group<Decoder, kRows>(decoder, walk, block, group, sums + kGroupColumns * group);
  }
}

template <class Decoder>
void run_tiles(const PanelArgs& args) {
  const int rows = args.activations.tile_rows;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    const uint32_t* const a_block = args.packed_a + args.activations.offset(tile, 0);
    float* const sums = args.sums + (tile - args.tile_begin) * rows * kPanelColumns;
    switch (rows) {
      case 1:
        run_tile<Decoder, 1>(args, a_block, sums);
        break;
      case 2:
        run_tile<Decoder, 2>(args, a_block, sums);
        break;
      default:
        run_tile<Decoder, 3>(args, a_block, sums);
    }
  }
}

}  // namespace

void cpu_avx2_gemv_real_f32(const PanelArgs& args) {
  with_real_codes(args, [&]<class Decoder>() { run_tiles<Decoder>(args); });
}

}  // namespace metal_marlin::cpu

#endif
