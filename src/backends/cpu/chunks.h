// The choice of a kernel's code by the kind of codes, and the loop of kernels that dequantize
// weights.
#pragma once

#include <algorithm>

#include "backends/cpu/fetch.h"
#include "backends/cpu/kernels.h"

namespace metal_marlin::cpu {

/// Calls call.operator()<kCode>() for codes that are not real.
template <class Call>
void with_code(CodeKind code, Call call) {
  switch (code) {
    case CodeKind::u4:
      return call.template operator()<CodeKind::u4>();
    case CodeKind::u4zero:
      return call.template operator()<CodeKind::u4zero>();
    case CodeKind::u4add:
      return call.template operator()<CodeKind::u4add>();
    case CodeKind::fp4:
      return call.template operator()<CodeKind::fp4>();
    case CodeKind::i8:
      return call.template operator()<CodeKind::i8>();
    case CodeKind::i8add:
      return call.template operator()<CodeKind::i8add>();
    default:
      return;
  }
}

/// The same for any code.
template <class Call>
void with_any_code(CodeKind code, Call call) {
  switch (code) {
    case CodeKind::lut4:
      return call.template operator()<CodeKind::lut4>();
    case CodeKind::bf16:
      return call.template operator()<CodeKind::bf16>();
    case CodeKind::f16:
      return call.template operator()<CodeKind::f16>();
    case CodeKind::f32:
      return call.template operator()<CodeKind::f32>();
    default:
      return with_code(code, call);
  }
}

/// Calls call.operator()<kCode, kSparse>() for the weights of a panel.
template <class Call>
void with_codes(const PanelArgs& args, Call call) {
  with_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (!is_eight_bits(kCode))
      if (args.layout->sparse) return call.template operator()<kCode, true>();
    return call.template operator()<kCode, false>();
  });
}

/// For many rows: decodes a chunk of a panel into cache (kDequantize) and then multiplies all tiles
/// by it (kTile), chunk after chunk. Tiles continue from the sums of the previous chunk; the first
/// chunk starts from 0.
///
/// Between tiles, the loop prefetches a share of the bytes that will be decoded later, so that
/// memory is busy while tiles run. If a panel were fetched during the burst of decoding, decoding
/// would wait for memory, and nothing would be multiplied meanwhile.
template <class Dequantized, auto kDequantize, auto kTile>
void walk_chunks(const PanelArgs& args) {
  const ActivationLayout& act = args.activations;
  const int64_t super_bytes = args.layout->super_bytes(), tiles = args.tile_end - args.tile_begin;
  alignas(64) Dequantized dequantized;
  for (int64_t block = 0; block < act.blocks; block += act.chunk_blocks) {
    const int blocks = static_cast<int>(act.chunk_length(block));
    const uint8_t* const chunk = args.panel + block / kBlocksPerSuper * super_bytes;
    kDequantize(args, chunk, blocks, dequantized);
    const int64_t bytes = blocks / kBlocksPerSuper * super_bytes;
    const uint8_t* const later = chunk + std::max(bytes, fetch_distance(super_bytes));
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
      const int64_t first = bytes / 64 * (tile - args.tile_begin) / tiles,
                    end = bytes / 64 * (tile + 1 - args.tile_begin) / tiles;
      fetch_lines(later + 64 * first, 64 * (end - first));
      float* sums = args.sums + (tile - args.tile_begin) * act.tile_rows * kPanelColumns;
      kTile(dequantized, blocks, block == 0, args, tile, args.packed_a + act.offset(tile, block),
            sums);
    }
  }
}

}  // namespace metal_marlin::cpu
