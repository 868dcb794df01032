/* The layout of every struct and the value of every constant, pinned: a compiler that reads this file without complaint sees
 * the ABI that all others see. Each field starts where the one before it ends, so there is no padding. Compiled as C99 and C++
 * by every compiler there is, and run once to see that a program in plain C links and works. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "metal_marlin/metal_marlin.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
/* C99 has no static assertion; an array of -1 elements is refused everywhere. */
#define HOLDS(condition) typedef char PASTE(holds_, __LINE__)[(condition) ? 1 : -1]
#define FIELD(type, field, offset, bytes) HOLDS(offsetof(type, field) == (offset) && sizeof(((type*)0)->field) == (bytes))
#define END(type, bytes) HOLDS(sizeof(type) == (bytes))
#define VALUE(constant, value) HOLDS((constant) == (value))

FIELD(marlin_error, struct_size, 0, 4);
FIELD(marlin_error, status, 4, 4);
FIELD(marlin_error, native_code, 8, 4);
FIELD(marlin_error, reserved, 12, 4);
FIELD(marlin_error, message, 16, 240);
END(marlin_error, 256);

FIELD(marlin_matrix, data, 0, 8);
FIELD(marlin_matrix, offset_bytes, 8, 8);
FIELD(marlin_matrix, rows, 16, 8);
FIELD(marlin_matrix, cols, 24, 8);
FIELD(marlin_matrix, row_stride, 32, 8);
FIELD(marlin_matrix, dtype, 40, 4);
FIELD(marlin_matrix, memory, 44, 4);
END(marlin_matrix, 48);

FIELD(marlin_device_info, struct_size, 0, 4);
FIELD(marlin_device_info, backend, 4, 4);
FIELD(marlin_device_info, index, 8, 4);
FIELD(marlin_device_info, flags, 12, 4);
FIELD(marlin_device_info, name, 16, 64);
FIELD(marlin_device_info, isa_or_arch, 80, 32);
FIELD(marlin_device_info, memory_bytes, 112, 8);
FIELD(marlin_device_info, why_not, 120, 160);
FIELD(marlin_device_info, threads, 280, 4);
FIELD(marlin_device_info, reserved, 284, 4);
END(marlin_device_info, 288);

FIELD(marlin_context_desc, struct_size, 0, 4);
FIELD(marlin_context_desc, backend, 4, 4);
FIELD(marlin_context_desc, device_index, 8, 4);
FIELD(marlin_context_desc, threads, 12, 4);
FIELD(marlin_context_desc, native_device, 16, 8);
FIELD(marlin_context_desc, alloc, 24, 8);
FIELD(marlin_context_desc, release, 32, 8);
FIELD(marlin_context_desc, log, 40, 8);
FIELD(marlin_context_desc, parallel_for, 48, 8);
FIELD(marlin_context_desc, user, 56, 8);
END(marlin_context_desc, 64);

FIELD(marlin_stream_desc, struct_size, 0, 4);
FIELD(marlin_stream_desc, kind, 4, 4);
FIELD(marlin_stream_desc, native, 8, 8);
FIELD(marlin_stream_desc, scratch, 16, 48);
END(marlin_stream_desc, 64);

FIELD(marlin_pack_desc, struct_size, 0, 4);
FIELD(marlin_pack_desc, format, 4, 4);
FIELD(marlin_pack_desc, group_size, 8, 4);
FIELD(marlin_pack_desc, layout, 12, 4);
FIELD(marlin_pack_desc, n, 16, 8);
FIELD(marlin_pack_desc, k, 24, 8);
FIELD(marlin_pack_desc, values, 32, 48);
FIELD(marlin_pack_desc, scales, 80, 48);
FIELD(marlin_pack_desc, zeros, 128, 48);
FIELD(marlin_pack_desc, sparse_meta, 176, 48);
FIELD(marlin_pack_desc, group_index, 224, 48);
FIELD(marlin_pack_desc, tensor_scale, 272, 48);
FIELD(marlin_pack_desc, flags, 320, 4);
FIELD(marlin_pack_desc, gptq_zero_f, 324, 4);
FIELD(marlin_pack_desc, column_norms, 328, 48);
FIELD(marlin_pack_desc, codebook, 376, 48);
END(marlin_pack_desc, 424);

FIELD(marlin_gemm_desc, struct_size, 0, 4);
FIELD(marlin_gemm_desc, compute, 4, 4);
FIELD(marlin_gemm_desc, epilogue, 8, 4);
FIELD(marlin_gemm_desc, flags, 12, 4);
FIELD(marlin_gemm_desc, weights, 16, 8);
FIELD(marlin_gemm_desc, a, 24, 48);
FIELD(marlin_gemm_desc, c, 72, 48);
FIELD(marlin_gemm_desc, bias, 120, 48);
FIELD(marlin_gemm_desc, expert_ids, 168, 48);
FIELD(marlin_gemm_desc, expert_scales, 216, 48);
END(marlin_gemm_desc, 264);

FIELD(marlin_shard, first, 0, 24);
FIELD(marlin_shard, count, 24, 24);
END(marlin_shard, 48);

FIELD(marlin_load_desc, struct_size, 0, 4);
FIELD(marlin_load_desc, flags, 4, 4);
FIELD(marlin_load_desc, layers, 8, 8);
FIELD(marlin_load_desc, shards, 16, 8);
FIELD(marlin_load_desc, layer_count, 24, 4);
FIELD(marlin_load_desc, expert_count, 28, 4);
FIELD(marlin_load_desc, format, 32, 4);
FIELD(marlin_load_desc, group_size, 36, 4);
FIELD(marlin_load_desc, column_norms, 40, 8);
FIELD(marlin_load_desc, progress, 48, 8);
FIELD(marlin_load_desc, user, 56, 8);
END(marlin_load_desc, 64);

FIELD(marlin_open_desc, struct_size, 0, 4);
FIELD(marlin_open_desc, flags, 4, 4);
FIELD(marlin_open_desc, layout, 8, 4);
FIELD(marlin_open_desc, gptq_zero_f, 12, 4);
END(marlin_open_desc, 16);

FIELD(marlin_layer_info, struct_size, 0, 4);
FIELD(marlin_layer_info, status, 4, 4);
FIELD(marlin_layer_info, name, 8, 8);
FIELD(marlin_layer_info, n, 16, 8);
FIELD(marlin_layer_info, k, 24, 8);
FIELD(marlin_layer_info, experts, 32, 4);
FIELD(marlin_layer_info, group_size, 36, 4);
FIELD(marlin_layer_info, format, 40, 4);
FIELD(marlin_layer_info, layout, 44, 4);
FIELD(marlin_layer_info, flags, 48, 4);
FIELD(marlin_layer_info, dtype, 52, 4);
FIELD(marlin_layer_info, bytes, 56, 8);
FIELD(marlin_layer_info, kept_share, 64, 8);
END(marlin_layer_info, 72);

FIELD(marlin_convert_outcome, struct_size, 0, 4);
FIELD(marlin_convert_outcome, status, 4, 4);
FIELD(marlin_convert_outcome, name, 8, 8);
FIELD(marlin_convert_outcome, reason, 16, 8);
FIELD(marlin_convert_outcome, n, 24, 8);
FIELD(marlin_convert_outcome, k, 32, 8);
FIELD(marlin_convert_outcome, experts, 40, 4);
FIELD(marlin_convert_outcome, group_size, 44, 4);
FIELD(marlin_convert_outcome, from, 48, 4);
FIELD(marlin_convert_outcome, format, 52, 4);
FIELD(marlin_convert_outcome, flags, 56, 4);
FIELD(marlin_convert_outcome, reserved, 60, 4);
FIELD(marlin_convert_outcome, bytes_before, 64, 8);
FIELD(marlin_convert_outcome, bytes_after, 72, 8);
FIELD(marlin_convert_outcome, squared_error, 80, 8);
FIELD(marlin_convert_outcome, squared_norm, 88, 8);
FIELD(marlin_convert_outcome, kept_norm, 96, 8);
END(marlin_convert_outcome, 104);

FIELD(marlin_convert_desc, struct_size, 0, 4);
FIELD(marlin_convert_desc, flags, 4, 4);
FIELD(marlin_convert_desc, scheme, 8, 4);
FIELD(marlin_convert_desc, format, 12, 4);
FIELD(marlin_convert_desc, group_size, 16, 4);
FIELD(marlin_convert_desc, layer_count, 20, 4);
FIELD(marlin_convert_desc, layers, 24, 8);
FIELD(marlin_convert_desc, shard_bytes, 32, 8);
FIELD(marlin_convert_desc, progress, 40, 8);
FIELD(marlin_convert_desc, layer_done, 48, 8);
FIELD(marlin_convert_desc, log, 56, 8);
FIELD(marlin_convert_desc, parallel_for, 64, 8);
FIELD(marlin_convert_desc, user, 72, 8);
FIELD(marlin_convert_desc, column_norms, 80, 8);
FIELD(marlin_convert_desc, types, 88, 8);
END(marlin_convert_desc, 96);

FIELD(marlin_save_desc, struct_size, 0, 4);
FIELD(marlin_save_desc, flags, 4, 4);
FIELD(marlin_save_desc, loads, 8, 8);
FIELD(marlin_save_desc, load_count, 16, 4);
FIELD(marlin_save_desc, rank, 20, 4);
FIELD(marlin_save_desc, rank_count, 24, 4);
FIELD(marlin_save_desc, backend, 28, 4);
FIELD(marlin_save_desc, refused, 32, 8);
FIELD(marlin_save_desc, user, 40, 8);
END(marlin_save_desc, 48);

FIELD(marlin_value, struct_size, 0, 4);
FIELD(marlin_value, kind, 4, 4);
FIELD(marlin_value, element_type, 8, 4);
FIELD(marlin_value, reserved, 12, 4);
FIELD(marlin_value, key, 16, 8);
FIELD(marlin_value, key_bytes, 24, 8);
FIELD(marlin_value, i64, 32, 8);
FIELD(marlin_value, u64, 40, 8);
FIELD(marlin_value, f64, 48, 8);
FIELD(marlin_value, data, 56, 8);
FIELD(marlin_value, bytes, 64, 8);
FIELD(marlin_value, count, 72, 8);
END(marlin_value, 80);

FIELD(marlin_api, struct_size, 0, 4);
FIELD(marlin_api, abi_major, 4, 4);
FIELD(marlin_api, abi_minor, 8, 4);
FIELD(marlin_api, version, 12, 4);
FIELD(marlin_api, device_get, 16, 8);
FIELD(marlin_api, context_create, 24, 8);
FIELD(marlin_api, context_destroy, 32, 8);
FIELD(marlin_api, stream_create, 40, 8);
FIELD(marlin_api, stream_flush, 48, 8);
FIELD(marlin_api, stream_wait, 56, 8);
FIELD(marlin_api, stream_destroy, 64, 8);
FIELD(marlin_api, buffer_create, 72, 8);
FIELD(marlin_api, buffer_host, 80, 8);
FIELD(marlin_api, buffer_destroy, 88, 8);
FIELD(marlin_api, weights_pack, 96, 8);
FIELD(marlin_api, weights_unpack, 104, 8);
FIELD(marlin_api, weights_info, 112, 8);
FIELD(marlin_api, weights_destroy, 120, 8);
FIELD(marlin_api, checkpoint_open, 128, 8);
FIELD(marlin_api, checkpoint_layer, 136, 8);
FIELD(marlin_api, checkpoint_tensor, 144, 8);
FIELD(marlin_api, checkpoint_destroy, 152, 8);
FIELD(marlin_api, weights_load, 160, 8);
FIELD(marlin_api, gemm, 168, 8);
FIELD(marlin_api, gemm_many, 176, 8);
FIELD(marlin_api, prepare, 184, 8);
FIELD(marlin_api, explain, 192, 8);
FIELD(marlin_api, get_version, 200, 8);
FIELD(marlin_api, status_name, 208, 8);
FIELD(marlin_api, checkpoint_convert, 216, 8);
FIELD(marlin_api, checkpoint_value, 224, 8);
FIELD(marlin_api, checkpoint_value_at, 232, 8);
FIELD(marlin_api, value_next_string, 240, 8);
FIELD(marlin_api, checkpoint_save, 248, 8);
END(marlin_api, 256);

VALUE(MARLIN_OK, 0);
VALUE(MARLIN_E_ARGUMENT, -10);
VALUE(MARLIN_E_STRUCT_SIZE, -11);
VALUE(MARLIN_E_SHAPE, -12);
VALUE(MARLIN_E_UNSUPPORTED, -20);
VALUE(MARLIN_E_NOT_PREPARED, -21);
VALUE(MARLIN_E_FILE, -25);
VALUE(MARLIN_E_FORMAT, -26);
VALUE(MARLIN_E_NOT_FOUND, -27);
VALUE(MARLIN_E_NO_DEVICE, -30);
VALUE(MARLIN_E_DEVICE, -31);
VALUE(MARLIN_E_TIMEOUT, -32);
VALUE(MARLIN_E_CANCELLED, -33);
VALUE(MARLIN_E_MEMORY, -40);
VALUE(MARLIN_E_INTERNAL, -90);

VALUE(MARLIN_BACKEND_AUTO, 0);
VALUE(MARLIN_BACKEND_CPU, 1);
VALUE(MARLIN_BACKEND_METAL, 2);
VALUE(MARLIN_BACKEND_CUDA, 3);

VALUE(MARLIN_F32, 1);
VALUE(MARLIN_F16, 2);
VALUE(MARLIN_BF16, 3);
VALUE(MARLIN_I8, 4);
VALUE(MARLIN_I32, 5);
VALUE(MARLIN_U32, 6);
VALUE(MARLIN_U4, 7);
VALUE(MARLIN_E8M0, 8);
VALUE(MARLIN_E4M3, 9);
VALUE(MARLIN_U8, 10);
VALUE(MARLIN_I16, 11);
VALUE(MARLIN_I64, 12);

VALUE(MARLIN_MEM_HOST, 0);
VALUE(MARLIN_MEM_CUDA, 1);
VALUE(MARLIN_MEM_METAL, 2);
VALUE(MARLIN_MEM_BUFFER, 3);

VALUE(MARLIN_FORMAT_NONE, 0);
VALUE(MARLIN_INT4, 1);
VALUE(MARLIN_FP4, 2);
VALUE(MARLIN_MXFP4, 3);
VALUE(MARLIN_NVFP4, 4);
VALUE(MARLIN_INT8, 5);

VALUE(MARLIN_COMPUTE_DEFAULT, 0);
VALUE(MARLIN_COMPUTE_INT8, 1);
VALUE(MARLIN_COMPUTE_FP8, 2);
VALUE(MARLIN_COMPUTE_W16, 3);

VALUE(MARLIN_LAYOUT_AUTO, 0);
VALUE(MARLIN_LAYOUT_ROWS, 1);
VALUE(MARLIN_LAYOUT_K8N, 2);
VALUE(MARLIN_LAYOUT_GPTQ_V1, 3);
VALUE(MARLIN_LAYOUT_GPTQ_V2, 4);
VALUE(MARLIN_LAYOUT_AWQ, 5);
VALUE(MARLIN_LAYOUT_AWQ_GEMV, 6);
VALUE(MARLIN_LAYOUT_AWQ_GEMV_FAST, 7);
VALUE(MARLIN_LAYOUT_GGUF, 8);
VALUE(MARLIN_LAYOUT_MARLIN, 9);
VALUE(MARLIN_LAYOUT_MARLIN_24, 10);

VALUE(MARLIN_GPTQ_ZERO_F_AUTO, 0);
VALUE(MARLIN_GPTQ_ZERO_F_WRAP, 1);
VALUE(MARLIN_GPTQ_ZERO_F_CARRY, 2);
VALUE(MARLIN_GPTQ_ZERO_F_SIXTEEN, 3);

VALUE(MARLIN_EPILOGUE_NONE, 0);
VALUE(MARLIN_EPILOGUE_SILU, 1);
VALUE(MARLIN_EPILOGUE_GELU_TANH, 2);
VALUE(MARLIN_EPILOGUE_GELU_ERF, 3);
VALUE(MARLIN_EPILOGUE_SWIGLU, 4);
VALUE(MARLIN_EPILOGUE_GEGLU_TANH, 5);
VALUE(MARLIN_EPILOGUE_SWIGLU_OAI, 6);

VALUE(MARLIN_NATIVE_NONE, 0);
VALUE(MARLIN_NATIVE_CUDA_STREAM, 1);
VALUE(MARLIN_NATIVE_METAL_QUEUE, 2);
VALUE(MARLIN_NATIVE_METAL_COMMAND_BUFFER, 3);
VALUE(MARLIN_NATIVE_METAL_ENCODER, 4);

VALUE(MARLIN_GEMM_ACCUMULATE, 1u);
VALUE(MARLIN_GEMM_ROW_INVARIANT, 2u);
VALUE(MARLIN_PACK_ADDITIVE_ZEROS, 1u);
VALUE(MARLIN_PACK_DIVIDE_SCALE, 2u);
VALUE(MARLIN_PACK_PRUNE_2_4, 4u);
VALUE(MARLIN_PACK_GATE_UP_INTERLEAVED, 8u);
VALUE(MARLIN_PACK_SCALES_MSE, 16u);
VALUE(MARLIN_LAYER_ZEROS, 256u);
VALUE(MARLIN_LAYER_ACT_ORDER, 512u);
VALUE(MARLIN_LAYER_SPARSE_2_4, 1024u);
VALUE(MARLIN_LAYER_EXACT, 2048u);
VALUE(MARLIN_PACK_OBEYS_2_4, 32u);
VALUE(MARLIN_LOAD_PRUNE_2_4, 4u);
VALUE(MARLIN_LOAD_OBEYS_2_4, 32u);
VALUE(MARLIN_LOAD_SCALES_MSE, 16u);

VALUE(MARLIN_SCHEME_AUTO, 0);
VALUE(MARLIN_SCHEME_COMPRESSED_TENSORS, 1);
VALUE(MARLIN_SCHEME_GPTQ, 2);
VALUE(MARLIN_SCHEME_MARLIN_24, 3);
VALUE(MARLIN_SCHEME_GGUF, 4);
VALUE(MARLIN_SCHEME_MLX, 5);

VALUE(MARLIN_VALUE_NONE, 0);
VALUE(MARLIN_VALUE_BOOL, 1);
VALUE(MARLIN_VALUE_I64, 2);
VALUE(MARLIN_VALUE_U64, 3);
VALUE(MARLIN_VALUE_F64, 4);
VALUE(MARLIN_VALUE_STRING, 5);
VALUE(MARLIN_VALUE_ARRAY, 6);
VALUE(MARLIN_VALUE_I8, 7);
VALUE(MARLIN_VALUE_I16, 8);
VALUE(MARLIN_VALUE_I32, 9);
VALUE(MARLIN_VALUE_U8, 10);
VALUE(MARLIN_VALUE_U16, 11);
VALUE(MARLIN_VALUE_U32, 12);
VALUE(MARLIN_VALUE_F32, 13);

VALUE(MARLIN_CONVERT_PRUNE_2_4, 4u);
VALUE(MARLIN_CONVERT_SCALES_MSE, 16u);
VALUE(MARLIN_CONVERT_OBEYS_2_4, 32u);
VALUE(MARLIN_CONVERT_ASYMMETRIC, 64u);
VALUE(MARLIN_CONVERT_SKIP_UNFIT, 128u);
VALUE(MARLIN_CONVERT_OVERWRITE, 512u);
VALUE(MARLIN_CONVERT_DRY_RUN, 1024u);
VALUE(MARLIN_SAVE_OVERWRITE, 1u);

HOLDS(sizeof(marlin_status) == 4 && (marlin_status)-1 < 0);
HOLDS(sizeof(marlin_backend) == 4 && (marlin_backend)-1 < 0);
HOLDS(sizeof(marlin_dtype) == 4 && (marlin_dtype)-1 < 0);
HOLDS(sizeof(marlin_memory) == 4 && (marlin_memory)-1 < 0);
HOLDS(sizeof(marlin_format) == 4 && (marlin_format)-1 < 0);
HOLDS(sizeof(marlin_layout) == 4 && (marlin_layout)-1 < 0);
HOLDS(sizeof(marlin_compute) == 4 && (marlin_compute)-1 < 0);
HOLDS(sizeof(marlin_epilogue) == 4 && (marlin_epilogue)-1 < 0);
HOLDS(sizeof(marlin_native) == 4 && (marlin_native)-1 < 0);

int main(void) {
  const marlin_api* api = marlin_get_api(MARLIN_ABI_MAJOR);
  marlin_error err = {sizeof err, 0, 0, 0, ""};
  marlin_context_desc desc;
  marlin_context* context = NULL;
  if (api == NULL || api->struct_size < sizeof(marlin_api)) return 1;
  if (marlin_version() != (MARLIN_VERSION_MAJOR << 16 | MARLIN_VERSION_MINOR << 8 | MARLIN_VERSION_PATCH)) return 2;
  memset(&desc, 0, sizeof desc);
  if (marlin_context_create(&desc, &context, &err) != MARLIN_E_STRUCT_SIZE || context != NULL) return 3;
  desc.struct_size = sizeof desc;
  if (api->context_create(&desc, &context, &err) != MARLIN_OK || context == NULL) {
    printf("%s: %s\n", marlin_status_name(err.status), err.message);
    return 4;
  }
  marlin_context_destroy(context);
  return 0;
}
