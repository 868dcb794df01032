// BF16 activations for few rows, by vdpbf16ps.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512.h"

#define MARLIN_FORM bf16
#define MARLIN_IS_BF16 1
#define MARLIN_TARGET MARLIN_AVX512_BF16
#include "backends/cpu/x86/avx512_float_gemv.inc"

namespace metal_marlin::cpu {

void cpu_avx512bf16_bf16_gemv_w4sym(const PanelArgs& args) { run<CodeKind::w4sym>(args); }
void cpu_avx512bf16_bf16_gemv_w4zero(const PanelArgs& args) { run<CodeKind::w4zero>(args); }
void cpu_avx512bf16_bf16_gemv_w4add(const PanelArgs& args) { run<CodeKind::w4add>(args); }
void cpu_avx512bf16_bf16_gemv_fp4(const PanelArgs& args) { run<CodeKind::fp4>(args); }
void cpu_avx512bf16_bf16_gemv_w8sym(const PanelArgs& args) { run<CodeKind::w8sym>(args); }
void cpu_avx512bf16_bf16_gemv_w8add(const PanelArgs& args) { run<CodeKind::w8add>(args); }
void cpu_avx512bf16_bf16_gemv_w4sym_sparse(const PanelArgs& args) { run<CodeKind::w4sym, true>(args); }
void cpu_avx512bf16_bf16_gemv_w4zero_sparse(const PanelArgs& args) { run<CodeKind::w4zero, true>(args); }
void cpu_avx512bf16_bf16_gemv_w4add_sparse(const PanelArgs& args) { run<CodeKind::w4add, true>(args); }
void cpu_avx512bf16_bf16_gemv_fp4_sparse(const PanelArgs& args) { run<CodeKind::fp4, true>(args); }

}  // namespace metal_marlin::cpu

#endif
