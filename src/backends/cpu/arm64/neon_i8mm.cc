// INT8 activations by SMMLA: 2 columns x 8 slots times 2 rows x 8 slots, twice the work of an SDOT.
#if defined(__aarch64__)

#include "backends/cpu/arm64/neon_staged.h"

#define MARLIN_TARGET MARLIN_NEON_I8MM
#include "backends/cpu/arm64/neon_tile.inc"

namespace metal_marlin::cpu {
namespace {

struct Smmla {
  using Sum = int32x4_t;
  static constexpr int kSteps = 8;
  static constexpr bool kInteger = true, kMatrix = true;
  MARLIN_TARGET MARLIN_INLINE static Sum multiply_add(Sum sum, uint8x16_t w, uint32x4_t x) {
    return vmmlaq_s32(sum, vreinterpretq_s8_u8(w), vreinterpretq_s8_u32(x));
  }
};

void staged_tile(const Staged<2>& staged, int, bool first, const PanelArgs& args, int64_t tile, const uint32_t* record,
                 float* sums) {
  const Walk walk = walk_of(args, staged.scales, first);
  may_overflow(args, staged.scales, tile) ? multiply_rows<Smmla, Scaling::clamped, 4>(FromStaged(staged), walk, record, sums)
                                          : multiply_rows<Smmla, Scaling::partial, 4>(FromStaged(staged), walk, record, sums);
}

}  // namespace

void cpu_neoni8mm_int8_gemm_any(const PanelArgs& args) { walk_chunks<Staged<2>, stage_int8<true>, staged_tile>(args); }

}  // namespace metal_marlin::cpu

#endif
