// Written by bindings/swift/generate.py from metal_marlin.h; a test compares it with what that script would write now.
// swift-format-ignore-file
import CMetalMarlin
import Testing

// Opaque: marlin_buffer, marlin_checkpoint, marlin_context, marlin_stream, marlin_weights.

@Suite struct HeaderTests {
  @Test func functions() {
    // marlin_status marlin_device_get(uint32_t, marlin_device_info*, marlin_error*)
    let _: (UInt32, UnsafeMutablePointer<marlin_device_info>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_device_get
    // marlin_status marlin_context_create(marlin_context_desc const*, marlin_context**, marlin_error*)
    let _: (UnsafePointer<marlin_context_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_context_create
    // void marlin_context_destroy(marlin_context*)
    let _: (OpaquePointer?) -> Void = marlin_context_destroy
    // marlin_status marlin_stream_create(marlin_context*, marlin_stream_desc const*, marlin_stream**, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<marlin_stream_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_stream_create
    // marlin_status marlin_stream_flush(marlin_stream*, marlin_error*)
    let _: (OpaquePointer?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_stream_flush
    // marlin_status marlin_stream_wait(marlin_stream*, uint64_t, marlin_error*)
    let _: (OpaquePointer?, UInt64, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_stream_wait
    // void marlin_stream_destroy(marlin_stream*)
    let _: (OpaquePointer?) -> Void = marlin_stream_destroy
    // marlin_status marlin_buffer_create(marlin_context*, uint64_t, marlin_buffer**, marlin_error*)
    let _: (OpaquePointer?, UInt64, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_buffer_create
    // void* marlin_buffer_host(marlin_buffer*)
    let _: (OpaquePointer?) -> UnsafeMutableRawPointer? = marlin_buffer_host
    // void marlin_buffer_destroy(marlin_buffer*)
    let _: (OpaquePointer?) -> Void = marlin_buffer_destroy
    // marlin_status marlin_weights_pack(marlin_context*, marlin_pack_desc const* const*, uint32_t, uint32_t, marlin_weights**, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<UnsafePointer<marlin_pack_desc>?>?, UInt32, UInt32, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_weights_pack
    // marlin_status marlin_weights_unpack(marlin_stream*, marlin_weights const*, marlin_matrix const*, int64_t, marlin_matrix const*, marlin_error*)
    let _: (OpaquePointer?, OpaquePointer?, UnsafePointer<marlin_matrix>?, Int64, UnsafePointer<marlin_matrix>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_weights_unpack
    // marlin_status marlin_weights_info(marlin_weights const*, marlin_layer_info*, marlin_error*)
    let _: (OpaquePointer?, UnsafeMutablePointer<marlin_layer_info>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_weights_info
    // void marlin_weights_destroy(marlin_weights*)
    let _: (OpaquePointer?) -> Void = marlin_weights_destroy
    // marlin_status marlin_checkpoint_open(char const*, marlin_open_desc const*, marlin_checkpoint**, marlin_error*)
    let _: (UnsafePointer<CChar>?, UnsafePointer<marlin_open_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_open
    // marlin_status marlin_checkpoint_layer(marlin_checkpoint const*, uint64_t, marlin_layer_info*, marlin_error*)
    let _: (OpaquePointer?, UInt64, UnsafeMutablePointer<marlin_layer_info>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_layer
    // marlin_status marlin_checkpoint_tensor(marlin_checkpoint const*, char const*, marlin_matrix*, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<CChar>?, UnsafeMutablePointer<marlin_matrix>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_tensor
    // void marlin_checkpoint_destroy(marlin_checkpoint*)
    let _: (OpaquePointer?) -> Void = marlin_checkpoint_destroy
    // marlin_status marlin_weights_load(marlin_context*, marlin_checkpoint const*, marlin_load_desc const*, marlin_weights**, marlin_error*)
    let _: (OpaquePointer?, OpaquePointer?, UnsafePointer<marlin_load_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_weights_load
    // marlin_status marlin_gemm(marlin_stream*, marlin_gemm_desc const*, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<marlin_gemm_desc>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_gemm
    // marlin_status marlin_gemm_many(marlin_stream*, marlin_gemm_desc const* const*, uint32_t, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<UnsafePointer<marlin_gemm_desc>?>?, UInt32, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_gemm_many
    // marlin_status marlin_prepare(marlin_stream*, marlin_gemm_desc const* const*, uint32_t, int64_t, uint64_t*, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<UnsafePointer<marlin_gemm_desc>?>?, UInt32, Int64, UnsafeMutablePointer<UInt64>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_prepare
    // marlin_status marlin_explain(marlin_gemm_desc const*, char*, size_t, size_t*, marlin_error*)
    let _: (UnsafePointer<marlin_gemm_desc>?, UnsafeMutablePointer<CChar>?, Int, UnsafeMutablePointer<Int>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_explain
    // uint32_t marlin_version()
    let _: () -> UInt32 = marlin_version
    // char const* marlin_status_name(marlin_status)
    let _: (marlin_status) -> UnsafePointer<CChar>? = marlin_status_name
    // marlin_status marlin_checkpoint_convert(marlin_checkpoint const*, char const*, marlin_convert_desc const*, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<CChar>?, UnsafePointer<marlin_convert_desc>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_convert
    // marlin_status marlin_checkpoint_value(marlin_checkpoint const*, char const*, marlin_value*, marlin_error*)
    let _: (OpaquePointer?, UnsafePointer<CChar>?, UnsafeMutablePointer<marlin_value>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_value
    // marlin_status marlin_checkpoint_value_at(marlin_checkpoint const*, uint64_t, marlin_value*, marlin_error*)
    let _: (OpaquePointer?, UInt64, UnsafeMutablePointer<marlin_value>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_value_at
    // marlin_status marlin_value_next_string(marlin_value const*, char const**, uint64_t*, marlin_error*)
    let _: (UnsafePointer<marlin_value>?, UnsafeMutablePointer<UnsafePointer<CChar>?>?, UnsafeMutablePointer<UInt64>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_value_next_string
    // marlin_status marlin_checkpoint_save(marlin_context*, marlin_checkpoint const*, char const*, marlin_save_desc const*, marlin_error*)
    let _: (OpaquePointer?, OpaquePointer?, UnsafePointer<CChar>?, UnsafePointer<marlin_save_desc>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status = marlin_checkpoint_save
    // marlin_api const* marlin_get_api(uint32_t)
    let _: (UInt32) -> UnsafePointer<marlin_api>? = marlin_get_api
  }

  @Test func constants() {
    expect(MARLIN_VERSION_MAJOR, 0)
    expect(MARLIN_VERSION_MINOR, 1)
    expect(MARLIN_VERSION_PATCH, 0)
    expect(MARLIN_ABI_MAJOR, 0)
    expect(MARLIN_ABI_MINOR, 1)
    expect(MARLIN_OK as marlin_status, 0)
    expect(MARLIN_E_ARGUMENT as marlin_status, -10)
    expect(MARLIN_E_STRUCT_SIZE as marlin_status, -11)
    expect(MARLIN_E_SHAPE as marlin_status, -12)
    expect(MARLIN_E_UNSUPPORTED as marlin_status, -20)
    expect(MARLIN_E_NOT_PREPARED as marlin_status, -21)
    expect(MARLIN_E_FILE as marlin_status, -25)
    expect(MARLIN_E_FORMAT as marlin_status, -26)
    expect(MARLIN_E_NOT_FOUND as marlin_status, -27)
    expect(MARLIN_E_NO_DEVICE as marlin_status, -30)
    expect(MARLIN_E_DEVICE as marlin_status, -31)
    expect(MARLIN_E_TIMEOUT as marlin_status, -32)
    expect(MARLIN_E_CANCELLED as marlin_status, -33)
    expect(MARLIN_E_MEMORY as marlin_status, -40)
    expect(MARLIN_E_INTERNAL as marlin_status, -90)
    expect(MARLIN_BACKEND_AUTO as marlin_backend, 0)
    expect(MARLIN_BACKEND_CPU as marlin_backend, 1)
    expect(MARLIN_BACKEND_METAL as marlin_backend, 2)
    expect(MARLIN_BACKEND_CUDA as marlin_backend, 3)
    expect(MARLIN_F32 as marlin_dtype, 1)
    expect(MARLIN_F16 as marlin_dtype, 2)
    expect(MARLIN_BF16 as marlin_dtype, 3)
    expect(MARLIN_I8 as marlin_dtype, 4)
    expect(MARLIN_I32 as marlin_dtype, 5)
    expect(MARLIN_U32 as marlin_dtype, 6)
    expect(MARLIN_U4 as marlin_dtype, 7)
    expect(MARLIN_E8M0 as marlin_dtype, 8)
    expect(MARLIN_E4M3 as marlin_dtype, 9)
    expect(MARLIN_U8 as marlin_dtype, 10)
    expect(MARLIN_I16 as marlin_dtype, 11)
    expect(MARLIN_I64 as marlin_dtype, 12)
    expect(MARLIN_MEM_HOST as marlin_memory, 0)
    expect(MARLIN_MEM_CUDA as marlin_memory, 1)
    expect(MARLIN_MEM_METAL as marlin_memory, 2)
    expect(MARLIN_MEM_BUFFER as marlin_memory, 3)
    expect(MARLIN_FORMAT_NONE as marlin_format, 0)
    expect(MARLIN_INT4 as marlin_format, 1)
    expect(MARLIN_FP4 as marlin_format, 2)
    expect(MARLIN_MXFP4 as marlin_format, 3)
    expect(MARLIN_NVFP4 as marlin_format, 4)
    expect(MARLIN_INT8 as marlin_format, 5)
    expect(MARLIN_INT2 as marlin_format, 6)
    expect(MARLIN_INT3 as marlin_format, 7)
    expect(MARLIN_INT5 as marlin_format, 8)
    expect(MARLIN_INT6 as marlin_format, 9)
    expect(MARLIN_IQ4 as marlin_format, 10)
    expect(MARLIN_UINT8 as marlin_format, 11)
    expect(MARLIN_FP8 as marlin_format, 12)
    expect(MARLIN_NF4 as marlin_format, 13)
    expect(MARLIN_CODEBOOK4 as marlin_format, 14)
    expect(MARLIN_FLOAT32 as marlin_format, 15)
    expect(MARLIN_FLOAT16 as marlin_format, 16)
    expect(MARLIN_BFLOAT16 as marlin_format, 17)
    expect(MARLIN_COMPUTE_DEFAULT as marlin_compute, 0)
    expect(MARLIN_COMPUTE_INT8 as marlin_compute, 1)
    expect(MARLIN_COMPUTE_FP8 as marlin_compute, 2)
    expect(MARLIN_LAYOUT_AUTO as marlin_layout, 0)
    expect(MARLIN_LAYOUT_ROWS as marlin_layout, 1)
    expect(MARLIN_LAYOUT_K8N as marlin_layout, 2)
    expect(MARLIN_LAYOUT_GPTQ_V1 as marlin_layout, 3)
    expect(MARLIN_LAYOUT_GPTQ_V2 as marlin_layout, 4)
    expect(MARLIN_LAYOUT_AWQ as marlin_layout, 5)
    expect(MARLIN_LAYOUT_AWQ_GEMV as marlin_layout, 6)
    expect(MARLIN_LAYOUT_AWQ_GEMV_FAST as marlin_layout, 7)
    expect(MARLIN_LAYOUT_GGUF as marlin_layout, 8)
    expect(MARLIN_LAYOUT_MARLIN as marlin_layout, 9)
    expect(MARLIN_LAYOUT_MARLIN_24 as marlin_layout, 10)
    expect(MARLIN_GPTQ_ZERO_F_AUTO as marlin_gptq_zero_f, 0)
    expect(MARLIN_GPTQ_ZERO_F_WRAP as marlin_gptq_zero_f, 1)
    expect(MARLIN_GPTQ_ZERO_F_CARRY as marlin_gptq_zero_f, 2)
    expect(MARLIN_GPTQ_ZERO_F_SIXTEEN as marlin_gptq_zero_f, 3)
    expect(MARLIN_EPILOGUE_NONE as marlin_epilogue, 0)
    expect(MARLIN_EPILOGUE_SILU as marlin_epilogue, 1)
    expect(MARLIN_EPILOGUE_GELU_TANH as marlin_epilogue, 2)
    expect(MARLIN_EPILOGUE_GELU_ERF as marlin_epilogue, 3)
    expect(MARLIN_EPILOGUE_SWIGLU as marlin_epilogue, 4)
    expect(MARLIN_EPILOGUE_GEGLU_TANH as marlin_epilogue, 5)
    expect(MARLIN_EPILOGUE_SWIGLU_OAI as marlin_epilogue, 6)
    expect(MARLIN_NATIVE_NONE as marlin_native, 0)
    expect(MARLIN_NATIVE_CUDA_STREAM as marlin_native, 1)
    expect(MARLIN_NATIVE_METAL_QUEUE as marlin_native, 2)
    expect(MARLIN_NATIVE_METAL_COMMAND_BUFFER as marlin_native, 3)
    expect(MARLIN_NATIVE_METAL_ENCODER as marlin_native, 4)
    expect(MARLIN_SCHEME_AUTO as marlin_scheme, 0)
    expect(MARLIN_SCHEME_COMPRESSED_TENSORS as marlin_scheme, 1)
    expect(MARLIN_SCHEME_GPTQ as marlin_scheme, 2)
    expect(MARLIN_SCHEME_MARLIN_24 as marlin_scheme, 3)
    expect(MARLIN_SCHEME_GGUF as marlin_scheme, 4)
    expect(MARLIN_SCHEME_MLX as marlin_scheme, 5)
    expect(MARLIN_VALUE_NONE as marlin_value_type, 0)
    expect(MARLIN_VALUE_BOOL as marlin_value_type, 1)
    expect(MARLIN_VALUE_I64 as marlin_value_type, 2)
    expect(MARLIN_VALUE_U64 as marlin_value_type, 3)
    expect(MARLIN_VALUE_F64 as marlin_value_type, 4)
    expect(MARLIN_VALUE_STRING as marlin_value_type, 5)
    expect(MARLIN_VALUE_ARRAY as marlin_value_type, 6)
    expect(MARLIN_VALUE_I8 as marlin_value_type, 7)
    expect(MARLIN_VALUE_I16 as marlin_value_type, 8)
    expect(MARLIN_VALUE_I32 as marlin_value_type, 9)
    expect(MARLIN_VALUE_U8 as marlin_value_type, 10)
    expect(MARLIN_VALUE_U16 as marlin_value_type, 11)
    expect(MARLIN_VALUE_U32 as marlin_value_type, 12)
    expect(MARLIN_VALUE_F32 as marlin_value_type, 13)
    expect(MARLIN_GEMM_ACCUMULATE, 1)
    expect(MARLIN_GEMM_ROW_INVARIANT, 2)
    expect(MARLIN_PACK_ADDITIVE_ZEROS, 1)
    expect(MARLIN_PACK_DIVIDE_SCALE, 2)
    expect(MARLIN_PACK_PRUNE_2_4, 4)
    expect(MARLIN_PACK_GATE_UP_INTERLEAVED, 8)
    expect(MARLIN_PACK_SCALES_MSE, 16)
    expect(MARLIN_PACK_OBEYS_2_4, 32)
    expect(MARLIN_PACK_TWO_LEVEL_SCALES, 64)
    expect(MARLIN_LAYER_ZEROS, 256)
    expect(MARLIN_LAYER_ACT_ORDER, 512)
    expect(MARLIN_LAYER_SPARSE_2_4, 1024)
    expect(MARLIN_LAYER_EXACT, 2048)
    expect(MARLIN_OPEN_OUTPUTS_FIRST, 1)
    expect(MARLIN_OPEN_INPUTS_FIRST, 2)
    expect(MARLIN_LOAD_PRUNE_2_4, 4)
    expect(MARLIN_LOAD_SCALES_MSE, 16)
    expect(MARLIN_LOAD_OBEYS_2_4, 32)
    expect(MARLIN_CONVERT_PRUNE_2_4, 4)
    expect(MARLIN_CONVERT_SCALES_MSE, 16)
    expect(MARLIN_CONVERT_OBEYS_2_4, 32)
    expect(MARLIN_CONVERT_ASYMMETRIC, 64)
    expect(MARLIN_CONVERT_SKIP_UNFIT, 128)
    expect(MARLIN_CONVERT_OVERWRITE, 512)
    expect(MARLIN_CONVERT_DRY_RUN, 1024)
    expect(MARLIN_SAVE_OVERWRITE, 1)
  }

  @Test func layoutOfError() {
    expect(marlin_error.self, size: 256, alignment: 4)
    expect(\marlin_error.struct_size as KeyPath<marlin_error, UInt32>, offset: 0, size: 4)
    expect(\marlin_error.status as KeyPath<marlin_error, marlin_status>, offset: 4, size: 4)
    expect(\marlin_error.native_code as KeyPath<marlin_error, Int32>, offset: 8, size: 4)
    expect(\marlin_error.reserved as KeyPath<marlin_error, UInt32>, offset: 12, size: 4)
    expect(\marlin_error.message, offset: 16, size: 240)
  }

  @Test func layoutOfMatrix() {
    expect(marlin_matrix.self, size: 48, alignment: 8)
    expect(\marlin_matrix.data as KeyPath<marlin_matrix, UnsafeMutableRawPointer?>, offset: 0, size: 8)
    expect(\marlin_matrix.offset_bytes as KeyPath<marlin_matrix, UInt64>, offset: 8, size: 8)
    expect(\marlin_matrix.rows as KeyPath<marlin_matrix, Int64>, offset: 16, size: 8)
    expect(\marlin_matrix.cols as KeyPath<marlin_matrix, Int64>, offset: 24, size: 8)
    expect(\marlin_matrix.row_stride as KeyPath<marlin_matrix, Int64>, offset: 32, size: 8)
    expect(\marlin_matrix.dtype as KeyPath<marlin_matrix, marlin_dtype>, offset: 40, size: 4)
    expect(\marlin_matrix.memory as KeyPath<marlin_matrix, marlin_memory>, offset: 44, size: 4)
  }

  @Test func layoutOfDeviceInfo() {
    expect(marlin_device_info.self, size: 288, alignment: 8)
    expect(\marlin_device_info.struct_size as KeyPath<marlin_device_info, UInt32>, offset: 0, size: 4)
    expect(\marlin_device_info.backend as KeyPath<marlin_device_info, marlin_backend>, offset: 4, size: 4)
    expect(\marlin_device_info.index as KeyPath<marlin_device_info, Int32>, offset: 8, size: 4)
    expect(\marlin_device_info.flags as KeyPath<marlin_device_info, UInt32>, offset: 12, size: 4)
    expect(\marlin_device_info.name, offset: 16, size: 64)
    expect(\marlin_device_info.isa_or_arch, offset: 80, size: 32)
    expect(\marlin_device_info.memory_bytes as KeyPath<marlin_device_info, UInt64>, offset: 112, size: 8)
    expect(\marlin_device_info.why_not, offset: 120, size: 160)
    expect(\marlin_device_info.threads as KeyPath<marlin_device_info, UInt32>, offset: 280, size: 4)
    expect(\marlin_device_info.reserved as KeyPath<marlin_device_info, UInt32>, offset: 284, size: 4)
  }

  @Test func layoutOfContextDesc() {
    expect(marlin_context_desc.self, size: 64, alignment: 8)
    expect(\marlin_context_desc.struct_size as KeyPath<marlin_context_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_context_desc.backend as KeyPath<marlin_context_desc, marlin_backend>, offset: 4, size: 4)
    expect(\marlin_context_desc.device_index as KeyPath<marlin_context_desc, Int32>, offset: 8, size: 4)
    expect(\marlin_context_desc.threads as KeyPath<marlin_context_desc, UInt32>, offset: 12, size: 4)
    expect(\marlin_context_desc.native_device as KeyPath<marlin_context_desc, UnsafeMutableRawPointer?>, offset: 16, size: 8)
    expect(\marlin_context_desc.alloc as KeyPath<marlin_context_desc, (@convention(c) (UnsafeMutableRawPointer?, Int, Int) -> UnsafeMutableRawPointer?)?>, offset: 24, size: 8)
    expect(\marlin_context_desc.release as KeyPath<marlin_context_desc, (@convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?, Int) -> Void)?>, offset: 32, size: 8)
    expect(\marlin_context_desc.log as KeyPath<marlin_context_desc, (@convention(c) (UnsafeMutableRawPointer?, Int32, UnsafePointer<CChar>?) -> Void)?>, offset: 40, size: 8)
    expect(\marlin_context_desc.parallel_for as KeyPath<marlin_context_desc, (@convention(c) (UnsafeMutableRawPointer?, UInt32, (@convention(c) (UnsafeMutableRawPointer?, UInt32) -> Void)?, UnsafeMutableRawPointer?) -> Void)?>, offset: 48, size: 8)
    expect(\marlin_context_desc.user as KeyPath<marlin_context_desc, UnsafeMutableRawPointer?>, offset: 56, size: 8)
  }

  @Test func layoutOfStreamDesc() {
    expect(marlin_stream_desc.self, size: 64, alignment: 8)
    expect(\marlin_stream_desc.struct_size as KeyPath<marlin_stream_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_stream_desc.kind as KeyPath<marlin_stream_desc, marlin_native>, offset: 4, size: 4)
    expect(\marlin_stream_desc.native as KeyPath<marlin_stream_desc, UnsafeMutableRawPointer?>, offset: 8, size: 8)
    expect(\marlin_stream_desc.scratch as KeyPath<marlin_stream_desc, marlin_matrix>, offset: 16, size: 48)
  }

  @Test func layoutOfPackDesc() {
    expect(marlin_pack_desc.self, size: 424, alignment: 8)
    expect(\marlin_pack_desc.struct_size as KeyPath<marlin_pack_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_pack_desc.format as KeyPath<marlin_pack_desc, marlin_format>, offset: 4, size: 4)
    expect(\marlin_pack_desc.group_size as KeyPath<marlin_pack_desc, UInt32>, offset: 8, size: 4)
    expect(\marlin_pack_desc.layout as KeyPath<marlin_pack_desc, marlin_layout>, offset: 12, size: 4)
    expect(\marlin_pack_desc.n as KeyPath<marlin_pack_desc, Int64>, offset: 16, size: 8)
    expect(\marlin_pack_desc.k as KeyPath<marlin_pack_desc, Int64>, offset: 24, size: 8)
    expect(\marlin_pack_desc.values as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 32, size: 48)
    expect(\marlin_pack_desc.scales as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 80, size: 48)
    expect(\marlin_pack_desc.zeros as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 128, size: 48)
    expect(\marlin_pack_desc.sparse_meta as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 176, size: 48)
    expect(\marlin_pack_desc.group_index as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 224, size: 48)
    expect(\marlin_pack_desc.tensor_scale as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 272, size: 48)
    expect(\marlin_pack_desc.flags as KeyPath<marlin_pack_desc, UInt32>, offset: 320, size: 4)
    expect(\marlin_pack_desc.gptq_zero_f as KeyPath<marlin_pack_desc, marlin_gptq_zero_f>, offset: 324, size: 4)
    expect(\marlin_pack_desc.column_norms as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 328, size: 48)
    expect(\marlin_pack_desc.codebook as KeyPath<marlin_pack_desc, marlin_matrix>, offset: 376, size: 48)
  }

  @Test func layoutOfGemmDesc() {
    expect(marlin_gemm_desc.self, size: 264, alignment: 8)
    expect(\marlin_gemm_desc.struct_size as KeyPath<marlin_gemm_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_gemm_desc.compute as KeyPath<marlin_gemm_desc, marlin_compute>, offset: 4, size: 4)
    expect(\marlin_gemm_desc.epilogue as KeyPath<marlin_gemm_desc, marlin_epilogue>, offset: 8, size: 4)
    expect(\marlin_gemm_desc.flags as KeyPath<marlin_gemm_desc, UInt32>, offset: 12, size: 4)
    expect(\marlin_gemm_desc.weights as KeyPath<marlin_gemm_desc, OpaquePointer?>, offset: 16, size: 8)
    expect(\marlin_gemm_desc.a as KeyPath<marlin_gemm_desc, marlin_matrix>, offset: 24, size: 48)
    expect(\marlin_gemm_desc.c as KeyPath<marlin_gemm_desc, marlin_matrix>, offset: 72, size: 48)
    expect(\marlin_gemm_desc.bias as KeyPath<marlin_gemm_desc, marlin_matrix>, offset: 120, size: 48)
    expect(\marlin_gemm_desc.expert_ids as KeyPath<marlin_gemm_desc, marlin_matrix>, offset: 168, size: 48)
    expect(\marlin_gemm_desc.expert_scales as KeyPath<marlin_gemm_desc, marlin_matrix>, offset: 216, size: 48)
  }

  @Test func layoutOfShard() {
    expect(marlin_shard.self, size: 48, alignment: 8)
    expect(\marlin_shard.first, offset: 0, size: 24)
    expect(\marlin_shard.count, offset: 24, size: 24)
  }

  @Test func layoutOfLoadDesc() {
    expect(marlin_load_desc.self, size: 64, alignment: 8)
    expect(\marlin_load_desc.struct_size as KeyPath<marlin_load_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_load_desc.flags as KeyPath<marlin_load_desc, UInt32>, offset: 4, size: 4)
    expect(\marlin_load_desc.layers as KeyPath<marlin_load_desc, UnsafePointer<UnsafePointer<CChar>?>?>, offset: 8, size: 8)
    expect(\marlin_load_desc.shards as KeyPath<marlin_load_desc, UnsafePointer<marlin_shard>?>, offset: 16, size: 8)
    expect(\marlin_load_desc.layer_count as KeyPath<marlin_load_desc, UInt32>, offset: 24, size: 4)
    expect(\marlin_load_desc.expert_count as KeyPath<marlin_load_desc, UInt32>, offset: 28, size: 4)
    expect(\marlin_load_desc.format as KeyPath<marlin_load_desc, marlin_format>, offset: 32, size: 4)
    expect(\marlin_load_desc.group_size as KeyPath<marlin_load_desc, UInt32>, offset: 36, size: 4)
    expect(\marlin_load_desc.column_norms as KeyPath<marlin_load_desc, UnsafePointer<marlin_matrix>?>, offset: 40, size: 8)
    expect(\marlin_load_desc.progress as KeyPath<marlin_load_desc, (@convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Int32)?>, offset: 48, size: 8)
    expect(\marlin_load_desc.user as KeyPath<marlin_load_desc, UnsafeMutableRawPointer?>, offset: 56, size: 8)
  }

  @Test func layoutOfOpenDesc() {
    expect(marlin_open_desc.self, size: 16, alignment: 4)
    expect(\marlin_open_desc.struct_size as KeyPath<marlin_open_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_open_desc.flags as KeyPath<marlin_open_desc, UInt32>, offset: 4, size: 4)
    expect(\marlin_open_desc.layout as KeyPath<marlin_open_desc, marlin_layout>, offset: 8, size: 4)
    expect(\marlin_open_desc.gptq_zero_f as KeyPath<marlin_open_desc, marlin_gptq_zero_f>, offset: 12, size: 4)
  }

  @Test func layoutOfLayerInfo() {
    expect(marlin_layer_info.self, size: 72, alignment: 8)
    expect(\marlin_layer_info.struct_size as KeyPath<marlin_layer_info, UInt32>, offset: 0, size: 4)
    expect(\marlin_layer_info.status as KeyPath<marlin_layer_info, marlin_status>, offset: 4, size: 4)
    expect(\marlin_layer_info.name as KeyPath<marlin_layer_info, UnsafePointer<CChar>?>, offset: 8, size: 8)
    expect(\marlin_layer_info.n as KeyPath<marlin_layer_info, Int64>, offset: 16, size: 8)
    expect(\marlin_layer_info.k as KeyPath<marlin_layer_info, Int64>, offset: 24, size: 8)
    expect(\marlin_layer_info.experts as KeyPath<marlin_layer_info, UInt32>, offset: 32, size: 4)
    expect(\marlin_layer_info.group_size as KeyPath<marlin_layer_info, UInt32>, offset: 36, size: 4)
    expect(\marlin_layer_info.format as KeyPath<marlin_layer_info, marlin_format>, offset: 40, size: 4)
    expect(\marlin_layer_info.layout as KeyPath<marlin_layer_info, marlin_layout>, offset: 44, size: 4)
    expect(\marlin_layer_info.flags as KeyPath<marlin_layer_info, UInt32>, offset: 48, size: 4)
    expect(\marlin_layer_info.dtype as KeyPath<marlin_layer_info, marlin_dtype>, offset: 52, size: 4)
    expect(\marlin_layer_info.bytes as KeyPath<marlin_layer_info, UInt64>, offset: 56, size: 8)
    expect(\marlin_layer_info.kept_share as KeyPath<marlin_layer_info, Double>, offset: 64, size: 8)
  }

  @Test func layoutOfValue() {
    expect(marlin_value.self, size: 80, alignment: 8)
    expect(\marlin_value.struct_size as KeyPath<marlin_value, UInt32>, offset: 0, size: 4)
    expect(\marlin_value.kind as KeyPath<marlin_value, marlin_value_type>, offset: 4, size: 4)
    expect(\marlin_value.element_type as KeyPath<marlin_value, marlin_value_type>, offset: 8, size: 4)
    expect(\marlin_value.reserved as KeyPath<marlin_value, UInt32>, offset: 12, size: 4)
    expect(\marlin_value.key as KeyPath<marlin_value, UnsafePointer<CChar>?>, offset: 16, size: 8)
    expect(\marlin_value.key_bytes as KeyPath<marlin_value, UInt64>, offset: 24, size: 8)
    expect(\marlin_value.i64 as KeyPath<marlin_value, Int64>, offset: 32, size: 8)
    expect(\marlin_value.u64 as KeyPath<marlin_value, UInt64>, offset: 40, size: 8)
    expect(\marlin_value.f64 as KeyPath<marlin_value, Double>, offset: 48, size: 8)
    expect(\marlin_value.data as KeyPath<marlin_value, UnsafeRawPointer?>, offset: 56, size: 8)
    expect(\marlin_value.bytes as KeyPath<marlin_value, UInt64>, offset: 64, size: 8)
    expect(\marlin_value.count as KeyPath<marlin_value, UInt64>, offset: 72, size: 8)
  }

  @Test func layoutOfConvertOutcome() {
    expect(marlin_convert_outcome.self, size: 104, alignment: 8)
    expect(\marlin_convert_outcome.struct_size as KeyPath<marlin_convert_outcome, UInt32>, offset: 0, size: 4)
    expect(\marlin_convert_outcome.status as KeyPath<marlin_convert_outcome, marlin_status>, offset: 4, size: 4)
    expect(\marlin_convert_outcome.name as KeyPath<marlin_convert_outcome, UnsafePointer<CChar>?>, offset: 8, size: 8)
    expect(\marlin_convert_outcome.reason as KeyPath<marlin_convert_outcome, UnsafePointer<CChar>?>, offset: 16, size: 8)
    expect(\marlin_convert_outcome.n as KeyPath<marlin_convert_outcome, Int64>, offset: 24, size: 8)
    expect(\marlin_convert_outcome.k as KeyPath<marlin_convert_outcome, Int64>, offset: 32, size: 8)
    expect(\marlin_convert_outcome.experts as KeyPath<marlin_convert_outcome, UInt32>, offset: 40, size: 4)
    expect(\marlin_convert_outcome.group_size as KeyPath<marlin_convert_outcome, UInt32>, offset: 44, size: 4)
    expect(\marlin_convert_outcome.from as KeyPath<marlin_convert_outcome, marlin_format>, offset: 48, size: 4)
    expect(\marlin_convert_outcome.format as KeyPath<marlin_convert_outcome, marlin_format>, offset: 52, size: 4)
    expect(\marlin_convert_outcome.flags as KeyPath<marlin_convert_outcome, UInt32>, offset: 56, size: 4)
    expect(\marlin_convert_outcome.reserved as KeyPath<marlin_convert_outcome, UInt32>, offset: 60, size: 4)
    expect(\marlin_convert_outcome.bytes_before as KeyPath<marlin_convert_outcome, UInt64>, offset: 64, size: 8)
    expect(\marlin_convert_outcome.bytes_after as KeyPath<marlin_convert_outcome, UInt64>, offset: 72, size: 8)
    expect(\marlin_convert_outcome.squared_error as KeyPath<marlin_convert_outcome, Double>, offset: 80, size: 8)
    expect(\marlin_convert_outcome.squared_norm as KeyPath<marlin_convert_outcome, Double>, offset: 88, size: 8)
    expect(\marlin_convert_outcome.kept_norm as KeyPath<marlin_convert_outcome, Double>, offset: 96, size: 8)
  }

  @Test func layoutOfConvertDesc() {
    expect(marlin_convert_desc.self, size: 96, alignment: 8)
    expect(\marlin_convert_desc.struct_size as KeyPath<marlin_convert_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_convert_desc.flags as KeyPath<marlin_convert_desc, UInt32>, offset: 4, size: 4)
    expect(\marlin_convert_desc.scheme as KeyPath<marlin_convert_desc, marlin_scheme>, offset: 8, size: 4)
    expect(\marlin_convert_desc.format as KeyPath<marlin_convert_desc, marlin_format>, offset: 12, size: 4)
    expect(\marlin_convert_desc.group_size as KeyPath<marlin_convert_desc, UInt32>, offset: 16, size: 4)
    expect(\marlin_convert_desc.layer_count as KeyPath<marlin_convert_desc, UInt32>, offset: 20, size: 4)
    expect(\marlin_convert_desc.layers as KeyPath<marlin_convert_desc, UnsafePointer<UnsafePointer<CChar>?>?>, offset: 24, size: 8)
    expect(\marlin_convert_desc.shard_bytes as KeyPath<marlin_convert_desc, UInt64>, offset: 32, size: 8)
    expect(\marlin_convert_desc.progress as KeyPath<marlin_convert_desc, (@convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64, UnsafePointer<CChar>?) -> Int32)?>, offset: 40, size: 8)
    expect(\marlin_convert_desc.layer_done as KeyPath<marlin_convert_desc, (@convention(c) (UnsafeMutableRawPointer?, UnsafePointer<marlin_convert_outcome>?) -> Void)?>, offset: 48, size: 8)
    expect(\marlin_convert_desc.log as KeyPath<marlin_convert_desc, (@convention(c) (UnsafeMutableRawPointer?, Int32, UnsafePointer<CChar>?) -> Void)?>, offset: 56, size: 8)
    expect(\marlin_convert_desc.parallel_for as KeyPath<marlin_convert_desc, (@convention(c) (UnsafeMutableRawPointer?, UInt32, (@convention(c) (UnsafeMutableRawPointer?, UInt32) -> Void)?, UnsafeMutableRawPointer?) -> Void)?>, offset: 64, size: 8)
    expect(\marlin_convert_desc.user as KeyPath<marlin_convert_desc, UnsafeMutableRawPointer?>, offset: 72, size: 8)
    expect(\marlin_convert_desc.column_norms as KeyPath<marlin_convert_desc, UnsafePointer<marlin_matrix>?>, offset: 80, size: 8)
    expect(\marlin_convert_desc.types as KeyPath<marlin_convert_desc, UnsafePointer<UnsafePointer<CChar>?>?>, offset: 88, size: 8)
  }

  @Test func layoutOfSaveDesc() {
    expect(marlin_save_desc.self, size: 32, alignment: 8)
    expect(\marlin_save_desc.struct_size as KeyPath<marlin_save_desc, UInt32>, offset: 0, size: 4)
    expect(\marlin_save_desc.flags as KeyPath<marlin_save_desc, UInt32>, offset: 4, size: 4)
    expect(\marlin_save_desc.loads as KeyPath<marlin_save_desc, UnsafePointer<UnsafePointer<marlin_load_desc>?>?>, offset: 8, size: 8)
    expect(\marlin_save_desc.load_count as KeyPath<marlin_save_desc, UInt32>, offset: 16, size: 4)
    expect(\marlin_save_desc.rank as KeyPath<marlin_save_desc, UInt32>, offset: 20, size: 4)
    expect(\marlin_save_desc.rank_count as KeyPath<marlin_save_desc, UInt32>, offset: 24, size: 4)
    expect(\marlin_save_desc.reserved as KeyPath<marlin_save_desc, UInt32>, offset: 28, size: 4)
  }

  @Test func layoutOfApi() {
    expect(marlin_api.self, size: 256, alignment: 8)
    expect(\marlin_api.struct_size as KeyPath<marlin_api, UInt32>, offset: 0, size: 4)
    expect(\marlin_api.abi_major as KeyPath<marlin_api, UInt32>, offset: 4, size: 4)
    expect(\marlin_api.abi_minor as KeyPath<marlin_api, UInt32>, offset: 8, size: 4)
    expect(\marlin_api.version as KeyPath<marlin_api, UInt32>, offset: 12, size: 4)
    expect(\marlin_api.device_get as KeyPath<marlin_api, (@convention(c) (UInt32, UnsafeMutablePointer<marlin_device_info>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 16, size: 8)
    expect(\marlin_api.context_create as KeyPath<marlin_api, (@convention(c) (UnsafePointer<marlin_context_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 24, size: 8)
    expect(\marlin_api.context_destroy as KeyPath<marlin_api, (@convention(c) (OpaquePointer?) -> Void)?>, offset: 32, size: 8)
    expect(\marlin_api.stream_create as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<marlin_stream_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 40, size: 8)
    expect(\marlin_api.stream_flush as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 48, size: 8)
    expect(\marlin_api.stream_wait as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UInt64, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 56, size: 8)
    expect(\marlin_api.stream_destroy as KeyPath<marlin_api, (@convention(c) (OpaquePointer?) -> Void)?>, offset: 64, size: 8)
    expect(\marlin_api.buffer_create as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UInt64, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 72, size: 8)
    expect(\marlin_api.buffer_host as KeyPath<marlin_api, (@convention(c) (OpaquePointer?) -> UnsafeMutableRawPointer?)?>, offset: 80, size: 8)
    expect(\marlin_api.buffer_destroy as KeyPath<marlin_api, (@convention(c) (OpaquePointer?) -> Void)?>, offset: 88, size: 8)
    expect(\marlin_api.weights_pack as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<UnsafePointer<marlin_pack_desc>?>?, UInt32, UInt32, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 96, size: 8)
    expect(\marlin_api.weights_unpack as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, OpaquePointer?, UnsafePointer<marlin_matrix>?, Int64, UnsafePointer<marlin_matrix>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 104, size: 8)
    expect(\marlin_api.weights_info as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafeMutablePointer<marlin_layer_info>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 112, size: 8)
    expect(\marlin_api.weights_destroy as KeyPath<marlin_api, (@convention(c) (OpaquePointer?) -> Void)?>, offset: 120, size: 8)
    expect(\marlin_api.checkpoint_open as KeyPath<marlin_api, (@convention(c) (UnsafePointer<CChar>?, UnsafePointer<marlin_open_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 128, size: 8)
    expect(\marlin_api.checkpoint_layer as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UInt64, UnsafeMutablePointer<marlin_layer_info>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 136, size: 8)
    expect(\marlin_api.checkpoint_tensor as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<CChar>?, UnsafeMutablePointer<marlin_matrix>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 144, size: 8)
    expect(\marlin_api.checkpoint_destroy as KeyPath<marlin_api, (@convention(c) (OpaquePointer?) -> Void)?>, offset: 152, size: 8)
    expect(\marlin_api.weights_load as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, OpaquePointer?, UnsafePointer<marlin_load_desc>?, UnsafeMutablePointer<OpaquePointer?>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 160, size: 8)
    expect(\marlin_api.gemm as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<marlin_gemm_desc>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 168, size: 8)
    expect(\marlin_api.gemm_many as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<UnsafePointer<marlin_gemm_desc>?>?, UInt32, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 176, size: 8)
    expect(\marlin_api.prepare as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<UnsafePointer<marlin_gemm_desc>?>?, UInt32, Int64, UnsafeMutablePointer<UInt64>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 184, size: 8)
    expect(\marlin_api.explain as KeyPath<marlin_api, (@convention(c) (UnsafePointer<marlin_gemm_desc>?, UnsafeMutablePointer<CChar>?, Int, UnsafeMutablePointer<Int>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 192, size: 8)
    expect(\marlin_api.get_version as KeyPath<marlin_api, (@convention(c) () -> UInt32)?>, offset: 200, size: 8)
    expect(\marlin_api.status_name as KeyPath<marlin_api, (@convention(c) (marlin_status) -> UnsafePointer<CChar>?)?>, offset: 208, size: 8)
    expect(\marlin_api.checkpoint_convert as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<CChar>?, UnsafePointer<marlin_convert_desc>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 216, size: 8)
    expect(\marlin_api.checkpoint_value as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UnsafePointer<CChar>?, UnsafeMutablePointer<marlin_value>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 224, size: 8)
    expect(\marlin_api.checkpoint_value_at as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, UInt64, UnsafeMutablePointer<marlin_value>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 232, size: 8)
    expect(\marlin_api.value_next_string as KeyPath<marlin_api, (@convention(c) (UnsafePointer<marlin_value>?, UnsafeMutablePointer<UnsafePointer<CChar>?>?, UnsafeMutablePointer<UInt64>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 240, size: 8)
    expect(\marlin_api.checkpoint_save as KeyPath<marlin_api, (@convention(c) (OpaquePointer?, OpaquePointer?, UnsafePointer<CChar>?, UnsafePointer<marlin_save_desc>?, UnsafeMutablePointer<marlin_error>?) -> marlin_status)?>, offset: 248, size: 8)
  }
}

private func expect<T: BinaryInteger>(_ found: T, _ value: T) { #expect(found == value) }
private func expect<S>(_ type: S.Type, size: Int, alignment: Int) {
  #expect(MemoryLayout<S>.size == size)
  #expect(MemoryLayout<S>.alignment == alignment)
}
private func expect<S, T>(_ field: KeyPath<S, T>, offset: Int, size: Int) {
  #expect(MemoryLayout<S>.offset(of: field) == offset)
  #expect(MemoryLayout<T>.size == size)
}
