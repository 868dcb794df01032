// Default compute by register-decoded tiles (avx512_regdecode.h): BF16 activations
// by vdpbf16ps, F32 and F16 ones by FMA.
//
//   packed stream         registers, for one column group (BF16, 4 rows and fewer: two)
//   line of codes    ---> lines      a dword per column
//     shift, lookup  ---> w          lane c: column 16 v + c; F32 one slot, BF16 two
//   packed A block   ---> memory operand of the multiplication, broadcast to all lanes
//                         part[r]    += w * x[r]                  until the scale group ends
//   chunk's scales   ---> acc[r]     += part[r] * scale, and the sums of x[r] * additive zero
//   sums (in L1)     <--> acc[r]     loaded and stored once per chunk
//
//   M: tiles of up to 12 rows. N: 16 (or 32) columns at a time, four (or two) times. K: chunk of 12
//   blocks, superblock, scale group, 8 slots, step. Codes are decoded again for every tile.
//
// Template parameters: kForm bf16 or f32; kCode any that is not read as another; kRows 2, 4, .. 12,
// the least that holds the rows of the tile; kWide follows from kForm and kRows.
//
// Limits: two sets of 12 sums, w, a table and a scale are in 32 registers. A block of 32 slots, 12
// rows and 16 columns takes, in BF16, 192 vdpbf16ps, 12 FMA for scales (24 with groups of 16) and
// 16 lookups. In F32, it takes 384 FMA, 12 FMA for scales, 32 lookups and as many shifts.
#if defined(__x86_64__)

#include <type_traits>
#include <utility>

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_float.h"
#include "backends/cpu/x86/avx512_regdecode.h"

namespace metal_marlin::cpu {
namespace {

template <CodeKind kCode>
struct ScaleChunk {
  SuperScales supers[kRegdecodeBlocks / kBlocksPerSuper];
  const uint8_t* codes;  ///< of the first superblock
  int64_t super_bytes;   ///< from one to the next
  ExpandedChunk<kCode> expanded;
};
template <CodeKind kCode>
using Tile = RegdecodeTile<ScaleChunk<kCode>>;

template <CodeKind kCode>
MARLIN_AVX512 void dequantize(const PanelArgs& args, const uint8_t* super, int blocks,
                              ScaleChunk<kCode>& out) {
  const SuperShape shape(*args.layout, args.panel);
  const bool sparse = args.layout->sparse,
             expands = may_be_expanded(kCode) && (shape.expands || sparse);
  // Sparse FP4 is twice its value in bytes.
  const float factor = sparse && args.code == CodeKind::fp4 ? 0.5f : 1.0f;
  out.codes = expands ? out.expanded.supers[0].bytes : super;
  out.super_bytes = expands ? int64_t{sizeof(ExpandedCodes<kCode>)} : shape.bytes;
  for (int s = 0; s < blocks / kBlocksPerSuper; ++s, super += shape.bytes) {
    shape.fetch_scales(super);
    decode_super(args.code, shape, super, out.supers[s], factor);
    if (expands)
      expand_super(*args.layout, args.code, offset_of_codes(args.code), super, shape.ahead,
                   out.expanded.supers[s].bytes);
  }
}

/// sum += w * the activation, or pair of activations, at x. This is assembly because g++ 12 would
/// broadcast with a separate instruction.
template <ActivationForm kForm>
MARLIN_AVX512 MARLIN_INLINE void multiply_broadcast(__m512& sum, __m512i w, const uint32_t* x) {
  if constexpr (kForm == ActivationForm::bf16)
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
  else
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
}

/// The vectors of 16 columns at a time: as many as are needed to hide the 6 cycles of vdpbf16ps.
template <ActivationForm kForm, int kRows>
inline constexpr int kVectors = kForm == ActivationForm::bf16 && kRows <= 4 ? 2 : 1;

/// Multiplies step kStep of 8 slots, whose codes are one line of 4 bits or two lines of 8 bits.
/// With 8 bits, every second step belongs to the same line (activations.h).
template <ActivationForm kForm, CodeKind kCode, bool kNarrow, int kRows, int kWide, int kStep>
MARLIN_AVX512 MARLIN_INLINE void multiply_step(const Codes (&lines)[kWide][2], FloatTable table,
                                               const uint32_t* x, __m512 (&part)[kWide][kRows]) {
  constexpr bool kEight = is_eight_bits(kCode);
  MARLIN_UNROLLED(i, kWide) {
    const __m512i w = decode_step<kForm, kCode, kEight ? kStep / 2 : kStep, false, kNarrow>(
        lines[i][kEight ? kStep % 2 : 0], table);
    MARLIN_UNROLLED(r, kRows)
      multiply_broadcast<kForm>(part[i][r], w, x + kStep * kRegdecodeRows + r);
  }
  fence();
}

/// The same for lines of floats, 8 slots of which are at `codes`.
template <ActivationForm kForm, CodeKind kCode, int kRows, int kWide, int kStep>
MARLIN_AVX512 MARLIN_INLINE void multiply_float_step(const uint8_t* codes, const uint32_t* x,
                                                     __m512 (&part)[kWide][kRows]) {
  constexpr int kLine = kStep % (CodeLines<kCode, false>::kLines / 4);
  MARLIN_UNROLLED(i, kWide) {
    const __m512i line =
        _mm512_load_si512(codes + i * CodeLines<kCode, false>::kBytes + 64 * kLine);
    const __m512i w = decode_step<kForm, kCode, static_cast<int>(kStep != kLine)>(Codes{line, line},
                                                                                  {line, line});
    MARLIN_UNROLLED(r, kRows)
      multiply_broadcast<kForm>(part[i][r], w, x + kStep * kRegdecodeRows + r);
  }
  fence();
}

/// The steps of 8 slots line by line, in the order of the kernel for few rows, which reads one line
/// at a time (AddOrder::groups): those of a line of 8-bit codes are every second one, those of a
/// line of pairs of floats are 4 apart.
template <ActivationForm kForm, CodeKind kCode>
constexpr auto steps_line_by_line() {
  constexpr bool kBf16 = kForm == ActivationForm::bf16;
  if constexpr (is_eight_bits(kCode))
    return std::conditional_t<kBf16, std::integer_sequence<int, 0, 2, 1, 3>,
                              std::integer_sequence<int, 0, 2, 4, 6, 1, 3, 5, 7>>{};
  else if constexpr (!kBf16 && is_float_line(kCode) && kCode != CodeKind::f32)
    return std::integer_sequence<int, 0, 4, 1, 5, 2, 6, 3, 7>{};
  else
    return std::make_integer_sequence<int, kBf16 ? 4 : 8>{};
}

template <ActivationForm kForm, CodeKind kCode, int kRows, int kWide, int... kStep>
MARLIN_AVX512 MARLIN_INLINE void multiply_float_slots(std::integer_sequence<int, kStep...>,
                                                      const uint8_t* codes, const uint32_t* x,
                                                      __m512 (&part)[kWide][kRows]) {
  (multiply_float_step<kForm, kCode, kRows, kWide, kStep>(codes, x, part), ...);
}

template <ActivationForm kForm, CodeKind kCode, bool kNarrow, int kRows, int kWide, int... kStep>
MARLIN_AVX512 MARLIN_INLINE void multiply_slots(std::integer_sequence<int, kStep...>,
                                                const Codes (&lines)[kWide][2], FloatTable table,
                                                const uint32_t* x, __m512 (&part)[kWide][kRows]) {
  (multiply_step<kForm, kCode, kNarrow, kRows, kWide, kStep>(lines, table, x, part), ...);
}

/// Multiplies kRows rows by 64 columns, a few vectors at a time. It is longer than other functions,
/// because its parts share registers. NOLINTBEGIN(readability-function-size)
template <ActivationForm kForm, CodeKind kCode, bool kNarrow, int kRows>
MARLIN_AVX512 [[gnu::noinline]] void multiply_rows(const PanelArgs& args, const Tile<kCode>& tile) {
  using Lines = CodeLines<kCode, false>;
  constexpr int kWide = kVectors<kForm, kRows>;
  constexpr int kSteps = kForm == ActivationForm::bf16 ? 4 : 8;  // of 8 slots
  constexpr int kLines = Lines::kLines / 4;                      // the same; of floats up to 8
  const FloatTable of_codes = table_of<kForm, kCode, kNarrow>(*args.layout, args.code);
  // As vectors: g++ 12 would copy the structure on the stack for every line.
  const __m512i lower = of_codes.lower, upper = of_codes.upper;
  const int units = args.layout->slot_group / 16;  // of a group
  const bool additive = is_additive(args.code);
  const int64_t super_bytes = tile.chunk.super_bytes,
                a_block_size = args.activations.a_block_size();
  for (int v = 0; v < kColumnGroups; v += kWide) {
    const uint8_t* codes = tile.chunk.codes + v * Lines::kBytes;
    const uint32_t* packed_a = tile.a_block;
    __m512 acc[kWide][kRows];
    MARLIN_UNROLLED(w, kWide) load_sums(tile.first, tile.sums + 16 * (v + w), acc[w]);
    for (int s = 0; s < tile.blocks / kBlocksPerSuper; ++s) {
      const SuperScales& super = tile.chunk.supers[s];
      for (int unit = 0, group = 0; unit < 2 * kBlocksPerSuper; unit += units, ++group) {
        __m512 part[kWide][kRows];
        MARLIN_UNROLLED_2(w, kWide, r, kRows) part[w][r] = _mm512_setzero_ps();
        for (int i = 2 * unit; i < 2 * (unit + units); ++i) {  // of 8 slots
          const uint32_t* const x =
              packed_a + i / 4 * a_block_size + i % 4 * kSteps * kRegdecodeRows;
          fetch_later_a_blocks<kSteps * kRegdecodeRows>(x, tile.blocks * a_block_size, v);
          if constexpr (may_be_expanded(kCode))
            if (i % 4 == 0)
              for (int w = 0; w < kWide; ++w) tile.later.fetch(s * kBlocksPerSuper + i / 4, v + w);
          if constexpr (is_float_line(kCode)) {
            const uint8_t* const block = codes + i / 4 * kColumnGroups * Lines::kBytes;
            const uint8_t* const octet = block + i % 4 * kLines * 64;
            if (tile.ahead != 0)
              for (int w = 0; w < kWide; ++w)
                fetch_lines(octet + w * Lines::kBytes + tile.ahead, kLines * 64);
            multiply_float_slots<kForm, kCode, kRows, kWide>(steps_line_by_line<kForm, kCode>(),
                                                             octet, x, part);
          } else {
            Codes lines[kWide][2];
            MARLIN_UNROLLED(w, kWide) {
              const uint8_t* const block = codes + (i / 4 * kColumnGroups + w) * Lines::kBytes;
              const __m512i offset = kCode == CodeKind::u4zero
                                         ? _mm512_load_si512(&super.offset[group][16 * (v + w)])
                                         : lower;
              MARLIN_UNROLLED(j, kLines) {
                lines[w][j] = Lines::read(block, i % 4 * kLines + j, offset);
                if (tile.ahead != 0) Lines::fetch(block, i % 4 * kLines + j, tile.ahead);
              }
            }
            multiply_slots<kForm, kCode, kNarrow, kRows, kWide>(steps_line_by_line<kForm, kCode>(),
                                                                lines, {lower, upper}, x, part);
          }
        }
        MARLIN_UNROLLED(w, kWide) {
          if (additive)
            for (int i = unit; i < unit + units; i += 2) {
              const uint32_t* const sum =
                  packed_a + i / 2 * a_block_size + (4 * kSteps + i % 2) * kRegdecodeRows;
              const __m512i zero = _mm512_load_si512(&super.zero[group][16 * (v + w)]);
              MARLIN_UNROLLED(r, kRows)
                multiply_broadcast<ActivationForm::f32>(acc[w][r], zero, sum + r);
            }
          const __m512 scale = _mm512_load_ps(&super.scale[group][16 * (v + w)]);
          MARLIN_UNROLLED(r, kRows) acc[w][r] = _mm512_fmadd_ps(part[w][r], scale, acc[w][r]);
        }
      }
      codes += super_bytes;
      packed_a += kBlocksPerSuper * a_block_size;
    }
    MARLIN_UNROLLED(w, kWide) store_sums(acc[w], tile.sums + 16 * (v + w));
  }
}
// NOLINTEND(readability-function-size)

template <ActivationForm kForm, CodeKind kCode>
void multiply_tile(const PanelArgs& args, const Tile<kCode>& tile, int rows, const float*) {
  constexpr bool kMayBeNarrow = kForm == ActivationForm::bf16 && is_eight_bits(kCode);
  const bool narrow = kMayBeNarrow && has_narrow_integers(*args.layout);
  dispatch_rows<kRegdecodeRows>(rows, [&]<int kRows>() {
    narrow ? multiply_rows<kForm, kCode, kMayBeNarrow, kRows>(args, tile)
           : multiply_rows<kForm, kCode, false, kRows>(args, tile);
  });
}

template <ActivationForm kForm, CodeKind kCode>
void walk_lines(const PanelArgs& args) {
  walk_regdecode<ScaleChunk<kCode>, dequantize<kCode>, multiply_tile<kForm, kCode>>(args);
}

template <ActivationForm kForm>
void walk(const PanelArgs& args) {
  with_any_code(kind_of_lines(args), [&]<CodeKind kCode>() {
    if constexpr (is_read_by<kForm>(kCode)) walk_lines<kForm, kCode>(args);
  });
}

}  // namespace

void cpu_avx512bf16_regdecode_any_bf16(const PanelArgs& args) { walk<ActivationForm::bf16>(args); }
void cpu_avx512_regdecode_any_f32(const PanelArgs& args) { walk<ActivationForm::f32>(args); }
void cpu_avx512bf16_regdecode_any_sparse_bf16(const PanelArgs& args) {
  walk_lines<ActivationForm::bf16, CodeKind::i8>(args);
}
void cpu_avx512_regdecode_any_sparse_f32(const PanelArgs& args) {
  walk_lines<ActivationForm::f32, CodeKind::i8>(args);
}

}  // namespace metal_marlin::cpu

#endif
