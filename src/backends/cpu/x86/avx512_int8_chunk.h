// A chunk of dense weights for register-decoded tiles of INT8 (avx512_int8_regdecode.cc): scales
// and zeros, the codes in one reading, and what the sums of the activations give in advance.
#pragma once

#include "backends/cpu/x86/avx512_int8.h"
#include "backends/cpu/x86/avx512_regdecode.h"

namespace metal_marlin::cpu {

/// The largest magnitude of a chunk's E4M3 scales, which are ordered like their bytes; 0x7f is NaN.
MARLIN_AVX512 inline unsigned largest_e4m3(const SuperShape& shape, const uint8_t* super,
                                           int blocks) {
  __m512i largest = _mm512_setzero_si512();
  for (int row = 0; row < 2 * blocks; ++row) {
    const uint8_t* const from =
        super + row / 8 * shape.bytes + shape.scales + row % 8 * kPanelColumns;
    largest = _mm512_max_epu8(largest,
                              _mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(0x7f)));
  }
  alignas(64) uint8_t bytes[64];
  _mm512_store_si512(bytes, largest);
  return *std::max_element(bytes, bytes + 64);
}

/// Writes the E4M3 scales of the two groups of 16 slots of a block as integers times a power of two
/// that the chunk shares: the first group in the low halves of dwords, and `power`. One vpmaddwd
/// multiplies the sums of both groups, below 2^15, by these integers and adds the products.
/// Both are for FP4 codes of twice the value. Returns false if some scale does not fit (the largest
/// takes 15 bits, so no other may be below 2^-11 of it, except 0) or is NaN.
MARLIN_AVX512 inline bool pair_scales(const SuperShape& shape, const uint8_t* super, int blocks,
                                      uint32_t (*integers)[kPanelColumns], float& power) {
  const unsigned largest = largest_e4m3(shape, super, blocks);
  // The largest is below 2^(exponent + 1) and has 4 significant bits, so times 2^(14 - exponent) it
  // is at most 30720. Subnormals have the exponent of 1.
  const int exponent = static_cast<int>(std::max(1u, largest >> 3)) - 7;
  power = std::bit_cast<float>(static_cast<uint32_t>(127 - 1 + exponent - 14) << 23);
  const __m512 to_integer =
      _mm512_set1_ps(std::bit_cast<float>(static_cast<uint32_t>(127 + 14 - exponent) << 23));
  __mmask16 exact = 0xffff;
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* const from = super + b / kBlocksPerSuper * shape.bytes + shape.scales;
    for (int v = 0; v < kColumnGroups; ++v) {
      __m512i whole[2];
      MARLIN_UNROLLED(part, 2) {
        const int row = b % kBlocksPerSuper * 2 + part;
        const __m512 scaled = _mm512_mul_ps(
            load_scales<ScaleType::e4m3>(from, row * kPanelColumns + 16 * v), to_integer);
        whole[part] = _mm512_cvtps_epi32(scaled);
        exact &= _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(whole[part]), scaled, _CMP_EQ_OQ);
      }
      _mm512_store_si512(
          &integers[b][16 * v],
          _mm512_mask_blend_epi16(0xaaaaaaaau, whole[0], _mm512_slli_epi32(whole[1], 16)));
    }
  }
  return exact == 0xffff;
}

/// The scales and zeros of a chunk, a row of 64 for each group, and the place of its codes.
struct alignas(64) Int8ScaleChunk {
  float scale[2 * kRegdecodeBlocks][kPanelColumns];
  union {
    float zero[2 * kRegdecodeBlocks][kPanelColumns];       ///< additive zeros
    uint32_t offset[2 * kRegdecodeBlocks][kPanelColumns];  ///< integer zeros: decode_offsets
    uint32_t pairs[kRegdecodeBlocks]
                  [kPanelColumns];  ///< FP4 with E4M3 scales: pair_scales, instead of scale
  };
  uint32_t smallest, largest;  ///< magnitudes of scale, or the power of pairs, as bits
  bool paired;
  const uint8_t* super;  ///< the first superblock
  const uint8_t* codes;  ///< of the reading: there, or expanded
  int64_t super_bytes;
  bool has_bytes;  ///< `expanded` holds the codes as Reading::bytes reads them
  ExpandedChunk<CodeKind::i8> expanded;
  int shift;  ///< block b has its scale in row b >> shift (groups of 16: rows 2 b, 2 b + 1)
};

/// The codes of a chunk in one reading.
struct ChunkCodes {
  const uint8_t* codes;
  int64_t super_bytes;
  const uint8_t* table;  ///< of Reading::looked_up
  bool additive;         ///< weights have additive zeros

  /// The codes of block b, from column 16 v on.
  MARLIN_INLINE const uint8_t* group(int b, int v, int bytes) const {
    return codes + b / kBlocksPerSuper * super_bytes +
           (b % kBlocksPerSuper * kColumnGroups + v) * bytes;
  }
};

/// Some rows of a tile, a chunk, and its codes.
struct Int8Tile : RegdecodeTile<Int8ScaleChunk> {
  ChunkCodes codes;
  Int8Tile from_row(int r, bool fetches) const {
    return {RegdecodeTile<Int8ScaleChunk>::from_row(r, fetches), codes};
  }
};

template <Reading kReading>
MARLIN_AVX512 void dequantize_int8_chunk(const PanelArgs& args, const uint8_t* super, int blocks,
                                         Int8ScaleChunk& out) {
  const SuperShape shape(*args.layout);
  out.has_bytes = kReading == Reading::bytes && (shape.expands || args.layout->sparse);
  out.super = super;
  out.codes = out.has_bytes ? out.expanded.supers[0].bytes : super;
  out.super_bytes = out.has_bytes ? int64_t{sizeof(ExpandedCodes<CodeKind::i8>)} : shape.bytes;
  out.shift = shape.shift - 1;
  for (int s = 0; s < blocks / kBlocksPerSuper; ++s) {
    shape.fetch_scales(super + s * shape.bytes);
    if (out.has_bytes)
      expand_for_int8(*args.layout, args.code, super + s * shape.bytes, 0,
                      out.expanded.supers[s].bytes);
  }
  float power = 0;
  out.paired = kReading == Reading::looked_up && !args.block_by_block &&
               args.code == CodeKind::fp4 && args.layout->scale_type == ScaleType::e4m3 &&
               shape.shift == 0 && pair_scales(shape, super, blocks, out.pairs, power);
  out.smallest = out.largest = std::bit_cast<uint32_t>(power);
  if (out.paired) return;
  Magnitudes all = no_magnitudes();
  for (int s = 0; s < blocks / kBlocksPerSuper; ++s, super += shape.bytes) {
    const int row = s * shape.groups;
    widen(all, decode_with_range(args.code, shape, super, 0, kColumnGroups, code_factor(args.code),
                                 out.scale[row], out.zero[row]));
  }
  out.smallest = _mm512_reduce_min_epu32(all.smallest);
  out.largest = _mm512_reduce_max_epu32(all.largest);
}

/// The codes of a chunk as Reading::bytes reads them.
inline ChunkCodes bytes_of(const PanelArgs& args, Int8ScaleChunk& chunk, int blocks) {
  const SuperShape shape(*args.layout);
  const bool packed = is_eight_bits(args.code) && !shape.expands;
  for (int s = 0; !packed && !chunk.has_bytes && s < blocks / kBlocksPerSuper; ++s)
    expand_for_int8(*args.layout, args.code, chunk.super + s * shape.bytes, shape.ahead,
                    chunk.expanded.supers[s].bytes);
  chunk.has_bytes = !packed;
  return {packed ? chunk.super : chunk.expanded.supers[0].bytes,
          packed ? shape.bytes : int64_t{sizeof(ExpandedCodes<CodeKind::i8>)},
          table_of_bytes(*args.layout), is_additive(args.code)};
}

/// What follows from the sums of the activations of a chunk, in advance: what integer sums start
/// from, and with additive zeros their products with d, added up for 2^shift blocks. This saves up
/// to three instructions for each row, block and column group.
template <Reading kReading, int kParts>
class ChunkSums {
 public:
  MARLIN_AVX512 MARLIN_INLINE ChunkSums(const Int8Tile& tile, int rows, int shift = 0)
      : first(tile.a_block + 9 * kRegdecodeRows), stride(kABlock) {
    const Correction<kReading> correction(tile.codes.additive);
    if (!correction.additive() && correction.kShift == 0) return;
    const auto mask = static_cast<__mmask16>((1 << rows) - 1);
    __m512 counts = _mm512_setzero_ps();
    for (int i = 0; i < kParts * tile.blocks; ++i) {
      const uint32_t* const d = tile.a_block + i / kParts * kABlock + 8 * kRegdecodeRows;
      const __m512i sum = _mm512_maskz_loadu_epi32(mask, d + (1 + i % kParts) * kRegdecodeRows);
      _mm512_storeu_si512(start_[i], correction.start(sum));  // the next row overwrites the rest
      if (!correction.additive()) continue;
      const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_maskz_loadu_ps(mask, d));
      counts = (i & ((1 << shift) - 1)) == 0 ? product : _mm512_add_ps(counts, product);
      _mm512_storeu_ps(times_d[i >> shift], counts);
    }
    first = start_[0];
    stride = kParts * kRegdecodeRows;
  }

  /// What the sums of the first block start from, a dword for each row of each part; and the
  /// dwords from one block to the next.
  const uint32_t* first;
  int64_t stride;

  alignas(
      64) float times_d[kParts * kRegdecodeBlocks + 1][kRegdecodeRows];  ///< [block and half][row]

 private:
  static constexpr int kABlock = (9 + kParts) * kRegdecodeRows;
  alignas(64) uint32_t start_[kParts * kRegdecodeBlocks + 1][kRegdecodeRows];
};

}  // namespace metal_marlin::cpu
