// Written by bindings/swift/generate.py from metal_marlin.h; a test compares it with what that script would write now.
// swift-format-ignore-file
internal import CMetalMarlin

/// Values never change; they are spaced by kind
public struct Status: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  public static let ok = Status(rawValue: MARLIN_OK)
  /// A value that no caller may pass: NULL, unknown enum, overlap
  public static let argument = Status(rawValue: MARLIN_E_ARGUMENT)
  /// struct_size is no size of any version
  public static let structSize = Status(rawValue: MARLIN_E_STRUCT_SIZE)
  /// Sizes that do not fit each other
  public static let shape = Status(rawValue: MARLIN_E_SHAPE)
  /// Legal, but not served by this version or device
  public static let unsupported = Status(rawValue: MARLIN_E_UNSUPPORTED)
  /// The host's scratch is too small: marlin_prepare says how much
  public static let notPrepared = Status(rawValue: MARLIN_E_NOT_PREPARED)
  /// The operating system refused: native_code is errno
  public static let file = Status(rawValue: MARLIN_E_FILE)
  /// The content of a file or operand is malformed
  public static let format = Status(rawValue: MARLIN_E_FORMAT)
  /// No such index, layer, tensor or key
  public static let notFound = Status(rawValue: MARLIN_E_NOT_FOUND)
  /// The backend has no usable device here
  public static let noDevice = Status(rawValue: MARLIN_E_NO_DEVICE)
  /// The device failed: native_code is its own code
  public static let device = Status(rawValue: MARLIN_E_DEVICE)
  public static let timeout = Status(rawValue: MARLIN_E_TIMEOUT)
  /// A callback asked to stop
  public static let cancelled = Status(rawValue: MARLIN_E_CANCELLED)
  public static let memory = Status(rawValue: MARLIN_E_MEMORY)
  /// A bug in this library; please report it with the message
  public static let `internal` = Status(rawValue: MARLIN_E_INTERNAL)

  /// The header's name.
  public var description: String { Self.names[rawValue] ?? "marlin_status(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_OK: "MARLIN_OK", MARLIN_E_ARGUMENT: "MARLIN_E_ARGUMENT", MARLIN_E_STRUCT_SIZE: "MARLIN_E_STRUCT_SIZE",
    MARLIN_E_SHAPE: "MARLIN_E_SHAPE", MARLIN_E_UNSUPPORTED: "MARLIN_E_UNSUPPORTED",
    MARLIN_E_NOT_PREPARED: "MARLIN_E_NOT_PREPARED", MARLIN_E_FILE: "MARLIN_E_FILE", MARLIN_E_FORMAT: "MARLIN_E_FORMAT",
    MARLIN_E_NOT_FOUND: "MARLIN_E_NOT_FOUND", MARLIN_E_NO_DEVICE: "MARLIN_E_NO_DEVICE", MARLIN_E_DEVICE: "MARLIN_E_DEVICE",
    MARLIN_E_TIMEOUT: "MARLIN_E_TIMEOUT", MARLIN_E_CANCELLED: "MARLIN_E_CANCELLED", MARLIN_E_MEMORY: "MARLIN_E_MEMORY",
    MARLIN_E_INTERNAL: "MARLIN_E_INTERNAL",
  ]
}

/// `marlin_backend` of the header. Values that this version does not know stay legal to hold.
public struct Backend: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// The first usable backend of CUDA, Metal, CPU
  public static let auto = Backend(rawValue: MARLIN_BACKEND_AUTO)
  public static let cpu = Backend(rawValue: MARLIN_BACKEND_CPU)
  public static let metal = Backend(rawValue: MARLIN_BACKEND_METAL)
  public static let cuda = Backend(rawValue: MARLIN_BACKEND_CUDA)

  /// Its name here, as "cuda".
  public var description: String { Self.names[rawValue] ?? "marlin_backend(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_BACKEND_AUTO: "auto", MARLIN_BACKEND_CPU: "cpu", MARLIN_BACKEND_METAL: "metal", MARLIN_BACKEND_CUDA: "cuda",
  ]
}

/// `marlin_dtype` of the header. Values that this version does not know stay legal to hold.
public struct DType: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  public static let f32 = DType(rawValue: MARLIN_F32)
  public static let f16 = DType(rawValue: MARLIN_F16)
  public static let bf16 = DType(rawValue: MARLIN_BF16)
  public static let i8 = DType(rawValue: MARLIN_I8)
  public static let i32 = DType(rawValue: MARLIN_I32)
  public static let u32 = DType(rawValue: MARLIN_U32)
  /// Two per byte, low nibble first; cols counts nibbles and is even
  public static let u4 = DType(rawValue: MARLIN_U4)
  public static let e8m0 = DType(rawValue: MARLIN_E8M0)
  /// The FN variant: no infinity, 0x7F and 0xFF are NaN
  public static let e4m3 = DType(rawValue: MARLIN_E4M3)
  public static let u8 = DType(rawValue: MARLIN_U8)
  public static let i16 = DType(rawValue: MARLIN_I16)
  public static let i64 = DType(rawValue: MARLIN_I64)

  /// Its name here, as "i64".
  public var description: String { Self.names[rawValue] ?? "marlin_dtype(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_F32: "f32", MARLIN_F16: "f16", MARLIN_BF16: "bf16", MARLIN_I8: "i8", MARLIN_I32: "i32", MARLIN_U32: "u32",
    MARLIN_U4: "u4", MARLIN_E8M0: "e8m0", MARLIN_E4M3: "e4m3", MARLIN_U8: "u8", MARLIN_I16: "i16", MARLIN_I64: "i64",
  ]
}

/// Where marlin_matrix::data points
public struct Memory: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// On a GPU only with stream NULL
  public static let host = Memory(rawValue: MARLIN_MEM_HOST)
  /// A device pointer
  public static let cuda = Memory(rawValue: MARLIN_MEM_CUDA)
  /// An id<MTLBuffer>
  public static let metal = Memory(rawValue: MARLIN_MEM_METAL)
  /// A marlin_buffer *; bounds are checked
  public static let buffer = Memory(rawValue: MARLIN_MEM_BUFFER)

  /// Its name here, as "buffer".
  public var description: String { Self.names[rawValue] ?? "marlin_memory(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_MEM_HOST: "host", MARLIN_MEM_CUDA: "cuda", MARLIN_MEM_METAL: "metal", MARLIN_MEM_BUFFER: "buffer",
  ]
}

/// The value of a weight with code q in a group with scale s
public struct Format: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// In marlin_layer_info: floats, not quantized
  public static let none = Format(rawValue: MARLIN_FORMAT_NONE)
  /// (q - zero) * s, zero 8 when absent; or q * s + zero (additive)
  public static let int4 = Format(rawValue: MARLIN_FORMAT_INT4)
  /// e2m1(q) * s, s a float
  public static let fp4 = Format(rawValue: MARLIN_FORMAT_FP4)
  /// e2m1(q) * 2^(e - 127), groups of 32 (OCP MX v1.0)
  public static let mxfp4 = Format(rawValue: MARLIN_FORMAT_MXFP4)
  /// e2m1(q) * e4m3 * tensor_scale, groups of 16
  public static let nvfp4 = Format(rawValue: MARLIN_FORMAT_NVFP4)
  /// q * s (+ zero); holds Q8_0 exactly
  public static let int8 = Format(rawValue: MARLIN_FORMAT_INT8)
  /// As INT4, zero 2 when absent; GGUF's Q2_K
  public static let int2 = Format(rawValue: MARLIN_FORMAT_INT2)
  /// As INT4, zero 4 when absent; GGUF's Q3_K
  public static let int3 = Format(rawValue: MARLIN_FORMAT_INT3)
  /// As INT4, zero 16 when absent; GGUF's Q5_0, Q5_1, Q5_K
  public static let int5 = Format(rawValue: MARLIN_FORMAT_INT5)
  /// As INT4, zero 32 when absent; GGUF's Q6_K
  public static let int6 = Format(rawValue: MARLIN_FORMAT_INT6)
  /// iq4(q) * s, 16 integers from -127 to 113; GGUF's IQ4_NL, IQ4_XS
  public static let iq4 = Format(rawValue: MARLIN_FORMAT_IQ4)
  /// As INT4, q 0..255, zero 128 when absent
  public static let uint8 = Format(rawValue: MARLIN_FORMAT_UINT8)
  /// e4m3(q) * s, s a float or E8M0
  public static let fp8 = Format(rawValue: MARLIN_FORMAT_FP8)
  /// nf4(q) * s, the 16 floats of QLoRA (bitsandbytes)
  public static let nf4 = Format(rawValue: MARLIN_FORMAT_NF4)
  /// codebook[q] * s, 16 floats of the file or the caller
  public static let codebook4 = Format(rawValue: MARLIN_FORMAT_CODEBOOK4)
  /// Floats without scales; each compute multiplies them alike
  public static let float32 = Format(rawValue: MARLIN_FORMAT_FLOAT32)
  public static let float16 = Format(rawValue: MARLIN_FORMAT_FLOAT16)
  public static let bfloat16 = Format(rawValue: MARLIN_FORMAT_BFLOAT16)

  /// Its name here, as "bfloat16".
  public var description: String { Self.names[rawValue] ?? "marlin_format(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_FORMAT_NONE: "none", MARLIN_FORMAT_INT4: "int4", MARLIN_FORMAT_FP4: "fp4", MARLIN_FORMAT_MXFP4: "mxfp4",
    MARLIN_FORMAT_NVFP4: "nvfp4", MARLIN_FORMAT_INT8: "int8", MARLIN_FORMAT_INT2: "int2", MARLIN_FORMAT_INT3: "int3",
    MARLIN_FORMAT_INT5: "int5", MARLIN_FORMAT_INT6: "int6", MARLIN_FORMAT_IQ4: "iq4", MARLIN_FORMAT_UINT8: "uint8",
    MARLIN_FORMAT_FP8: "fp8", MARLIN_FORMAT_NF4: "nf4", MARLIN_FORMAT_CODEBOOK4: "codebook4", MARLIN_FORMAT_FLOAT32: "float32",
    MARLIN_FORMAT_FLOAT16: "float16", MARLIN_FORMAT_BFLOAT16: "bfloat16",
  ]
}

/// `marlin_compute` of the header. Values that this version does not know stay legal to hold.
public struct Compute: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// Activations as given, sums in FP32
  public static let `default` = Compute(rawValue: MARLIN_COMPUTE_DEFAULT)
  /// Activations rounded to INT8: see marlin_gemm_desc::activation_group
  public static let int8 = Compute(rawValue: MARLIN_COMPUTE_INT8)
  /// Activations rounded to E4M3; CUDA only
  public static let fp8 = Compute(rawValue: MARLIN_COMPUTE_FP8)
  /// Weights may be rounded to 16 bits: see RESULTS
  public static let w16 = Compute(rawValue: MARLIN_COMPUTE_W16)

  /// Its name here, as "w16".
  public var description: String { Self.names[rawValue] ?? "marlin_compute(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_COMPUTE_DEFAULT: "default", MARLIN_COMPUTE_INT8: "int8", MARLIN_COMPUTE_FP8: "fp8", MARLIN_COMPUTE_W16: "w16",
  ]
}

/// Element order of pre-quantized input; docs/formats.md defines each bit by bit
public struct Layout: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// Packing: ROWS; opening a file: detected
  public static let auto = Layout(rawValue: MARLIN_LAYOUT_AUTO)
  /// 4 bits: U8 [N, ceil(K/2)], even k low; INT8: I8; FP8: U8, E4M3; UINT8: U8, I8 (q - 128); others: U8
  public static let rows = Layout(rawValue: MARLIN_LAYOUT_ROWS)
  /// U32 [K/8, N], nibble i of a word = element 8 kb + i
  public static let k8n = Layout(rawValue: MARLIN_LAYOUT_K8N)
  /// GPTQ_V2, but the packed zeros store zero - 1
  public static let gptqV1 = Layout(rawValue: MARLIN_LAYOUT_GPTQ_V1)
  /// U32 [K*bits/32, N], columns are streams of codes; packed zeros
  public static let gptqV2 = Layout(rawValue: MARLIN_LAYOUT_GPTQ_V2)
  /// AutoAWQ "gemm"
  public static let awq = Layout(rawValue: MARLIN_LAYOUT_AWQ)
  /// AutoAWQ "gemv"
  public static let awqGemv = Layout(rawValue: MARLIN_LAYOUT_AWQ_GEMV)
  /// AutoAWQ "gemv_fast", llm-awq
  public static let awqGemvFast = Layout(rawValue: MARLIN_LAYOUT_AWQ_GEMV_FAST)
  /// GGUF blocks: `values` holds whole blocks
  public static let gguf = Layout(rawValue: MARLIN_LAYOUT_GGUF)
  /// IST Marlin
  public static let marlin = Layout(rawValue: MARLIN_LAYOUT_MARLIN)
  /// compressed-tensors marlin-24
  public static let marlin24 = Layout(rawValue: MARLIN_LAYOUT_MARLIN_24)

  /// Its name here, as "marlin24".
  public var description: String { Self.names[rawValue] ?? "marlin_layout(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_LAYOUT_AUTO: "auto", MARLIN_LAYOUT_ROWS: "rows", MARLIN_LAYOUT_K8N: "k8n", MARLIN_LAYOUT_GPTQ_V1: "gptqV1",
    MARLIN_LAYOUT_GPTQ_V2: "gptqV2", MARLIN_LAYOUT_AWQ: "awq", MARLIN_LAYOUT_AWQ_GEMV: "awqGemv",
    MARLIN_LAYOUT_AWQ_GEMV_FAST: "awqGemvFast", MARLIN_LAYOUT_GGUF: "gguf", MARLIN_LAYOUT_MARLIN: "marlin",
    MARLIN_LAYOUT_MARLIN_24: "marlin24",
  ]
}

/// GPTQ v1 stores zero - 1; readers disagree on the largest stored code (INT4: 15)
public struct GPTQZeroF: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// By the config's meta.quantizer, else WRAP with a warning
  public static let auto = GPTQZeroF(rawValue: MARLIN_GPTQ_ZERO_F_AUTO)
  /// Zero 0: AutoGPTQ's CUDA and exllama kernels
  public static let wrap = GPTQZeroF(rawValue: MARLIN_GPTQ_ZERO_F_WRAP)
  /// Zero 0, the next zero is one more: GPTQModel (INT3: before 7.0)
  public static let carry = GPTQZeroF(rawValue: MARLIN_GPTQ_ZERO_F_CARRY)
  /// Zero 2^bits (16): AutoGPTQ's torch and triton kernels, vLLM
  public static let plusOne = GPTQZeroF(rawValue: MARLIN_GPTQ_ZERO_F_PLUS_ONE)

  /// Its name here, as "plusOne".
  public var description: String { Self.names[rawValue] ?? "marlin_gptq_zero_f(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_GPTQ_ZERO_F_AUTO: "auto", MARLIN_GPTQ_ZERO_F_WRAP: "wrap", MARLIN_GPTQ_ZERO_F_CARRY: "carry",
    MARLIN_GPTQ_ZERO_F_PLUS_ONE: "plusOne",
  ]
}

/// f in C = f(A W^T + bias) (+ C); two-input ones take gate and up rows, give N/2 columns
public struct Epilogue: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  public static let none = Epilogue(rawValue: MARLIN_EPILOGUE_NONE)
  public static let silu = Epilogue(rawValue: MARLIN_EPILOGUE_SILU)
  public static let geluTanh = Epilogue(rawValue: MARLIN_EPILOGUE_GELU_TANH)
  public static let geluErf = Epilogue(rawValue: MARLIN_EPILOGUE_GELU_ERF)
  /// silu(gate) * up; see marlin_gemm_desc::gate_limit
  public static let swiglu = Epilogue(rawValue: MARLIN_EPILOGUE_SWIGLU)
  /// gelu_tanh(gate) * up
  public static let gegluTanh = Epilogue(rawValue: MARLIN_EPILOGUE_GEGLU_TANH)
  /// gpt-oss: SWIGLU with limits 7, gate_alpha 1.702, up_offset 1
  public static let swigluOai = Epilogue(rawValue: MARLIN_EPILOGUE_SWIGLU_OAI)
  /// Kimi K3: see marlin_gemm_desc::gate_limit
  public static let situ = Epilogue(rawValue: MARLIN_EPILOGUE_SITU)

  /// Its name here, as "situ".
  public var description: String { Self.names[rawValue] ?? "marlin_epilogue(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_EPILOGUE_NONE: "none", MARLIN_EPILOGUE_SILU: "silu", MARLIN_EPILOGUE_GELU_TANH: "geluTanh",
    MARLIN_EPILOGUE_GELU_ERF: "geluErf", MARLIN_EPILOGUE_SWIGLU: "swiglu", MARLIN_EPILOGUE_GEGLU_TANH: "gegluTanh",
    MARLIN_EPILOGUE_SWIGLU_OAI: "swigluOai", MARLIN_EPILOGUE_SITU: "situ",
  ]
}

/// The origin of a stream; `kind` decides, because CUDA's legacy stream is NULL
public struct Native: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  public static let none = Native(rawValue: MARLIN_NATIVE_NONE)
  public static let cudaStream = Native(rawValue: MARLIN_NATIVE_CUDA_STREAM)
  public static let metalQueue = Native(rawValue: MARLIN_NATIVE_METAL_QUEUE)
  /// Uncommitted, no encoder open; flush, then commit
  public static let metalCommandBuffer = Native(rawValue: MARLIN_NATIVE_METAL_COMMAND_BUFFER)
  /// We encode into it and change its bindings; the host ends it
  public static let metalEncoder = Native(rawValue: MARLIN_NATIVE_METAL_ENCODER)

  /// Its name here, as "metalEncoder".
  public var description: String { Self.names[rawValue] ?? "marlin_native(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_NATIVE_NONE: "none", MARLIN_NATIVE_CUDA_STREAM: "cudaStream", MARLIN_NATIVE_METAL_QUEUE: "metalQueue",
    MARLIN_NATIVE_METAL_COMMAND_BUFFER: "metalCommandBuffer", MARLIN_NATIVE_METAL_ENCODER: "metalEncoder",
  ]
}

/// How a file names and stores its quantized layers
public struct Scheme: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// GGUF to a name in .gguf or from a GGUF, else compressed-tensors
  public static let auto = Scheme(rawValue: MARLIN_SCHEME_AUTO)
  /// safetensors; MXFP4, NVFP4, INT4 (pack-quantized)
  public static let compressedTensors = Scheme(rawValue: MARLIN_SCHEME_COMPRESSED_TENSORS)
  /// safetensors; INT4, GPTQ v2
  public static let gptq = Scheme(rawValue: MARLIN_SCHEME_GPTQ)
  /// safetensors; 2:4 sparse INT4
  public static let marlin24 = Scheme(rawValue: MARLIN_SCHEME_MARLIN_24)
  /// GGUF v3; any of its blocks that the library reads
  public static let gguf = Scheme(rawValue: MARLIN_SCHEME_GGUF)
  /// safetensors; affine: INT2 to INT6, UINT8 with additive zeros
  public static let mlx = Scheme(rawValue: MARLIN_SCHEME_MLX)

  /// Its name here, as "mlx".
  public var description: String { Self.names[rawValue] ?? "marlin_scheme(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_SCHEME_AUTO: "auto", MARLIN_SCHEME_COMPRESSED_TENSORS: "compressedTensors", MARLIN_SCHEME_GPTQ: "gptq",
    MARLIN_SCHEME_MARLIN_24: "marlin24", MARLIN_SCHEME_GGUF: "gguf", MARLIN_SCHEME_MLX: "mlx",
  ]
}

/// Of a key-value of a checkpoint, or of the elements of an array
public struct ValueType: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  /// marlin_value::element_type of a value that is no array
  public static let none = ValueType(rawValue: MARLIN_VALUE_NONE)
  /// An element is one byte: false if it is 0
  public static let bool = ValueType(rawValue: MARLIN_VALUE_BOOL)
  public static let i64 = ValueType(rawValue: MARLIN_VALUE_I64)
  public static let u64 = ValueType(rawValue: MARLIN_VALUE_U64)
  public static let f64 = ValueType(rawValue: MARLIN_VALUE_F64)
  public static let string = ValueType(rawValue: MARLIN_VALUE_STRING)
  /// Of one element_type that is no ARRAY
  public static let array = ValueType(rawValue: MARLIN_VALUE_ARRAY)
  /// From here on: of elements only; a single number has 64 bits
  public static let i8 = ValueType(rawValue: MARLIN_VALUE_I8)
  public static let i16 = ValueType(rawValue: MARLIN_VALUE_I16)
  public static let i32 = ValueType(rawValue: MARLIN_VALUE_I32)
  public static let u8 = ValueType(rawValue: MARLIN_VALUE_U8)
  public static let u16 = ValueType(rawValue: MARLIN_VALUE_U16)
  public static let u32 = ValueType(rawValue: MARLIN_VALUE_U32)
  public static let f32 = ValueType(rawValue: MARLIN_VALUE_F32)

  /// Its name here, as "f32".
  public var description: String { Self.names[rawValue] ?? "marlin_value_type(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_VALUE_NONE: "none", MARLIN_VALUE_BOOL: "bool", MARLIN_VALUE_I64: "i64", MARLIN_VALUE_U64: "u64",
    MARLIN_VALUE_F64: "f64", MARLIN_VALUE_STRING: "string", MARLIN_VALUE_ARRAY: "array", MARLIN_VALUE_I8: "i8",
    MARLIN_VALUE_I16: "i16", MARLIN_VALUE_I32: "i32", MARLIN_VALUE_U8: "u8", MARLIN_VALUE_U16: "u16", MARLIN_VALUE_U32: "u32",
    MARLIN_VALUE_F32: "f32",
  ]
}

/// Of marlin_context_desc::log and marlin_convert_desc::log
public struct LogLevel: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
  public let rawValue: Int32
  public init(rawValue: Int32) { self.rawValue = rawValue }

  public static let error = LogLevel(rawValue: MARLIN_LOG_ERROR)
  public static let warning = LogLevel(rawValue: MARLIN_LOG_WARNING)
  public static let info = LogLevel(rawValue: MARLIN_LOG_INFO)

  /// Its name here, as "info".
  public var description: String { Self.names[rawValue] ?? "marlin_log_level(\(rawValue))" }
  private static let names: [Int32: String] = [
    MARLIN_LOG_ERROR: "error", MARLIN_LOG_WARNING: "warning", MARLIN_LOG_INFO: "info",
  ]
}

/// How to pack.
public struct PackOptions: OptionSet, Hashable, Sendable {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// q * s + zero: MLX, Q4_1, AWQ gemv_fast
  public static let additiveZeros = PackOptions(rawValue: MARLIN_PACK_ADDITIVE_ZEROS)
  /// tensor_scale divides: compressed-tensors NVFP4
  public static let divideScale = PackOptions(rawValue: MARLIN_PACK_DIVIDE_SCALE)
  /// Keep two of every 4 weights along K: see marlin_weights_pack
  public static let prune2of4 = PackOptions(rawValue: MARLIN_PACK_PRUNE_2_4)
  /// Rows alternate gate, up (gpt-oss): see marlin_gemm_desc; loading sets it
  public static let gateUpInterleaved = PackOptions(rawValue: MARLIN_PACK_GATE_UP_INTERLEAVED)
  /// When quantizing, search for the scale of least squared error
  public static let scalesMse = PackOptions(rawValue: MARLIN_PACK_SCALES_MSE)
  /// Dense values already obey 2:4: store them sparse, or fail with MARLIN_E_FORMAT
  public static let obeys2of4 = PackOptions(rawValue: MARLIN_PACK_OBEYS_2_4)
  /// LAYOUT_GGUF: the K-quant of this format (super-blocks of 256; IQ4: IQ4_XS)
  public static let twoLevelScales = PackOptions(rawValue: MARLIN_PACK_TWO_LEVEL_SCALES)
}

/// How to load.
public struct LoadOptions: OptionSet, Hashable, Sendable {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// As the MARLIN_PACK_ flags of the same names
  public static let prune2of4 = LoadOptions(rawValue: MARLIN_LOAD_PRUNE_2_4)
  /// For layers quantized on load
  public static let scalesMse = LoadOptions(rawValue: MARLIN_LOAD_SCALES_MSE)
  public static let obeys2of4 = LoadOptions(rawValue: MARLIN_LOAD_OBEYS_2_4)
}

/// How to convert.
public struct ConversionOptions: OptionSet, Hashable, Sendable {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// As the MARLIN_PACK_ flags of the same names
  public static let prune2of4 = ConversionOptions(rawValue: MARLIN_CONVERT_PRUNE_2_4)
  public static let scalesMse = ConversionOptions(rawValue: MARLIN_CONVERT_SCALES_MSE)
  public static let obeys2of4 = ConversionOptions(rawValue: MARLIN_CONVERT_OBEYS_2_4)
  /// Replace existing output files; otherwise: MARLIN_E_FILE, EEXIST
  public static let overwrite = ConversionOptions(rawValue: MARLIN_CONVERT_OVERWRITE)
  /// INT4 with a zero point a group
  public static let asymmetric = ConversionOptions(rawValue: MARLIN_CONVERT_ASYMMETRIC)
  /// Leave layers that the scheme cannot hold as they are; otherwise: an error
  public static let skipUnfit = ConversionOptions(rawValue: MARLIN_CONVERT_SKIP_UNFIT)
  /// Plan, check and report every outcome with its sizes; write nothing
  public static let dryRun = ConversionOptions(rawValue: MARLIN_CONVERT_DRY_RUN)
}

/// What is special about a layer.
public struct LayerFlags: OptionSet, Hashable, Sendable {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// q * s + zero: MLX, Q4_1, AWQ gemv_fast
  public static let additiveZeros = LayerFlags(rawValue: MARLIN_PACK_ADDITIVE_ZEROS)
  /// tensor_scale divides: compressed-tensors NVFP4
  public static let divideScale = LayerFlags(rawValue: MARLIN_PACK_DIVIDE_SCALE)
  /// Keep two of every 4 weights along K: see marlin_weights_pack
  public static let prune2of4 = LayerFlags(rawValue: MARLIN_PACK_PRUNE_2_4)
  /// Rows alternate gate, up (gpt-oss): see marlin_gemm_desc; loading sets it
  public static let gateUpInterleaved = LayerFlags(rawValue: MARLIN_PACK_GATE_UP_INTERLEAVED)
  /// When quantizing, search for the scale of least squared error
  public static let scalesMse = LayerFlags(rawValue: MARLIN_PACK_SCALES_MSE)
  /// Dense values already obey 2:4: store them sparse, or fail with MARLIN_E_FORMAT
  public static let obeys2of4 = LayerFlags(rawValue: MARLIN_PACK_OBEYS_2_4)
  /// LAYOUT_GGUF: the K-quant of this format (super-blocks of 256; IQ4: IQ4_XS)
  public static let twoLevelScales = LayerFlags(rawValue: MARLIN_PACK_TWO_LEVEL_SCALES)
  /// Has integer zero points
  public static let zeros = LayerFlags(rawValue: MARLIN_LAYER_ZEROS)
  /// Has a group index
  public static let actOrder = LayerFlags(rawValue: MARLIN_LAYER_ACT_ORDER)
  /// Two of every 4 weights along K are kept
  public static let sparse2of4 = LayerFlags(rawValue: MARLIN_LAYER_SPARSE_2_4)
  /// In marlin_convert_outcome: no value of a quantized layer has changed
  public static let exact = LayerFlags(rawValue: MARLIN_LAYER_EXACT)
}
