// INT8 activations by SMMLA: 2 columns x 8 slots times 2 rows x 8 slots, which is twice the work of
// an SDOT. A superblock is dequantized into L1 with two steps of two columns in a vector. Packed A
// blocks have a run of 2. neon_tile.inc has the picture of a tile.
#if defined(__aarch64__)

#include "backends/cpu/arm64/neon_dequant.h"

#define MARLIN_TARGET MARLIN_NEON_I8MM
#include "backends/cpu/arm64/neon_tile.inc"

namespace metal_marlin::cpu {
namespace {

struct Smmla {
  using Sum = int32x4_t;
  static constexpr int kSteps = 8;
  static constexpr bool kInteger = true, kMatrix = true;
  MARLIN_TARGET MARLIN_INLINE static void multiply_add(Sum& sum, uint8x16_t w, uint32x4_t x) {
    sum = vmmlaq_s32(sum, vreinterpretq_s8_u8(w), vreinterpretq_s8_u32(x));
  }
};

}  // namespace

void cpu_neoni8mm_dequant_any_i8(const PanelArgs& args) {
  walk_chunks<NeonDequantized<2>, dequantize_int8<true>, dequantized_int8_tile<Smmla>>(args);
}

}  // namespace metal_marlin::cpu

#endif
