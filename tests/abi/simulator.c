/* On a simulator of iOS there is no device of Metal, and the CPU serves: a product by a unit matrix. */
#include <metal_marlin/metal_marlin.h>
#include <stdio.h>

enum { kSize = 64 };

static float values[kSize * kSize], x[kSize], y[kSize];

static marlin_matrix matrix(float* data, int64_t rows) {
  marlin_matrix made = {0};
  made.data = data, made.rows = rows, made.cols = kSize, made.dtype = MARLIN_F32;
  return made;
}

int main(void) {
  marlin_error error = {.struct_size = sizeof error};
  marlin_context_desc desc = {.struct_size = sizeof desc, .backend = MARLIN_BACKEND_METAL};
  marlin_context* context = NULL;
  marlin_status status = marlin_context_create(&desc, &context, &error);
  printf("Metal: %s %s\n", marlin_status_name(status), error.message);
  if (status != MARLIN_E_NO_DEVICE) return 1;
  for (int i = 0; i < kSize; ++i) values[i * kSize + i] = 1, x[i] = (float)(i % 7 - 3);
  marlin_pack_desc pack = {.struct_size = sizeof pack, .format = MARLIN_FORMAT_MXFP4, .n = kSize, .k = kSize};
  pack.values = matrix(values, kSize);
  const marlin_pack_desc* const parts[] = {&pack};
  marlin_weights* weights = NULL;
  marlin_gemm_desc product = {.struct_size = sizeof product, .a = matrix(x, 1), .c = matrix(y, 1)};
  status = marlin_context_create(NULL, &context, &error);
  if (!status) status = marlin_weights_pack(context, parts, 1, 1, &weights, &error);
  product.weights = weights;
  if (!status) status = marlin_gemm(NULL, &product, &error);
  if (status) return fprintf(stderr, "%s: %s\n", marlin_status_name(status), error.message), 1;
  for (int i = 0; i < kSize; ++i)
    if (y[i] < x[i] - 0.05f || y[i] > x[i] + 0.05f)
      return fprintf(stderr, "y[%d] is %f, expected %f\n", i, (double)y[i], (double)x[i]), 1;
  marlin_weights_destroy(weights);
  marlin_context_destroy(context);
  puts("the CPU serves");
  return 0;
}
