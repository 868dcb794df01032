/* The smallest use of the library: pack two rows of INT4, multiply one row of activations, check both values. */
#ifndef MULTIPLY_H_
#define MULTIPLY_H_

#include <metal_marlin/metal_marlin.h>
#include <stdio.h>

static marlin_matrix matrix(void* data, int64_t rows, int64_t cols, marlin_dtype dtype) {
  marlin_matrix m = {0};
  m.data = data;
  m.rows = rows;
  m.cols = cols;
  m.dtype = dtype;
  return m;
}

/* 0 when the library computes what it must. */
static int multiply(const marlin_api* api) {
  enum { N = 2, K = 32 };
  uint8_t codes[N][K / 2];
  float scales[N] = {0.5f, 0.25f}, a[K], c[N] = {0, 0};
  for (int i = 0; i < K / 2; ++i) {
    codes[0][i] = 0x99; /* code 9, zero point 8: +1 */
    codes[1][i] = 0x66; /* code 6: -2 */
  }
  for (int k = 0; k < K; ++k) a[k] = (float)(k + 1); /* their sum: 528 */

  marlin_error error = {0};
  error.struct_size = sizeof error;
  marlin_context* context = NULL;
  marlin_weights* weights = NULL;
  marlin_pack_desc pack = {0};
  pack.struct_size = sizeof pack;
  pack.format = MARLIN_FORMAT_INT4;
  pack.group_size = 32;
  pack.n = N;
  pack.k = K;
  pack.values = matrix(codes, N, K, MARLIN_U4);
  pack.scales = matrix(scales, N, 1, MARLIN_F32);
  const marlin_pack_desc* parts[1] = {&pack};
  marlin_gemm_desc gemm = {0};
  gemm.struct_size = sizeof gemm;
  gemm.a = matrix(a, 1, K, MARLIN_F32);
  gemm.c = matrix(c, 1, N, MARLIN_F32);

  marlin_status status = api->context_create(NULL, &context, &error);
  if (status == MARLIN_OK) status = api->weights_pack(context, parts, 1, 0, &weights, &error);
  gemm.weights = weights;
  if (status == MARLIN_OK) status = api->gemm(NULL, &gemm, &error);
  api->weights_destroy(weights);
  api->context_destroy(context);
  if (status != MARLIN_OK) {
    fprintf(stderr, "%s: %s\n", api->status_name(status), error.message);
    return 1;
  }
  if (c[0] != 264.0f || c[1] != -264.0f) {
    fprintf(stderr, "expected 264 and -264, found %g and %g\n", (double)c[0], (double)c[1]);
    return 1;
  }
  return 0;
}

#endif /* MULTIPLY_H_ */
