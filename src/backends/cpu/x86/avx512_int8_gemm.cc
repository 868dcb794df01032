// INT8 compute for many rows, any codes and groups (avx512_int8_staged.h).
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
  CodeKind code;
  const float* facts;  ///< of its rows (activations.h)
  const uint32_t* record;
  float* sums;

  /// Unsigned 8-bit codes are 128 more than their value; others are corrected by the sums of the activations.
  int uncorrected() const { return code == CodeKind::w8add ? 128 : 0; }
};

void stage_any(const PanelArgs& args, const uint8_t* super, int blocks, StagedInt8& out) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() { stage_int8<kCode, kSparse>(*args.layout, super, blocks, out); });
}

Factor factor_for(const Tile& tile, ScaleType type) {
  const StagedInt8& staged = tile.staged;
  if (type == ScaleType::e8m0 && ScaleRange::of<true>(tile.facts, kStagedRows).holds(staged.smallest, staged.largest))
    return Factor::exponents;
  return ScaleRange::of<false>(tile.facts, kStagedRows).holds(staged.smallest, staged.largest) ? Factor::product
                                                                                               : Factor::finite;
}

template <int kParts, bool kAdditive, Factor kFactor>
void run_blocks(const Tile& tile) {
  multiply_blocks<kParts, false, kAdditive, kFactor>(tile.staged, tile.blocks, tile.first, tile.uncorrected(), tile.record,
                                                     tile.sums);
}

template <int kParts>
void blocks_any(const Tile& tile, ScaleType type) {
  const Factor factor = factor_for(tile, type);
  if (is_additive(tile.code))
    return factor == Factor::finite ? run_blocks<kParts, true, Factor::finite>(tile)
                                    : run_blocks<kParts, true, Factor::product>(tile);
  if constexpr (kParts == 1)
    if (factor == Factor::exponents) return run_blocks<1, false, Factor::exponents>(tile);
  return factor == Factor::finite ? run_blocks<kParts, false, Factor::finite>(tile)
                                  : run_blocks<kParts, false, Factor::product>(tile);
}

template <int kGroup, bool kAdditive>
void groups_any(const Tile& tile) {
  constexpr float kWild = 0x1p100f;  // 4 blocks of 32 products of bytes are below 2^22
  bool wild[kStagedRows], any = false;
  for (int r = 0; r < kStagedRows; ++r) any |= wild[r] = tile.facts[r] > kWild;
  const auto run = any ? multiply_groups<kAdditive, kGroup, true> : multiply_groups<kAdditive, kGroup, false>;
  run(tile.staged, tile.blocks, tile.first, tile.uncorrected(), wild, tile.record, tile.sums);
}

void tile_any(const StagedInt8& staged, int blocks, bool first, const PanelArgs& args, int64_t index, const uint32_t* record,
              float* sums) {
  const auto* facts = reinterpret_cast<const float*>(args.records + args.activations.rows_offset(index));
  const Tile tile{staged, blocks, first, args.code, facts, record, sums};
  switch (args.layout->slot_group) {
    case 16:
      return blocks_any<2>(tile, args.layout->scale_type);
    case 32:
      return blocks_any<1>(tile, args.layout->scale_type);
    case 64:
      return is_additive(args.code) ? groups_any<2, true>(tile) : groups_any<2, false>(tile);
    default:
      return is_additive(args.code) ? groups_any<4, true>(tile) : groups_any<4, false>(tile);
  }
}

}  // namespace

void cpu_avx512vnni_int8_gemm_any(const PanelArgs& args) { walk_chunks<StagedInt8, stage_any, tile_any>(args); }

}  // namespace metal_marlin::cpu

#endif
