// The walk of kernels that stage weights.
#pragma once

#include "backends/cpu/kernels.h"

namespace metal_marlin::cpu {

/// Calls call.operator()<kCode, kSparse>() for the weights of a panel.
template <class Call>
void with_codes(const PanelArgs& args, Call call) {
  const bool sparse = args.layout->sparse;
  switch (args.code) {
    case CodeKind::w4sym:
      return sparse ? call.template operator()<CodeKind::w4sym, true>() : call.template operator()<CodeKind::w4sym, false>();
    case CodeKind::w4zero:
      return sparse ? call.template operator()<CodeKind::w4zero, true>() : call.template operator()<CodeKind::w4zero, false>();
    case CodeKind::w4add:
      return sparse ? call.template operator()<CodeKind::w4add, true>() : call.template operator()<CodeKind::w4add, false>();
    case CodeKind::fp4:
      return sparse ? call.template operator()<CodeKind::fp4, true>() : call.template operator()<CodeKind::fp4, false>();
    case CodeKind::w8sym:
      return call.template operator()<CodeKind::w8sym, false>();
    case CodeKind::w8add:
      return call.template operator()<CodeKind::w8add, false>();
  }
}

/// Many rows: decodes a chunk of a panel into cache (kStage), then multiplies all tiles by it (kTile), chunk after chunk. Tiles
/// continue from the sums of the chunk before; the first starts from 0.
template <class Staged, auto kStage, auto kTile>
void walk_chunks(const PanelArgs& args) {
  const ActivationLayout& act = args.activations;
  alignas(64) Staged staged;
  for (int64_t block = 0; block < act.blocks; block += act.chunk_blocks) {
    const int blocks = static_cast<int>(act.chunk_length(block));
    kStage(args, args.panel + block / kBlocksPerSuper * args.layout->super_bytes(), blocks, staged);
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
      float* sums = args.sums + (tile - args.tile_begin) * act.tile_rows * kPanelColumns;
      kTile(staged, blocks, block == 0, args, tile, args.records + act.offset(tile, block), sums);
    }
  }
}

}  // namespace metal_marlin::cpu
