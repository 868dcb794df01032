// F32 and F16 activations for few rows, by FMA. The picture is in avx512_float_gemv.inc.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512.h"

#define MARLIN_FORM f32
#define MARLIN_IS_BF16 0
#define MARLIN_TARGET MARLIN_AVX512
#include "backends/cpu/x86/avx512_float_gemv.inc"

namespace metal_marlin::cpu {

void cpu_avx512_gemv_any_f32(const PanelArgs& args) { run_any<false>(args); }
void cpu_avx512_gemv_any_sparse_f32(const PanelArgs& args) { run_any<true>(args); }
void cpu_avx512_gemv_u4add_sparse_f32(const PanelArgs& args) { run<CodeKind::u4add, true>(args); }

}  // namespace metal_marlin::cpu

#endif
