// Written by bindings/rust/generate.py from metal_marlin.h; a test compares it with what that script would write now.
use metal_marlin_sys::*;

layout!(marlin_error, 256, 4, (struct_size, 0, 4), (status, 4, 4), (native_code, 8, 4), (reserved, 12, 4), (message, 16, 240));
layout!(marlin_matrix, 48, 8, (data, 0, 8), (offset_bytes, 8, 8), (rows, 16, 8), (cols, 24, 8), (row_stride, 32, 8), (dtype, 40, 4), (memory, 44, 4));
layout!(marlin_device_info, 288, 8, (struct_size, 0, 4), (backend, 4, 4), (index, 8, 4), (flags, 12, 4), (name, 16, 64), (isa_or_arch, 80, 32), (memory_bytes, 112, 8), (why_not, 120, 160), (threads, 280, 4), (reserved, 284, 4));
layout!(marlin_context_desc, 64, 8, (struct_size, 0, 4), (backend, 4, 4), (device_index, 8, 4), (threads, 12, 4), (native_device, 16, 8), (alloc, 24, 8), (release, 32, 8), (log, 40, 8), (parallel_for, 48, 8), (user, 56, 8));
layout!(marlin_stream_desc, 64, 8, (struct_size, 0, 4), (kind, 4, 4), (native, 8, 8), (scratch, 16, 48));
layout!(marlin_pack_desc, 424, 8, (struct_size, 0, 4), (format, 4, 4), (group_size, 8, 4), (layout, 12, 4), (n, 16, 8), (k, 24, 8), (values, 32, 48), (scales, 80, 48), (zeros, 128, 48), (sparse_meta, 176, 48), (group_index, 224, 48), (tensor_scale, 272, 48), (flags, 320, 4), (gptq_zero_f, 324, 4), (column_norms, 328, 48), (codebook, 376, 48));
layout!(marlin_gemm_desc, 264, 8, (struct_size, 0, 4), (compute, 4, 4), (epilogue, 8, 4), (flags, 12, 4), (weights, 16, 8), (a, 24, 48), (c, 72, 48), (bias, 120, 48), (expert_ids, 168, 48), (expert_scales, 216, 48));
layout!(marlin_shard, 48, 8, (first, 0, 24), (count, 24, 24));
layout!(marlin_load_desc, 64, 8, (struct_size, 0, 4), (flags, 4, 4), (layers, 8, 8), (shards, 16, 8), (layer_count, 24, 4), (expert_count, 28, 4), (format, 32, 4), (group_size, 36, 4), (column_norms, 40, 8), (progress, 48, 8), (user, 56, 8));
layout!(marlin_open_desc, 16, 4, (struct_size, 0, 4), (flags, 4, 4), (layout, 8, 4), (gptq_zero_f, 12, 4));
layout!(marlin_layer_info, 72, 8, (struct_size, 0, 4), (status, 4, 4), (name, 8, 8), (n, 16, 8), (k, 24, 8), (experts, 32, 4), (group_size, 36, 4), (format, 40, 4), (layout, 44, 4), (flags, 48, 4), (dtype, 52, 4), (bytes, 56, 8), (kept_share, 64, 8));
layout!(marlin_value, 80, 8, (struct_size, 0, 4), (kind, 4, 4), (element_type, 8, 4), (reserved, 12, 4), (key, 16, 8), (key_bytes, 24, 8), (i64, 32, 8), (u64, 40, 8), (f64, 48, 8), (data, 56, 8), (bytes, 64, 8), (count, 72, 8));
layout!(marlin_convert_outcome, 104, 8, (struct_size, 0, 4), (status, 4, 4), (name, 8, 8), (reason, 16, 8), (n, 24, 8), (k, 32, 8), (experts, 40, 4), (group_size, 44, 4), (from, 48, 4), (format, 52, 4), (flags, 56, 4), (reserved, 60, 4), (bytes_before, 64, 8), (bytes_after, 72, 8), (squared_error, 80, 8), (squared_norm, 88, 8), (kept_norm, 96, 8));
layout!(marlin_convert_desc, 96, 8, (struct_size, 0, 4), (flags, 4, 4), (scheme, 8, 4), (format, 12, 4), (group_size, 16, 4), (layer_count, 20, 4), (layers, 24, 8), (shard_bytes, 32, 8), (progress, 40, 8), (layer_done, 48, 8), (log, 56, 8), (parallel_for, 64, 8), (user, 72, 8), (column_norms, 80, 8), (types, 88, 8));
layout!(marlin_save_desc, 32, 8, (struct_size, 0, 4), (flags, 4, 4), (loads, 8, 8), (load_count, 16, 4), (rank, 20, 4), (rank_count, 24, 4), (reserved, 28, 4));
layout!(marlin_api, 256, 8, (struct_size, 0, 4), (abi_major, 4, 4), (abi_minor, 8, 4), (version, 12, 4), (device_get, 16, 8), (context_create, 24, 8), (context_destroy, 32, 8), (stream_create, 40, 8), (stream_flush, 48, 8), (stream_wait, 56, 8), (stream_destroy, 64, 8), (buffer_create, 72, 8), (buffer_host, 80, 8), (buffer_destroy, 88, 8), (weights_pack, 96, 8), (weights_unpack, 104, 8), (weights_info, 112, 8), (weights_destroy, 120, 8), (checkpoint_open, 128, 8), (checkpoint_layer, 136, 8), (checkpoint_tensor, 144, 8), (checkpoint_destroy, 152, 8), (weights_load, 160, 8), (gemm, 168, 8), (gemm_many, 176, 8), (prepare, 184, 8), (explain, 192, 8), (get_version, 200, 8), (status_name, 208, 8), (checkpoint_convert, 216, 8), (checkpoint_value, 224, 8), (checkpoint_value_at, 232, 8), (value_next_string, 240, 8), (checkpoint_save, 248, 8));

#[test]
fn constants() {
    let value: u32 = MARLIN_VERSION_MAJOR;
    assert_eq!(value, 0);
    let value: u32 = MARLIN_VERSION_MINOR;
    assert_eq!(value, 1);
    let value: u32 = MARLIN_VERSION_PATCH;
    assert_eq!(value, 0);
    let value: u32 = MARLIN_ABI_MAJOR;
    assert_eq!(value, 0);
    let value: u32 = MARLIN_ABI_MINOR;
    assert_eq!(value, 1);
    let value: marlin_status = MARLIN_OK;
    assert_eq!(value, 0);
    let value: marlin_status = MARLIN_E_ARGUMENT;
    assert_eq!(value, -10);
    let value: marlin_status = MARLIN_E_STRUCT_SIZE;
    assert_eq!(value, -11);
    let value: marlin_status = MARLIN_E_SHAPE;
    assert_eq!(value, -12);
    let value: marlin_status = MARLIN_E_UNSUPPORTED;
    assert_eq!(value, -20);
    let value: marlin_status = MARLIN_E_NOT_PREPARED;
    assert_eq!(value, -21);
    let value: marlin_status = MARLIN_E_FILE;
    assert_eq!(value, -25);
    let value: marlin_status = MARLIN_E_FORMAT;
    assert_eq!(value, -26);
    let value: marlin_status = MARLIN_E_NOT_FOUND;
    assert_eq!(value, -27);
    let value: marlin_status = MARLIN_E_NO_DEVICE;
    assert_eq!(value, -30);
    let value: marlin_status = MARLIN_E_DEVICE;
    assert_eq!(value, -31);
    let value: marlin_status = MARLIN_E_TIMEOUT;
    assert_eq!(value, -32);
    let value: marlin_status = MARLIN_E_CANCELLED;
    assert_eq!(value, -33);
    let value: marlin_status = MARLIN_E_MEMORY;
    assert_eq!(value, -40);
    let value: marlin_status = MARLIN_E_INTERNAL;
    assert_eq!(value, -90);
    let value: marlin_backend = MARLIN_BACKEND_AUTO;
    assert_eq!(value, 0);
    let value: marlin_backend = MARLIN_BACKEND_CPU;
    assert_eq!(value, 1);
    let value: marlin_backend = MARLIN_BACKEND_METAL;
    assert_eq!(value, 2);
    let value: marlin_backend = MARLIN_BACKEND_CUDA;
    assert_eq!(value, 3);
    let value: marlin_dtype = MARLIN_F32;
    assert_eq!(value, 1);
    let value: marlin_dtype = MARLIN_F16;
    assert_eq!(value, 2);
    let value: marlin_dtype = MARLIN_BF16;
    assert_eq!(value, 3);
    let value: marlin_dtype = MARLIN_I8;
    assert_eq!(value, 4);
    let value: marlin_dtype = MARLIN_I32;
    assert_eq!(value, 5);
    let value: marlin_dtype = MARLIN_U32;
    assert_eq!(value, 6);
    let value: marlin_dtype = MARLIN_U4;
    assert_eq!(value, 7);
    let value: marlin_dtype = MARLIN_E8M0;
    assert_eq!(value, 8);
    let value: marlin_dtype = MARLIN_E4M3;
    assert_eq!(value, 9);
    let value: marlin_dtype = MARLIN_U8;
    assert_eq!(value, 10);
    let value: marlin_dtype = MARLIN_I16;
    assert_eq!(value, 11);
    let value: marlin_dtype = MARLIN_I64;
    assert_eq!(value, 12);
    let value: marlin_memory = MARLIN_MEM_HOST;
    assert_eq!(value, 0);
    let value: marlin_memory = MARLIN_MEM_CUDA;
    assert_eq!(value, 1);
    let value: marlin_memory = MARLIN_MEM_METAL;
    assert_eq!(value, 2);
    let value: marlin_memory = MARLIN_MEM_BUFFER;
    assert_eq!(value, 3);
    let value: marlin_format = MARLIN_FORMAT_NONE;
    assert_eq!(value, 0);
    let value: marlin_format = MARLIN_INT4;
    assert_eq!(value, 1);
    let value: marlin_format = MARLIN_FP4;
    assert_eq!(value, 2);
    let value: marlin_format = MARLIN_MXFP4;
    assert_eq!(value, 3);
    let value: marlin_format = MARLIN_NVFP4;
    assert_eq!(value, 4);
    let value: marlin_format = MARLIN_INT8;
    assert_eq!(value, 5);
    let value: marlin_format = MARLIN_INT2;
    assert_eq!(value, 6);
    let value: marlin_format = MARLIN_INT3;
    assert_eq!(value, 7);
    let value: marlin_format = MARLIN_INT5;
    assert_eq!(value, 8);
    let value: marlin_format = MARLIN_INT6;
    assert_eq!(value, 9);
    let value: marlin_format = MARLIN_IQ4;
    assert_eq!(value, 10);
    let value: marlin_format = MARLIN_UINT8;
    assert_eq!(value, 11);
    let value: marlin_format = MARLIN_FP8;
    assert_eq!(value, 12);
    let value: marlin_format = MARLIN_NF4;
    assert_eq!(value, 13);
    let value: marlin_format = MARLIN_CODEBOOK4;
    assert_eq!(value, 14);
    let value: marlin_format = MARLIN_FLOAT32;
    assert_eq!(value, 15);
    let value: marlin_format = MARLIN_FLOAT16;
    assert_eq!(value, 16);
    let value: marlin_format = MARLIN_BFLOAT16;
    assert_eq!(value, 17);
    let value: marlin_compute = MARLIN_COMPUTE_DEFAULT;
    assert_eq!(value, 0);
    let value: marlin_compute = MARLIN_COMPUTE_INT8;
    assert_eq!(value, 1);
    let value: marlin_compute = MARLIN_COMPUTE_FP8;
    assert_eq!(value, 2);
    let value: marlin_layout = MARLIN_LAYOUT_AUTO;
    assert_eq!(value, 0);
    let value: marlin_layout = MARLIN_LAYOUT_ROWS;
    assert_eq!(value, 1);
    let value: marlin_layout = MARLIN_LAYOUT_K8N;
    assert_eq!(value, 2);
    let value: marlin_layout = MARLIN_LAYOUT_GPTQ_V1;
    assert_eq!(value, 3);
    let value: marlin_layout = MARLIN_LAYOUT_GPTQ_V2;
    assert_eq!(value, 4);
    let value: marlin_layout = MARLIN_LAYOUT_AWQ;
    assert_eq!(value, 5);
    let value: marlin_layout = MARLIN_LAYOUT_AWQ_GEMV;
    assert_eq!(value, 6);
    let value: marlin_layout = MARLIN_LAYOUT_AWQ_GEMV_FAST;
    assert_eq!(value, 7);
    let value: marlin_layout = MARLIN_LAYOUT_GGUF;
    assert_eq!(value, 8);
    let value: marlin_layout = MARLIN_LAYOUT_MARLIN;
    assert_eq!(value, 9);
    let value: marlin_layout = MARLIN_LAYOUT_MARLIN_24;
    assert_eq!(value, 10);
    let value: marlin_gptq_zero_f = MARLIN_GPTQ_ZERO_F_AUTO;
    assert_eq!(value, 0);
    let value: marlin_gptq_zero_f = MARLIN_GPTQ_ZERO_F_WRAP;
    assert_eq!(value, 1);
    let value: marlin_gptq_zero_f = MARLIN_GPTQ_ZERO_F_CARRY;
    assert_eq!(value, 2);
    let value: marlin_gptq_zero_f = MARLIN_GPTQ_ZERO_F_SIXTEEN;
    assert_eq!(value, 3);
    let value: marlin_epilogue = MARLIN_EPILOGUE_NONE;
    assert_eq!(value, 0);
    let value: marlin_epilogue = MARLIN_EPILOGUE_SILU;
    assert_eq!(value, 1);
    let value: marlin_epilogue = MARLIN_EPILOGUE_GELU_TANH;
    assert_eq!(value, 2);
    let value: marlin_epilogue = MARLIN_EPILOGUE_GELU_ERF;
    assert_eq!(value, 3);
    let value: marlin_epilogue = MARLIN_EPILOGUE_SWIGLU;
    assert_eq!(value, 4);
    let value: marlin_epilogue = MARLIN_EPILOGUE_GEGLU_TANH;
    assert_eq!(value, 5);
    let value: marlin_epilogue = MARLIN_EPILOGUE_SWIGLU_OAI;
    assert_eq!(value, 6);
    let value: marlin_native = MARLIN_NATIVE_NONE;
    assert_eq!(value, 0);
    let value: marlin_native = MARLIN_NATIVE_CUDA_STREAM;
    assert_eq!(value, 1);
    let value: marlin_native = MARLIN_NATIVE_METAL_QUEUE;
    assert_eq!(value, 2);
    let value: marlin_native = MARLIN_NATIVE_METAL_COMMAND_BUFFER;
    assert_eq!(value, 3);
    let value: marlin_native = MARLIN_NATIVE_METAL_ENCODER;
    assert_eq!(value, 4);
    let value: marlin_scheme = MARLIN_SCHEME_AUTO;
    assert_eq!(value, 0);
    let value: marlin_scheme = MARLIN_SCHEME_COMPRESSED_TENSORS;
    assert_eq!(value, 1);
    let value: marlin_scheme = MARLIN_SCHEME_GPTQ;
    assert_eq!(value, 2);
    let value: marlin_scheme = MARLIN_SCHEME_MARLIN_24;
    assert_eq!(value, 3);
    let value: marlin_scheme = MARLIN_SCHEME_GGUF;
    assert_eq!(value, 4);
    let value: marlin_scheme = MARLIN_SCHEME_MLX;
    assert_eq!(value, 5);
    let value: marlin_value_type = MARLIN_VALUE_NONE;
    assert_eq!(value, 0);
    let value: marlin_value_type = MARLIN_VALUE_BOOL;
    assert_eq!(value, 1);
    let value: marlin_value_type = MARLIN_VALUE_I64;
    assert_eq!(value, 2);
    let value: marlin_value_type = MARLIN_VALUE_U64;
    assert_eq!(value, 3);
    let value: marlin_value_type = MARLIN_VALUE_F64;
    assert_eq!(value, 4);
    let value: marlin_value_type = MARLIN_VALUE_STRING;
    assert_eq!(value, 5);
    let value: marlin_value_type = MARLIN_VALUE_ARRAY;
    assert_eq!(value, 6);
    let value: marlin_value_type = MARLIN_VALUE_I8;
    assert_eq!(value, 7);
    let value: marlin_value_type = MARLIN_VALUE_I16;
    assert_eq!(value, 8);
    let value: marlin_value_type = MARLIN_VALUE_I32;
    assert_eq!(value, 9);
    let value: marlin_value_type = MARLIN_VALUE_U8;
    assert_eq!(value, 10);
    let value: marlin_value_type = MARLIN_VALUE_U16;
    assert_eq!(value, 11);
    let value: marlin_value_type = MARLIN_VALUE_U32;
    assert_eq!(value, 12);
    let value: marlin_value_type = MARLIN_VALUE_F32;
    assert_eq!(value, 13);
    let value: u32 = MARLIN_GEMM_ACCUMULATE;
    assert_eq!(value, 1);
    let value: u32 = MARLIN_GEMM_ROW_INVARIANT;
    assert_eq!(value, 2);
    let value: u32 = MARLIN_PACK_ADDITIVE_ZEROS;
    assert_eq!(value, 1);
    let value: u32 = MARLIN_PACK_DIVIDE_SCALE;
    assert_eq!(value, 2);
    let value: u32 = MARLIN_PACK_PRUNE_2_4;
    assert_eq!(value, 4);
    let value: u32 = MARLIN_PACK_GATE_UP_INTERLEAVED;
    assert_eq!(value, 8);
    let value: u32 = MARLIN_PACK_SCALES_MSE;
    assert_eq!(value, 16);
    let value: u32 = MARLIN_PACK_OBEYS_2_4;
    assert_eq!(value, 32);
    let value: u32 = MARLIN_PACK_TWO_LEVEL_SCALES;
    assert_eq!(value, 64);
    let value: u32 = MARLIN_LAYER_ZEROS;
    assert_eq!(value, 256);
    let value: u32 = MARLIN_LAYER_ACT_ORDER;
    assert_eq!(value, 512);
    let value: u32 = MARLIN_LAYER_SPARSE_2_4;
    assert_eq!(value, 1024);
    let value: u32 = MARLIN_LAYER_EXACT;
    assert_eq!(value, 2048);
    let value: u32 = MARLIN_OPEN_OUTPUTS_FIRST;
    assert_eq!(value, 1);
    let value: u32 = MARLIN_OPEN_INPUTS_FIRST;
    assert_eq!(value, 2);
    let value: u32 = MARLIN_LOAD_PRUNE_2_4;
    assert_eq!(value, 4);
    let value: u32 = MARLIN_LOAD_SCALES_MSE;
    assert_eq!(value, 16);
    let value: u32 = MARLIN_LOAD_OBEYS_2_4;
    assert_eq!(value, 32);
    let value: u32 = MARLIN_CONVERT_PRUNE_2_4;
    assert_eq!(value, 4);
    let value: u32 = MARLIN_CONVERT_SCALES_MSE;
    assert_eq!(value, 16);
    let value: u32 = MARLIN_CONVERT_OBEYS_2_4;
    assert_eq!(value, 32);
    let value: u32 = MARLIN_CONVERT_ASYMMETRIC;
    assert_eq!(value, 64);
    let value: u32 = MARLIN_CONVERT_SKIP_UNFIT;
    assert_eq!(value, 128);
    let value: u32 = MARLIN_CONVERT_OVERWRITE;
    assert_eq!(value, 512);
    let value: u32 = MARLIN_CONVERT_DRY_RUN;
    assert_eq!(value, 1024);
    let value: u32 = MARLIN_SAVE_OVERWRITE;
    assert_eq!(value, 1);
}

#[cfg(feature = "link")]
#[test]
fn functions() {
    let linked = [
        marlin_device_get as *const (),
        marlin_context_create as *const (),
        marlin_context_destroy as *const (),
        marlin_stream_create as *const (),
        marlin_stream_flush as *const (),
        marlin_stream_wait as *const (),
        marlin_stream_destroy as *const (),
        marlin_buffer_create as *const (),
        marlin_buffer_host as *const (),
        marlin_buffer_destroy as *const (),
        marlin_weights_pack as *const (),
        marlin_weights_unpack as *const (),
        marlin_weights_info as *const (),
        marlin_weights_destroy as *const (),
        marlin_checkpoint_open as *const (),
        marlin_checkpoint_layer as *const (),
        marlin_checkpoint_tensor as *const (),
        marlin_checkpoint_destroy as *const (),
        marlin_weights_load as *const (),
        marlin_gemm as *const (),
        marlin_gemm_many as *const (),
        marlin_prepare as *const (),
        marlin_explain as *const (),
        marlin_version as *const (),
        marlin_status_name as *const (),
        marlin_checkpoint_convert as *const (),
        marlin_checkpoint_value as *const (),
        marlin_checkpoint_value_at as *const (),
        marlin_value_next_string as *const (),
        marlin_checkpoint_save as *const (),
        marlin_get_api as *const (),
    ];
    assert!(linked.iter().all(|function| !function.is_null()));
}
