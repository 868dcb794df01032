// Default compute for few rows: one walk over the packed stream, codes decoded in registers, partial sums of a group times its
// scale. Included by one file for BF16 and one for F32, which define MARLIN_FORM and MARLIN_TARGET (a target attribute cannot
// depend on a template parameter).
#include <utility>

#include "backends/cpu/x86/avx512_float.h"

namespace metal_marlin::cpu {
namespace {

constexpr ActivationForm kForm = ActivationForm::MARLIN_FORM;
constexpr int kSteps = kForm == ActivationForm::bf16 ? 16 : 32;  // of a block

/// One tile of rows times some groups of 16 columns, over the whole of K.
struct Pass {
  const PackedLayout* layout;
  const uint8_t* panel;
  const uint32_t* records;  ///< of the tile
  int64_t record_size;
  int sums_per_block;
  int v0;
  bool alone;  ///< the only pass over the panel
  PrefetchShare next;
  float* sums;  ///< [kRows][64]
};

MARLIN_TARGET MARLIN_INLINE __m512 multiply_add(__m512 sum, __m512i w, uint32_t x) {
  const __m512i b = _mm512_set1_epi32(static_cast<int>(x));
#if MARLIN_IS_BF16
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(b));
#else
  return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(b), sum);
#endif
}

/// Weights of one step of a line, and where its activations are among the steps of 8 slots.
template <CodeKind kCode, int kStep>
MARLIN_TARGET MARLIN_INLINE __m512i decode_step(__m512i line, __m512i table, __m512i zero) {
  constexpr bool kEight = kCode == CodeKind::w8sym || kCode == CodeKind::w8add;
  if constexpr (kForm == ActivationForm::bf16) {
    if constexpr (kEight) return bf16_byte_pair<kStep>(line);
    return bf16_step<kCode, kStep>(line, table, zero);
  } else {
    if constexpr (kEight) return _mm512_castps_si512(byte_to_float<kStep>(line));
    return _mm512_castps_si512(float_step<kCode, kStep>(line, _mm512_castsi512_ps(table), _mm512_castsi512_ps(zero)));
  }
}

template <CodeKind kCode, int kRows, int kVectors, int kStep>
MARLIN_TARGET MARLIN_INLINE void multiply_step(const __m512i (&line)[kVectors], __m512i table, const __m512i (&zero)[kVectors],
                                               const uint32_t* x, __m512 (&part)[kRows][kVectors]) {
  __m512i w[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) w[v] = decode_step<kCode, kStep>(line[v], table, zero[v]);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) part[r][v] = multiply_add(part[r][v], w[v], x[r]);
  fence();
}

/// A line of codes of every column group: 4-bit lines hold 8 slots, 8-bit ones 4, whose steps are every second of the 8 slots'.
template <CodeKind kCode, int kRows, int kVectors, int... kStep>
MARLIN_TARGET MARLIN_INLINE void multiply_line(std::integer_sequence<int, kStep...>, const __m512i (&line)[kVectors],
                                               __m512i table, const __m512i (&zero)[kVectors], const uint32_t* x, int x_stride,
                                               __m512 (&part)[kRows][kVectors]) {
  (multiply_step<kCode, kRows, kVectors, kStep>(line, table, zero, x + kStep * x_stride, part), ...);
}

/// 16 slots: two 4-bit lines or four 8-bit ones.
template <CodeKind kCode, int kRows, int kVectors>
MARLIN_TARGET MARLIN_INLINE void multiply_unit(const uint8_t* codes, int line_stride, __m512i table, const float* zeros,
                                               const uint32_t* x, bool alone, __m512 (&part)[kRows][kVectors]) {
  constexpr bool kEight = kCode == CodeKind::w8sym || kCode == CodeKind::w8add;
  constexpr int kLines = kEight ? 4 : 2, kStepsOf8 = kSteps / 4, kStepsOfLine = kEight ? kStepsOf8 / 2 : kStepsOf8;
  __m512i zero[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) zero[v] = kCode == CodeKind::w4zero ? _mm512_load_si512(zeros + 16 * v) : table;
#pragma GCC unroll 4
  for (int i = 0; i < kLines; ++i) {
    __m512i line[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const uint8_t* from = codes + v * line_stride + i * 64;
      line[v] = _mm512_load_si512(from);
      if (alone) _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchAhead, _MM_HINT_T0);
    }
    const uint32_t* steps = kEight ? x + (i / 2 * kStepsOf8 + i % 2) * kRows : x + i * kStepsOf8 * kRows;
    multiply_line<kCode, kRows, kVectors>(std::make_integer_sequence<int, kStepsOfLine>{}, line, table, zero, steps,
                                          kEight ? 2 * kRows : kRows, part);
  }
}

template <CodeKind kCode, int kRows, int kVectors>
MARLIN_TARGET [[gnu::noinline]] void run_pass(const Pass& pass) {
  constexpr bool kEight = kCode == CodeKind::w8sym || kCode == CodeKind::w8add;
  constexpr int kStride = (kEight ? 8 : 4) * 64;  // of column groups in a block
  const PackedLayout& layout = *pass.layout;
  const int64_t super_bytes = layout.super_bytes();
  const int units = layout.slot_group / 16;  // of a group
  const __m512i table = kForm == ActivationForm::bf16 ? bf16_table<kCode>() : _mm512_castps_si512(float_table<kCode>());
  FloatSuper super;
  __m512 acc[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_ps();
  const uint8_t* bytes = pass.panel;
  for (int64_t s = 0; s < layout.superblocks(); ++s, bytes += super_bytes) {
    decode_float_super<kCode, kForm>(layout, bytes, pass.v0, kVectors, super);
    if (pass.alone)
      for (int64_t i = layout.scales_offset(); i < super_bytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(bytes) + kPrefetchAhead + i, _MM_HINT_T0);
    const uint32_t* records = pass.records + s * kBlocksPerSuper * pass.record_size;
    for (int group = 0, unit = 0; unit < 2 * kBlocksPerSuper; ++group) {
      __m512 part[kRows][kVectors];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) part[r][v] = _mm512_setzero_ps();
      for (const int end = unit + units; unit < end; ++unit) {
        const int block = unit / 2, half = unit % 2;
        if (!pass.alone && half == 0) pass.next(s * kBlocksPerSuper + block);
        const uint32_t* record = records + block * pass.record_size;
        multiply_unit<kCode, kRows, kVectors>(bytes + block * 4 * kStride + pass.v0 * kStride + half * (kStride / 2), kStride,
                                              table, &super.zero[group][16 * pass.v0], record + half * (kSteps / 2) * kRows,
                                              pass.alone, part);
        if (is_additive(kCode) && half < pass.sums_per_block)
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const __m512 sum = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(record[(kSteps + half) * kRows + r])));
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v)
              acc[r][v] = _mm512_fmadd_ps(sum, _mm512_load_ps(&super.zero[group][16 * (pass.v0 + v)]), acc[r][v]);
          }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m512 scale = _mm512_load_ps(&super.scale[group][16 * (pass.v0 + v)]);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) acc[r][v] = _mm512_fmadd_ps(part[r][v], scale, acc[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(pass.sums + r * kPanelColumns + 16 * (pass.v0 + v), acc[r][v]);
}

/// All tiles of a panel. Two sets of accumulators and decoded codes must fit in 32 registers: 3 and 4 rows take the columns in
/// halves.
template <CodeKind kCode, int kRows>
void run_tiles(const PanelArgs& args) {
  constexpr int kVectors = kRows > 2 ? 2 : 4;
  const ActivationLayout& act = args.activations;
  const int64_t passes = (args.tile_end - args.tile_begin) * (4 / kVectors);
  Pass pass{};
  pass.layout = args.layout;
  pass.panel = args.panel;
  pass.record_size = act.record_size();
  pass.sums_per_block = act.sums_per_block;
  pass.alone = passes == 1;
  for (int64_t i = 0; i < passes; ++i) {
    const int64_t tile = args.tile_begin + i / (4 / kVectors);
    pass.records = args.records + act.offset(tile, 0);
    pass.v0 = static_cast<int>(i % (4 / kVectors)) * kVectors;
    pass.next = share_of_next_panel(*args.layout, args.panel, i, passes);
    pass.sums = args.sums + (tile - args.tile_begin) * kRows * kPanelColumns;
    run_pass<kCode, kRows, kVectors>(pass);
  }
}

template <CodeKind kCode>
void run(const PanelArgs& args) {
  switch (args.activations.tile_rows) {
    case 1:
      return run_tiles<kCode, 1>(args);
    case 2:
      return run_tiles<kCode, 2>(args);
    case 3:
      return run_tiles<kCode, 3>(args);
    default:
      return run_tiles<kCode, 4>(args);
  }
}

}  // namespace
}  // namespace metal_marlin::cpu
