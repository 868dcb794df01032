// Finishing sums 16 at a time: tensor scale, bias, + C and the rounding. Activation functions go through the portable code.
#if defined(__x86_64__)

#include <algorithm>

#include "backends/cpu/epilogue.h"
#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {
namespace {

MARLIN_AVX512 MARLIN_INLINE __m512 load_c(marlin_dtype dtype, const std::byte* p, __mmask16 mask) {
  if (dtype == MARLIN_F32) return _mm512_maskz_loadu_ps(mask, p);
  const __m256i half = _mm256_maskz_loadu_epi16(mask, p);
  if (dtype == MARLIN_F16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// As f32_to_bf16: nearest even, NaN stays NaN.
MARLIN_AVX512 MARLIN_INLINE __m512i round_to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
}

MARLIN_AVX512 MARLIN_INLINE void store_c(marlin_dtype dtype, std::byte* p, __mmask16 mask, __m512 x) {
  if (dtype == MARLIN_F32) return _mm512_mask_storeu_ps(p, mask, x);
  if (dtype == MARLIN_F16)
    return _mm256_mask_storeu_epi16(p, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm512_mask_cvtepi32_storeu_epi16(p, mask, round_to_bf16(x));
}

/// Tensor scale and bias of 16 columns. Divisors are 1 wherever there is a multiplier, so each path rounds the scale once.
struct Linear {
  __m512 multiplier, divisor, bias;
  bool multiplies, divides;
};

MARLIN_AVX512 MARLIN_INLINE __m512 apply(const Linear& linear, __m512 x) {
  if (linear.divides) return _mm512_add_ps(_mm512_div_ps(_mm512_mul_ps(x, linear.multiplier), linear.divisor), linear.bias);
  return linear.multiplies ? _mm512_fmadd_ps(x, linear.multiplier, linear.bias) : _mm512_add_ps(x, linear.bias);
}

}  // namespace

MARLIN_AVX512 void finish_panel_avx512(const GemmProblem& problem, int64_t panel, int64_t first_row, int64_t rows,
                                       float* sums) {
  const auto& weights = static_cast<const CpuWeights&>(*problem.weights);
  const MatrixView& c = problem.c;
  const int64_t column = panel * kPanelColumns, columns = std::min<int64_t>(kPanelColumns, weights.layout.n - column);
  const int64_t element = c.dtype == MARLIN_F32 ? 4 : 2, bias_element = problem.bias.dtype == MARLIN_F32 ? 4 : 2;
  const bool functions = problem.epilogue != MARLIN_EPILOGUE_NONE;
  for (int v = 0; v < 4 && 16 * v < columns; ++v) {
    const int64_t first = column + 16 * v, n = std::min<int64_t>(16, columns - 16 * v);
    const auto mask = static_cast<__mmask16>((1u << n) - 1);
    const bool scaled = !weights.column_multiplier.empty();
    Linear linear;
    // Adding -0 leaves every sum as it is.
    linear.bias = problem.bias.present() ? load_c(problem.bias.dtype,
                                                  static_cast<const std::byte*>(problem.bias.data) + first * bias_element, mask)
                                         : _mm512_set1_ps(-0.0f);
    linear.multiplier = scaled ? _mm512_loadu_ps(weights.column_multiplier.data() + first) : _mm512_set1_ps(1.0f);
    linear.multiplies = scaled;
    linear.divides = !weights.column_divisor.empty();
    linear.divisor = linear.divides ? _mm512_loadu_ps(weights.column_divisor.data() + first) : _mm512_set1_ps(1.0f);
    linear.divides = linear.divides && _mm512_cmpneq_ps_mask(linear.divisor, _mm512_set1_ps(1.0f)) != 0;
    std::byte* to = static_cast<std::byte*>(c.data) + (first_row * c.stride + first) * element;
    for (int64_t r = 0; r < rows; ++r, to += c.stride * element) {
      float* sum = sums + r * kPanelColumns + 16 * v;
      __m512 x = apply(linear, _mm512_load_ps(sum));
      if (functions) {
        _mm512_store_ps(sum, x);
        apply_activation(problem.epilogue, n, sum);
        x = _mm512_load_ps(sum);
      }
      if (problem.accumulate) x = _mm512_add_ps(x, load_c(c.dtype, to, mask));
      store_c(c.dtype, to, mask, x);
    }
  }
}

}  // namespace metal_marlin::cpu

#endif
