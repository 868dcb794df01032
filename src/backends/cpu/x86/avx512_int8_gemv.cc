// INT8 compute for few rows. The kernel reads the packed stream once and decodes codes in
// registers.
//
//   packed stream         registers, for kVectors column groups from v0 on
//   octet of codes   ---> w[n][v]    unsigned bytes, a dword per column: 4 slots; n = 0, 1: the
//                                    quads of the octet (avx512_int8.h)
//   packed A block   ---> b          4 slots of a row as signed bytes, in all lanes
//                         dot[r][v]  += w . b (vpdpbusd); starts from the sum of the activations,
//                                    which undoes the offset of the codes
//   d, scales        ---> acc[r][v]  += float(dot[r][v]) * (scale[v] * d[r])  after every part
//   sums             <--- acc[r][v]  after the last superblock
//
//   2:4 sparse: w holds the kept codes of 8 slots as signed bytes, and vpshufb picks 4 of 8
//   activations (q + 128, unsigned) by the positions. bias[v], the sum of the codes times 128, is
//   subtracted from all rows.
//
//   M: a pass for each tile of kRows rows. N: 64 columns, or 32 at a time in two passes if kVectors
//   is 2. K: superblock, block of 32 slots, part (half a block with groups of 16), octet.
//
// Template parameters of run_pass:
//   kReading, kSparse  dense: any; sparse: looked_up (INT4, FP4), less_zeros, and nibbles with
//                      additive zeros
//   kExponents         scales are powers of two and are multiplied by adding: only dense FP4
//   kRows              dense 1 to 3 (more rows have register-decoded tiles), sparse 1 to 4, sparse
//                      with additive zeros 1 and 2
//   kVectors           dense 4, sparse 4 with one row, else 2
//
// Limits: two sets of sums (dot, acc) and decoded codes must fit in 32 registers. vpdpbusd takes 4
// cycles on two pipes, so 8 sums keep it busy. All multiplications share these pipes, so the 2
// multiplications for scale and d (1 with exponents) count beside the 8 dot products of a block.
#if defined(__x86_64__)

#include <algorithm>

#include "backends/cpu/x86/avx512_int8.h"

namespace metal_marlin::cpu {
namespace {

/// The prefetch distances of the blocks of a panel whose last blocks hold padding alone. Walks
/// along with the blocks of one panel, and leaves out the idle blocks that lie ahead.
class FetchAhead {
 public:
  FetchAhead(const PanelLayout& layout, int idle_blocks, int64_t distance)
      : panel_(layout.panel_bytes()),
        idle_end_(panel_ - layout.super_bytes() + layout.code_bytes()),
        idle_begin_(idle_end_ - idle_blocks * block_bytes(layout)),
        block_(block_bytes(layout)),
        distance_(distance),
        at_(distance % panel_) {}

  /// The distance for the block at hand, or 0. The next block lies `to_next` bytes behind it.
  MARLIN_INLINE int64_t pass(int64_t to_next) {
    const int64_t distance = at_ >= idle_begin_ && at_ + block_ <= idle_end_ ? 0 : distance_;
    at_ += to_next;
    if (at_ >= panel_) at_ -= panel_;
    return distance;
  }

 private:
  static int64_t block_bytes(const PanelLayout& layout) {
    return kColumnGroups * layout.group_bytes();
  }
  int64_t panel_, idle_end_, idle_begin_, block_, distance_, at_;
};

/// Gives the distances of both chances.
class FetchTwice {
 public:
  FetchTwice(const PanelLayout& layout, int idle_blocks, int64_t distance)
      : far_(layout, idle_blocks, distance), near_(layout, idle_blocks, kSecondChance) {}
  MARLIN_INLINE Ahead pass(int64_t to_next) { return {far_.pass(to_next), near_.pass(to_next)}; }

 private:
  FetchAhead far_, near_;
};

/// One tile of rows times kVectors groups of 16 columns, over the whole of K.
struct Int8Pass {
  const PanelLayout* layout;
  CodeKind code;
  const uint8_t* panel;
  const uint32_t* packed_a;  ///< of the tile
  const float* row_stats;    ///< of the tile's rows (activations.h)
  int v0;
  bool alone;       ///< the only pass over the panel
  int idle_blocks;  ///< of the panel
  PrefetchShare next;
  float* sums;  ///< [kRows][64]
};

/// Whether the activations of kept codes are summed, for additive zeros.
constexpr bool counts_kept(Reading reading, bool sparse) {
  return sparse && reading == Reading::nibbles;
}

/// The integers of sparse codes that are looked up, by the code.
struct alignas(16) SignedIntegers {
  int8_t of[16] = {};
  constexpr explicit SignedIntegers(bool fp4) {
    for (size_t i = 0; i < 16; ++i)
      of[i] = static_cast<int8_t>(fp4 ? doubled_e2m1()[i] : static_cast<int>(i) - 8);
  }
};
constexpr SignedIntegers kSignedFp4{true}, kSignedU4{false};

template <bool kSparse>
MARLIN_AVX512 MARLIN_INLINE __m512i table_of(const PanelLayout& layout, CodeKind code) {
  if (!kSparse) return _mm512_load_si512(table_of_bytes(layout));
  const auto* const from = code == CodeKind::fp4 ? kSignedFp4.of : kSignedU4.of;
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

/// A block of a pass, and the decoded scales of its superblock.
template <Reading kReading, Zeros kZeros>
struct BlockOfPass {
  const SuperScales& super;
  const uint8_t* codes;  ///< of column group v0
  const uint32_t* a_block;
  __m512i table;
  Correction<kReading, kZeros> correction;
  int64_t at[2];  ///< of each half: the place of its first column in rows of scales and zeros
  Ahead ahead;
  bool clamp;  ///< sparse: the fast way of multiplying scales by d is not right

  MARLIN_INLINE const float* scales(int half) const { return super.scale[0] + at[half]; }
  MARLIN_INLINE const float* zeros(int half) const { return super.zero[0] + at[half]; }
  MARLIN_INLINE const uint32_t* offsets(int half) const { return super.offset[0] + at[half]; }
};

/// The place of column group v of half `half` of block b in rows of scales.
MARLIN_INLINE int64_t place_of_scales(int b, int half, int shift, int v) {
  return ((2 * b + half) >> shift) * kPanelColumns + kGroupColumns * v;
}

/// Adds the products of quad kQuad (0, 1) of octet kOctet (0, 1) of half a block of dense weights.
/// Three rows read a line again for its second quad, because registers are scarce.
template <Reading kReading, int kOctet, int kQuad, class Block, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_quad(const Block& block, int half,
                                               __m512i (&dot)[kRows][kVectors]) {
  using Dense = DenseCodes<kReading>;
  const uint32_t* const offsets = block.offsets(half);
  const uint32_t* const x = block.a_block + (4 * half + 2 * kOctet + kQuad) * kRows;
  __m512i w[kVectors];
  MARLIN_UNROLLED(v, kVectors) {
    const uint8_t* const from = block.codes + v * Dense::kBytes;
    const __m512i offset = _mm512_load_si512(offsets + 16 * v);
    w[v] = Dense::template quad<kOctet, kQuad>(
        Dense::template read_of_half<kOctet>(from, half, offset), block.table);
    if constexpr (kQuad == 1) continue;
    if (block.ahead.far != 0) Dense::fetch(from, 2 * half + kOctet, block.ahead.far);
    if (block.ahead.near != 0) Dense::fetch(from, 2 * half + kOctet, block.ahead.near);
  }
  MARLIN_UNROLLED(r, kRows) {
    const __m512i b = broadcast(x + r);
    MARLIN_UNROLLED(v, kVectors) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], w[v], b);
  }
  if constexpr (kQuad == 1 || kRows > 2) fence();
}

/// The kept codes of 8 slots as the signed integers that the scale multiplies, from the low bits of
/// bytes. `offset` is as in CodeLines::read.
template <Reading kReading>
MARLIN_AVX512 MARLIN_INLINE __m512i kept_codes(__m512i nibbles, __m512i offset, __m512i table) {
  if constexpr (kReading == Reading::looked_up) return _mm512_permutexvar_epi8(nibbles, table);
  const __m512i code = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
  if constexpr (kReading == Reading::nibbles) return code;
  return _mm512_add_epi8(code, _mm512_sub_epi8(offset, _mm512_set1_epi8(16)));
}

/// Multiplies 8 slots of sparse weights: a half of a unit of 16. Activations q + 128 are gathered
/// for the kept codes, and the sum of the codes corrects the 128. `kept` sums the activations.
template <Reading kReading, int kHalf, class Block, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_kept(const Block& block, int unit,
                                               __m512i (&dot)[kRows][kVectors],
                                               __m512i (&kept)[kRows][kVectors],
                                               __m512i (&bias)[kVectors]) {
  using Lines = CodeLines<CodeKind::u4, true>;
  const uint32_t* const offsets = block.offsets(unit);
  __m512i w[kVectors], control[kVectors];
  MARLIN_UNROLLED(v, kVectors) {
    const uint8_t* const from = block.codes + v * Lines::kBytes;
    const __m512i codes = Vec::load(from + 64 * (unit));
    w[v] = kept_codes<kReading>(kHalf == 0 ? codes : _mm512_srli_epi16(codes, 4),
                                _mm512_load_si512(offsets + 16 * v), block.table);
    control[v] = gather_control<kHalf>(unit, Lines::positions(from));
    bias[v] = _mm512_dpbusd_epi32(bias[v], _mm512_set1_epi8(static_cast<char>(128)), w[v]);
  }
  MARLIN_UNROLLED(r, kRows) {
    const __m512i eight =
        _mm512_set1_epi64(load<int64_t>(block.a_block + ((2 * unit + kHalf) * kRows + r) * 2));
    MARLIN_UNROLLED(v, kVectors) {
      const __m512i own = _mm512_shuffle_epi8(eight, control[v]);
      dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], own, w[v]);
      if constexpr (counts_kept(kReading, true))
        kept[r][v] = _mm512_dpbusd_epi32(kept[r][v], own, _mm512_set1_epi8(1));
    }
  }
  fence();
}

/// The same for a unit of 16 slots.
template <Reading kReading, class Block, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_unit(const Block& block, int unit,
                                               __m512i (&dot)[kRows][kVectors],
                                               __m512i (&kept)[kRows][kVectors],
                                               __m512i (&bias)[kVectors]) {
  using Lines = CodeLines<CodeKind::u4, true>;
  MARLIN_UNROLLED(v, kVectors) {
    if (block.ahead.far == 0) continue;
    Lines::fetch(block.codes + v * Lines::kBytes, unit, block.ahead.far);
    if (unit == 0) Lines::fetch(block.codes + v * Lines::kBytes, 2, block.ahead.far);
  }
  dot_kept<kReading, 0>(block, unit, dot, kept, bias);
  dot_kept<kReading, 1>(block, unit, dot, kept, bias);
}

/// Starts the integer sums of a part.
template <bool kSparse, class Block, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void start_part(const Block& block, int part,
                                                 __m512i (&dot)[kRows][kVectors],
                                                 __m512i (&kept)[kRows][kVectors],
                                                 __m512i (&bias)[kVectors]) {
#pragma GCC unroll 4
  for (__m512i& sum : bias) sum = _mm512_setzero_si512();
  MARLIN_UNROLLED(r, kRows) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (!kSparse)
      start = block.correction.start(broadcast(block.a_block + (9 + part) * kRows + r));
    MARLIN_UNROLLED(v, kVectors) {
      dot[r][v] = start;
      kept[r][v] = _mm512_setzero_si512();
    }
  }
}

/// Adds the scaled integer sums of a part to the float sums.
template <Reading kReading, bool kSparse, Factor kFactor, class Block, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void add_scaled(const Block& block, int part, int units,
                                                 const __m512i (&dot)[kRows][kVectors],
                                                 const __m512i (&kept)[kRows][kVectors],
                                                 const __m512i (&bias)[kVectors],
                                                 __m512 (&acc)[kRows][kVectors]) {
  const float *const scales = block.scales(part), *const zeros = block.zeros(part);
  const uint32_t* const extras = block.a_block + 8 * kRows;  // d and the sums of the activations
  if (block.correction.additive()) {
    MARLIN_UNROLLED(r, kRows) {
      const __m512 d = broadcast_float(extras + r);
      __m512i sum = broadcast(extras + (1 + part) * kRows + r);
      MARLIN_UNROLLED(v, kVectors) {
        if constexpr (kSparse)  // of every 4 activations two are in
          sum = _mm512_sub_epi32(kept[r][v], _mm512_set1_epi32(units * 8 * 128));
        acc[r][v] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), d),
                                    _mm512_load_ps(zeros + 16 * v), acc[r][v]);
      }
    }
  }
  MARLIN_UNROLLED(r, kRows) {
    const __m512 d = broadcast_float(extras + r);
    const __m512i d_less_one = less_one(d);
    MARLIN_UNROLLED(v, kVectors) {
      const __m512 scale = _mm512_load_ps(scales + 16 * v);
      __m512 factor = kFactor == Factor::exponents ? add_exponents(scale, d_less_one)
                                                   : factor_of<kFactor>(scale, d);
      if (kSparse && block.clamp) [[unlikely]]
        factor = finite_product(scale, d);
      const __m512i sum = kSparse ? _mm512_sub_epi32(dot[r][v], bias[v]) : dot[r][v];
      acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, acc[r][v]);
    }
  }
}

/// Multiplies and scales a block, or its `parts` (2: halves).
template <Reading kReading, bool kSparse, Factor kFactor, class Block, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void multiply_block(const Block& block, int parts,
                                                     __m512 (&acc)[kRows][kVectors]) {
  __m512i dot[kRows][kVectors], kept[kRows][kVectors], bias[kVectors];
  MARLIN_UNROLLED(half, 2) {
    if (half == 0 || parts == 2) start_part<kSparse>(block, half, dot, kept, bias);
    if constexpr (kSparse) {
      dot_unit<kReading>(block, half, dot, kept, bias);
    } else {
      dot_quad<kReading, 0, 0>(block, half, dot);
      dot_quad<kReading, 0, 1>(block, half, dot);
      dot_quad<kReading, 1, 0>(block, half, dot);
      dot_quad<kReading, 1, 1>(block, half, dot);
    }
    if (half == 1 || parts == 2)
      add_scaled<kReading, kSparse, kFactor>(block, parts == 2 ? half : 0, 3 - parts, dot, kept,
                                             bias, acc);
  }
}

template <int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void load_sums(const float* sums, __m512 (&acc)[kRows][kVectors]) {
  MARLIN_UNROLLED_2(r, kRows, v, kVectors)
    acc[r][v] = _mm512_load_ps(sums + r * kPanelColumns + 16 * v);
}
template <int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void store_sums(const __m512 (&acc)[kRows][kVectors],
                                                 bool passed_over_blocks, float* sums) {
  MARLIN_UNROLLED_2(r, kRows, v, kVectors) {
    // Idle blocks would have added 0, which turns a sum of -0 to 0.
    const __m512 sum =
        passed_over_blocks ? _mm512_add_ps(acc[r][v], _mm512_setzero_ps()) : acc[r][v];
    _mm512_store_ps(sums + r * kPanelColumns + 16 * v, sum);
  }
}

/// Multiplies by `blocks` blocks of a superblock whose scales and d have products that may
/// overflow, as bytes. All columns have their sums in memory.
template <int kRows>
MARLIN_AVX512_VNNI [[gnu::noinline]] void multiply_rare(const Int8Pass& pass, const uint8_t* bytes,
                                                        const SuperScales& super, int blocks,
                                                        const uint32_t* a_block) {
  constexpr Reading kBytes = Reading::bytes;
  const SuperShape shape(*pass.layout);
  const int parts = shape.shift == 0 ? 2 : 1;
  ExpandedCodes<CodeKind::i8> expanded;
  if (!is_eight_bits(pass.code) || shape.expands) {
    expand_for_int8(*pass.layout, pass.code, bytes, 0, expanded.bytes);
    bytes = expanded.bytes;
  }
  const Correction<kBytes> correction(is_additive(pass.code));
  for (int v = 0; v < kColumnGroups; ++v) {
    __m512 acc[kRows][1];
    load_sums(pass.sums + 16 * v, acc);
    for (int b = 0; b < blocks; ++b) {
      const BlockOfPass<kBytes, Zeros::either> block{
          .super = super,
          .codes = bytes + (b * kColumnGroups + v) * kExpandedGroupBytes,
          .a_block = a_block + b * (9 + parts) * kRows,
          .table = _mm512_setzero_si512(),
          .correction = correction,
          .at = {place_of_scales(b, 0, shape.shift, v), place_of_scales(b, 1, shape.shift, v)},
          .ahead = {},
          .clamp = true};
      multiply_block<kBytes, false, Factor::finite>(block, parts, acc);
    }
    store_sums(acc, false, pass.sums + 16 * v);
  }
}

template <Reading kReading, Zeros kZeros, bool kSparse, bool kExponents, int kRows, int kVectors>
MARLIN_AVX512_VNNI [[gnu::noinline]] void run_pass(const Int8Pass& pass) {
  constexpr int kBytes = kSparse ? kSparseGroupBytes : DenseCodes<kReading>::kBytes,
                kBlockBytes = kColumnGroups * kBytes;
  const SuperShape shape(*pass.layout);
  const int parts = !kExponents && shape.shift == 0 ? 2 : 1, a_block_size = (9 + parts) * kRows;
  const Correction<kReading, kZeros> correction(is_additive(pass.code));
  const __m512i table = table_of<kSparse>(*pass.layout, pass.code);
  const int v0 = pass.v0;
  const int64_t superblocks = pass.layout->superblocks();
  const ScaleRange range = ScaleRange::of<kExponents>(pass.row_stats, kRows);
  SuperScales super;
  __m512 acc[kRows][kVectors];
  MARLIN_UNROLLED_2(r, kRows, v, kVectors) acc[r][v] = _mm512_setzero_ps();
  const bool expands = kReading == Reading::bytes && shape.expands;
  const bool fetches = pass.alone && !expands;
  // Adding products of exponents needs scales that are not 0.
  const int idle_blocks = kSparse || kExponents ? 0 : pass.idle_blocks;
  FetchTwice fetch_ahead(*pass.layout, idle_blocks, shape.ahead);
  ExpandedCodes<CodeKind::i8> expanded;
  const uint8_t* bytes = pass.panel;
  const uint32_t* a_block = pass.packed_a;
  for (int64_t s = 0; s < superblocks; ++s, bytes += shape.bytes) {
    const bool clamp =
        !holds(range, decode_with_range(pass.code, shape, bytes, v0, kVectors,
                                        code_factor(pass.code), super.scale[0], super.zero[0]));
    if (pass.alone) shape.fetch_scales(bytes);
    if (fetches) fetch_lines(bytes + kSecondChance + shape.scales, shape.bytes - shape.scales);
    const uint8_t* of_super = bytes;
    if (expands) {
      expand_super(*pass.layout, pass.code, 0, bytes, pass.alone ? shape.ahead : 0, expanded.bytes);
      of_super = expanded.bytes;
    }
    const int used_blocks = kBlocksPerSuper - (s + 1 == superblocks ? idle_blocks : 0);
    if (!kSparse && clamp) [[unlikely]] {
      store_sums(acc, false, pass.sums);
      multiply_rare<kRows>(pass, bytes, super, used_blocks, a_block);
      load_sums(pass.sums, acc);
      a_block += kBlocksPerSuper * a_block_size;
      continue;
    }
    for (int b = 0; b < kBlocksPerSuper; ++b, a_block += a_block_size) {
      if (!pass.alone) pass.next(s * kBlocksPerSuper + b);
      const uint8_t* codes = of_super + b * kBlockBytes;
      const int64_t scales = b + 1 < kBlocksPerSuper ? 0 : shape.bytes - shape.scales;
      const Ahead ahead = fetches ? fetch_ahead.pass(kBlockBytes + scales) : Ahead{};
      if (b >= used_blocks) {
        if (ahead.far != 0) fetch_lines(codes + ahead.far, kBlockBytes);
        if (ahead.near != 0) fetch_lines(codes + ahead.near, kBlockBytes);
        continue;
      }
      const BlockOfPass<kReading, kZeros> block{
          .super = super,
          .codes = codes + v0 * kBytes,
          .a_block = a_block,
          .table = table,
          .correction = correction,
          .at = {place_of_scales(b, 0, shape.shift, v0), place_of_scales(b, 1, shape.shift, v0)},
          .ahead = ahead,
          .clamp = clamp};
      multiply_block<kReading, kSparse, kExponents ? Factor::exponents : Factor::product>(
          block, parts, acc);
    }
  }
  store_sums(acc, idle_blocks != 0, pass.sums + 16 * v0);
}

using RunPass = void (*)(const Int8Pass&);

/// Multiplies all tiles of a panel, `vectors` column groups at a time.
void run_tiles(const PanelArgs& args, int vectors, RunPass run) {
  const ActivationLayout& act = args.activations;
  const int64_t tiles = args.tile_end - args.tile_begin, passes = tiles * (4 / vectors);
  Int8Pass pass{};
  pass.layout = args.layout;
  pass.code = args.code;
  pass.panel = args.panel;
  pass.alone = passes == 1;
  pass.idle_blocks = args.idle_blocks;
  for (int64_t i = 0; i < passes; ++i) {
    const int64_t tile = args.tile_begin + i / (4 / vectors);
    pass.packed_a = args.packed_a + act.offset(tile, 0);
    pass.row_stats = reinterpret_cast<const float*>(args.packed_a + act.rows_offset(tile));
    pass.v0 = static_cast<int>(i % (4 / vectors)) * vectors;
    pass.next = share_of_next_panel(*args.layout, args.panel, i, passes);
    pass.sums = args.sums + (tile - args.tile_begin) * act.tile_rows * kPanelColumns;
    run(pass);
  }
}

/// For one or two rows, a branch on the zeros takes up to a tenth of the time of the usual
/// readings, so these have two kernels. Two sets of accumulators and decoded codes must fit in 32
/// registers, so 2 and more rows whose activations are gathered take the columns in halves.
template <Reading kReading, bool kSparse, int kRows>
void run_rows(const PanelArgs& args) {
  constexpr bool kCounts = counts_kept(kReading, kSparse);
  constexpr int kVectors = kSparse && (kRows > 1 || kCounts) ? 2 : 4;
  const PanelLayout& layout = *args.layout;
  RunPass run = nullptr;
  if constexpr (kCounts) {
    run = run_pass<kReading, Zeros::additive, kSparse, false, kRows, kVectors>;
  } else if constexpr (kSparse || zeros_of(kReading) == Zeros::none) {
    run = run_pass<kReading, Zeros::none, kSparse, false, kRows, kVectors>;
    if constexpr (!kSparse && kReading == Reading::looked_up)
      if (layout.scale_type == ScaleType::e8m0 && layout.slot_group != 16)
        run = run_pass<kReading, Zeros::none, kSparse, true, kRows, kVectors>;
  } else if constexpr (kRows <= 2 && (kReading == Reading::nibbles || kReading == Reading::bytes)) {
    run = is_additive(args.code)
              ? run_pass<kReading, Zeros::additive, kSparse, false, kRows, kVectors>
              : run_pass<kReading, Zeros::none, kSparse, false, kRows, kVectors>;
  } else {
    run = run_pass<kReading, Zeros::either, kSparse, false, kRows, kVectors>;
  }
  run_tiles(args, kVectors, run);
}

template <Reading kReading, bool kSparse>
void run(const PanelArgs& args) {
  constexpr bool kCounts = counts_kept(kReading, kSparse);  // tiles of two rows
  switch (args.activations.tile_rows) {
    case 1:
      return run_rows<kReading, kSparse, 1>(args);
    case 2:
      return run_rows<kReading, kSparse, 2>(args);
    case 3:
      if constexpr (!kCounts) return run_rows<kReading, kSparse, 3>(args);
      break;
    default:  // dense weights have register-decoded tiles then
      if constexpr (kSparse && !kCounts) return run_rows<kReading, kSparse, 4>(args);
  }
}

}  // namespace

void cpu_avx512vnni_gemv_any_i8(const PanelArgs& args) {
  with_reading(reading_of(args), [&]<Reading kReading>() { run<kReading, false>(args); });
}
void cpu_avx512vnni_gemv_any_sparse_i8(const PanelArgs& args) {
  args.code == CodeKind::u4zero ? run<Reading::less_zeros, true>(args)
                                : run<Reading::looked_up, true>(args);
}
void cpu_avx512vnni_gemv_u4add_sparse_i8(const PanelArgs& args) {
  run<Reading::nibbles, true>(args);
}

}  // namespace metal_marlin::cpu

#endif
