// F32 and F16 activations for few rows, by FMA.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512.h"

#define MARLIN_FORM f32
#define MARLIN_IS_BF16 0
#define MARLIN_TARGET MARLIN_AVX512
#include "backends/cpu/x86/avx512_float_gemv.inc"

namespace metal_marlin::cpu {

void cpu_avx512_gemv_u4_f32(const PanelArgs& args) { run<CodeKind::u4>(args); }
void cpu_avx512_gemv_u4zero_f32(const PanelArgs& args) { run<CodeKind::u4zero>(args); }
void cpu_avx512_gemv_u4add_f32(const PanelArgs& args) { run<CodeKind::u4add>(args); }
void cpu_avx512_gemv_fp4_f32(const PanelArgs& args) { run<CodeKind::fp4>(args); }
void cpu_avx512_gemv_i8_f32(const PanelArgs& args) { run<CodeKind::i8>(args); }
void cpu_avx512_gemv_i8add_f32(const PanelArgs& args) { run<CodeKind::i8add>(args); }
void cpu_avx512_gemv_u4_sparse_f32(const PanelArgs& args) { run<CodeKind::u4, true>(args); }
void cpu_avx512_gemv_u4zero_sparse_f32(const PanelArgs& args) { run<CodeKind::u4zero, true>(args); }
void cpu_avx512_gemv_u4add_sparse_f32(const PanelArgs& args) { run<CodeKind::u4add, true>(args); }
void cpu_avx512_gemv_fp4_sparse_f32(const PanelArgs& args) { run<CodeKind::fp4, true>(args); }

}  // namespace metal_marlin::cpu

#endif
