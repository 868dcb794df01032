/* mlp CHECKPOINT EXPERT: one token through the MLP of one expert of gpt-oss, y = W_down f(W_gate x,
 * W_up x). Gate and up are one product, whose epilogue is f. */
#include <metal_marlin/metal_marlin.h>
#include <stdio.h>
#include <stdlib.h>

/* One expert of a layer. A model that stores gate and up apart names both: two names give one
 * handle, with the rows of both. */
static marlin_status load(marlin_context* context, marlin_checkpoint* file, const char* layer,
                          int64_t expert, marlin_weights** out, marlin_layer_info* info,
                          marlin_error* error) {
  const marlin_shard shard = {.first = {0, 0, expert}, .count = {0, 0, 1}};
  const marlin_load_desc desc = {
      .struct_size = sizeof desc, .layers = &layer, .shards = &shard, .layer_count = 1};
  const marlin_status status = marlin_weights_load(context, file, &desc, out, error);
  return status ? status : marlin_weights_info(*out, info, error);
}

static marlin_matrix row(float* data, int64_t cols) {
  return (marlin_matrix){.data = data, .rows = 1, .cols = cols, .dtype = MARLIN_F32};
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: mlp CHECKPOINT EXPERT\n"), 2;
  const int64_t expert = strtoll(argv[2], NULL, 10);
  marlin_error error = {.struct_size = sizeof error};
  marlin_layer_info wide = {.struct_size = sizeof wide}, narrow = {.struct_size = sizeof narrow};
  marlin_context* context = NULL;
  marlin_checkpoint* file = NULL;
  marlin_weights *gate_up = NULL, *down = NULL;
  marlin_status status = marlin_context_create(NULL, &context, &error);
  if (!status) status = marlin_checkpoint_open(argv[1], NULL, &file, &error);
  if (!status)
    status = load(context, file, "model.layers.0.mlp.experts.gate_up_proj", expert, &gate_up, &wide,
                  &error);
  if (!status)
    status =
        load(context, file, "model.layers.0.mlp.experts.down_proj", expert, &down, &narrow, &error);

  float* x = calloc((size_t)wide.k + 1, sizeof *x);
  float* hidden = calloc((size_t)wide.n / 2 + 1, sizeof *hidden);
  float* y = calloc((size_t)narrow.n + 1, sizeof *y);
  if (!status && x && hidden && y) {
    for (int64_t i = 0; i < wide.k; ++i) x[i] = (float)(i % 7 - 3);
    const marlin_gemm_desc first = {.struct_size = sizeof first,
                                    .weights = gate_up,
                                    .epilogue = MARLIN_EPILOGUE_SWIGLU_OAI,
                                    .a = row(x, wide.k),
                                    .c = row(hidden, wide.n / 2)};
    const marlin_gemm_desc second = {.struct_size = sizeof second,
                                     .weights = down,
                                     .a = row(hidden, narrow.k),
                                     .c = row(y, narrow.n)};
    status = marlin_gemm(NULL, &first, &error);
    if (!status) status = marlin_gemm(NULL, &second, &error);
    if (!status)
      printf("y = %.3f %.3f %.3f ... %.3f\n", (double)y[0], (double)y[1], (double)y[2],
             (double)y[narrow.n - 1]);
  }
  if (status) fprintf(stderr, "%s: %s\n", marlin_status_name(status), error.message);
  free(x), free(hidden), free(y);
  marlin_weights_destroy(gate_up), marlin_weights_destroy(down);
  marlin_checkpoint_destroy(file), marlin_context_destroy(context);
  return status != MARLIN_OK;
}
