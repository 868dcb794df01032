// Default compute for few rows with AVX-512, F32 and F16 activations by FMA, BF16 ones by
// vdpbf16ps. The kernel reads the packed stream once, decodes codes in registers, and multiplies
// the partial sums of a group by its scale.
//
//   packed stream         registers, one set for each column group v = 0..3
//   line of codes    ---> codes[v]    a dword per column: 8 slots of 4 bits, or 4 slots of 8 bits
//     shift, lookup  ---> w[v]        lane c: column 16 v + c; F32 one slot, BF16 slots h and h + 2
//                                     (lines of floats: the line itself, or half of its pairs)
//   packed A block   ---> x           one dword of a row, in all lanes
//                         part[r][v]  += w[v] * x                  until the scale group ends
//   sums (in L1)     <--- sums[r][v]  += part[r][v] * scale[v]
//
//   2:4 sparse: a lane of w[v] holds a kept code (BF16: kept code i of two quads, one shift apart).
//   The quad of activations is repeated in the whole register, and a lookup by the positions gives
//   each lane its own x.
//
//   M: a pass over the panel for each tile of kRows rows. N: all 64 columns of the panel at once.
//   K: superblock, scale group, unit of 16 slots, line, step.
//
// Template parameters: kNarrow looks integers up by their codes in BF16: 8 if they were expanded,
// 5 or 6 for the bits of codes in planes, else 0; kCode and kSparse in every
// combination except kinds that are read as another one (kind_of_lines), 8-bit and real codes with
// 2:4 sparsity, and real codes other than BF16 with BF16 activations; kRows 1 to 4, or 1 and 2 if
// the activations of kept codes are also summed (kCountsKept).
//
// Limits: 16 partial sums, 4 vectors of weights, 4 of codes (8 with integer zeros), a table and an
// activation take 26 of the 32 registers at 4 rows. vdpbf16ps takes 6 cycles on two pipes, so fewer
// than 12 sums would not keep it busy. A superblock of one row takes 64 lines x (8 lookups, 7
// shifts, 8 FMA) in F32, which is 736 cycles on Zen 4, about as long as reading it from memory.
#if defined(__x86_64__)

#include <utility>

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_float.h"

namespace metal_marlin::cpu {
namespace {

template <ActivationForm kForm>
constexpr int kSteps = kForm == ActivationForm::bf16 ? 16 : 32;  ///< of a block

constexpr int kVectors = 4;  // groups of 16 columns: all of a panel

/// One tile of rows over the whole of K.
struct FloatPass {
  const PanelLayout* layout;
  CodeKind code;
  const uint8_t* panel;
  const uint32_t* packed_a;  ///< of the tile
  int64_t a_block_size;
  int sums_per_block;
  bool alone;  ///< the only pass over the panel
  PrefetchShare next;
  const float* nan_seed;  ///< of the tile's rows: sparse only (activations.h)
  float* sums;            ///< [kRows][64]
};

/// sum + w * b. A target attribute cannot depend on a template parameter, so all functions have the
/// target of BF16, whose instructions compilers take for these intrinsics alone.
template <ActivationForm kForm>
MARLIN_AVX512_BF16 MARLIN_INLINE __m512 multiply_add(__m512 sum, __m512i w, __m512i b) {
  if constexpr (kForm == ActivationForm::f32)
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(b), sum);
  else
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(b));
}

/// 1, or a pair of ones.
template <ActivationForm kForm>
MARLIN_AVX512_BF16 MARLIN_INLINE __m512i one() {
  return _mm512_set1_epi32(kForm == ActivationForm::bf16 ? 0x3f803f80 : 0x3f800000);
}

template <ActivationForm kForm, CodeKind kCode, bool kNarrow, int kRows, int kStep>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_step(const Codes (&codes)[kVectors],
                                                    FloatTable table, const uint32_t* x,
                                                    __m512 (&part)[kRows][kVectors]) {
  constexpr bool kSpare =
      kRows <=
      2;  // pipes wait for the decoder; more rows have no registers for its constants either
  __m512i w[kVectors];
  MARLIN_UNROLLED(v, kVectors)
    w[v] = decode_step<kForm, kCode, kStep, kSpare, kNarrow>(codes[v], table);
  MARLIN_UNROLLED_2(r, kRows, v, kVectors)
    part[r][v] = multiply_add<kForm>(part[r][v], w[v], _mm512_set1_epi32(static_cast<int>(x[r])));
  fence();
}

/// Multiplies a line of codes of every column group. A 4-bit line holds 8 slots. An 8-bit line
/// holds 4 slots, whose steps are every second of the steps of 8 slots.
template <ActivationForm kForm, CodeKind kCode, bool kNarrow, int kRows, int... kStep>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_line(std::integer_sequence<int, kStep...>,
                                                    const Codes (&codes)[kVectors],
                                                    FloatTable table, const uint32_t* x,
                                                    int x_stride, __m512 (&part)[kRows][kVectors]) {
  (multiply_step<kForm, kCode, kNarrow, kRows, kStep>(codes, table, x + kStep * x_stride, part),
   ...);
}

/// The value that the scale multiplies for kept code number kIndex of quad kQuad (0..3 of a unit)
/// of sparse weights; in BF16, of both codes. `offset` is as in CodeLines::read.
template <ActivationForm kForm, CodeKind kCode, int kQuad, int kIndex>
MARLIN_AVX512_BF16 MARLIN_INLINE __m512i kept_value(__m512i codes, FloatTable table,
                                                    __m512i offset) {
  constexpr int kShift =
      kQuad % 2 * 8 + kQuad / 2 * 4 + kIndex * 16;  // in BF16 a word for each of the two codes
  __m512i index = codes;
  if constexpr (kShift != 0)
    index = kForm == ActivationForm::bf16 ? _mm512_srli_epi16(codes, kShift)
                                          : _mm512_srli_epi32(codes, kShift);
  if constexpr (kCode == CodeKind::u4zero)  // the tables use 5 bits
    index = _mm512_add_epi8(_mm512_and_si512(index, _mm512_set1_epi8(15)), offset);
  if constexpr (kForm == ActivationForm::bf16) return _mm512_permutexvar_epi16(index, table.lower);
  const __m512 values = _mm512_castsi512_ps(table.lower);
  if constexpr (kCode == CodeKind::u4zero)
    return _mm512_castps_si512(
        _mm512_permutex2var_ps(_mm512_sub_ps(values, _mm512_set1_ps(16.0f)), index, values));
  return _mm512_castps_si512(_mm512_permutexvar_ps(index, values));
}

/// Multiplies kept codes of quad kQuad of a unit, whose `positions` are in the lowest bits, by the
/// activations at their positions. The activations of a quad are repeated in the whole register, so
/// that only the lowest 2 bits of the positions' dwords (words) matter.
template <ActivationForm kForm, CodeKind kCode, int kRows, int kQuad, int kIndex>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_kept(const uint8_t* codes,
                                                    const __m512i (&positions)[kVectors],
                                                    FloatTable table, const uint32_t* offsets,
                                                    const uint32_t* x,
                                                    __m512 (&part)[kRows][kVectors],
                                                    __m512 (&kept)[kRows][kVectors]) {
  using Lines = CodeLines<kCode, true>;
  constexpr bool kBf16 = kForm == ActivationForm::bf16;
  constexpr int kShift = 2 * kQuad + 16 * kIndex;
  __m512i w[kVectors], place[kVectors];
  MARLIN_UNROLLED(v, kVectors) {
    const __m512i offset =
        kCode == CodeKind::u4zero ? _mm512_load_si512(offsets + 16 * v) : table.lower;
    w[v] = kept_value<kForm, kCode, kQuad, kIndex>(Vec::load(codes + v * Lines::kBytes + 64 * (0)),
                                                   table, offset);
    place[v] =
        kBf16 ? _mm512_srli_epi16(positions[v], kShift) : _mm512_srli_epi32(positions[v], kShift);
  }
  MARLIN_UNROLLED(r, kRows) {
    const uint32_t* quad = x + (kQuad * kRows + r) * (kBf16 ? 2 : 4);
    const __m512i all =
        kBf16 ? _mm512_set1_epi64(load<int64_t>(quad))
              : _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(quad)));
    MARLIN_UNROLLED(v, kVectors) {
      const __m512i own =
          kBf16 ? _mm512_permutexvar_epi16(place[v], all) : _mm512_permutexvar_epi32(place[v], all);
      part[r][v] = multiply_add<kForm>(part[r][v], w[v], own);
      if constexpr (Lines::kCountsKept)
        kept[r][v] = multiply_add<kForm>(kept[r][v], one<kForm>(), own);
    }
  }
  fence();
}

template <ActivationForm kForm, CodeKind kCode, int kRows, int... kStep>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_kept_unit(
    std::integer_sequence<int, kStep...>, const uint8_t* codes,
    const __m512i (&positions)[kVectors], FloatTable table, const uint32_t* offsets,
    const uint32_t* x, __m512 (&part)[kRows][kVectors], __m512 (&kept)[kRows][kVectors]) {
  constexpr int kEach = kForm == ActivationForm::bf16 ? 1 : 2;  // steps of a quad
  (multiply_kept<kForm, kCode, kRows, kStep / kEach, kStep % kEach>(codes, positions, table,
                                                                    offsets, x, part, kept),
   ...);
}

/// Multiplies octet kOctet (8 slots) of codes in planes of kBits bits, from the block at `block`
/// on. `x` is the packed A block.
template <ActivationForm kForm, CodeKind kCode, int kBits, int kRows, int kOctet, int kQuad = 0>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_octet(const uint8_t* block, FloatTable table,
                                                     const uint32_t* x,
                                                     __m512 (&part)[kRows][kVectors]) {
  __m512i codes[kVectors];
  MARLIN_UNROLLED(v, kVectors) {
    const uint8_t* const group = block + v * kBits * 64;
    codes[v] = join_planes<kBits - 4, kOctet, kQuad>(
        _mm512_load_si512(group + 64 * kOctet),
        _mm512_load_si512(group + 64 * high_line(kBits - 4, kOctet)));
  }
  MARLIN_UNROLLED(step, 2) {
    MARLIN_UNROLLED(v, kVectors) {
      const __m512i words = step == 0 ? codes[v] : _mm512_srli_epi16(codes[v], 8);
      const __m512i w = look_up_narrow<kBits>(words, table);
      MARLIN_UNROLLED(r, kRows)
        part[r][v] = multiply_add<kForm>(
            part[r][v], w,
            _mm512_set1_epi32(static_cast<int>(x[(4 * kOctet + kQuad + 2 * step) * kRows + r])));
    }
    fence();
  }
  if constexpr (kQuad == 0)
    multiply_octet<kForm, kCode, kBits, kRows, kOctet, 1>(block, table, x, part);
}

/// Half kHalf of the block, and prefetches what lies `ahead` unless that is 0.
template <ActivationForm kForm, CodeKind kCode, int kBits, int kRows, int kHalf>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_half(const uint8_t* block, FloatTable table,
                                                    const uint32_t* x, int64_t ahead,
                                                    __m512 (&part)[kRows][kVectors]) {
  if (ahead != 0)
    MARLIN_UNROLLED(line, kVectors * kBits / 2)
      fetch_line(block + ahead + (kHalf * kVectors * kBits / 2 + line) * 64);
  multiply_octet<kForm, kCode, kBits, kRows, 2 * kHalf>(block, table, x, part);
  multiply_octet<kForm, kCode, kBits, kRows, 2 * kHalf + 1>(block, table, x, part);
}

/// Multiplies 16 slots (half 0 or 1) of the block at `block`: two 4-bit lines, four 8-bit lines, or
/// a unit of sparse weights. `x` is the packed A block of the block. `kept` sums the activations of
/// kept codes, if zeros need them.
template <ActivationForm kForm, CodeKind kCode, bool kSparse, int kNarrow, int kRows>
MARLIN_AVX512_BF16 MARLIN_INLINE void multiply_unit(const uint8_t* block, int half,
                                                    FloatTable table, const uint32_t* offsets,
                                                    const uint32_t* x, int64_t ahead,
                                                    __m512 (&part)[kRows][kVectors],
                                                    __m512 (&kept)[kRows][kVectors]) {
  using Lines = CodeLines<kCode, kSparse>;
  if constexpr (kSparse) {
    using Steps = std::make_integer_sequence<int, kForm == ActivationForm::bf16 ? 4 : 8>;
#pragma GCC unroll 4
    for (int v = 0; ahead != 0 && v < kVectors; ++v) {
      Lines::fetch(block + v * Lines::kBytes, half, ahead);
      if (half == 0) Lines::fetch(block + v * Lines::kBytes, 2, ahead);
    }
    __m512i positions[kVectors];
    MARLIN_UNROLLED(v, kVectors)
      positions[v] = _mm512_srl_epi32(Lines::positions(block + v * Lines::kBytes),
                                      _mm_cvtsi32_si128(8 * half));
    constexpr int kDwords = kForm == ActivationForm::bf16 ? 8 : 16;  // of a row, in a unit
    multiply_kept_unit<kForm, kCode, kRows>(Steps{}, block + half * 64, positions, table, offsets,
                                            x + half * kDwords * kRows, part, kept);
  } else if constexpr (are_planes(kNarrow)) {
    if (half == 0)
      multiply_half<kForm, kCode, kNarrow, kRows, 0>(block, table, x, ahead, part);
    else
      multiply_half<kForm, kCode, kNarrow, kRows, 1>(block, table, x, ahead, part);
  } else {
    constexpr bool kEight = is_eight_bits(kCode);
    // Both slots of a pair in F32 are steps of their own, which are 4 apart.
    constexpr bool kPairs =
        is_float_line(kCode) && kForm == ActivationForm::f32 && kCode != CodeKind::f32;
    constexpr int kStepsOf8 = kSteps<kForm> / 4,
                  kStepsOfLine = kPairs ? 2 : kSteps<kForm> / Lines::kLines;
    x += half * (kSteps<kForm> / 2) * kRows;
#pragma GCC unroll 1  // a line at a time has the speed of four, and half of the code
    for (int i = 0; i < Lines::kLines / 2; ++i) {
      Codes codes[kVectors];
      MARLIN_UNROLLED(v, kVectors) {
        const uint8_t* group = block + v * Lines::kBytes;
        const int line = half * (Lines::kLines / 2) + i;
        const __m512i offset =
            kCode == CodeKind::u4zero ? _mm512_load_si512(offsets + 16 * v) : table.lower;
        codes[v] = Lines::read(group, line, offset);
        if (ahead != 0) Lines::fetch(group, line, ahead);
      }
      constexpr int kApart = kPairs ? 4 : 1 + kEight;
      const uint32_t* steps = x + i * kStepsOfLine * kRows;
      if constexpr (kApart != 1) steps = x + (i / kApart * kStepsOf8 + i % kApart) * kRows;
      multiply_line<kForm, kCode, kNarrow != 0, kRows>(
          std::make_integer_sequence<int, kStepsOfLine>{}, codes, table, steps, kApart * kRows,
          part);
    }
  }
}

/// sum[r][v] += a[r] * b[v]. The sums of a tile stay in memory (in L1), because they are used only
/// once per group, and the partial sums need the registers (vdpbf16ps takes 6 cycles, so fewer than
/// 12 chains would not keep it busy).
template <int kRows>
MARLIN_AVX512_BF16 MARLIN_INLINE void add_scaled(const __m512 (&part)[kRows][kVectors],
                                                 const float* scales, float* sums) {
  MARLIN_UNROLLED(v, kVectors) {
    const __m512 scale = _mm512_load_ps(scales + 16 * v);
    MARLIN_UNROLLED(r, kRows) {
      float* sum = sums + r * kPanelColumns + 16 * v;
      _mm512_store_ps(sum, _mm512_fmadd_ps(part[r][v], scale, _mm512_load_ps(sum)));
    }
  }
}

/// Adds additive zeros of half `half` of a block: sums += sum of the activations * zero.
template <ActivationForm kForm, int kRows>
MARLIN_AVX512_BF16 MARLIN_INLINE void add_zeros(const FloatPass& pass, const uint32_t* a_block,
                                                int half, const float* zeros) {
  if (half >= pass.sums_per_block) return;
  const uint32_t* const activation_sums = a_block + (kSteps<kForm> + half) * kRows;
  MARLIN_UNROLLED(r, kRows) {
    const __m512 x = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(activation_sums[r])));
    MARLIN_UNROLLED(v, kVectors) {
      float* sum = pass.sums + r * kPanelColumns + 16 * v;
      _mm512_store_ps(sum, _mm512_fmadd_ps(x, _mm512_load_ps(zeros + 16 * v), _mm512_load_ps(sum)));
    }
  }
}

template <int kRows>
MARLIN_AVX512_BF16 MARLIN_INLINE void clear(__m512 (&part)[kRows][kVectors]) {
  MARLIN_UNROLLED_2(r, kRows, v, kVectors) part[r][v] = _mm512_setzero_ps();
}

/// The codes of a superblock as Lines reads them. Never inlined: g++ 12 would spill sums in the
/// loops of run_pass.
MARLIN_AVX512_BF16 [[gnu::noinline]] const uint8_t* expanded_codes(const FloatPass& pass,
                                                                   const uint8_t* bytes,
                                                                   uint8_t* expanded) {
  const PanelLayout& layout = *pass.layout;
  if (layout.expansion == Expansion::none) return bytes;
  expand_super(layout, pass.code, 0, bytes, pass.alone ? fetch_distance(layout.super_bytes()) : 0,
               expanded);
  return expanded;
}

template <ActivationForm kForm, CodeKind kCode, bool kSparse, int kNarrow, int kRows>
MARLIN_AVX512_BF16 [[gnu::noinline]] void run_pass(const FloatPass& pass) {
  using Lines = CodeLines<kCode, kSparse>;
  constexpr bool kExpands = may_be_expanded(kCode) && !are_planes(kNarrow);
  constexpr int kBytes = are_planes(kNarrow) ? kNarrow * 64 : Lines::kBytes;
  const SuperShape shape(*pass.layout, pass.panel);
  const int64_t superblocks = pass.layout->superblocks();
  const int units = pass.layout->slot_group / 16;  // of a group
  const FloatTable table = table_of<kForm, kCode, kNarrow>(*pass.layout, pass.code);
  SuperScales super;
  for (int i = 0; i < kRows * kPanelColumns; i += 16)
    _mm512_store_ps(pass.sums + i,
                    _mm512_set1_ps(kSparse ? pass.nan_seed[i / kPanelColumns] : 0.0f));
  const bool expands = kExpands && shape.expands;
  const int64_t ahead = pass.alone && !expands ? shape.ahead : 0;
  ExpandedCodes<kCode> expanded;
  // Between the products of 8-bit codes with BF16, sums would spill.
  constexpr bool kZerosLast = !kSparse && kForm == ActivationForm::bf16 && is_eight_bits(kCode);
  const uint8_t* bytes = pass.panel;
  for (int64_t s = 0; s < superblocks; ++s, bytes += shape.bytes) {
    decode_super(pass.code, shape, bytes, super);
    if (pass.alone) shape.fetch_scales(bytes);
    const uint8_t* codes = bytes;
    if constexpr (kExpands) {
      codes = expanded_codes(pass, bytes, expanded.bytes);
      __asm__("" : "+m"(codes));  // in memory: with it in a register, g++ 12 spills sums
    }
    const uint32_t* packed_a = pass.packed_a + s * kBlocksPerSuper * pass.a_block_size;
    for (int group = 0, unit = 0; unit < 2 * kBlocksPerSuper; ++group) {
      __m512 part[kRows][kVectors], kept[kRows][kVectors];
      clear(part);
      clear(kept);
      for (const int end = unit + units; unit < end; ++unit) {
        const int block = unit / 2, half = unit % 2;
        if (!pass.alone && half == 0) pass.next(s * kBlocksPerSuper + block);
        const uint32_t* a_block = packed_a + block * pass.a_block_size;
        multiply_unit<kForm, kCode, kSparse, kNarrow, kRows>(codes + block * kColumnGroups * kBytes,
                                                             half, table, super.offset[group],
                                                             a_block, ahead, part, kept);
        if (!kSparse && !kZerosLast)
          add_zeros<kForm, kRows>(pass, a_block, half, super.zero[group]);
      }
      if (kZerosLast && pass.sums_per_block != 0)
        for (int i = unit - units; i < unit; ++i)
          add_zeros<kForm, kRows>(pass, packed_a + i / 2 * pass.a_block_size, i % 2,
                                  super.zero[group]);
      if constexpr (Lines::kCountsKept) add_scaled(kept, super.zero[group], pass.sums);
      add_scaled(part, super.scale[group], pass.sums);
    }
  }
}

/// Multiplies all tiles of a panel.
void run_tiles(const PanelArgs& args, void (*run)(const FloatPass&)) {
  const ActivationLayout& act = args.activations;
  const int64_t tiles = args.tile_end - args.tile_begin;
  FloatPass pass{};
  pass.layout = args.layout;
  pass.code = args.code;
  pass.panel = args.panel;
  pass.a_block_size = act.a_block_size();
  pass.sums_per_block = act.sums_per_block;
  pass.alone = tiles == 1;
  for (int64_t i = 0; i < tiles; ++i) {
    pass.packed_a = args.packed_a + act.offset(args.tile_begin + i, 0);
    pass.nan_seed =
        reinterpret_cast<const float*>(args.packed_a + act.rows_offset(args.tile_begin + i));
    pass.next = share_of_next_panel(*args.layout, args.panel, i, tiles);
    pass.sums = args.sums + i * act.tile_rows * kPanelColumns;
    run(pass);
  }
}

template <ActivationForm kForm, CodeKind kCode, bool kSparse, int kRows>
void run_rows(const PanelArgs& args) {
  if constexpr (kForm == ActivationForm::bf16 && is_eight_bits(kCode))
    if (has_narrow_integers(*args.layout)) {
      const int bits = args.layout->code_bits;
      if (bits == 5) return run_tiles(args, run_pass<kForm, kCode, kSparse, 5, kRows>);
      return run_tiles(args, bits == 6 ? run_pass<kForm, kCode, kSparse, 6, kRows>
                                       : run_pass<kForm, kCode, kSparse, 8, kRows>);
    }
  run_tiles(args, run_pass<kForm, kCode, kSparse, 0, kRows>);
}

template <ActivationForm kForm, CodeKind kCode, bool kSparse>
void run(const PanelArgs& args) {
  if constexpr (CodeLines<kCode, kSparse>::kCountsKept) {  // its rows have tiles of two
    return args.activations.tile_rows == 1 ? run_rows<kForm, kCode, kSparse, 1>(args)
                                           : run_rows<kForm, kCode, kSparse, 2>(args);
  } else {
    switch (args.activations.tile_rows) {
      case 1:
        return run_rows<kForm, kCode, kSparse, 1>(args);
      case 2:
        return run_rows<kForm, kCode, kSparse, 2>(args);
      case 3:
        return run_rows<kForm, kCode, kSparse, 3>(args);
      default:
        return run_rows<kForm, kCode, kSparse, 4>(args);
    }
  }
}

/// Runs all kinds of codes except sparse codes with additive zeros, whose tiles have fewer rows.
template <ActivationForm kForm, bool kSparse>
void run_any(const PanelArgs& args) {
  with_any_code(kind_of_lines(args), [&]<CodeKind kCode>() {
    if constexpr (!is_read_by<kForm>(kCode))
      return;
    else if constexpr (!kSparse || (!is_eight_bits(kCode) && !is_real(kCode)))
      run<kForm, kCode, kSparse>(args);
  });
}

}  // namespace

void cpu_avx512bf16_gemv_any_bf16(const PanelArgs& args) {
  run_any<ActivationForm::bf16, false>(args);
}
void cpu_avx512bf16_gemv_any_sparse_bf16(const PanelArgs& args) {
  run_any<ActivationForm::bf16, true>(args);
}
void cpu_avx512bf16_gemv_u4add_sparse_bf16(const PanelArgs& args) {
  run<ActivationForm::bf16, CodeKind::u4add, true>(args);
}
void cpu_avx512_gemv_any_f32(const PanelArgs& args) { run_any<ActivationForm::f32, false>(args); }
void cpu_avx512_gemv_any_sparse_f32(const PanelArgs& args) {
  run_any<ActivationForm::f32, true>(args);
}
void cpu_avx512_gemv_u4add_sparse_f32(const PanelArgs& args) {
  run<ActivationForm::f32, CodeKind::u4add, true>(args);
}

}  // namespace metal_marlin::cpu

#endif
