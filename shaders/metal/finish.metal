// Turns partial sums into C: adds the splits of K in a fixed order and then does the last steps of
// the product kernels, or an epilogue that takes a gate and an up row. With routing, it adds a
// token's routed rows times their scales, in order. Each element of C has one thread.
#include "epilogue.h"

/// One element of the result of row `row` of the partial sums, which have `rows` rows.
static inline float result_of(const device float* partials, const device RowFactor* factors,
                              const device void* bias, long bias_at, constant ProductArgs& args,
                              int row, int rows, int column, int columns) {
  const bool two_inputs = epilogue >= kEpilogueSwiglu;
  const int step = two_inputs && interleaved ? 2 : 1;
  float sum[2];
  UNROLL for (ushort input = 0; input < 2; input++) {
    if (input == 1 && !two_inputs) break;
    const int n = column * step + input * (interleaved ? 1 : columns);
    const device float* from = partials + long(row) * args.n + n;
    float total = from[0];
    for (int s = 1; s < args.splits; s++) total += from[long(s) * rows * args.n];
    sum[input] = scale_and_bias(total, n, factors, bias, bias_at);
  }
  return two_inputs ? combine(sum[0], sum[1], args) : activate(sum[0]);
}

kernel void finish(const device float* partials [[buffer(MARLIN_BUFFER_PARTIALS)]],
                   const device RowFactor* factors
                   [[buffer(MARLIN_BUFFER_ROWS), function_constant(has_row_factor)]],
                   const device void* bias
                   [[buffer(MARLIN_BUFFER_BIAS), function_constant(has_bias)]],
                   device void* c [[buffer(MARLIN_BUFFER_C)]],
                   const device int* routes
                   [[buffer(MARLIN_BUFFER_ROUTES), function_constant(routed)]],
                   constant ProductArgs& args [[buffer(MARLIN_BUFFER_ARGS)]],
                   uint2 at [[thread_position_in_grid]]) {
  const int columns = epilogue >= kEpilogueSwiglu ? args.n / 2 : args.n, m = at.y, column = at.x;
  if (column >= columns || m >= args.m) return;
  const long to = long(m) * args.ldc + column;
  if (!routed) {
    store(c, to, result_of(partials, factors, bias, 0, args, m, args.m, column, columns));
    return;
  }
  const bool sums = routing == kRoutingSums;
  const int of_row = sums ? args.top_k : 1, rows = args.m * of_row;
  const device int* experts = routes + route_experts_at(args.items, rows);
  const device float* scales = (const device float*)(routes + route_scales_at(args.items, rows));
  float v = 0.0f;
  for (int row = m * of_row; row < (m + 1) * of_row; row++) {
    const int expert = experts[row];
    if (expert < 0) continue;
    const device RowFactor* of_expert =
        (const device RowFactor*)((const device char*)factors + expert * args.expert_stride);
    const float result = result_of(partials, of_expert, bias, expert * args.bias_stride, args, row,
                                   rows, column, columns);
    v = sums ? fma(scales[row], result, v) : result;
  }
  store(c, to, v);
}
