// INT8 compute for few rows. The kernel reads the packed stream once and decodes codes in
// registers.
//
//   packed stream         registers, for kVectors column groups from v0 on
//   octet of codes   ---> w[n][v]    unsigned bytes, a dword per column: 4 slots; n = 0, 1: the
//                                    quads of the octet (avx512_int8_reading.h)
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
//   is 2. K: superblock, block of 32 slots, part, octet.
//
// Template parameters of run_pass:
//   kCode, kSparse  all except 8-bit codes with 2:4 sparsity
//   kReading        how dense codes are read; sparse ones by lines
//   kExponents      scales are powers of two and are multiplied by adding: only fp4, kParts 1
//   kRows           dense 1 to 3 (more rows have register-decoded tiles), sparse 1 to 4, sparse
//                   with additive zeros 1 and 2
//   kVectors        4 up to 2 rows (sparse: 1 row), 2 beyond
//   kParts          2 with groups of 16 slots, else 1
//
// Limits: two sets of sums (dot, acc) and decoded codes must fit in 32 registers. vpdpbusd takes 4
// cycles on two pipes, so 8 sums keep it busy. All multiplications share these pipes, so the 2
// multiplications for scale and d (1 with exponents) count beside the 8 dot products of a block.
#if defined(__x86_64__)

#include <algorithm>

#include "backends/cpu/x86/avx512_int8_reading.h"

namespace metal_marlin::cpu {
namespace {

/// One tile of rows times kVectors groups of 16 columns, over the whole of K.
struct Int8Pass {
  const PanelLayout* layout;
  const uint8_t* panel;
  const uint32_t* packed_a;  ///< of the tile
  const float* row_stats;    ///< of the tile's rows (activations.h)
  int v0;
  bool alone;       ///< the only pass over the panel
  int idle_blocks;  ///< of the panel
  PrefetchShare next;
  float* sums;  ///< [kRows][64]
};

/// Walks along with the blocks of one panel, and leaves out the idle blocks that lie ahead.
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

/// Forms integer sums of octet kOctet of a block of dense weights. `group` is the block of column
/// group v0.
template <class Dense, int kRows, int kVectors, int kOctet>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_octet(const uint8_t* group, const uint32_t* offsets,
                                                const uint32_t* x, Ahead ahead,
                                                __m512i (&dot)[kRows][kVectors]) {
  __m512i w[2][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const uint8_t* from = group + v * Dense::kBytes;
    const Codes codes = Dense::template read<kOctet>(from, _mm512_load_si512(offsets + 16 * v));
    w[0][v] = Dense::template quad<kOctet, 0>(codes);
    w[1][v] = Dense::template quad<kOctet, 1>(codes);
    if (ahead.far != 0) Dense::template fetch<kOctet>(from, ahead.far);
    if (ahead.near != 0) Dense::template fetch<kOctet>(from, ahead.near);
  }
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i b = _mm512_set1_epi32(static_cast<int>(x[(2 * kOctet + n) * kRows + r]));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], w[n][v], b);
    }
    fence();
  }
}

/// The same for half kPart of a block, or for the whole block (kParts 1).
template <class Dense, int kRows, int kVectors, int kParts, int kPart>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_octets(const uint8_t* group, const uint32_t* offsets,
                                                 const uint32_t* x, Ahead ahead,
                                                 __m512i (&dot)[kRows][kVectors]) {
  constexpr int kFirst = 2 * kPart;
  dot_octet<Dense, kRows, kVectors, kFirst>(group, offsets, x, ahead, dot);
  dot_octet<Dense, kRows, kVectors, kFirst + 1>(group, offsets, x, ahead, dot);
  if constexpr (kParts == 1) {
    dot_octet<Dense, kRows, kVectors, 2>(group, offsets, x, ahead, dot);
    dot_octet<Dense, kRows, kVectors, 3>(group, offsets, x, ahead, dot);
  }
}

/// Multiplies 8 slots of sparse weights. Activations q + 128 are gathered for the kept codes, and
/// the sum of the codes corrects the 128.
template <CodeKind kCode, int kRows, int kVectors, int kHalf>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_kept_half(const uint8_t* group, int unit,
                                                    const uint32_t* offsets, const uint32_t* x,
                                                    __m512i (&dot)[kRows][kVectors],
                                                    __m512i (&kept)[kRows][kVectors],
                                                    __m512i (&bias)[kVectors]) {
  using Lines = CodeLines<kCode, true>;
  __m512i w[kVectors], control[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const uint8_t* from = group + v * Lines::kBytes;
    const __m512i codes = Lines::unit(from, unit), positions = Lines::positions(from);
    const __m512i offset = kCode == CodeKind::u4zero ? _mm512_load_si512(offsets + 16 * v) : codes;
    w[v] = signed_codes<kCode>(kHalf == 0 ? codes : _mm512_srli_epi16(codes, 4), offset);
    control[v] =
        unit == 0 ? gather_control<kHalf>(positions) : gather_control<kHalf + 2>(positions);
    bias[v] = _mm512_dpbusd_epi32(bias[v], _mm512_set1_epi8(static_cast<char>(128)), w[v]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512i eight =
        _mm512_set1_epi64(load<int64_t>(x + ((2 * unit + kHalf) * kRows + r) * 2));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512i own = _mm512_shuffle_epi8(eight, control[v]);
      dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], own, w[v]);
      if constexpr (Lines::kCountsKept)
        kept[r][v] = _mm512_dpbusd_epi32(kept[r][v], own, _mm512_set1_epi8(1));
    }
  }
  fence();
}

/// The same for sparse weights, kCount units from unit `first` on. `kept` sums the activations of
/// kept codes, if zeros need them.
template <CodeKind kCode, int kRows, int kVectors, int kCount>
MARLIN_AVX512_VNNI MARLIN_INLINE void dot_kept(const uint8_t* group, int first,
                                               const uint32_t* offsets, const uint32_t* x,
                                               Ahead ahead, __m512i (&dot)[kRows][kVectors],
                                               __m512i (&kept)[kRows][kVectors]) {
  using Lines = CodeLines<kCode, true>;
  __m512i bias[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) bias[v] = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (int unit = first; unit < first + kCount; ++unit) {
#pragma GCC unroll 4
    for (int v = 0; ahead.far != 0 && v < kVectors; ++v) {
      Lines::fetch(group + v * Lines::kBytes, unit, ahead.far);
      if (unit == 0) Lines::fetch(group + v * Lines::kBytes, 2, ahead.far);
    }
    dot_kept_half<kCode, kRows, kVectors, 0>(group, unit, offsets, x, dot, kept, bias);
    dot_kept_half<kCode, kRows, kVectors, 1>(group, unit, offsets, x, dot, kept, bias);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      dot[r][v] = _mm512_sub_epi32(dot[r][v], bias[v]);
      if constexpr (Lines::kCountsKept)  // of every 4 activations two are in
        kept[r][v] = _mm512_sub_epi32(kept[r][v], _mm512_set1_epi32(kCount * 8 * 128));
    }
}

/// Adds the scaled integer sums to the float sums. `extras` are d and the sums of the activations
/// (activations.h). `clamp` means that the fast way of multiplying scales by d is not right.
template <CodeKind kCode, bool kSparse, bool kExponents, int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void add_scaled(const __m512i (&dot)[kRows][kVectors],
                                                 const __m512i (&kept)[kRows][kVectors],
                                                 const Int8Super& super, int group, int v0,
                                                 const uint32_t* extras, int part, bool clamp,
                                                 __m512 (&acc)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 d = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(extras[r])));
    const __m512i d_less_one = less_one(d);
    if constexpr (is_additive(kCode)) {
      const __m512i all = _mm512_set1_epi32(static_cast<int>(extras[(1 + part) * kRows + r]));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] =
            _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(kSparse ? kept[r][v] : all), d),
                            _mm512_load_ps(&super.zero[group][16 * (v0 + v)]), acc[r][v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = _mm512_load_ps(&super.scale[group][16 * (v0 + v)]);
      __m512 factor = kExponents ? add_exponents(scale, d_less_one) : _mm512_mul_ps(scale, d);
      if (clamp) [[unlikely]]
        factor = finite_product(scale, d);
      acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][v]), factor, acc[r][v]);
    }
  }
}

/// A block of a pass, and the decoded scales of its superblock.
struct BlockOfPass {
  const Int8Super& super;
  const uint8_t* codes;  ///< of column group v0
  const uint32_t* a_block;
  int first_group, shift;  ///< half i has scale group (first_group + i) >> shift
  int v0;
  Ahead ahead;
  bool clamp;
};

/// Multiplies and scales half kPart of a block, or the whole block (kParts 1).
template <CodeKind kCode, Reading kReading, bool kSparse, bool kExponents, int kParts, int kPart,
          int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void multiply_part(const BlockOfPass& block,
                                                    __m512 (&acc)[kRows][kVectors]) {
  using Dense = DenseCodes<kCode, kReading>;
  const uint32_t* extras = block.a_block + 8 * kRows;
  __m512i dot[kRows][kVectors], kept[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const auto sum = static_cast<int32_t>(extras[(1 + kPart) * kRows + r]);
    __m512i start = _mm512_setzero_si512();
    if constexpr (!is_additive(kCode) && !kSparse)
      start = _mm512_set1_epi32(sum >> Dense::kSumShift);
    if constexpr (Dense::kUncorrected != 0) start = _mm512_set1_epi32(-Dense::kUncorrected * sum);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      dot[r][v] = start;
      kept[r][v] = _mm512_setzero_si512();
    }
  }
  const int group = (block.first_group + kPart) >> block.shift;
  const uint32_t* offsets = &block.super.offset[group][16 * block.v0];
  if constexpr (kSparse)
    dot_kept<kCode, kRows, kVectors, 2 / kParts>(block.codes, kPart, offsets, block.a_block,
                                                 block.ahead, dot, kept);
  else
    dot_octets<Dense, kRows, kVectors, kParts, kPart>(block.codes, offsets, block.a_block,
                                                      block.ahead, dot);
  add_scaled<kCode, kSparse, kExponents, kRows, kVectors>(dot, kept, block.super, group, block.v0,
                                                          extras, kPart, block.clamp, acc);
}

template <int kRows, int kVectors>
MARLIN_AVX512_VNNI MARLIN_INLINE void store_sums(const __m512 (&acc)[kRows][kVectors],
                                                 bool passed_over_blocks, float* sums) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      // Idle blocks would have added 0, which turns a sum of -0 to 0.
      const __m512 sum =
          passed_over_blocks ? _mm512_add_ps(acc[r][v], _mm512_setzero_ps()) : acc[r][v];
      _mm512_store_ps(sums + r * kPanelColumns + 16 * v, sum);
    }
}

template <CodeKind kCode, Reading kReading, bool kSparse, bool kExponents, int kRows, int kVectors,
          int kParts>
MARLIN_AVX512_VNNI [[gnu::noinline]] void run_pass(const Int8Pass& pass) {
  constexpr int kBytes = kSparse ? CodeLines<kCode, kSparse>::kBytes
                                 : DenseCodes<kCode, kReading>::kBytes,
                kBlockBytes = kColumnGroups * kBytes, kABlock = (9 + kParts) * kRows;
  const SuperShape shape(*pass.layout);
  const int64_t superblocks = pass.layout->superblocks();
  const ScaleRange range = ScaleRange::of<kExponents>(pass.row_stats, kRows);
  Int8Super super;
  __m512 acc[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_ps();
  const bool expands = DenseCodes<kCode, kReading>::kMayBeExpanded && shape.expands;
  const bool fetches = pass.alone && !expands;
  // Adding products of exponents needs scales that are not 0.
  const int idle_blocks = kSparse || kExponents ? 0 : pass.idle_blocks;
  FetchTwice fetch_ahead(*pass.layout, idle_blocks, shape.ahead);
  ExpandedCodes<kCode> expanded;
  const uint8_t* bytes = pass.panel;
  const uint32_t* a_block = pass.packed_a;
  for (int64_t s = 0; s < superblocks; ++s, bytes += shape.bytes) {
    const bool clamp =
        !holds(range, decode_int8_super<kCode>(shape, bytes, pass.v0, kVectors, super));
    if (pass.alone) shape.fetch_scales(bytes);
    if (fetches) fetch_lines(bytes + kSecondChance + shape.scales, shape.bytes - shape.scales);
    const uint8_t* of_super = bytes;
    if (expands) {
      expand_avx512(*pass.layout, bytes, pass.v0, kVectors, pass.alone ? shape.ahead : 0,
                    expanded.bytes);
      of_super = expanded.bytes;
    }
    const int used_blocks = kBlocksPerSuper - (s + 1 == superblocks ? idle_blocks : 0);
    for (int b = 0; b < kBlocksPerSuper; ++b, a_block += kABlock) {
      if (!pass.alone) pass.next(s * kBlocksPerSuper + b);
      const uint8_t* codes = of_super + b * kBlockBytes;
      const int64_t scales = b + 1 < kBlocksPerSuper ? 0 : shape.bytes - shape.scales;
      const Ahead ahead = fetches ? fetch_ahead.pass(kBlockBytes + scales) : Ahead{};
      if (b >= used_blocks) {
        if (ahead.far != 0) fetch_lines(codes + ahead.far, kBlockBytes);
        if (ahead.near != 0) fetch_lines(codes + ahead.near, kBlockBytes);
        continue;
      }
      const BlockOfPass block{.super = super,
                              .codes = codes + pass.v0 * kBytes,
                              .a_block = a_block,
                              .first_group = 2 * b,
                              .shift = shape.shift,
                              .v0 = pass.v0,
                              .ahead = ahead,
                              .clamp = clamp};
      multiply_part<kCode, kReading, kSparse, kExponents, kParts, 0>(block, acc);
      if constexpr (kParts == 2)
        multiply_part<kCode, kReading, kSparse, kExponents, kParts, 1>(block, acc);
    }
  }
  store_sums(acc, idle_blocks != 0, pass.sums + 16 * pass.v0);
}

/// Multiplies all tiles of a panel. Two sets of accumulators and decoded codes must fit in 32
/// registers, so 3 and 4 rows (2 if activations are gathered) take the columns in halves.
template <CodeKind kCode, Reading kReading, bool kSparse, int kRows, int kParts>
void run_tiles(const PanelArgs& args) {
  constexpr int kVectors = kRows > (kSparse ? 1 : 2) ? 2 : 4;
  const ActivationLayout& act = args.activations;
  const int64_t tiles = args.tile_end - args.tile_begin, passes = tiles * (4 / kVectors);
  Int8Pass pass{};
  pass.layout = args.layout;
  pass.panel = args.panel;
  pass.alone = passes == 1;
  pass.idle_blocks = args.idle_blocks;
  for (int64_t i = 0; i < passes; ++i) {
    const int64_t tile = args.tile_begin + i / (4 / kVectors);
    pass.packed_a = args.packed_a + act.offset(tile, 0);
    pass.row_stats = reinterpret_cast<const float*>(args.packed_a + act.rows_offset(tile));
    pass.v0 = static_cast<int>(i % (4 / kVectors)) * kVectors;
    pass.next = share_of_next_panel(*args.layout, args.panel, i, passes);
    pass.sums = args.sums + (tile - args.tile_begin) * kRows * kPanelColumns;
    constexpr bool kPowers = kCode == CodeKind::fp4 && kParts == 1;  // scales may be powers of two
    if (kPowers && args.layout->scale_type == ScaleType::e8m0)
      run_pass<kCode, kReading, kSparse, kPowers, kRows, kVectors, kParts>(pass);
    else
      run_pass<kCode, kReading, kSparse, false, kRows, kVectors, kParts>(pass);
  }
}

template <CodeKind kCode, Reading kReading, bool kSparse, int kParts>
void run_rows(const PanelArgs& args) {
  if constexpr (CodeLines<kCode, kSparse>::kCountsKept) {  // its rows have tiles of two
    return args.activations.tile_rows == 1 ? run_tiles<kCode, kReading, kSparse, 1, kParts>(args)
                                           : run_tiles<kCode, kReading, kSparse, 2, kParts>(args);
  } else {
    switch (args.activations.tile_rows) {
      case 1:
        return run_tiles<kCode, kReading, kSparse, 1, kParts>(args);
      case 2:
        return run_tiles<kCode, kReading, kSparse, 2, kParts>(args);
      case 3:
        return run_tiles<kCode, kReading, kSparse, 3, kParts>(args);
      default:  // dense weights have register-decoded tiles then
        if constexpr (kSparse) return run_tiles<kCode, kReading, kSparse, 4, kParts>(args);
    }
  }
}

template <CodeKind kCode, Reading kReading, bool kSparse>
void run(const PanelArgs& args) {
  return args.layout->slot_group == 16 ? run_rows<kCode, kReading, kSparse, 2>(args)
                                       : run_rows<kCode, kReading, kSparse, 1>(args);
}

/// Runs all kinds of codes except sparse codes with additive zeros, whose tiles have fewer rows.
void run_any_sparse(const PanelArgs& args) {
  with_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (!is_eight_bits(kCode) && !is_additive(kCode))
      run<kCode, Reading::lines, true>(args);
  });
}

}  // namespace

void cpu_avx512vnni_gemv_any_i8(const PanelArgs& args) {
  with_dense_codes(args,
                   [&]<CodeKind kCode, Reading kReading>() { run<kCode, kReading, false>(args); });
}
void cpu_avx512vnni_gemv_any_sparse_i8(const PanelArgs& args) { run_any_sparse(args); }
void cpu_avx512vnni_gemv_u4add_sparse_i8(const PanelArgs& args) {
  run<CodeKind::u4add, Reading::lines, true>(args);
}

}  // namespace metal_marlin::cpu

#endif
