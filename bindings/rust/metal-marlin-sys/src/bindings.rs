// Written by bindings/rust/generate.py from metal_marlin.h; a test compares it with what that script would write now.
use core::ffi::c_void;
use std::os::raw::c_char;

handles! {
    /// a device with its kernels, caches and threads
    marlin_context
    /// packed weights on a device; immutable, shareable
    marlin_weights
    /// in-order queue of work
    marlin_stream
    /// memory that host and device both reach
    marlin_buffer
    /// an open .safetensors, its index, .gguf or .marlin
    marlin_checkpoint
}

pub const MARLIN_VERSION_MAJOR: u32 = 0;
pub const MARLIN_VERSION_MINOR: u32 = 9;
pub const MARLIN_VERSION_PATCH: u32 = 0;
/// Version of the table that marlin_get_api returns. The major changes when the ABI breaks, the minor when the table grows.
pub const MARLIN_ABI_MAJOR: u32 = 0;
pub const MARLIN_ABI_MINOR: u32 = 2;
/// marlin_gemm_desc::flags
/// C += ...
pub const MARLIN_GEMM_ACCUMULATE: u32 = 1;
/// a row has the same bits for every M: see RESULTS
pub const MARLIN_GEMM_ROW_INVARIANT: u32 = 2;
/// marlin_pack_desc::flags, and the same bits in marlin_layer_info::flags
/// q \* s + zero: MLX, Q4_1, AWQ gemv_fast
pub const MARLIN_PACK_ADDITIVE_ZEROS: u32 = 1;
/// tensor_scale divides: compressed-tensors NVFP4
pub const MARLIN_PACK_DIVIDE_SCALE: u32 = 2;
/// keep two of every 4 weights along K: see marlin_weights_pack
pub const MARLIN_PACK_PRUNE_2_4: u32 = 4;
/// rows alternate gate, up (gpt-oss): see marlin_gemm_desc; loading sets it
pub const MARLIN_PACK_GATE_UP_INTERLEAVED: u32 = 8;
/// when quantizing, search for the scale of least squared error
pub const MARLIN_PACK_SCALES_MSE: u32 = 16;
/// dense values already obey 2:4: store them sparse, or fail with MARLIN_E_FORMAT
pub const MARLIN_PACK_OBEYS_2_4: u32 = 32;
/// LAYOUT_GGUF: the K-quant of this format (super-blocks of 256; IQ4: IQ4_XS)
pub const MARLIN_PACK_TWO_LEVEL_SCALES: u32 = 64;
/// marlin_layer_info::flags only; further MARLIN_PACK_ flags are 128 and from 4096 on
/// has integer zero points
pub const MARLIN_LAYER_ZEROS: u32 = 256;
/// has a group index
pub const MARLIN_LAYER_ACT_ORDER: u32 = 512;
/// two of every 4 weights along K are kept
pub const MARLIN_LAYER_SPARSE_2_4: u32 = 1024;
/// in marlin_convert_outcome: no value of a quantized layer has changed
pub const MARLIN_LAYER_EXACT: u32 = 2048;
/// marlin_open_desc::flags: the order of stacks of experts whose shapes and config leave it open, which else are not read
/// \[experts, n, k\]
pub const MARLIN_OPEN_OUTPUTS_FIRST: u32 = 1;
/// \[experts, k, n\]
pub const MARLIN_OPEN_INPUTS_FIRST: u32 = 2;
/// marlin_load_desc::flags
/// as the MARLIN_PACK_ flags of the same names
pub const MARLIN_LOAD_PRUNE_2_4: u32 = 4;
/// for layers quantized on load
pub const MARLIN_LOAD_SCALES_MSE: u32 = 16;
pub const MARLIN_LOAD_OBEYS_2_4: u32 = 32;
/// marlin_convert_desc::flags
/// as the MARLIN_PACK_ flags of the same names
pub const MARLIN_CONVERT_PRUNE_2_4: u32 = 4;
pub const MARLIN_CONVERT_SCALES_MSE: u32 = 16;
pub const MARLIN_CONVERT_OBEYS_2_4: u32 = 32;
/// replace existing output files; otherwise: MARLIN_E_FILE, EEXIST
pub const MARLIN_CONVERT_OVERWRITE: u32 = 65536;
/// INT4 with a zero point a group
pub const MARLIN_CONVERT_ASYMMETRIC: u32 = 131072;
/// leave layers that the scheme cannot hold as they are; otherwise: an error
pub const MARLIN_CONVERT_SKIP_UNFIT: u32 = 262144;
/// plan, check and report every outcome with its sizes; write nothing
pub const MARLIN_CONVERT_DRY_RUN: u32 = 524288;
/// marlin_save_desc::flags
/// replace an existing file; otherwise: MARLIN_E_FILE, EEXIST
pub const MARLIN_SAVE_OVERWRITE: u32 = 65536;
/// Gives all constants of types to a macro: this crate's, which declares them, and that of `metal-marlin`, which makes types.
#[doc(hidden)]
#[macro_export]
macro_rules! marlin_constants {
    ($declare:ident) => {
        $declare! {
            /// values never change; they are spaced by kind
            Status: marlin_status {
                OK = MARLIN_OK = 0,
                /// a value that no caller may pass: NULL, unknown enum, overlap
                ARGUMENT = MARLIN_E_ARGUMENT = -10,
                /// struct_size is no size of any version
                STRUCT_SIZE = MARLIN_E_STRUCT_SIZE = -11,
                /// sizes that do not fit each other
                SHAPE = MARLIN_E_SHAPE = -12,
                /// legal, but not served by this version or device
                UNSUPPORTED = MARLIN_E_UNSUPPORTED = -20,
                /// the host's scratch is too small: marlin_prepare says how much
                NOT_PREPARED = MARLIN_E_NOT_PREPARED = -21,
                /// the operating system refused: native_code is errno
                FILE = MARLIN_E_FILE = -25,
                /// the content of a file or operand is malformed
                FORMAT = MARLIN_E_FORMAT = -26,
                /// no such index, layer, tensor or key
                NOT_FOUND = MARLIN_E_NOT_FOUND = -27,
                /// the backend has no usable device here
                NO_DEVICE = MARLIN_E_NO_DEVICE = -30,
                /// the device failed: native_code is its own code
                DEVICE = MARLIN_E_DEVICE = -31,
                TIMEOUT = MARLIN_E_TIMEOUT = -32,
                /// a callback asked to stop
                CANCELLED = MARLIN_E_CANCELLED = -33,
                MEMORY = MARLIN_E_MEMORY = -40,
                /// a bug in this library; please report it with the message
                INTERNAL = MARLIN_E_INTERNAL = -90,
            }
            Backend: marlin_backend {
                /// the first usable backend of CUDA, Metal, CPU
                AUTO = MARLIN_BACKEND_AUTO = 0,
                CPU = MARLIN_BACKEND_CPU = 1,
                METAL = MARLIN_BACKEND_METAL = 2,
                CUDA = MARLIN_BACKEND_CUDA = 3,
            }
            Dtype: marlin_dtype {
                F32 = MARLIN_F32 = 1,
                F16 = MARLIN_F16 = 2,
                BF16 = MARLIN_BF16 = 3,
                I8 = MARLIN_I8 = 4,
                I32 = MARLIN_I32 = 5,
                U32 = MARLIN_U32 = 6,
                /// two per byte, low nibble first; cols counts nibbles and is even
                U4 = MARLIN_U4 = 7,
                E8M0 = MARLIN_E8M0 = 8,
                /// the FN variant: no infinity, 0x7F and 0xFF are NaN
                E4M3 = MARLIN_E4M3 = 9,
                U8 = MARLIN_U8 = 10,
                I16 = MARLIN_I16 = 11,
                I64 = MARLIN_I64 = 12,
            }
            /// where marlin_matrix::data points
            Memory: marlin_memory {
                /// on a GPU only with stream NULL
                HOST = MARLIN_MEM_HOST = 0,
                /// a device pointer
                CUDA = MARLIN_MEM_CUDA = 1,
                /// an id\<MTLBuffer\>
                METAL = MARLIN_MEM_METAL = 2,
                /// a marlin_buffer \*; bounds are checked
                BUFFER = MARLIN_MEM_BUFFER = 3,
            }
            /// the value of a weight with code q in a group with scale s
            Format: marlin_format {
                /// in marlin_layer_info: floats, not quantized
                NONE = MARLIN_FORMAT_NONE = 0,
                /// (q - zero) \* s, zero 8 when absent; or q \* s + zero (additive)
                INT4 = MARLIN_FORMAT_INT4 = 1,
                /// e2m1(q) \* s, s a float
                FP4 = MARLIN_FORMAT_FP4 = 2,
                /// e2m1(q) \* 2^(e - 127), groups of 32 (OCP MX v1.0)
                MXFP4 = MARLIN_FORMAT_MXFP4 = 3,
                /// e2m1(q) \* e4m3 \* tensor_scale, groups of 16
                NVFP4 = MARLIN_FORMAT_NVFP4 = 4,
                /// q \* s (+ zero); holds Q8_0 exactly
                INT8 = MARLIN_FORMAT_INT8 = 5,
                /// as INT4, zero 2 when absent; GGUF's Q2_K
                INT2 = MARLIN_FORMAT_INT2 = 6,
                /// as INT4, zero 4 when absent; GGUF's Q3_K
                INT3 = MARLIN_FORMAT_INT3 = 7,
                /// as INT4, zero 16 when absent; GGUF's Q5_0, Q5_1, Q5_K
                INT5 = MARLIN_FORMAT_INT5 = 8,
                /// as INT4, zero 32 when absent; GGUF's Q6_K
                INT6 = MARLIN_FORMAT_INT6 = 9,
                /// iq4(q) \* s, 16 integers from -127 to 113; GGUF's IQ4_NL, IQ4_XS
                IQ4 = MARLIN_FORMAT_IQ4 = 10,
                /// as INT4, q 0..255, zero 128 when absent
                UINT8 = MARLIN_FORMAT_UINT8 = 11,
                /// e4m3(q) \* s, s a float or E8M0
                FP8 = MARLIN_FORMAT_FP8 = 12,
                /// nf4(q) \* s, the 16 floats of QLoRA (bitsandbytes)
                NF4 = MARLIN_FORMAT_NF4 = 13,
                /// codebook\[q\] \* s, 16 floats of the file or the caller
                CODEBOOK4 = MARLIN_FORMAT_CODEBOOK4 = 14,
                /// floats without scales; each compute multiplies them alike
                FLOAT32 = MARLIN_FORMAT_FLOAT32 = 15,
                FLOAT16 = MARLIN_FORMAT_FLOAT16 = 16,
                BFLOAT16 = MARLIN_FORMAT_BFLOAT16 = 17,
            }
            Compute: marlin_compute {
                /// activations as given, sums in FP32
                DEFAULT = MARLIN_COMPUTE_DEFAULT = 0,
                /// activations rounded to INT8: see marlin_gemm_desc::activation_group
                INT8 = MARLIN_COMPUTE_INT8 = 1,
                /// activations rounded to E4M3; CUDA only
                FP8 = MARLIN_COMPUTE_FP8 = 2,
                /// weights may be rounded to 16 bits: see RESULTS
                W16 = MARLIN_COMPUTE_W16 = 3,
            }
            /// element order of pre-quantized input; docs/formats.md defines each bit by bit
            Layout: marlin_layout {
                /// packing: ROWS; opening a file: detected
                AUTO = MARLIN_LAYOUT_AUTO = 0,
                /// 4 bits: U8 \[N, ceil(K/2)\], even k low; INT8: I8; FP8: U8, E4M3; UINT8: U8, I8 (q - 128); others: U8
                ROWS = MARLIN_LAYOUT_ROWS = 1,
                /// U32 \[K/8, N\], nibble i of a word = element 8 kb + i
                K8N = MARLIN_LAYOUT_K8N = 2,
                /// GPTQ_V2, but the packed zeros store zero - 1
                GPTQ_V1 = MARLIN_LAYOUT_GPTQ_V1 = 3,
                /// U32 \[K\*bits/32, N\], columns are streams of codes; packed zeros
                GPTQ_V2 = MARLIN_LAYOUT_GPTQ_V2 = 4,
                /// AutoAWQ "gemm"
                AWQ = MARLIN_LAYOUT_AWQ = 5,
                /// AutoAWQ "gemv"
                AWQ_GEMV = MARLIN_LAYOUT_AWQ_GEMV = 6,
                /// AutoAWQ "gemv_fast", llm-awq
                AWQ_GEMV_FAST = MARLIN_LAYOUT_AWQ_GEMV_FAST = 7,
                /// GGUF blocks: `values` holds whole blocks
                GGUF = MARLIN_LAYOUT_GGUF = 8,
                /// IST Marlin
                MARLIN = MARLIN_LAYOUT_MARLIN = 9,
                /// compressed-tensors marlin-24
                MARLIN_24 = MARLIN_LAYOUT_MARLIN_24 = 10,
            }
            /// GPTQ v1 stores zero - 1; readers disagree on the largest stored code (INT4: 15)
            GptqZeroF: marlin_gptq_zero_f {
                /// by the config's meta.quantizer, else WRAP with a warning
                AUTO = MARLIN_GPTQ_ZERO_F_AUTO = 0,
                /// zero 0: AutoGPTQ's CUDA and exllama kernels
                WRAP = MARLIN_GPTQ_ZERO_F_WRAP = 1,
                /// zero 0, the next zero is one more: GPTQModel (INT3: before 7.0)
                CARRY = MARLIN_GPTQ_ZERO_F_CARRY = 2,
                /// zero 2^bits (16): AutoGPTQ's torch and triton kernels, vLLM
                PLUS_ONE = MARLIN_GPTQ_ZERO_F_PLUS_ONE = 3,
            }
            /// f in C = f(A W^T + bias) (+ C); two-input ones take gate and up rows, give N/2 columns
            Epilogue: marlin_epilogue {
                NONE = MARLIN_EPILOGUE_NONE = 0,
                SILU = MARLIN_EPILOGUE_SILU = 1,
                GELU_TANH = MARLIN_EPILOGUE_GELU_TANH = 2,
                GELU_ERF = MARLIN_EPILOGUE_GELU_ERF = 3,
                /// silu(gate) \* up; see marlin_gemm_desc::gate_limit
                SWIGLU = MARLIN_EPILOGUE_SWIGLU = 4,
                /// gelu_tanh(gate) \* up
                GEGLU_TANH = MARLIN_EPILOGUE_GEGLU_TANH = 5,
                /// gpt-oss: SWIGLU with limits 7, gate_alpha 1.702, up_offset 1
                SWIGLU_OAI = MARLIN_EPILOGUE_SWIGLU_OAI = 6,
                /// Kimi K3: see marlin_gemm_desc::gate_limit
                SITU = MARLIN_EPILOGUE_SITU = 7,
            }
            /// the origin of a stream; `kind` decides, because CUDA's legacy stream is NULL
            Native: marlin_native {
                NONE = MARLIN_NATIVE_NONE = 0,
                CUDA_STREAM = MARLIN_NATIVE_CUDA_STREAM = 1,
                METAL_QUEUE = MARLIN_NATIVE_METAL_QUEUE = 2,
                /// uncommitted, no encoder open; flush, then commit
                METAL_COMMAND_BUFFER = MARLIN_NATIVE_METAL_COMMAND_BUFFER = 3,
                /// we encode into it and change its bindings; the host ends it
                METAL_ENCODER = MARLIN_NATIVE_METAL_ENCODER = 4,
            }
            /// how a file names and stores its quantized layers
            Scheme: marlin_scheme {
                /// GGUF to a name in .gguf or from a GGUF, else compressed-tensors
                AUTO = MARLIN_SCHEME_AUTO = 0,
                /// safetensors; MXFP4, NVFP4, INT4 (pack-quantized)
                COMPRESSED_TENSORS = MARLIN_SCHEME_COMPRESSED_TENSORS = 1,
                /// safetensors; INT4, GPTQ v2
                GPTQ = MARLIN_SCHEME_GPTQ = 2,
                /// safetensors; 2:4 sparse INT4
                MARLIN_24 = MARLIN_SCHEME_MARLIN_24 = 3,
                /// GGUF v3; any of its blocks that the library reads
                GGUF = MARLIN_SCHEME_GGUF = 4,
                /// safetensors; affine: INT2 to INT6, UINT8 with additive zeros
                MLX = MARLIN_SCHEME_MLX = 5,
            }
            /// of a key-value of a checkpoint, or of the elements of an array
            ValueType: marlin_value_type {
                /// marlin_value::element_type of a value that is no array
                NONE = MARLIN_VALUE_NONE = 0,
                /// an element is one byte: false if it is 0
                BOOL = MARLIN_VALUE_BOOL = 1,
                I64 = MARLIN_VALUE_I64 = 2,
                U64 = MARLIN_VALUE_U64 = 3,
                F64 = MARLIN_VALUE_F64 = 4,
                STRING = MARLIN_VALUE_STRING = 5,
                /// of one element_type that is no ARRAY
                ARRAY = MARLIN_VALUE_ARRAY = 6,
                /// from here on: of elements only; a single number has 64 bits
                I8 = MARLIN_VALUE_I8 = 7,
                I16 = MARLIN_VALUE_I16 = 8,
                I32 = MARLIN_VALUE_I32 = 9,
                U8 = MARLIN_VALUE_U8 = 10,
                U16 = MARLIN_VALUE_U16 = 11,
                U32 = MARLIN_VALUE_U32 = 12,
                F32 = MARLIN_VALUE_F32 = 13,
            }
            /// of marlin_context_desc::log and marlin_convert_desc::log
            LogLevel: marlin_log_level {
                ERROR = MARLIN_LOG_ERROR = 1,
                WARNING = MARLIN_LOG_WARNING = 2,
                INFO = MARLIN_LOG_INFO = 3,
            }
        }
    };
}
marlin_constants!(declare);

structs! {
    marlin_error {
        struct_size: u32,
        status: marlin_status,
        /// errno (of Windows an HRESULT where there is none), CUresult or NSError.code; 0: none
        native_code: i32,
        reserved: u32,
        /// UTF-8, NUL-terminated, control characters escaped: the expected value, the found value, the place
        message: [c_char; 240],
    }
    /// frozen
    marlin_matrix {
        /// NULL: absent
        data: *mut c_void,
        /// added to data; use it for offsets into MTLBuffers
        offset_bytes: u64,
        rows: i64,
        cols: i64,
        /// in elements; 0: cols
        row_stride: i64,
        dtype: marlin_dtype,
        memory: marlin_memory,
    }
    marlin_device_info {
        struct_size: u32,
        backend: marlin_backend,
        /// for marlin_context_desc::device_index
        index: i32,
        flags: u32,
        name: [c_char; 64],
        /// "avx512-vnni-bf16", "sm_90a", "apple9"
        isa_or_arch: [c_char; 32],
        memory_bytes: u64,
        /// empty if the device is usable
        why_not: [c_char; 160],
        /// CPU: what marlin_context_desc::threads 0 means to this process now; 0 for other backends
        threads: u32,
        reserved: u32,
    }
    /// A step of work that is done: on the CPU of a product, on a GPU a launch. The library sets struct_size; a field past it, and what a pointer points to after the callback, does not exist.
    marlin_trace_event {
        struct_size: u32,
        /// events that have these times, which are those of all of them; 1: it is timed alone
        together: u32,
        /// as marlin_explain names it
        kernel: *const c_char,
        /// "multiply", "prepare A", ...
        step: *const c_char,
        /// by the host's monotonic clock: CLOCK_MONOTONIC, on a Mac that of mach_absolute_time
        begin_ns: u64,
        /// by the host's monotonic clock: CLOCK_MONOTONIC, on a Mac that of mach_absolute_time
        end_ns: u64,
        /// by the device's clock; 0: unknown, as on the CPU
        device_ns: u64,
        /// the rows of the product that the step works on, and its weights
        rows: i64,
        /// the rows of the product that the step works on, and its weights
        n: i64,
        /// the rows of the product that the step works on, and its weights
        k: i64,
        /// NULL: a call without one
        stream: *const marlin_stream,
    }
    marlin_context_desc {
        struct_size: u32,
        backend: marlin_backend,
        /// marlin_device_info::index; 0 with AUTO
        device_index: i32,
        /// CPU threads, with parallel_for those that work is divided for; 0: as many as the process may use
        threads: u32,
        /// the host's CUcontext or id\<MTLDevice\>; NULL: by index. NULL with AUTO and CPU
        native_device: *mut c_void,
        /// returning NULL is MARLIN_E_MEMORY; align is a power of two
        alloc: Option<unsafe extern "C" fn(user: *mut c_void, size: usize, align: usize) -> *mut c_void>,
        /// give alloc and release, or neither
        release: Option<unsafe extern "C" fn(user: *mut c_void, p: *mut c_void, size: usize)>,
        log: Option<unsafe extern "C" fn(user: *mut c_void, level: marlin_log_level, message: *const c_char)>,
        parallel_for: Option<unsafe extern "C" fn(user: *mut c_void, tasks: u32, task: Option<unsafe extern "C" fn(task_user: *mut c_void, index: u32)>, task_user: *mut c_void)>,
        /// given to each of the five
        user: *mut c_void,
        /// Hears of each step of a product, and of marlin_weights_unpack. The CPU times the steps of a call, each for all of its products. CUDA times launches, which it tells of when a wait, a flush or destroying the stream finds them done; the first after a wait begins when it is recorded, and work in a graph of the host is not timed. Metal times command buffers, so a flush behind each product times it alone; of an encoder of the host's it tells nothing. NULL: nothing is timed.
        trace: Option<unsafe extern "C" fn(user: *mut c_void, event: *const marlin_trace_event)>,
    }
    marlin_stream_desc {
        struct_size: u32,
        kind: marlin_native,
        native: *mut c_void,
        /// the host's memory for temporaries: U8, any alignment, no gaps between rows, no overlap with operands. marlin_prepare says how much; a call that needs more is MARLIN_E_NOT_PREPARED. Absent: the stream owns memory of its own
        scratch: marlin_matrix,
        /// id\<MTLFence\> that the host has updated, for memory that Metal does not track: our encoders on a METAL_QUEUE or METAL_COMMAND_BUFFER wait for it; needs update_fence, which may be the same one
        wait_fence: *mut c_void,
        /// id\<MTLFence\>: our encoders update it, and so wait for each other. Hosts order their encoders and CUDA streams themselves: MARLIN_E_ARGUMENT there
        update_fence: *mut c_void,
    }
    /// One matrix W\[n, k\] to pack. Quantized values need scales. Float values (F32, F16 or BF16, \[n, k\]) are quantized here.
    marlin_pack_desc {
        struct_size: u32,
        format: marlin_format,
        /// weights along K that share a scale; 0: the format's own (32, NVFP4 16, FP8 128, NF4 64); \>= k: the row
        group_size: u32,
        layout: marlin_layout,
        /// out_features, in_features
        n: i64,
        /// out_features, in_features
        k: i64,
        /// codes in `layout`, or floats \[n, k\]
        values: marlin_matrix,
        /// ROWS: \[n, ceil(k/group)\] F32, F16, BF16, E8M0 or U8, E4M3; else as the layout stores them
        scales: marlin_matrix,
        /// ROWS: \[n, ceil(k/group)\] U8 0..15, or floats with ADDITIVE_ZEROS; absent: see marlin_format
        zeros: marlin_matrix,
        /// 2:4: values hold kept codes only. ROWS: U8 mask \[n, ceil(k/8)\] or I16 nibbles \[n, ceil(k/16)\]
        sparse_meta: marlin_matrix,
        /// \[1, k\] I32, the group of each k (act-order); absent: k / group_size
        group_index: marlin_matrix,
        /// \[1, 1\] F32; absent: 1
        tensor_scale: marlin_matrix,
        flags: u32,
        /// layout GPTQ_V1 only
        gptq_zero_f: marlin_gptq_zero_f,
        /// PRUNE_2_4 only: \[1, k\] F32 \>= 0; absent: all 1. Pruning ranks by |w| \* norm (Wanda), and norm^2 weighs the squared errors of SCALES_MSE.
        column_norms: marlin_matrix,
        /// CODEBOOK4 only: \[1, 16\] F32, the value of each code in units of its scale
        codebook: marlin_matrix,
    }
    /// C\[M, N\] = f(A\[M, K\] W^T + bias) (+ C). A, C, bias are each F32, F16 or BF16. Sums are float32: C may be infinite or NaN where the sum of |a| |w| exceeds float32, and with NVFP4 where this sum over tensor_scale does (|a| above about 1e34). Two-input epilogues: all gate rows of W come first, then all up rows, as when the layers gate and up are loaded as one handle in this order: column j of C combines row j with row N/2 + j. In weights with PACK_GATE_UP_INTERLEAVED, gate and up rows alternate: column j of C combines row 2 j with row 2 j + 1. Other epilogues ignore the flag. Mixture of experts: weights of E experts need expert_ids \[T, top_k\]; weights of one expert may have them. Row t top_k + s of the product, the routed row s of token t, is multiplied by expert expert_ids\[t, s\]. A token may name one expert twice. A has one row per token, \[T, K\] (as for gate and up), or one per routed row, \[T top_k, K\] (as for down). Without expert_scales, C has one row per routed row. With expert_scales, C has one row per token, \[T, N\]: the sum over s of f(A W^T + bias) times the scale, in float32 and in the order of s. An id outside \[0, E) contributes 0, and its scale is not read, so a host that holds experts first..last passes id - first. On a GPU, more than 4096 experts, and experts whose packed layouts differ, as act-order with groups of unequal sizes can make them do, are MARLIN_E_UNSUPPORTED.
    marlin_gemm_desc {
        struct_size: u32,
        compute: marlin_compute,
        epilogue: marlin_epilogue,
        flags: u32,
        weights: *const marlin_weights,
        /// \[M, K\]
        a: marlin_matrix,
        /// \[M, N\]; N/2 columns for two-input epilogues
        c: marlin_matrix,
        /// \[1, N\], for experts \[1 or E, N\], or absent; in the row order of the weights
        bias: marlin_matrix,
        /// \[T, top_k\] I32, or absent: no mixture of experts
        expert_ids: marlin_matrix,
        /// \[T, top_k\] F32, F16 or BF16, or absent: no sum
        expert_scales: marlin_matrix,
        /// INT8: activations along K that share a scale: 32, 64, 128, or K and more (the row); 0: 32
        activation_group: i64,
        /// SWIGLU is g sigmoid(gate_alpha g) (u + up_offset) of g = min(gate, gate_limit) and u = up within +-up_limit. (DeepSeek V4 has one limit for both.) SITU is l tanh(gate / l) sigmoid(gate) m tanh(up / m) of l = gate_limit and m = up_limit, which it needs. All are finite, and limits are not negative. They are 0 for other epilogues.
        /// 0: none
        gate_limit: f32,
        /// SWIGLU is g sigmoid(gate_alpha g) (u + up_offset) of g = min(gate, gate_limit) and u = up within +-up_limit. (DeepSeek V4 has one limit for both.) SITU is l tanh(gate / l) sigmoid(gate) m tanh(up / m) of l = gate_limit and m = up_limit, which it needs. All are finite, and limits are not negative. They are 0 for other epilogues.
        /// 0: none
        up_limit: f32,
        /// SWIGLU only; gate_alpha 0: 1
        gate_alpha: f32,
        /// SWIGLU only; gate_alpha 0: 1
        up_offset: f32,
    }
    /// frozen; in elements of N, K and experts; count 0: everything from first on
    marlin_shard {
        first: [i64; 3],
        count: [i64; 3],
    }
    marlin_load_desc {
        struct_size: u32,
        flags: u32,
        /// as marlin_checkpoint_layer names them; several names: one handle, concatenated along N
        layers: *const *const c_char,
        /// one per name; or NULL: everything
        shards: *const marlin_shard,
        layer_count: u32,
        /// 0 or 1: as in the layers; above 1: each name is (a part of) one expert
        expert_count: u32,
        /// quantize layers of floats to this format; 0: layers of floats are an error
        format: marlin_format,
        /// with format; 0: the format's own
        group_size: u32,
        /// LOAD_PRUNE_2_4: one per name, absent or \[1, K of the layer\] as above; or NULL
        column_norms: *const marlin_matrix,
        /// Called on the calling thread at the start, at the end and at intervals. It counts elements of W. A result other than 0 cancels the load: MARLIN_E_CANCELLED. May be NULL.
        progress: Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> i32>,
        /// given to progress
        user: *mut c_void,
    }
    marlin_open_desc {
        struct_size: u32,
        flags: u32,
        /// AUTO: detected from config.json, tensor names and dtypes; otherwise taken on trust
        layout: marlin_layout,
        /// for all GPTQ v1 layers of the file
        gptq_zero_f: marlin_gptq_zero_f,
        /// An object of JSON with members of config.json. It answers first what the files leave open, or say wrongly: a layer that is refused because two readings remain names the members that tell. {"quantization_config": {"group_size": 64}}
        config: *const c_char,
    }
    marlin_layer_info {
        struct_size: u32,
        /// MARLIN_OK if the layer can be loaded
        status: marlin_status,
        /// valid as long as its checkpoint or weights
        name: *const c_char,
        n: i64,
        k: i64,
        /// 1 for a layer without experts
        experts: u32,
        /// k when one group spans the row
        group_size: u32,
        /// MARLIN_FORMAT_NONE: floats of `dtype`, which can be quantized on load
        format: marlin_format,
        /// in the file; for packed weights: the layout of their first part
        layout: marlin_layout,
        flags: u32,
        /// of the scales; of the values if they are floats
        dtype: marlin_dtype,
        /// in the file, or on the device
        bytes: u64,
        /// sum of w^2 over kept weights / over all weights; 1 if nothing was pruned or all weights are 0
        kept_share: f64,
    }
    /// A key-value of a checkpoint. Its pointers are valid as long as the checkpoint, and its texts have no NUL at their end.
    marlin_value {
        struct_size: u32,
        /// BOOL, I64, U64, F64, STRING or ARRAY
        kind: marlin_value_type,
        /// of an ARRAY
        element_type: marlin_value_type,
        reserved: u32,
        /// as the file has it; UTF-8 is not checked, here and in `data`
        key: *const c_char,
        key_bytes: u64,
        /// BOOL: 0 or 1. A number out of range is the nearest in range, a fraction is cut off, and NaN is 0
        i64: i64,
        /// the same number for sizes: 0 if it is negative
        u64: u64,
        /// the nearest float to the number
        f64: f64,
        /// STRING: its text. ARRAY: its elements, little-endian; they begin at any byte, so copy them
        data: *const c_void,
        /// of data
        bytes: u64,
        /// ARRAY: elements; STRING: bytes
        count: u64,
    }
    /// The result of converting one layer.
    marlin_convert_outcome {
        struct_size: u32,
        /// MARLIN_OK: quantized; else the reason to leave it as it was (SKIP_UNFIT)
        status: marlin_status,
        name: *const c_char,
        /// the message that belongs to status, or ""
        reason: *const c_char,
        n: i64,
        k: i64,
        experts: u32,
        /// k when one group spans the row
        group_size: u32,
        /// MARLIN_FORMAT_NONE: floats
        from: marlin_format,
        /// of the written layer
        format: marlin_format,
        /// MARLIN_LAYER_\* and MARLIN_PACK_\* of the written layer
        flags: u32,
        reserved: u32,
        /// of all its tensors
        bytes_before: u64,
        /// of all its tensors
        bytes_after: u64,
        /// sum of (written - original)^2 over all elements, in float64; 0 in a dry run
        squared_error: f64,
        /// sum of original^2
        squared_norm: f64,
        /// sum of original^2 over what pruning kept; squared_norm when nothing is pruned
        kept_norm: f64,
    }
    /// Quantizes a checkpoint from file to file.
    marlin_convert_desc {
        struct_size: u32,
        flags: u32,
        scheme: marlin_scheme,
        /// of the scheme; NONE: see types, and layers that are quantized already stay exact
        format: marlin_format,
        /// 0: the format's own (MARLIN_24: 128); \>= k: the whole row
        group_size: u32,
        layer_count: u32,
        /// the layers to quantize, by name; all other tensors are copied unchanged
        layers: *const *const c_char,
        /// safetensors: most bytes of tensors in one file; 0: as many files as the input has
        shard_bytes: u64,
        /// Called on the calling thread, at least once per layer and every few million weights. total_bytes is the size of the input, and 0 while the files are being planned. A result other than 0 cancels: MARLIN_E_CANCELLED. layer lives during the call.
        progress: Option<unsafe extern "C" fn(user: *mut c_void, done_bytes: u64, total_bytes: u64, layer: *const c_char) -> i32>,
        /// in file order; outcome is valid during the call
        layer_done: Option<unsafe extern "C" fn(user: *mut c_void, outcome: *const marlin_convert_outcome)>,
        /// as marlin_context_desc::log
        log: Option<unsafe extern "C" fn(user: *mut c_void, level: marlin_log_level, message: *const c_char)>,
        parallel_for: Option<unsafe extern "C" fn(user: *mut c_void, tasks: u32, task: Option<unsafe extern "C" fn(task_user: *mut c_void, index: u32)>, task_user: *mut c_void)>,
        /// given to each of the four, which may be NULL; without parallel_for all work runs on the calling thread
        user: *mut c_void,
        /// One per layer, absent or as in marlin_load_desc, in host memory; or NULL. They rank weights to prune. Their squares weigh the squared errors of SCALES_MSE and of all other scales that are fitted by least squares.
        column_norms: *const marlin_matrix,
        /// GGUF: one per layer, the type of its blocks, as "Q4_K". An entry that is NULL, or types NULL: by format and flags.
        types: *const *const c_char,
    }
    /// What a packed container holds.
    marlin_save_desc {
        struct_size: u32,
        flags: u32,
        /// one entry each; NULL with count 0: every layer that loads, alone and whole
        loads: *const *const marlin_load_desc,
        load_count: u32,
        /// of the shards in loads, for readers of the file; rank_count 0: 1
        rank: u32,
        /// of the shards in loads, for readers of the file; rank_count 0: 1
        rank_count: u32,
        /// whose devices the file is for; this machine needs no such device; AUTO: that of the context
        backend: marlin_backend,
        /// Hears of each load that is MARLIN_E_UNSUPPORTED. Its layers stay as they are, but one load has to be served. NULL: such a load in loads is an error.
        /// both are valid during the call
        refused: Option<unsafe extern "C" fn(user: *mut c_void, load: *const marlin_load_desc, why: *const marlin_error)>,
        user: *mut c_void,
    }
    /// grows at its end only; no member inside struct_size is NULL
    marlin_api {
        struct_size: u32,
        abi_major: u32,
        abi_minor: u32,
        library_version: u32,
        device_get: unsafe extern "C" fn(u32, *mut marlin_device_info, *mut marlin_error) -> marlin_status,
        context_create: unsafe extern "C" fn(*const marlin_context_desc, *mut *mut marlin_context, *mut marlin_error) -> marlin_status,
        context_destroy: unsafe extern "C" fn(*mut marlin_context),
        stream_create: unsafe extern "C" fn(*mut marlin_context, *const marlin_stream_desc, *mut *mut marlin_stream, *mut marlin_error) -> marlin_status,
        stream_flush: unsafe extern "C" fn(*mut marlin_stream, *mut marlin_error) -> marlin_status,
        stream_wait: unsafe extern "C" fn(*mut marlin_stream, u64, *mut marlin_error) -> marlin_status,
        stream_destroy: unsafe extern "C" fn(*mut marlin_stream),
        buffer_create: unsafe extern "C" fn(*mut marlin_context, u64, *mut *mut marlin_buffer, *mut marlin_error) -> marlin_status,
        buffer_host: unsafe extern "C" fn(*mut marlin_buffer) -> *mut c_void,
        buffer_destroy: unsafe extern "C" fn(*mut marlin_buffer),
        weights_pack: unsafe extern "C" fn(*mut marlin_context, *const *const marlin_pack_desc, u32, u32, *mut *mut marlin_weights, *mut marlin_error) -> marlin_status,
        weights_unpack: unsafe extern "C" fn(*mut marlin_stream, *const marlin_weights, *const marlin_matrix, i64, *const marlin_matrix, *mut marlin_error) -> marlin_status,
        weights_info: unsafe extern "C" fn(*const marlin_weights, *mut marlin_layer_info, *mut marlin_error) -> marlin_status,
        weights_destroy: unsafe extern "C" fn(*mut marlin_weights),
        checkpoint_open: unsafe extern "C" fn(*const c_char, *const marlin_open_desc, *mut *mut marlin_checkpoint, *mut marlin_error) -> marlin_status,
        checkpoint_layer: unsafe extern "C" fn(*const marlin_checkpoint, u64, *mut marlin_layer_info, *mut marlin_error) -> marlin_status,
        checkpoint_tensor: unsafe extern "C" fn(*const marlin_checkpoint, *const c_char, *mut marlin_matrix, *mut marlin_error) -> marlin_status,
        checkpoint_destroy: unsafe extern "C" fn(*mut marlin_checkpoint),
        weights_load: unsafe extern "C" fn(*mut marlin_context, *const marlin_checkpoint, *const marlin_load_desc, *mut *mut marlin_weights, *mut marlin_error) -> marlin_status,
        gemm: unsafe extern "C" fn(*mut marlin_stream, *const marlin_gemm_desc, *mut marlin_error) -> marlin_status,
        gemm_many: unsafe extern "C" fn(*mut marlin_stream, *const *const marlin_gemm_desc, u32, *mut marlin_error) -> marlin_status,
        prepare: unsafe extern "C" fn(*mut marlin_stream, *const *const marlin_gemm_desc, u32, i64, *mut u64, *mut marlin_error) -> marlin_status,
        explain: unsafe extern "C" fn(*const marlin_gemm_desc, *mut c_char, usize, *mut usize, *mut marlin_error) -> marlin_status,
        version: unsafe extern "C" fn() -> u32,
        status_name: unsafe extern "C" fn(marlin_status) -> *const c_char,
        checkpoint_convert: unsafe extern "C" fn(*const marlin_checkpoint, *const c_char, *const marlin_convert_desc, *mut marlin_error) -> marlin_status,
        checkpoint_value: unsafe extern "C" fn(*const marlin_checkpoint, *const c_char, *mut marlin_value, *mut marlin_error) -> marlin_status,
        checkpoint_value_at: unsafe extern "C" fn(*const marlin_checkpoint, u64, *mut marlin_value, *mut marlin_error) -> marlin_status,
        value_next_string: unsafe extern "C" fn(*const marlin_value, *mut *const c_char, *mut u64, *mut marlin_error) -> marlin_status,
        checkpoint_save: unsafe extern "C" fn(*mut marlin_context, *const marlin_checkpoint, *const c_char, *const marlin_save_desc, *mut marlin_error) -> marlin_status,
        stream_notify: unsafe extern "C" fn(*mut marlin_stream, Option<unsafe extern "C" fn(*mut c_void, marlin_status)>, *mut c_void, *mut marlin_error) -> marlin_status,
    }
}

#[cfg(feature = "link")]
extern "C" {
    /// Describes device `index`, counted over all backends in the order of MARLIN_BACKEND_AUTO. Unusable devices are included. An index past the end is MARLIN_E_NOT_FOUND.
    pub fn marlin_device_get(index: u32, out: *mut marlin_device_info, err: *mut marlin_error) -> marlin_status;
    /// desc NULL: all defaults. The library starts no thread before the first work.
    pub fn marlin_context_create(desc: *const marlin_context_desc, out: *mut *mut marlin_context, err: *mut marlin_error) -> marlin_status;
    /// The threads end when the last handle of the context is destroyed.
    pub fn marlin_context_destroy(context: *mut marlin_context);
    /// desc NULL: all defaults. A stream is cheap: one per frame is fine.
    pub fn marlin_stream_create(context: *mut marlin_context, desc: *const marlin_stream_desc, out: *mut *mut marlin_stream, err: *mut marlin_error) -> marlin_status;
    /// Submits recorded work without waiting. stream must not be NULL, here and in marlin_stream_wait.
    pub fn marlin_stream_flush(stream: *mut marlin_stream, err: *mut marlin_error) -> marlin_status;
    /// Waits until all work so far is done, or returns MARLIN_E_TIMEOUT. timeout_ns 0 polls, UINT64_MAX waits for ever.
    pub fn marlin_stream_wait(stream: *mut marlin_stream, timeout_ns: u64, err: *mut marlin_error) -> marlin_status;
    pub fn marlin_stream_destroy(stream: *mut marlin_stream);
    /// bytes \> 0. The memory is zero-filled and aligned to 64 bytes.
    pub fn marlin_buffer_create(context: *mut marlin_context, bytes: u64, out: *mut *mut marlin_buffer, err: *mut marlin_error) -> marlin_status;
    /// The host's view of the memory; NULL for NULL and for a handle of another kind.
    pub fn marlin_buffer_host(buffer: *mut marlin_buffer) -> *mut c_void;
    pub fn marlin_buffer_destroy(buffer: *mut marlin_buffer);
    /// Packs part_count matrices, concatenated along N, into one handle. The parts must agree in k, format, group size and kinds of scales and zeros. With expert_count above 1, the parts belong to that many experts: all parts of the first expert come first, and every expert has the same number of parts with the same n. 0 means 1. The parts may be freed afterwards. Rows and columns are padded. Weights that would take more than 64 MiB and four times the bytes of their codes, scales and zeros are MARLIN_E_UNSUPPORTED, here, in marlin_weights_load and in marlin_checkpoint_save. PRUNE_2_4 keeps the two weights of largest |w| in every 4 along K, the lower k on ties, before any scale is chosen; codes are compared by their decoded values. Sparse weights stay as they are. k must be a multiple of 4, and the format must have 4-bit codes and no group_index.
    pub fn marlin_weights_pack(context: *mut marlin_context, parts: *const *const marlin_pack_desc, part_count: u32, expert_count: u32, out: *mut *mut marlin_weights, err: *mut marlin_error) -> marlin_status;
    /// Decodes rows to floats, bit-exact: the true value is rounded once to float32, and then once to out's dtype. out is \[T, K\], F32, F16 or BF16, in the file's order of k. row_ids is \[T, 1\] I32, and first_row is then ignored; with several experts row_ids is MARLIN_E_UNSUPPORTED. row_ids NULL selects the T rows from first_row on; rows of expert e start at e N. An id outside \[0, N) is MARLIN_E_ARGUMENT; on a GPU's stream it gives a row of NaN. stream may be NULL. On the CPU, an out of U8 \[T, bytes of a row\] without row_ids receives the rows as GGUF's blocks, the bytes that were packed with layout GGUF. Codes of -0 in MXFP4 and NVFP4 are +0 there, and scales of NVFP4 have no sign, as ggml reads them. Weights that no block type holds, weights with a tensor scale other than 1, NVFP4 with a scale byte 0xFF and 2:4 sparse weights are MARLIN_E_UNSUPPORTED.
    pub fn marlin_weights_unpack(stream: *mut marlin_stream, weights: *const marlin_weights, row_ids: *const marlin_matrix, first_row: i64, out: *const marlin_matrix, err: *mut marlin_error) -> marlin_status;
    /// The name is the first layer's name if the weights were loaded from a file, and "" otherwise.
    pub fn marlin_weights_info(weights: *const marlin_weights, out: *mut marlin_layer_info, err: *mut marlin_error) -> marlin_status;
    pub fn marlin_weights_destroy(weights: *mut marlin_weights);
    /// path names a .safetensors file, a .safetensors.index.json, a .gguf file, a .marlin file (see marlin_checkpoint_save), or a folder that holds one of them. The first part of a split GGUF (NAME-00001-of-0000N.gguf) stands for all its parts, which lie beside it. Opening reads headers and config.json only. desc NULL: all defaults.
    pub fn marlin_checkpoint_open(path: *const c_char, desc: *const marlin_open_desc, out: *mut *mut marlin_checkpoint, err: *mut marlin_error) -> marlin_status;
    /// Describes layer `index` in file order. A layer's name is the tensor's name without the layout's suffix; experts that a file stores one by one (A.experts.0.B, ...) are a layer A.experts.B. An index past the end is MARLIN_E_NOT_FOUND.
    pub fn marlin_checkpoint_layer(checkpoint: *const marlin_checkpoint, index: u64, out: *mut marlin_layer_info, err: *mut marlin_error) -> marlin_status;
    /// Gives a borrowed, read-only view of one stored tensor (bias, norm, router), valid while the checkpoint lives. All dimensions but the last count as rows; a tensor with one dimension or none has one row. The view starts where the file has the tensor: copy it to its natural alignment before it becomes an operand. A type without a marlin_dtype is MARLIN_E_UNSUPPORTED. A dimension above 2^31 - 1 of a tensor without elements counts as 0.
    pub fn marlin_checkpoint_tensor(checkpoint: *const marlin_checkpoint, name: *const c_char, out: *mut marlin_matrix, err: *mut marlin_error) -> marlin_status;
    pub fn marlin_checkpoint_destroy(checkpoint: *mut marlin_checkpoint);
    /// Loads and packs the named layers, a stripe of rows at a time. Stacks of experts are concatenated expert by expert and must have the same number of experts. With expert_count E, every layer_count / E names make one expert (e0.gate, e0.up, e1.gate, ...). A shard that exceeds its layer is MARLIN_E_SHAPE.
    pub fn marlin_weights_load(context: *mut marlin_context, checkpoint: *const marlin_checkpoint, desc: *const marlin_load_desc, out: *mut *mut marlin_weights, err: *mut marlin_error) -> marlin_status;
    pub fn marlin_gemm(stream: *mut marlin_stream, desc: *const marlin_gemm_desc, err: *mut marlin_error) -> marlin_status;
    /// Runs independent products in one submission. All are validated first. An A that several products share is prepared once.
    pub fn marlin_gemm_many(stream: *mut marlin_stream, descs: *const *const marlin_gemm_desc, count: u32, err: *mut marlin_error) -> marlin_status;
    /// Compiles kernels and reserves memory for these products with M (with experts: T) up to max_m, so that later calls neither compile nor allocate. The data of a, c and expert_ids is not read and may be NULL. \*scratch_bytes is the size that a host's own scratch memory needs; scratch_bytes may be NULL.
    pub fn marlin_prepare(stream: *mut marlin_stream, descs: *const *const marlin_gemm_desc, count: u32, max_m: i64, scratch_bytes: *mut u64, err: *mut marlin_error) -> marlin_status;
    /// Names the kernel, its tiles and the reason: "kernel: NAME\\n", then "key: value\\n" lines. The text is cut at capacity and NUL-terminated. \*needed is its full size with the NUL; needed may be NULL. text may be NULL if capacity is 0.
    pub fn marlin_explain(desc: *const marlin_gemm_desc, text: *mut c_char, capacity: usize, needed: *mut usize, err: *mut marlin_error) -> marlin_status;
    /// major \<\< 16 | minor \<\< 8 | patch
    pub fn marlin_version() -> u32;
    /// Static text such as "MARLIN_E_SHAPE"; never NULL.
    pub fn marlin_status_name(status: marlin_status) -> *const c_char;
    /// Writes a checkpoint again with some layers quantized. Memory stays at a few times one stripe of rows; GPTQ and marlin-24 hold one packed layer, because their words run across rows. The result does not depend on parallel_for. out_path names a .gguf or .safetensors file in an existing folder, or a folder for model.gguf or for model.safetensors with its index and shards; the folder is made if it does not exist. Beside safetensors the function writes config.json, which is the input's with another quantization_config, and for GPTQ quantize_config.json. The caller copies the tokenizer and the other files of the model. A GGUF keeps the key-values of a GGUF input; a GGUF made from safetensors keeps the tensors' names and names no architecture. A layer that is quantized already keeps every value if the output can hold it so (an outcome with MARLIN_LAYER_EXACT): in what is requested, or without format and types in the smallest type of GGUF or MLX. Else it is decoded and quantized again, with a warning; without format and types it is MARLIN_E_UNSUPPORTED. A layer that the scheme cannot hold is MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name; so is a quantized layer that is not listed and that the output's config cannot describe. All files are written under other names, synced, and renamed at the end: a failure leaves old files as they were. Only regular files are replaced, and never a file of the input, under any name. A process that limits the size of its files must ignore SIGXFSZ.
    pub fn marlin_checkpoint_convert(checkpoint: *const marlin_checkpoint, out_path: *const c_char, desc: *const marlin_convert_desc, err: *mut marlin_error) -> marlin_status;
    /// Reads one key-value of a GGUF (of a split one: of its first part) or one member of config.json. A member of an inner object has a path with dots: "quantization_config.bits"; of two members with one path, the first is found. Nulls, objects inside of arrays and arrays of mixed kinds are no values; an empty array has the element_type STRING. A key that is not there is MARLIN_E_NOT_FOUND. A config.json whose paths and values would take more than twice its bytes and 64 KB is MARLIN_E_UNSUPPORTED. The library adds the key "marlin.note", a STRING, if it left files of safetensors unopened that lie beside the others, or if it opened others than the index names.
    pub fn marlin_checkpoint_value(checkpoint: *const marlin_checkpoint, key: *const c_char, out: *mut marlin_value, err: *mut marlin_error) -> marlin_status;
    /// Reads key-value `index` in file order. An index past the end is MARLIN_E_NOT_FOUND.
    pub fn marlin_checkpoint_value_at(checkpoint: *const marlin_checkpoint, index: u64, out: *mut marlin_value, err: *mut marlin_error) -> marlin_status;
    /// Steps through an ARRAY of STRING. \*text NULL: gives the first string; otherwise \*text and \*bytes are those of the call before, and the function gives the string behind it. After the last string it returns MARLIN_E_NOT_FOUND. The checkpoint of the array must live.
    pub fn marlin_value_next_string(array: *const marlin_value, text: *mut *const c_char, bytes: *mut u64, err: *mut marlin_error) -> marlin_status;
    /// Writes a packed container (.marlin): each load of desc as marlin_weights_load packs it for desc-\>backend, one after another, and all tensors that no load names, and the key-values, as the checkpoint has them. desc NULL: all defaults. The file appears when it is complete. A checkpoint that is a container is MARLIN_E_UNSUPPORTED. The threads of the context pack, on the host. The open container is a checkpoint. Its layers are the loads, named by their layers with '+' between them ("q+k+v"). marlin_weights_load takes this name or the same layers in the same order, checks the checksum, and uses the mapped bytes in place; CUDA copies them to the device. A shard of a container may choose experts and nothing else. Other layers together, formats and flags that change packed weights, devices and versions for which the file is not packed are MARLIN_E_UNSUPPORTED with the name of the source file. The key-values "marlin.rank", "marlin.ranks", "marlin.source" and "marlin.source_fingerprint" say what was packed.
    pub fn marlin_checkpoint_save(context: *mut marlin_context, checkpoint: *const marlin_checkpoint, out_path: *const c_char, desc: *const marlin_save_desc, err: *mut marlin_error) -> marlin_status;
    /// Submits recorded work, and calls done once when all work so far has ended: with MARLIN_OK or the stream's failure, before this function returns or on a thread of the driver, and even if stream and context are destroyed before. If this function fails, done is never called. Work that the host commits itself, or captures, is MARLIN_E_ARGUMENT as for marlin_stream_wait.
    pub fn marlin_stream_notify(stream: *mut marlin_stream, done: Option<unsafe extern "C" fn(user: *mut c_void, status: marlin_status)>, user: *mut c_void, err: *mut marlin_error) -> marlin_status;
    /// The only symbol that a plugin host needs. The table has static storage. NULL if the library does not serve that major.
    pub fn marlin_get_api(abi_major: u32) -> *const marlin_api;
}

#[cfg(test)]
layouts! {
    marlin_error 256 4: struct_size 0, status 4, native_code 8, reserved 12, message 16;
    marlin_matrix 48 8: data 0, offset_bytes 8, rows 16, cols 24, row_stride 32, dtype 40, memory 44;
    marlin_device_info 288 8: struct_size 0, backend 4, index 8, flags 12, name 16, isa_or_arch 80, memory_bytes 112, why_not 120, threads 280, reserved 284;
    marlin_trace_event 80 8: struct_size 0, together 4, kernel 8, step 16, begin_ns 24, end_ns 32, device_ns 40, rows 48, n 56, k 64, stream 72;
    marlin_context_desc 72 8: struct_size 0, backend 4, device_index 8, threads 12, native_device 16, alloc 24, release 32, log 40, parallel_for 48, user 56, trace 64;
    marlin_stream_desc 80 8: struct_size 0, kind 4, native 8, scratch 16, wait_fence 64, update_fence 72;
    marlin_pack_desc 424 8: struct_size 0, format 4, group_size 8, layout 12, n 16, k 24, values 32, scales 80, zeros 128, sparse_meta 176, group_index 224, tensor_scale 272, flags 320, gptq_zero_f 324, column_norms 328, codebook 376;
    marlin_gemm_desc 288 8: struct_size 0, compute 4, epilogue 8, flags 12, weights 16, a 24, c 72, bias 120, expert_ids 168, expert_scales 216, activation_group 264, gate_limit 272, up_limit 276, gate_alpha 280, up_offset 284;
    marlin_shard 48 8: first 0, count 24;
    marlin_load_desc 64 8: struct_size 0, flags 4, layers 8, shards 16, layer_count 24, expert_count 28, format 32, group_size 36, column_norms 40, progress 48, user 56;
    marlin_open_desc 24 8: struct_size 0, flags 4, layout 8, gptq_zero_f 12, config 16;
    marlin_layer_info 72 8: struct_size 0, status 4, name 8, n 16, k 24, experts 32, group_size 36, format 40, layout 44, flags 48, dtype 52, bytes 56, kept_share 64;
    marlin_value 80 8: struct_size 0, kind 4, element_type 8, reserved 12, key 16, key_bytes 24, i64 32, u64 40, f64 48, data 56, bytes 64, count 72;
    marlin_convert_outcome 104 8: struct_size 0, status 4, name 8, reason 16, n 24, k 32, experts 40, group_size 44, from 48, format 52, flags 56, reserved 60, bytes_before 64, bytes_after 72, squared_error 80, squared_norm 88, kept_norm 96;
    marlin_convert_desc 96 8: struct_size 0, flags 4, scheme 8, format 12, group_size 16, layer_count 20, layers 24, shard_bytes 32, progress 40, layer_done 48, log 56, parallel_for 64, user 72, column_norms 80, types 88;
    marlin_save_desc 48 8: struct_size 0, flags 4, loads 8, load_count 16, rank 20, rank_count 24, backend 28, refused 32, user 40;
    marlin_api 264 8: struct_size 0, abi_major 4, abi_minor 8, library_version 12, device_get 16, context_create 24, context_destroy 32, stream_create 40, stream_flush 48, stream_wait 56, stream_destroy 64, buffer_create 72, buffer_host 80, buffer_destroy 88, weights_pack 96, weights_unpack 104, weights_info 112, weights_destroy 120, checkpoint_open 128, checkpoint_layer 136, checkpoint_tensor 144, checkpoint_destroy 152, weights_load 160, gemm 168, gemm_many 176, prepare 184, explain 192, version 200, status_name 208, checkpoint_convert 216, checkpoint_value 224, checkpoint_value_at 232, value_next_string 240, checkpoint_save 248, stream_notify 256;
}
