// BF16 activations for few rows, by vdpbf16ps. The picture is in avx512_float_gemv.inc.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512.h"

#define MARLIN_FORM bf16
#define MARLIN_IS_BF16 1
#define MARLIN_TARGET MARLIN_AVX512_BF16
#include "backends/cpu/x86/avx512_float_gemv.inc"

namespace metal_marlin::cpu {

void cpu_avx512bf16_gemv_any_bf16(const PanelArgs& args) { run_any<false>(args); }
void cpu_avx512bf16_gemv_any_sparse_bf16(const PanelArgs& args) { run_any<true>(args); }
void cpu_avx512bf16_gemv_u4add_sparse_bf16(const PanelArgs& args) {
  run<CodeKind::u4add, true>(args);
}

}  // namespace metal_marlin::cpu

#endif
