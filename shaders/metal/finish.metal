// Turns partial sums into C: adds the splits of K in a fixed order and then does the last steps of
// the product kernels, or an epilogue that takes a gate and an up row. Each element of C has one
// thread.
#include "epilogue.h"

kernel void finish(const device float* partials [[buffer(MARLIN_BUFFER_PARTIALS)]],
                   const device RowFactor* factors
                   [[buffer(MARLIN_BUFFER_ROWS), function_constant(has_row_factor)]],
                   const device void* bias
                   [[buffer(MARLIN_BUFFER_BIAS), function_constant(has_bias)]],
                   device void* c [[buffer(MARLIN_BUFFER_C)]],
                   constant ProductArgs& args [[buffer(MARLIN_BUFFER_ARGS)]],
                   uint2 at [[thread_position_in_grid]]) {
  const bool two_inputs = epilogue >= kEpilogueSwiglu;
  const int columns = two_inputs ? args.n / 2 : args.n, m = at.y, column = at.x;
  if (column >= columns || m >= args.m) return;
  const int step = two_inputs && interleaved ? 2 : 1;
  float sum[2];
  UNROLL for (ushort input = 0; input < 2; input++) {
    if (input == 1 && !two_inputs) break;
    const int n = column * step + input * (interleaved ? 1 : columns);
    const device float* from = partials + long(m) * args.n + n;
    float total = from[0];
    for (int s = 1; s < args.splits; s++) total += from[long(s) * args.m * args.n];
    sum[input] = scale_and_bias(total, n, factors, bias);
  }
  store(c, long(m) * args.ldc + column, two_inputs ? combine(sum[0], sum[1]) : activate(sum[0]));
}
