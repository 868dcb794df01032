#include "backends/cpu/epilogue.h"

#include <algorithm>
#include <cmath>

#include "core/shapes.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {
namespace {

/// 1 / (1 + e^-x). If e^-x overflows, the quotient is 0, which is right.
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// x * sigmoid(a * x + ...). The limit at -infinity is -0, but inf * 0 would be NaN.
float times_sigmoid(float x, float argument) {
  return x < -3.0e38f ? -0.0f : x * sigmoid(argument);
}

float silu(float x) { return times_sigmoid(x, x); }

/// 0.5 x (1 + tanh(u)) is x sigmoid(2 u), which does not cancel for negative x.
float gelu_tanh(float x) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  return times_sigmoid(x, kTwoSqrt2OverPi * (x + 0.044715f * x * x * x));
}

/// 0.5 x (1 + erf(x / sqrt 2)) by erfc, for the same reason.
float gelu_erf(float x) {
  constexpr float kSqrtHalf = 0.70710678118654752f;
  return x < -3.0e38f ? -0.0f : 0.5f * x * std::erfc(-x * kSqrtHalf);
}

/// x within limits. std::fmin and std::fmax would turn NaN into the limit.
float at_most(float x, float limit) { return x > limit ? limit : x; }
float at_least(float x, float limit) { return x < limit ? limit : x; }

float swiglu(const GateNumbers& by, float gate, float up) {
  const float g = at_most(gate, by.gate_limit);
  const float u = at_least(at_most(up, by.up_limit), -by.up_limit);
  return times_sigmoid(g, by.alpha * g) * (u + by.up_offset);
}

float situ(const GateNumbers& by, float gate, float up) {
  const auto soft = [](float x, float limit) { return limit * std::tanh(x / limit); };
  return soft(gate, by.gate_limit) * sigmoid(gate) * soft(up, by.up_limit);
}

/// Applies tensor scale and bias to one row of a panel. The product is exact in double, so scale
/// and bias together round once.
void scale_and_bias(const CpuWeights& weights, const float* bias, int64_t first_column, float* x) {
  const bool multiply = !weights.column_multiplier.empty(),
             divide = !weights.column_divisor.empty();
  if (multiply || divide) {
    for (int c = 0; c < kPanelColumns; ++c) {
      double v = static_cast<double>(x[c]);
      if (multiply)
        v *= static_cast<double>(weights.column_multiplier[static_cast<size_t>(first_column + c)]);
      if (divide)
        v /= static_cast<double>(weights.column_divisor[static_cast<size_t>(first_column + c)]);
      if (bias != nullptr) v += static_cast<double>(bias[c]);
      x[c] = static_cast<float>(v);
    }
  } else if (bias != nullptr) {
    for (int c = 0; c < kPanelColumns; ++c) x[c] += bias[c];
  }
}

/// The bias of the panel as floats, 0 past N; null if there is no bias.
const float* panel_bias(const GemmProblem& problem, int64_t first_column, int64_t columns,
                        float* buffer) {
  if (!problem.bias.present()) return nullptr;
  const size_t element = float_bytes(problem.bias.dtype);
  const auto* from = static_cast<const std::byte*>(problem.bias.data) +
                     static_cast<size_t>(first_column) * element;
  decode_floats(problem.bias.dtype, from, columns, buffer);
  std::fill(buffer + columns, buffer + kPanelColumns, 0.0f);
  return buffer;
}

const CpuWeights& weights_of(const GemmProblem& problem) {
  return static_cast<const CpuWeights&>(*problem.weights);
}

}  // namespace

void store_row(const GemmProblem& problem, int64_t row, int64_t column, int64_t n, float* x) {
  const size_t element = float_bytes(problem.c.dtype);
  auto* to = static_cast<std::byte*>(problem.c.data) +
             static_cast<size_t>(row * problem.c.stride + column) * element;
  if (problem.accumulate) {
    float old[kPanelColumns];
    decode_floats(problem.c.dtype, to, n, old);
    for (int64_t i = 0; i < n; ++i) x[i] += old[i];
  }
  encode_floats(problem.c.dtype, x, n, to);
}

void apply_activation(marlin_epilogue epilogue, int64_t n, float* x) {
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) x[i] = f(x[i]);
  };
  switch (epilogue) {
    case MARLIN_EPILOGUE_SILU:
      return each(silu);
    case MARLIN_EPILOGUE_GELU_TANH:
      return each(gelu_tanh);
    case MARLIN_EPILOGUE_GELU_ERF:
      return each(gelu_erf);
    default:
      return;
  }
}

void apply_gate(marlin_epilogue epilogue, const GateNumbers& by, int64_t n, const float* gate,
                const float* up, float* out) {
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f(gate[i], up[i]);
  };
  switch (epilogue) {
    case MARLIN_EPILOGUE_GEGLU_TANH:
      return each([](float g, float u) { return gelu_tanh(g) * u; });
    case MARLIN_EPILOGUE_SITU:
      return each([&](float g, float u) { return situ(by, g, u); });
    default:
      return each([&](float g, float u) { return swiglu(by, g, u); });
  }
}

void finish_panel(const GemmProblem& problem, int64_t panel, int64_t first_row, int64_t rows,
                  float* sums) {
  const CpuWeights& weights = weights_of(problem);
  const int64_t column = panel * kPanelColumns,
                columns = std::min<int64_t>(kPanelColumns, weights.layout.n - column);
  float buffer[kPanelColumns];
  const float* bias = panel_bias(problem, column, columns, buffer);
  for (int64_t r = 0; r < rows; ++r) {
    float* x = sums + r * kPanelColumns;
    scale_and_bias(weights, bias, column, x);
    apply_activation(problem.epilogue, columns, x);
    store_row(problem, first_row + r, column, columns, x);
  }
}

void store_pair_sums(const GemmProblem& problem, int64_t panel, int64_t rows, float* sums,
                     int64_t stride, float* out) {
  const CpuWeights& weights = weights_of(problem);
  const int64_t column = panel * kPanelColumns,
                columns = std::min<int64_t>(kPanelColumns, weights.layout.n - column);
  float buffer[kPanelColumns];
  const float* bias = panel_bias(problem, column, columns, buffer);
  for (int64_t r = 0; r < rows; ++r) {
    float* x = sums + r * kPanelColumns;
    scale_and_bias(weights, bias, column, x);
    std::copy(x, x + kPanelColumns, out + r * stride + column);
  }
}

void finish_pair_sums(const GemmProblem& problem, int64_t row, const float* pair_sums) {
  const WeightMeta& meta = problem.weights->meta();
  const int64_t half = meta.n / 2;
  for (int64_t column = 0; column < half; column += kPanelColumns) {
    const int64_t n = std::min<int64_t>(kPanelColumns, half - column);
    float gate[kPanelColumns], up[kPanelColumns], out[kPanelColumns];
    for (int64_t i = 0; i < n; ++i) {
      gate[i] = meta.gate_up_interleaved ? pair_sums[2 * (column + i)] : pair_sums[column + i];
      up[i] =
          meta.gate_up_interleaved ? pair_sums[2 * (column + i) + 1] : pair_sums[half + column + i];
    }
    apply_gate(problem.epilogue, problem.gate, n, gate, up, out);
    store_row(problem, row, column, n, out);
  }
}

}  // namespace metal_marlin::cpu
