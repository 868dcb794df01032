// INT8 compute for many rows of sparse weights, any codes and groups (avx512_int8_staged.h).
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8_staged.h"

namespace metal_marlin::cpu {
namespace {

/// One tile of rows, and a chunk.
struct Tile {
  const StagedInt8& staged;
  int blocks;
  bool first;
  const float* facts;  ///< of its rows (activations.h)
  const uint32_t* record;
  float* sums;
};

void stage_any(const PanelArgs& args, const uint8_t* super, int blocks, StagedInt8& out) {
  if (args.code == CodeKind::w4sym) return stage_int8<CodeKind::w4sym, true>(*args.layout, super, blocks, out);
  if (args.code == CodeKind::w4zero) return stage_int8<CodeKind::w4zero, true>(*args.layout, super, blocks, out);
  args.layout->sparse ? stage_int8<CodeKind::fp4, true>(*args.layout, super, blocks, out)
                      : stage_int8<CodeKind::fp4, false>(*args.layout, super, blocks, out);
}

Factor factor_for(const Tile& tile, ScaleType type) {
  const StagedInt8& staged = tile.staged;
  if (type == ScaleType::e8m0 && ScaleRange::of<true>(tile.facts, kStagedRows).holds(staged.smallest, staged.largest))
    return Factor::exponents;
  return ScaleRange::of<false>(tile.facts, kStagedRows).holds(staged.smallest, staged.largest) ? Factor::product
                                                                                               : Factor::finite;
}

template <int kParts, Factor kFactor>
void run_blocks(const Tile& tile) {
  multiply_blocks<kParts, false, kFactor>(tile.staged, tile.blocks, tile.first, tile.record, tile.sums);
}

template <int kParts>
void blocks_any(const Tile& tile, ScaleType type) {
  const Factor factor = factor_for(tile, type);
  if constexpr (kParts == 1)
    if (factor == Factor::exponents) return run_blocks<1, Factor::exponents>(tile);
  factor == Factor::finite ? run_blocks<kParts, Factor::finite>(tile) : run_blocks<kParts, Factor::product>(tile);
}

template <int kGroup>
void groups_any(const Tile& tile) {
  bool wild[kStagedRows], any = false;
  for (int r = 0; r < kStagedRows; ++r) any |= wild[r] = tile.facts[r] > kWild;
  const auto run = any ? multiply_groups<kGroup, true> : multiply_groups<kGroup, false>;
  run(tile.staged, tile.blocks, tile.first, wild, tile.record, tile.sums);
}

void tile_any(const StagedInt8& staged, int blocks, bool first, const PanelArgs& args, int64_t index, const uint32_t* record,
              float* sums) {
  const auto* facts = reinterpret_cast<const float*>(args.records + args.activations.rows_offset(index));
  const Tile tile{staged, blocks, first, facts, record, sums};
  switch (args.layout->slot_group) {
    case 16:
      return blocks_any<2>(tile, args.layout->scale_type);
    case 32:
      return blocks_any<1>(tile, args.layout->scale_type);
    case 64:
      return groups_any<2>(tile);
    default:
      return groups_any<4>(tile);
  }
}

}  // namespace

void staged_int8(const PanelArgs& args) { walk_chunks<StagedInt8, stage_any, tile_any>(args); }
void cpu_avx512vnni_int8_gemm_any_sparse(const PanelArgs& args) { staged_int8(args); }

}  // namespace metal_marlin::cpu

#endif
