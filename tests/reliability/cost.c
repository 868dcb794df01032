/* As many products of 640 x 2048 with one row as the argument says, whose checks and plans are counted from outside. */
#include <stdlib.h>

#include "metal_marlin/metal_marlin.h"

enum { kN = 640, kK = 2048 };
static float w[kN * kK], a[kK], c[kN];

int main(int argc, char** argv) {
  marlin_context_desc host = {.struct_size = sizeof host, .backend = MARLIN_BACKEND_CPU, .threads = 1};
  marlin_context* context;
  if (argc != 2 || marlin_context_create(&host, &context, NULL) != MARLIN_OK) return 1;
  marlin_pack_desc part = {.struct_size = sizeof part, .format = MARLIN_FORMAT_INT4, .n = kN, .k = kK};
  part.values = (marlin_matrix){.data = w, .rows = kN, .cols = kK, .dtype = MARLIN_F32};
  const marlin_pack_desc* parts[] = {&part};
  marlin_weights* weights;
  if (marlin_weights_pack(context, parts, 1, 0, &weights, NULL) != MARLIN_OK) return 1;
  marlin_gemm_desc product = {.struct_size = sizeof product, .weights = weights};
  product.a = (marlin_matrix){.data = a, .rows = 1, .cols = kK, .dtype = MARLIN_F32};
  product.c = (marlin_matrix){.data = c, .rows = 1, .cols = kN, .dtype = MARLIN_F32};
  for (int i = atoi(argv[1]); i > 0; --i)
    if (marlin_gemm(NULL, &product, NULL) != MARLIN_OK) return 1;
  marlin_weights_destroy(weights);
  marlin_context_destroy(context);
  return 0;
}
