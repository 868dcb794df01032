/* tour CHECKPOINT FOLDER: the functions that the other examples do not call, a few in each part. It
 * writes two files into FOLDER. */
#include <inttypes.h>
#include <metal_marlin/metal_marlin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 4, kText = 1024 };

/* Counts the devices that serve here; the CPU always does. */
static marlin_status devices(marlin_error* error) {
  const uint32_t version = marlin_version();
  uint32_t usable = 0, index = 0;
  marlin_device_info info = {.struct_size = sizeof info};
  marlin_status status = marlin_device_get(index, &info, error);
  for (; !status; status = marlin_device_get(++index, &info, error))
    if (!info.why_not[0]) ++usable; /* else why_not is the reason */
  if (status != MARLIN_E_NOT_FOUND) return status;
  printf("version %u.%u, a device is usable: %s\n", version >> 16, version >> 8 & 255,
         usable ? "yes" : "no");
  return MARLIN_OK;
}

/* What the file says of its model: a key by name, all keys in turn, and the texts of an array. */
static marlin_status values(const marlin_checkpoint* file, marlin_error* error) {
  marlin_value value = {.struct_size = sizeof value};
  marlin_status status = marlin_checkpoint_value(file, "general.architecture", &value, error);
  if (status) return status; /* MARLIN_E_NOT_FOUND: there is no such key */
  printf("architecture %.*s\n", (int)value.bytes, (const char*)value.data);
  for (uint64_t i = 0; !status; ++i) {
    status = marlin_checkpoint_value_at(file, i, &value, error);
    if (status || value.kind != MARLIN_VALUE_ARRAY || value.element_type != MARLIN_VALUE_STRING)
      continue;
    const char* text = NULL;
    uint64_t bytes = 0, texts = 0;
    while (!marlin_value_next_string(&value, &text, &bytes, error)) ++texts;
    printf("%.*s: %" PRIu64 " texts\n", (int)value.key_bytes, value.key, texts);
  }
  return status == MARLIN_E_NOT_FOUND ? MARLIN_OK : status;
}

/* The first layer that can be loaded; its name lives as long as the checkpoint. */
static marlin_status first_layer(const marlin_checkpoint* file, marlin_layer_info* info,
                                 marlin_error* error) {
  marlin_status status = MARLIN_OK;
  for (uint64_t i = 0; !status; ++i) {
    *info = (marlin_layer_info){.struct_size = sizeof *info};
    status = marlin_checkpoint_layer(file, i, info, error);
    if (!status && !info->status && info->format != MARLIN_FORMAT_NONE) return MARLIN_OK;
  }
  return status;
}

/* A tensor that is no layer, as norms are: a view of the file, which may begin at any byte. */
static marlin_status norm(const marlin_checkpoint* file, const char* name, marlin_error* error) {
  marlin_matrix view = {0};
  const marlin_status status = marlin_checkpoint_tensor(file, name, &view, error);
  float first = 0;
  if (!status && view.dtype == MARLIN_F32) memcpy(&first, view.data, sizeof first);
  if (!status) printf("%s[0] = %g\n", name, (double)first);
  return status;
}

/* Weights of your own: floats [n, k], quantized to INT4 in groups of 32. */
static marlin_status pack(marlin_context* context, float* w, int64_t n, int64_t k,
                          marlin_weights** out, marlin_error* error) {
  const marlin_pack_desc part = {.struct_size = sizeof part,
                                 .format = MARLIN_FORMAT_INT4,
                                 .n = n,
                                 .k = k,
                                 .values = {.data = w, .rows = n, .cols = k, .dtype = MARLIN_F32}};
  const marlin_pack_desc* parts[] = {&part};
  return marlin_weights_pack(context, parts, 1, 1, out, error);
}

/* Rows of W as floats: an embedding, or what a product of yours is to be compared with. */
static marlin_status row(const marlin_weights* weights, int64_t index, float* out, int64_t k,
                         marlin_error* error) {
  const marlin_matrix rows = {.data = out, .rows = 1, .cols = k, .dtype = MARLIN_F32};
  return marlin_weights_unpack(NULL, weights, NULL, index, &rows, error);
}

/* Two products on a stream, in memory that host and device both reach. */
static marlin_status multiply(marlin_context* context, const marlin_weights* weights,
                              const marlin_layer_info* info, marlin_error* error) {
  const uint64_t a_bytes = sizeof(float) * kRows * (uint64_t)info->k;
  const uint64_t c_bytes = sizeof(float) * kRows * (uint64_t)info->n;
  marlin_buffer *a = NULL, *c = NULL;
  marlin_stream* stream = NULL;
  marlin_status status = marlin_buffer_create(context, a_bytes, &a, error);
  if (!status) status = marlin_buffer_create(context, 2 * c_bytes, &c, error);
  if (!status) status = marlin_stream_create(context, NULL, &stream, error);
  marlin_gemm_desc first = {.struct_size = sizeof first, .weights = weights};
  first.a = (marlin_matrix){
      .data = a, .rows = kRows, .cols = info->k, .dtype = MARLIN_F32, .memory = MARLIN_MEM_BUFFER};
  first.c = first.a, first.c.data = c, first.c.cols = info->n;
  marlin_gemm_desc second = first;
  second.compute = MARLIN_COMPUTE_INT8;
  second.c.offset_bytes = c_bytes;
  const marlin_gemm_desc* products[] = {&first, &second};
  uint64_t scratch = 0;
  if (!status) status = marlin_prepare(stream, products, 2, kRows, &scratch, error);
  if (!status) ((float*)marlin_buffer_host(a))[0] = 1; /* row 0 picks the first column of W */
  if (!status) status = marlin_gemm_many(stream, products, 2, error);
  if (!status)
    status = marlin_stream_flush(stream, error); /* the device works; the host may, too */
  if (!status) status = marlin_stream_wait(stream, UINT64_MAX, error);
  const float* y = marlin_buffer_host(c);
  if (!status)
    printf("W[0][0] = %.4f, in INT8 compute %.4f\n", (double)y[0], (double)y[kRows * info->n]);
  char text[kText];
  if (!status) status = marlin_explain(&first, text, sizeof text, NULL, error);
  if (!status)
    printf("%.*s\n", (int)strcspn(text, "\n"), text); /* "kernel: NAME", then more lines */
  marlin_stream_destroy(stream), marlin_buffer_destroy(c), marlin_buffer_destroy(a);
  return status;
}

/* The same values in a new file, and all layers packed in a container that is mapped and used in
 * place. */
static marlin_status files(marlin_context* context, const marlin_checkpoint* file,
                           const char* folder, const char* layer, marlin_error* error) {
  char path[kText];
  const char* layers[] = {layer};
  const marlin_convert_desc convert = {.struct_size = sizeof convert,
                                       .flags = MARLIN_CONVERT_OVERWRITE,
                                       .layers = layers,
                                       .layer_count = 1}; /* no format: every value stays */
  snprintf(path, sizeof path, "%s/exact.gguf", folder);
  marlin_status status = marlin_checkpoint_convert(file, path, &convert, error);
  const marlin_save_desc save = {.struct_size = sizeof save, .flags = MARLIN_SAVE_OVERWRITE};
  snprintf(path, sizeof path, "%s/packed.marlin", folder);
  if (!status) status = marlin_checkpoint_save(context, file, path, &save, error);
  if (!status) printf("wrote exact.gguf and packed.marlin\n");
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: tour CHECKPOINT FOLDER\n"), 2;
  marlin_error error = {.struct_size = sizeof error};
  marlin_context* context = NULL;
  marlin_checkpoint* file = NULL;
  marlin_weights *weights = NULL, *own = NULL;
  marlin_layer_info info = {.struct_size = sizeof info};
  marlin_status status = devices(&error);
  if (!status) status = marlin_context_create(NULL, &context, &error);
  if (!status) status = marlin_checkpoint_open(argv[1], NULL, &file, &error);
  if (!status) status = values(file, &error);
  if (!status) status = norm(file, "output_norm.weight", &error);
  if (!status) status = first_layer(file, &info, &error);
  const char* layers[] = {info.name};
  const marlin_load_desc load = {.struct_size = sizeof load, .layers = layers, .layer_count = 1};
  if (!status) status = marlin_weights_load(context, file, &load, &weights, &error);
  if (!status) status = multiply(context, weights, &info, &error);
  float* w = calloc((size_t)info.k + 1, sizeof *w);
  if (!status) status = row(weights, 0, w, info.k, &error);
  if (!status) status = pack(context, w, 1, info.k, &own, &error);
  if (!status) printf("row 0 begins with %.4f\n", (double)w[0]);
  if (!status) status = files(context, file, argv[2], info.name, &error);
  if (status) fprintf(stderr, "%s: %s\n", marlin_status_name(status), error.message);
  free(w), marlin_weights_destroy(own), marlin_weights_destroy(weights);
  marlin_checkpoint_destroy(file), marlin_context_destroy(context);
  return status != MARLIN_OK;
}
