// Finishes sums 16 at a time. GELU with erf uses the portable code; all other functions are x *
// sigmoid(t).
#if defined(__x86_64__)

#include <algorithm>

#include "backends/cpu/epilogue.h"
#include "backends/cpu/x86/avx512.h"
#include "core/shapes.h"

namespace metal_marlin::cpu {
namespace {

/// Rounds like f32_to_bf16: to nearest even; NaN stays NaN.
MARLIN_AVX512 MARLIN_INLINE __m512i round_to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high,
                              _mm512_set1_epi32(0x40));
}

MARLIN_AVX512 MARLIN_INLINE void store_c(marlin_dtype dtype, std::byte* p, __mmask16 mask,
                                         __m512 x) {
  if (dtype == MARLIN_F32) return _mm512_mask_storeu_ps(p, mask, x);
  if (dtype == MARLIN_F16)
    return _mm256_mask_storeu_epi16(
        p, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm512_mask_cvtepi32_storeu_epi16(p, mask, round_to_bf16(x));
}

/// Tensor scale and bias of 16 columns. A column with a multiplier has the divisor 1, so each path
/// rounds the scale once.
struct Linear {
  __m512 multiplier, divisor, bias;
  bool multiplies, divides;
};

MARLIN_AVX512 MARLIN_INLINE __m512 apply(const Linear& linear, __m512 x) {
  if (linear.divides)
    return _mm512_add_ps(_mm512_div_ps(_mm512_mul_ps(x, linear.multiplier), linear.divisor),
                         linear.bias);
  return linear.multiplies ? _mm512_fmadd_ps(x, linear.multiplier, linear.bias)
                           : _mm512_add_ps(x, linear.bias);
}

/// e^x with a relative error below 1e-7: x = n ln 2 + r, and e^r by the polynomial of Cephes
/// (expf), scaled by 2^n. Beyond +-104 the result is infinite or 0 in float32. NaN stays NaN.
MARLIN_AVX512 MARLIN_INLINE __m512 exponential(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-104.0f), _mm512_min_ps(_mm512_set1_ps(104.0f), x));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)),
                                        _MM_FROUND_TO_NEAREST_INT);
  // ln 2 in two parts: n times the first is exact.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  return _mm512_scalef_ps(p, n);
}

/// x / (1 + e^-t). At x = -infinity, it is the limit -0.
MARLIN_AVX512 MARLIN_INLINE __m512 times_sigmoid(__m512 x, __m512 t) {
  const __m512 one = _mm512_set1_ps(1.0f), minus_zero = _mm512_set1_ps(-0.0f);
  const __m512 result =
      _mm512_div_ps(x, _mm512_add_ps(one, exponential(_mm512_xor_ps(t, minus_zero))));
  return _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, _mm512_set1_ps(-3.0e38f), _CMP_LT_OQ),
                            minus_zero);
}

MARLIN_AVX512 MARLIN_INLINE __m512 gelu_tanh(__m512 x) {
  const __m512 cube =
      _mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_mul_ps(x, _mm512_set1_ps(0.044715f)));
  return times_sigmoid(x, _mm512_mul_ps(_mm512_set1_ps(1.5957691216057308f),
                                        _mm512_add_ps(x, cube)));  // 2 sqrt(2 / pi)
}

/// Applies a one-input function to n columns; `buffer` holds 16 floats.
MARLIN_AVX512 MARLIN_INLINE __m512 activate(marlin_epilogue epilogue, __m512 x, int64_t n,
                                            float* buffer) {
  if (epilogue == MARLIN_EPILOGUE_NONE) return x;
  if (epilogue == MARLIN_EPILOGUE_SILU) return times_sigmoid(x, x);
  if (epilogue == MARLIN_EPILOGUE_GELU_TANH) return gelu_tanh(x);
  _mm512_storeu_ps(buffer, x);
  apply_activation(epilogue, n, buffer);
  return _mm512_loadu_ps(buffer);
}

/// limit tanh(x / limit), with a relative error below 4e-7: the polynomial of Cephes (tanhf) below
/// 0.625, where 1 - 2 / (1 + e^2y) would cancel.
MARLIN_AVX512 MARLIN_INLINE __m512 soft_limit(__m512 x, float limit) {
  const __m512 l = _mm512_set1_ps(limit), y = _mm512_div_ps(x, l), z = _mm512_mul_ps(y, y);
  __m512 p = _mm512_set1_ps(-5.70498872745e-3f);
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(2.06390887954e-2f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-5.37397155531e-2f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.33314422036e-1f));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-3.33332819422e-1f));
  const __m512 near = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
  const __m512 magnitude = _mm512_abs_ps(y), two = _mm512_set1_ps(2.0f);
  const __m512 e = exponential(_mm512_mul_ps(two, magnitude));
  const __m512 far =
      _mm512_fnmadd_ps(l, _mm512_div_ps(two, _mm512_add_ps(_mm512_set1_ps(1.0f), e)), l);
  const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
  return _mm512_mask_mov_ps(_mm512_or_ps(far, sign),
                            _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0.625f), _CMP_LT_OQ),
                            near);
}

MARLIN_AVX512 MARLIN_INLINE __m512 activate_pair(const GemmProblem& problem, __m512 gate,
                                                 __m512 up) {
  const GateNumbers& by = problem.gate;
  if (problem.epilogue == MARLIN_EPILOGUE_GEGLU_TANH) return _mm512_mul_ps(gelu_tanh(gate), up);
  if (problem.epilogue == MARLIN_EPILOGUE_SITU)
    return _mm512_mul_ps(
        _mm512_mul_ps(soft_limit(gate, by.gate_limit), times_sigmoid(_mm512_set1_ps(1.0f), gate)),
        soft_limit(up, by.up_limit));
  // SWIGLU. min and max return their second operand if one is NaN.
  const __m512 g = _mm512_min_ps(_mm512_set1_ps(by.gate_limit), gate);
  const __m512 u =
      _mm512_max_ps(_mm512_set1_ps(-by.up_limit), _mm512_min_ps(_mm512_set1_ps(by.up_limit), up));
  return _mm512_mul_ps(times_sigmoid(g, _mm512_mul_ps(_mm512_set1_ps(by.alpha), g)),
                       _mm512_add_ps(u, _mm512_set1_ps(by.up_offset)));
}

/// 16 columns of C, or the last ones.
struct Columns16 {
  Linear linear;
  int64_t count;
  __mmask16 mask;
};

/// Columns from `first` on, of which `left` are left.
MARLIN_AVX512 MARLIN_INLINE Columns16 columns_from(const GemmProblem& problem, int64_t first,
                                                   int64_t left) {
  const auto& weights = static_cast<const CpuWeights&>(*problem.weights);
  Columns16 columns;
  columns.count = std::min<int64_t>(16, left);
  columns.mask = static_cast<__mmask16>((1u << columns.count) - 1);
  const auto bias_element = static_cast<int64_t>(float_bytes(problem.bias.dtype));
  Linear& linear = columns.linear;
  // Adding -0 does not change any sum.
  linear.bias =
      problem.bias.present()
          ? load_16(problem.bias.dtype,
                    static_cast<const std::byte*>(problem.bias.data) + first * bias_element,
                    columns.mask)
          : _mm512_set1_ps(-0.0f);
  linear.multiplies = !weights.column_multiplier.empty();
  linear.multiplier = linear.multiplies ? _mm512_loadu_ps(weights.column_multiplier.data() + first)
                                        : _mm512_set1_ps(1.0f);
  linear.divides = !weights.column_divisor.empty();
  linear.divisor = linear.divides ? _mm512_loadu_ps(weights.column_divisor.data() + first)
                                  : _mm512_set1_ps(1.0f);
  linear.divides =
      linear.divides && _mm512_cmpneq_ps_mask(linear.divisor, _mm512_set1_ps(1.0f)) != 0;
  return columns;
}

/// Whether the sums are the results as they are.
MARLIN_INLINE bool is_plain(const GemmProblem& problem) {
  const auto& weights = static_cast<const CpuWeights&>(*problem.weights);
  return problem.epilogue == MARLIN_EPILOGUE_NONE && !problem.accumulate &&
         problem.c.dtype == MARLIN_F32 && !problem.bias.present() &&
         weights.column_multiplier.empty() && weights.column_divisor.empty();
}

}  // namespace

MARLIN_AVX512 void finish_panel_avx512(const GemmProblem& problem, int64_t panel, int64_t first_row,
                                       int64_t rows, float* sums) {
  const int64_t column = panel * kPanelColumns,
                left = static_cast<const CpuWeights&>(*problem.weights).layout.n - column;
  Columns16 columns[kPanelColumns / 16];
  int vectors = 0;
  for (; vectors < kPanelColumns / 16 && 16 * vectors < left; ++vectors)
    columns[vectors] = columns_from(problem, column + 16 * vectors, left - 16 * vectors);
  const MatrixView& c = problem.c;
  const int64_t element = static_cast<int64_t>(float_bytes(c.dtype)), stride = c.stride * element;
  std::byte* to = static_cast<std::byte*>(c.data) + first_row * stride + column * element;
  // All of a row at once, and a later row on its way: rows lie far apart, and no prefetcher of the
  // processor foresees them.
  constexpr int64_t kAhead = 4;
  const bool plain = is_plain(problem);
  for (int64_t r = 0; r < rows; ++r, to += stride) {
    float* sum = sums + r * kPanelColumns;
    for (int v = 0; v < vectors; ++v, sum += 16) {
      const Columns16& of = columns[v];
      std::byte* const at = to + 16 * v * element;
      if (r + kAhead < rows) __builtin_prefetch(at + kAhead * stride, 1);
      if (plain) {
        _mm512_mask_storeu_ps(at, of.mask, _mm512_load_ps(sum));
        continue;
      }
      __m512 x = activate(problem.epilogue, apply(of.linear, _mm512_load_ps(sum)), of.count, sum);
      if (problem.accumulate) x = _mm512_add_ps(x, load_16(c.dtype, at, of.mask));
      store_c(c.dtype, at, of.mask, x);
    }
  }
}

MARLIN_AVX512 void finish_pair_sums_avx512(const GemmProblem& problem, int64_t row,
                                           const float* pair_sums) {
  const WeightMeta& meta = problem.weights->meta();
  const MatrixView& c = problem.c;
  const int64_t half = meta.n / 2, element = static_cast<int64_t>(float_bytes(c.dtype));
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  std::byte* to = static_cast<std::byte*>(c.data) + row * c.stride * element;
  for (int64_t column = 0; column < half; column += 16) {
    const int64_t n = std::min<int64_t>(16, half - column);
    const auto mask = static_cast<__mmask16>((1u << n) - 1);
    __m512 gate, up;
    if (meta.gate_up_interleaved) {
      const uint32_t both = n == 16 ? ~0u : (1u << 2 * n) - 1;
      const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(both), pair_sums + 2 * column);
      const __m512 b =
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(both >> 16), pair_sums + 2 * column + 16);
      gate = _mm512_permutex2var_ps(a, even, b);
      up = _mm512_permutex2var_ps(a, odd, b);
    } else {
      gate = _mm512_maskz_loadu_ps(mask, pair_sums + column);
      up = _mm512_maskz_loadu_ps(mask, pair_sums + half + column);
    }
    __m512 x = activate_pair(problem, gate, up);
    if (problem.accumulate) x = _mm512_add_ps(x, load_16(c.dtype, to + column * element, mask));
    store_c(c.dtype, to + column * element, mask, x);
  }
}

}  // namespace metal_marlin::cpu

#endif
