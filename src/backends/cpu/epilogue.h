// The last steps for finished FP32 sums: tensor scale, bias, f, + C, one rounding.
#pragma once

#include <cstdint>

#include "backends/cpu/layout.h"
#include "core/backend.h"

namespace metal_marlin::cpu {

/// Applies the whole epilogue to the sums of one panel and stores them to C. Not for two-input
/// epilogues. `sums` is [rows][kPanelColumns] and is overwritten; row r is row first_row + r of C;
/// columns past N are dropped.
void finish_panel(const GemmProblem& problem, int64_t panel, int64_t first_row, int64_t rows,
                  float* sums);
void finish_panel_avx512(const GemmProblem& problem, int64_t panel, int64_t first_row, int64_t rows,
                         float* sums);

/// Adds n <= kPanelColumns old elements of C to x if the problem accumulates, rounds once, and
/// stores them.
void store_row(const GemmProblem& problem, int64_t row, int64_t column, int64_t n, float* x);

/// For two-input epilogues: applies tensor scale and bias, and stores the sums at the columns of
/// the panel in `out`, [rows][stride] floats.
void store_pair_sums(const GemmProblem& problem, int64_t panel, int64_t rows, float* sums,
                     int64_t stride, float* out);

/// The second half of a two-input epilogue: combines gate and up columns of `pair_sums`,
/// [][stride], into one row of C.
void finish_pair_sums(const GemmProblem& problem, int64_t row, const float* pair_sums);
void finish_pair_sums_avx512(const GemmProblem& problem, int64_t row, const float* pair_sums);

/// Applies f of a one-input epilogue in place.
void apply_activation(marlin_epilogue epilogue, int64_t n, float* x);
/// Writes f(gate, up) of a two-input epilogue to out.
void apply_gate(marlin_epilogue epilogue, const GateNumbers& by, int64_t n, const float* gate,
                const float* up, float* out);

}  // namespace metal_marlin::cpu
