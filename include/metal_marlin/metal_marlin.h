/* SPDX-License-Identifier: Apache-2.0
 *
 * metal-marlin: multiply by quantized weights at the speed of memory.
 *
 * This is the whole interface: one header, C99, for 64-bit targets. The rules below hold for every function.
 *
 * ERRORS
 * A function returns MARLIN_OK or a negative status. When it fails, *out is NULL and the function has changed nothing. `err`
 * belongs to the caller and may be NULL; the function fills it only on failure. The library keeps no error state of its own,
 * neither per thread nor per process. No exception crosses this interface, and the library never aborts, exits or prints.
 * Every descriptor is validated before any work starts. If a device fails later, its stream keeps the failure, and the next
 * call on that stream returns it.
 *
 * STRUCTS
 * The caller sets struct_size to sizeof the struct that it was compiled with. A struct_size that is 0, smaller than version 1
 * of the struct, above 4096, or no multiple of 8 is MARLIN_E_STRUCT_SIZE; this holds for `err` too. A descriptor that is longer
 * than this version's is accepted if its unknown tail is zero; otherwise it is MARLIN_E_UNSUPPORTED. An output struct is filled
 * up to the caller's struct_size; the fields that this version does not know become zero. No struct has implicit padding.
 * marlin_matrix and marlin_shard have no struct_size: they are frozen and never grow. `reserved` fields and unknown bits of
 * flags must be 0; otherwise the call is MARLIN_E_UNSUPPORTED. An unknown enum value is MARLIN_E_ARGUMENT.
 *
 * DEFAULTS
 * A field that is zero means its default. A matrix with data == NULL is absent. A matrix that is required may have
 * data == NULL only if it has no rows.
 *
 * MATRICES
 * Matrices are row-major. row_stride 0 means cols. A negative row_stride is MARLIN_E_ARGUMENT; a row_stride below cols is
 * MARLIN_E_SHAPE. Strides count elements; fields named *_bytes count bytes. Data must have the natural alignment of its
 * element type and lie in memory that the context's backend can reach; otherwise the call is MARLIN_E_ARGUMENT.
 *
 * SIZES
 * A call with M = 0 (rows of A) or a count of 0 does nothing and returns MARLIN_OK. N = 0 or K = 0 is MARLIN_E_SHAPE. Outputs
 * must not overlap each other or an input: MARLIN_E_ARGUMENT.
 *
 * LIFETIME
 * A handle keeps its context alive, so handles may be destroyed in any order. Operands, weights and scratch memory must live
 * until the stream has finished the work that uses them. Passing NULL, a handle of another kind, or a destroyed stream of a
 * live context is MARLIN_E_ARGUMENT; destroying one of these does nothing. marlin_stream_destroy never waits.
 *
 * THREADS
 * Any number of threads may use one context, weights, buffer or checkpoint at once. A stream serves one thread at a time, but
 * it may move between threads. No thread may destroy a handle while another uses it, and no thread may be cancelled inside a
 * call. After fork, the child may go on with CPU contexts that no other thread was using; GPU contexts return MARLIN_E_DEVICE.
 *
 * CALLBACKS
 * Callbacks run on threads that are inside a call of this library or on its worker threads; trace and the callback of
 * marlin_stream_notify may run on a thread of the device's driver, too. Several may run at once. None runs after the context
 * and all its handles are destroyed, but for marlin_stream_notify's. A callback must not call this library or the driver,
 * throw, or jump out. The tasks that are given to parallel_for never wait for each other, so a serial loop is a valid
 * parallel_for. A thread that calls this library or runs its tasks needs 128 KB of stack.
 *
 * FLOATING-POINT MODES
 * The host's floating-point modes (rounding, flush-to-zero, traps) change no result. A call leaves the modes and the exception
 * flags as they were. A callback may find the default modes instead of the host's, and it must leave the modes unchanged.
 *
 * STREAMS
 * On the CPU, work is done when the call returns. On a GPU, work continues after the call returns. A GPU reads operands in
 * host memory only in calls with stream NULL, which wait for the result.
 *
 * RESULTS
 * The device, the descriptor and M decide which kernel runs. The number of threads, other work on the device and the other
 * rows of a batch do not. In a mixture of experts, M is the number of rows of one expert. A compute type that a device does
 * not offer is MARLIN_E_UNSUPPORTED; the library never falls back silently. marlin_explain names the kernel and the reason.
 * With MARLIN_COMPUTE_W16, a kernel may round each weight once to the 16-bit type of A (BF16 for F32). A weight then moves by
 * up to 2^-8 of itself (BF16) or 2^-11 (F16, at least 2^-25), and in F16 one beyond 65504 becomes an infinity. Products of such
 * weights and A are exact and sums are FP32, as in a product of dequantized weights. Kernels that gain nothing from it keep the
 * weights as they are, and marlin_explain says which.
 * With MARLIN_GEMM_ROW_INVARIANT, M does not matter either: on one device and with one version of the library, a row of A with
 * the same weights, types, epilogue and bias gives a row of C with the same bits. Neither M, nor the place of the row, nor the
 * other rows, nor the experts of other tokens change them. (Of a NaN, only that it is one.) Kernels of one order of additions
 * then serve every M. marlin_explain names them and the kernel that would run without the flag. Where a device has no such
 * kernels, the product is MARLIN_E_UNSUPPORTED.
 *
 * FILES
 * A checkpoint is mapped into memory. If another process truncates a mapped file, the reader gets SIGBUS. Therefore write a
 * new file and rename it over the old one, as all tools do. Loaded weights never alias a file, except those of a packed
 * container (.marlin): the CPU uses their bytes in place, and the mapping lives as long as they do.
 */
#ifndef METAL_MARLIN_METAL_MARLIN_H_
#define METAL_MARLIN_METAL_MARLIN_H_

#include <stddef.h>
#include <stdint.h>

#define MARLIN_VERSION_MAJOR 0
#define MARLIN_VERSION_MINOR 9
#define MARLIN_VERSION_PATCH 0
/* Version of the table that marlin_get_api returns. The major changes when the ABI breaks, the minor when the table grows. */
#define MARLIN_ABI_MAJOR 0
#define MARLIN_ABI_MINOR 2

#if defined(_WIN32) && defined(MARLIN_DLL) /* calls to the DLL without a jump; CMake's target defines it */
#define MARLIN_EXPORT __declspec(dllimport)
#elif defined(_WIN32)
#define MARLIN_EXPORT
#else
#define MARLIN_EXPORT __attribute__((visibility("default")))
#endif

#if defined(__cplusplus) && defined(__GNUC__)
/* The constants are casts of C. Without this line each use of one warns under -Wold-style-cast. */
#pragma GCC system_header
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* --- handles: opaque; each has one owner ------------------------------------------------------------------------------- */
typedef struct marlin_context marlin_context;       /* a device with its kernels, caches and threads */
typedef struct marlin_weights marlin_weights;       /* packed weights on a device; immutable, shareable */
typedef struct marlin_stream marlin_stream;         /* in-order queue of work */
typedef struct marlin_buffer marlin_buffer;         /* memory that host and device both reach */
typedef struct marlin_checkpoint marlin_checkpoint; /* an open .safetensors, its index, .gguf or .marlin */

/* --- constants: typed macros, so that bindings import them with their type; unknown values stay legal ---------------- */
typedef int32_t marlin_status; /* values never change; they are spaced by kind */
#define MARLIN_OK ((marlin_status)0)
#define MARLIN_E_ARGUMENT ((marlin_status) - 10)     /* a value that no caller may pass: NULL, unknown enum, overlap */
#define MARLIN_E_STRUCT_SIZE ((marlin_status) - 11)  /* struct_size is no size of any version */
#define MARLIN_E_SHAPE ((marlin_status) - 12)        /* sizes that do not fit each other */
#define MARLIN_E_UNSUPPORTED ((marlin_status) - 20)  /* legal, but not served by this version or device */
#define MARLIN_E_NOT_PREPARED ((marlin_status) - 21) /* the host's scratch is too small: marlin_prepare says how much */
#define MARLIN_E_FILE ((marlin_status) - 25)         /* the operating system refused: native_code is errno */
#define MARLIN_E_FORMAT ((marlin_status) - 26)       /* the content of a file or operand is malformed */
#define MARLIN_E_NOT_FOUND ((marlin_status) - 27)    /* no such index, layer, tensor or key */
#define MARLIN_E_NO_DEVICE ((marlin_status) - 30)    /* the backend has no usable device here */
#define MARLIN_E_DEVICE ((marlin_status) - 31)       /* the device failed: native_code is its own code */
#define MARLIN_E_TIMEOUT ((marlin_status) - 32)
#define MARLIN_E_CANCELLED ((marlin_status) - 33) /* a callback asked to stop */
#define MARLIN_E_MEMORY ((marlin_status) - 40)
#define MARLIN_E_INTERNAL ((marlin_status) - 90) /* a bug in this library; please report it with the message */

typedef int32_t marlin_backend;
#define MARLIN_BACKEND_AUTO ((marlin_backend)0) /* the first usable backend of CUDA, Metal, CPU */
#define MARLIN_BACKEND_CPU ((marlin_backend)1)
#define MARLIN_BACKEND_METAL ((marlin_backend)2)
#define MARLIN_BACKEND_CUDA ((marlin_backend)3)

typedef int32_t marlin_dtype;
#define MARLIN_F32 ((marlin_dtype)1)
#define MARLIN_F16 ((marlin_dtype)2)
#define MARLIN_BF16 ((marlin_dtype)3)
#define MARLIN_I8 ((marlin_dtype)4)
#define MARLIN_I32 ((marlin_dtype)5)
#define MARLIN_U32 ((marlin_dtype)6)
#define MARLIN_U4 ((marlin_dtype)7) /* two per byte, low nibble first; cols counts nibbles and is even */
#define MARLIN_E8M0 ((marlin_dtype)8)
#define MARLIN_E4M3 ((marlin_dtype)9) /* the FN variant: no infinity, 0x7F and 0xFF are NaN */
#define MARLIN_U8 ((marlin_dtype)10)
#define MARLIN_I16 ((marlin_dtype)11)
#define MARLIN_I64 ((marlin_dtype)12)

typedef int32_t marlin_memory;               /* where marlin_matrix::data points */
#define MARLIN_MEM_HOST ((marlin_memory)0)   /* on a GPU only with stream NULL */
#define MARLIN_MEM_CUDA ((marlin_memory)1)   /* a device pointer */
#define MARLIN_MEM_METAL ((marlin_memory)2)  /* an id<MTLBuffer> */
#define MARLIN_MEM_BUFFER ((marlin_memory)3) /* a marlin_buffer *; bounds are checked */

typedef int32_t marlin_format;                      /* the value of a weight with code q in a group with scale s */
#define MARLIN_FORMAT_NONE ((marlin_format)0)       /* in marlin_layer_info: floats, not quantized */
#define MARLIN_FORMAT_INT4 ((marlin_format)1)       /* (q - zero) * s, zero 8 when absent; or q * s + zero (additive) */
#define MARLIN_FORMAT_FP4 ((marlin_format)2)        /* e2m1(q) * s, s a float */
#define MARLIN_FORMAT_MXFP4 ((marlin_format)3)      /* e2m1(q) * 2^(e - 127), groups of 32 (OCP MX v1.0) */
#define MARLIN_FORMAT_NVFP4 ((marlin_format)4)      /* e2m1(q) * e4m3 * tensor_scale, groups of 16 */
#define MARLIN_FORMAT_INT8 ((marlin_format)5)       /* q * s (+ zero); holds Q8_0 exactly */
#define MARLIN_FORMAT_INT2 ((marlin_format)6)       /* as INT4, zero 2 when absent; GGUF's Q2_K */
#define MARLIN_FORMAT_INT3 ((marlin_format)7)       /* as INT4, zero 4 when absent; GGUF's Q3_K */
#define MARLIN_FORMAT_INT5 ((marlin_format)8)       /* as INT4, zero 16 when absent; GGUF's Q5_0, Q5_1, Q5_K */
#define MARLIN_FORMAT_INT6 ((marlin_format)9)       /* as INT4, zero 32 when absent; GGUF's Q6_K */
#define MARLIN_FORMAT_IQ4 ((marlin_format)10)       /* iq4(q) * s, 16 integers from -127 to 113; GGUF's IQ4_NL, IQ4_XS */
#define MARLIN_FORMAT_UINT8 ((marlin_format)11)     /* as INT4, q 0..255, zero 128 when absent */
#define MARLIN_FORMAT_FP8 ((marlin_format)12)       /* e4m3(q) * s, s a float or E8M0 */
#define MARLIN_FORMAT_NF4 ((marlin_format)13)       /* nf4(q) * s, the 16 floats of QLoRA (bitsandbytes) */
#define MARLIN_FORMAT_CODEBOOK4 ((marlin_format)14) /* codebook[q] * s, 16 floats of the file or the caller */
#define MARLIN_FORMAT_FLOAT32 ((marlin_format)15)   /* floats without scales; each compute multiplies them alike */
#define MARLIN_FORMAT_FLOAT16 ((marlin_format)16)
#define MARLIN_FORMAT_BFLOAT16 ((marlin_format)17)

typedef int32_t marlin_compute;
#define MARLIN_COMPUTE_DEFAULT ((marlin_compute)0) /* activations as given, sums in FP32 */
#define MARLIN_COMPUTE_INT8 ((marlin_compute)1)    /* activations rounded to INT8: see marlin_gemm_desc::activation_group */
#define MARLIN_COMPUTE_FP8 ((marlin_compute)2)     /* activations rounded to E4M3; CUDA only */
#define MARLIN_COMPUTE_W16 ((marlin_compute)3)     /* weights may be rounded to 16 bits: see RESULTS */

typedef int32_t marlin_layout; /* element order of pre-quantized input; docs/formats.md defines each bit by bit */
#define MARLIN_LAYOUT_AUTO ((marlin_layout)0) /* packing: ROWS; opening a file: detected */
#define MARLIN_LAYOUT_ROWS \
  ((marlin_layout)1) /* 4 bits: U8 [N, ceil(K/2)], even k low; INT8: I8; FP8: U8, E4M3; UINT8: U8, I8 (q - 128); others: U8 */
#define MARLIN_LAYOUT_K8N ((marlin_layout)2)           /* U32 [K/8, N], nibble i of a word = element 8 kb + i */
#define MARLIN_LAYOUT_GPTQ_V1 ((marlin_layout)3)       /* GPTQ_V2, but the packed zeros store zero - 1 */
#define MARLIN_LAYOUT_GPTQ_V2 ((marlin_layout)4)       /* U32 [K*bits/32, N], columns are streams of codes; packed zeros */
#define MARLIN_LAYOUT_AWQ ((marlin_layout)5)           /* AutoAWQ "gemm" */
#define MARLIN_LAYOUT_AWQ_GEMV ((marlin_layout)6)      /* AutoAWQ "gemv" */
#define MARLIN_LAYOUT_AWQ_GEMV_FAST ((marlin_layout)7) /* AutoAWQ "gemv_fast", llm-awq */
#define MARLIN_LAYOUT_GGUF ((marlin_layout)8)          /* GGUF blocks: `values` holds whole blocks */
#define MARLIN_LAYOUT_MARLIN ((marlin_layout)9)        /* IST Marlin */
#define MARLIN_LAYOUT_MARLIN_24 ((marlin_layout)10)    /* compressed-tensors marlin-24 */

typedef int32_t marlin_gptq_zero_f; /* GPTQ v1 stores zero - 1; readers disagree on the largest stored code (INT4: 15) */
#define MARLIN_GPTQ_ZERO_F_AUTO ((marlin_gptq_zero_f)0)  /* by the config's meta.quantizer, else WRAP with a warning */
#define MARLIN_GPTQ_ZERO_F_WRAP ((marlin_gptq_zero_f)1)  /* zero 0: AutoGPTQ's CUDA and exllama kernels */
#define MARLIN_GPTQ_ZERO_F_CARRY ((marlin_gptq_zero_f)2) /* zero 0, the next zero is one more: GPTQModel (INT3: before 7.0) */
#define MARLIN_GPTQ_ZERO_F_PLUS_ONE ((marlin_gptq_zero_f)3) /* zero 2^bits (16): AutoGPTQ's torch and triton kernels, vLLM */

typedef int32_t marlin_epilogue; /* f in C = f(A W^T + bias) (+ C); two-input ones take gate and up rows, give N/2 columns */
#define MARLIN_EPILOGUE_NONE ((marlin_epilogue)0)
#define MARLIN_EPILOGUE_SILU ((marlin_epilogue)1)
#define MARLIN_EPILOGUE_GELU_TANH ((marlin_epilogue)2)
#define MARLIN_EPILOGUE_GELU_ERF ((marlin_epilogue)3)
#define MARLIN_EPILOGUE_SWIGLU ((marlin_epilogue)4)     /* silu(gate) * up; see marlin_gemm_desc::gate_limit */
#define MARLIN_EPILOGUE_GEGLU_TANH ((marlin_epilogue)5) /* gelu_tanh(gate) * up */
#define MARLIN_EPILOGUE_SWIGLU_OAI ((marlin_epilogue)6) /* gpt-oss: SWIGLU with limits 7, gate_alpha 1.702, up_offset 1 */
#define MARLIN_EPILOGUE_SITU ((marlin_epilogue)7)       /* Kimi K3: see marlin_gemm_desc::gate_limit */

typedef int32_t marlin_native; /* the origin of a stream; `kind` decides, because CUDA's legacy stream is NULL */
#define MARLIN_NATIVE_NONE ((marlin_native)0)
#define MARLIN_NATIVE_CUDA_STREAM ((marlin_native)1)
#define MARLIN_NATIVE_METAL_QUEUE ((marlin_native)2)
#define MARLIN_NATIVE_METAL_COMMAND_BUFFER ((marlin_native)3) /* uncommitted, no encoder open; flush, then commit */
#define MARLIN_NATIVE_METAL_ENCODER ((marlin_native)4)        /* we encode into it and change its bindings; the host ends it */

typedef int32_t marlin_scheme;                /* how a file names and stores its quantized layers */
#define MARLIN_SCHEME_AUTO ((marlin_scheme)0) /* GGUF to a name in .gguf or from a GGUF, else compressed-tensors */
#define MARLIN_SCHEME_COMPRESSED_TENSORS ((marlin_scheme)1) /* safetensors; MXFP4, NVFP4, INT4 (pack-quantized) */
#define MARLIN_SCHEME_GPTQ ((marlin_scheme)2)               /* safetensors; INT4, GPTQ v2 */
#define MARLIN_SCHEME_MARLIN_24 ((marlin_scheme)3)          /* safetensors; 2:4 sparse INT4 */
#define MARLIN_SCHEME_GGUF ((marlin_scheme)4)               /* GGUF v3; any of its blocks that the library reads */
#define MARLIN_SCHEME_MLX ((marlin_scheme)5)                /* safetensors; affine: INT2 to INT6, UINT8 with additive zeros */

typedef int32_t marlin_value_type;               /* of a key-value of a checkpoint, or of the elements of an array */
#define MARLIN_VALUE_NONE ((marlin_value_type)0) /* marlin_value::element_type of a value that is no array */
#define MARLIN_VALUE_BOOL ((marlin_value_type)1) /* an element is one byte: false if it is 0 */
#define MARLIN_VALUE_I64 ((marlin_value_type)2)
#define MARLIN_VALUE_U64 ((marlin_value_type)3)
#define MARLIN_VALUE_F64 ((marlin_value_type)4)
#define MARLIN_VALUE_STRING ((marlin_value_type)5)
#define MARLIN_VALUE_ARRAY ((marlin_value_type)6) /* of one element_type that is no ARRAY */
#define MARLIN_VALUE_I8 ((marlin_value_type)7)    /* from here on: of elements only; a single number has 64 bits */
#define MARLIN_VALUE_I16 ((marlin_value_type)8)
#define MARLIN_VALUE_I32 ((marlin_value_type)9)
#define MARLIN_VALUE_U8 ((marlin_value_type)10)
#define MARLIN_VALUE_U16 ((marlin_value_type)11)
#define MARLIN_VALUE_U32 ((marlin_value_type)12)
#define MARLIN_VALUE_F32 ((marlin_value_type)13)

typedef int32_t marlin_log_level; /* of marlin_context_desc::log and marlin_convert_desc::log */
#define MARLIN_LOG_ERROR ((marlin_log_level)1)
#define MARLIN_LOG_WARNING ((marlin_log_level)2)
#define MARLIN_LOG_INFO ((marlin_log_level)3)

/* marlin_gemm_desc::flags */
#define MARLIN_GEMM_ACCUMULATE 1u    /* C += ... */
#define MARLIN_GEMM_ROW_INVARIANT 2u /* a row has the same bits for every M: see RESULTS */
/* marlin_pack_desc::flags, and the same bits in marlin_layer_info::flags */
#define MARLIN_PACK_ADDITIVE_ZEROS 1u      /* q * s + zero: MLX, Q4_1, AWQ gemv_fast */
#define MARLIN_PACK_DIVIDE_SCALE 2u        /* tensor_scale divides: compressed-tensors NVFP4 */
#define MARLIN_PACK_PRUNE_2_4 4u           /* keep two of every 4 weights along K: see marlin_weights_pack */
#define MARLIN_PACK_GATE_UP_INTERLEAVED 8u /* rows alternate gate, up (gpt-oss): see marlin_gemm_desc; loading sets it */
#define MARLIN_PACK_SCALES_MSE 16u         /* when quantizing, search for the scale of least squared error */
#define MARLIN_PACK_OBEYS_2_4 32u          /* dense values already obey 2:4: store them sparse, or fail with MARLIN_E_FORMAT */
#define MARLIN_PACK_TWO_LEVEL_SCALES 64u   /* LAYOUT_GGUF: the K-quant of this format (super-blocks of 256; IQ4: IQ4_XS) */
/* marlin_layer_info::flags only; further MARLIN_PACK_ flags are 128 and from 4096 on */
#define MARLIN_LAYER_ZEROS 256u       /* has integer zero points */
#define MARLIN_LAYER_ACT_ORDER 512u   /* has a group index */
#define MARLIN_LAYER_SPARSE_2_4 1024u /* two of every 4 weights along K are kept */
#define MARLIN_LAYER_EXACT 2048u      /* in marlin_convert_outcome: no value of a quantized layer has changed */
/* marlin_open_desc::flags: the order of stacks of experts whose shapes and config leave it open, which else are not read */
#define MARLIN_OPEN_OUTPUTS_FIRST 1u /* [experts, n, k] */
#define MARLIN_OPEN_INPUTS_FIRST 2u  /* [experts, k, n] */
/* marlin_load_desc::flags */
#define MARLIN_LOAD_PRUNE_2_4 4u   /* as the MARLIN_PACK_ flags of the same names */
#define MARLIN_LOAD_SCALES_MSE 16u /* for layers quantized on load */
#define MARLIN_LOAD_OBEYS_2_4 32u
/* marlin_convert_desc::flags */
#define MARLIN_CONVERT_PRUNE_2_4 4u /* as the MARLIN_PACK_ flags of the same names */
#define MARLIN_CONVERT_SCALES_MSE 16u
#define MARLIN_CONVERT_OBEYS_2_4 32u
#define MARLIN_CONVERT_OVERWRITE 65536u   /* replace existing output files; otherwise: MARLIN_E_FILE, EEXIST */
#define MARLIN_CONVERT_ASYMMETRIC 131072u /* INT4 with a zero point a group */
#define MARLIN_CONVERT_SKIP_UNFIT 262144u /* leave layers that the scheme cannot hold as they are; otherwise: an error */
#define MARLIN_CONVERT_DRY_RUN 524288u    /* plan, check and report every outcome with its sizes; write nothing */
/* marlin_save_desc::flags */
#define MARLIN_SAVE_OVERWRITE 65536u /* replace an existing file; otherwise: MARLIN_E_FILE, EEXIST */

/* --- structs --------------------------------------------------------------------------------------------------------- */
typedef struct marlin_error {
  uint32_t struct_size;
  marlin_status status;
  int32_t native_code; /* errno (of Windows an HRESULT where there is none), CUresult or NSError.code; 0: none */
  uint32_t reserved;
  char message[240]; /* UTF-8, NUL-terminated, control characters escaped: the expected value, the found value, the place */
} marlin_error;

typedef struct marlin_matrix { /* frozen */
  void* data;                  /* NULL: absent */
  uint64_t offset_bytes;       /* added to data; use it for offsets into MTLBuffers */
  int64_t rows, cols;
  int64_t row_stride; /* in elements; 0: cols */
  marlin_dtype dtype;
  marlin_memory memory;
} marlin_matrix;

typedef struct marlin_device_info {
  uint32_t struct_size;
  marlin_backend backend;
  int32_t index; /* for marlin_context_desc::device_index */
  uint32_t flags;
  char name[64];
  char isa_or_arch[32]; /* "avx512-vnni-bf16", "sm_90a", "apple9" */
  uint64_t memory_bytes;
  char why_not[160]; /* empty if the device is usable */
  uint32_t threads;  /* CPU: what marlin_context_desc::threads 0 means to this process now; 0 for other backends */
  uint32_t reserved;
} marlin_device_info;

/* A step of work that is done: on the CPU of a product, on a GPU a launch. The library sets struct_size; a field past it, and
 * what a pointer points to after the callback, does not exist. */
typedef struct marlin_trace_event {
  uint32_t struct_size;
  uint32_t together;           /* events that have these times, which are those of all of them; 1: it is timed alone */
  const char* kernel;          /* as marlin_explain names it */
  const char* step;            /* "multiply", "prepare A", ... */
  uint64_t begin_ns, end_ns;   /* by the host's monotonic clock: CLOCK_MONOTONIC, on a Mac that of mach_absolute_time */
  uint64_t device_ns;          /* by the device's clock; 0: unknown, as on the CPU */
  int64_t rows, n, k;          /* the rows of the product that the step works on, and its weights */
  const marlin_stream* stream; /* NULL: a call without one */
} marlin_trace_event;

typedef struct marlin_context_desc {
  uint32_t struct_size;
  marlin_backend backend;
  int32_t device_index; /* marlin_device_info::index; 0 with AUTO */
  uint32_t threads;     /* CPU threads, with parallel_for those that work is divided for; 0: as many as the process may use */
  void* native_device;  /* the host's CUcontext or id<MTLDevice>; NULL: by index. NULL with AUTO and CPU */
  void* (*alloc)(void* user, size_t size, size_t align); /* returning NULL is MARLIN_E_MEMORY; align is a power of two */
  void (*release)(void* user, void* p, size_t size);     /* give alloc and release, or neither */
  void (*log)(void* user, marlin_log_level level, const char* message);
  void (*parallel_for)(void* user, uint32_t tasks, void (*task)(void* task_user, uint32_t index), void* task_user);
  void* user; /* given to each of the five */
  /* Hears of each step of a product, and of marlin_weights_unpack. The CPU times the steps of a call, each for all of its
   * products. CUDA times launches, which it tells of when a wait, a flush or destroying the stream finds them done; the first
   * after a wait begins when it is recorded, and work in a graph of the host is not timed. Metal times command buffers, so a
   * flush behind each product times it alone; of an encoder of the host's it tells nothing. NULL: nothing is timed. */
  void (*trace)(void* user, const marlin_trace_event* event);
} marlin_context_desc;

typedef struct marlin_stream_desc {
  uint32_t struct_size;
  marlin_native kind;
  void* native;
  marlin_matrix scratch; /* the host's memory for temporaries: U8, any alignment, no gaps between rows, no overlap with
                            operands. marlin_prepare says how much; a call that needs more is
                            MARLIN_E_NOT_PREPARED. Absent: the stream owns memory of its own */
  void* wait_fence;      /* id<MTLFence> that the host has updated, for memory that Metal does not track: our encoders on a
                            METAL_QUEUE or METAL_COMMAND_BUFFER wait for it; needs update_fence, which may be the same one */
  void* update_fence;    /* id<MTLFence>: our encoders update it, and so wait for each other. Hosts order their encoders and
                            CUDA streams themselves: MARLIN_E_ARGUMENT there */
} marlin_stream_desc;

/* One matrix W[n, k] to pack. Quantized values need scales. Float values (F32, F16 or BF16, [n, k]) are quantized here. */
typedef struct marlin_pack_desc {
  uint32_t struct_size;
  marlin_format format;
  uint32_t
      group_size; /* weights along K that share a scale; 0: the format's own (32, NVFP4 16, FP8 128, NF4 64); >= k: the row */
  marlin_layout layout;
  int64_t n, k;              /* out_features, in_features */
  marlin_matrix values;      /* codes in `layout`, or floats [n, k] */
  marlin_matrix scales;      /* ROWS: [n, ceil(k/group)] F32, F16, BF16, E8M0 or U8, E4M3; else as the layout stores them */
  marlin_matrix zeros;       /* ROWS: [n, ceil(k/group)] U8 0..15, or floats with ADDITIVE_ZEROS; absent: see marlin_format */
  marlin_matrix sparse_meta; /* 2:4: values hold kept codes only. ROWS: U8 mask [n, ceil(k/8)] or I16 nibbles [n, ceil(k/16)] */
  marlin_matrix group_index; /* [1, k] I32, the group of each k (act-order); absent: k / group_size */
  marlin_matrix tensor_scale; /* [1, 1] F32; absent: 1 */
  uint32_t flags;
  marlin_gptq_zero_f gptq_zero_f; /* layout GPTQ_V1 only */
  /* PRUNE_2_4 only: [1, k] F32 >= 0; absent: all 1. Pruning ranks by |w| * norm (Wanda), and norm^2 weighs the squared errors
   * of SCALES_MSE. */
  marlin_matrix column_norms;
  marlin_matrix codebook; /* CODEBOOK4 only: [1, 16] F32, the value of each code in units of its scale */
} marlin_pack_desc;

/* C[M, N] = f(A[M, K] W^T + bias) (+ C). A, C, bias are each F32, F16 or BF16. Sums are float32: C may be infinite or NaN where
 * the sum of |a| |w| exceeds float32, and with NVFP4 where this sum over tensor_scale does (|a| above about 1e34).
 *
 * Two-input epilogues: all gate rows of W come first, then all up rows, as when the layers gate and up are loaded as one handle
 * in this order: column j of C combines row j with row N/2 + j. In weights with PACK_GATE_UP_INTERLEAVED, gate and up rows
 * alternate: column j of C combines row 2 j with row 2 j + 1. Other epilogues ignore the flag.
 *
 * Mixture of experts: weights of E experts need expert_ids [T, top_k]; weights of one expert may have them. Row t top_k + s of
 * the product, the routed row s of token t, is multiplied by expert expert_ids[t, s]. A token may name one expert twice. A has
 * one row per token, [T, K] (as for gate and up), or one per routed row, [T top_k, K] (as for down). Without expert_scales, C
 * has one row per routed row. With expert_scales, C has one row per token, [T, N]: the sum over s of f(A W^T + bias) times the
 * scale, in float32 and in the order of s. An id outside [0, E) contributes 0, and its scale is not read, so a host that holds
 * experts first..last passes id - first. On a GPU, more than 4096 experts, and experts whose packed layouts differ, as
 * act-order with groups of unequal sizes can make them do, are MARLIN_E_UNSUPPORTED. */
typedef struct marlin_gemm_desc {
  uint32_t struct_size;
  marlin_compute compute;
  marlin_epilogue epilogue;
  uint32_t flags;
  const marlin_weights* weights;
  marlin_matrix a;             /* [M, K] */
  marlin_matrix c;             /* [M, N]; N/2 columns for two-input epilogues */
  marlin_matrix bias;          /* [1, N], for experts [1 or E, N], or absent; in the row order of the weights */
  marlin_matrix expert_ids;    /* [T, top_k] I32, or absent: no mixture of experts */
  marlin_matrix expert_scales; /* [T, top_k] F32, F16 or BF16, or absent: no sum */
  int64_t activation_group;    /* INT8: activations along K that share a scale: 32, 64, 128, or K and more (the row); 0: 32 */
  /* SWIGLU is g sigmoid(gate_alpha g) (u + up_offset) of g = min(gate, gate_limit) and u = up within +-up_limit. (DeepSeek V4
   * has one limit for both.) SITU is l tanh(gate / l) sigmoid(gate) m tanh(up / m) of l = gate_limit and m = up_limit, which it
   * needs. All are finite, and limits are not negative. They are 0 for other epilogues. */
  float gate_limit, up_limit;  /* 0: none */
  float gate_alpha, up_offset; /* SWIGLU only; gate_alpha 0: 1 */
} marlin_gemm_desc;

typedef struct marlin_shard { /* frozen; in elements of N, K and experts; count 0: everything from first on */
  int64_t first[3], count[3];
} marlin_shard;

typedef struct marlin_load_desc {
  uint32_t struct_size;
  uint32_t flags;
  const char* const* layers;  /* as marlin_checkpoint_layer names them; several names: one handle, concatenated along N */
  const marlin_shard* shards; /* one per name; or NULL: everything */
  uint32_t layer_count;
  uint32_t expert_count;             /* 0 or 1: as in the layers; above 1: each name is (a part of) one expert */
  marlin_format format;              /* quantize layers of floats to this format; 0: layers of floats are an error */
  uint32_t group_size;               /* with format; 0: the format's own */
  const marlin_matrix* column_norms; /* LOAD_PRUNE_2_4: one per name, absent or [1, K of the layer] as above; or NULL */
  /* Called on the calling thread at the start, at the end and at intervals. It counts elements of W. A result other than 0
   * cancels the load: MARLIN_E_CANCELLED. May be NULL. */
  int32_t (*progress)(void* user, uint64_t done, uint64_t total);
  void* user; /* given to progress */
} marlin_load_desc;

typedef struct marlin_open_desc {
  uint32_t struct_size;
  uint32_t flags;
  marlin_layout layout;           /* AUTO: detected from config.json, tensor names and dtypes; otherwise taken on trust */
  marlin_gptq_zero_f gptq_zero_f; /* for all GPTQ v1 layers of the file */
  /* An object of JSON with members of config.json. It answers first what the files leave open, or say wrongly: a layer that
   * is refused because two readings remain names the members that tell. {"quantization_config": {"group_size": 64}} */
  const char* config;
} marlin_open_desc;

typedef struct marlin_layer_info {
  uint32_t struct_size;
  marlin_status status; /* MARLIN_OK if the layer can be loaded */
  const char* name;     /* valid as long as its checkpoint or weights */
  int64_t n, k;
  uint32_t experts;     /* 1 for a layer without experts */
  uint32_t group_size;  /* k when one group spans the row */
  marlin_format format; /* MARLIN_FORMAT_NONE: floats of `dtype`, which can be quantized on load */
  marlin_layout layout; /* in the file; for packed weights: the layout of their first part */
  uint32_t flags;
  marlin_dtype dtype; /* of the scales; of the values if they are floats */
  uint64_t bytes;     /* in the file, or on the device */
  double kept_share;  /* sum of w^2 over kept weights / over all weights; 1 if nothing was pruned or all weights are 0 */
} marlin_layer_info;

/* A key-value of a checkpoint. Its pointers are valid as long as the checkpoint, and its texts have no NUL at their end. */
typedef struct marlin_value {
  uint32_t struct_size;
  marlin_value_type kind;         /* BOOL, I64, U64, F64, STRING or ARRAY */
  marlin_value_type element_type; /* of an ARRAY */
  uint32_t reserved;
  const char* key; /* as the file has it; UTF-8 is not checked, here and in `data` */
  uint64_t key_bytes;
  int64_t i64;      /* BOOL: 0 or 1. A number out of range is the nearest in range, a fraction is cut off, and NaN is 0 */
  uint64_t u64;     /* the same number for sizes: 0 if it is negative */
  double f64;       /* the nearest float to the number */
  const void* data; /* STRING: its text. ARRAY: its elements, little-endian; they begin at any byte, so copy them */
  uint64_t bytes;   /* of data */
  uint64_t count;   /* ARRAY: elements; STRING: bytes */
} marlin_value;

/* The result of converting one layer. */
typedef struct marlin_convert_outcome {
  uint32_t struct_size;
  marlin_status status; /* MARLIN_OK: quantized; else the reason to leave it as it was (SKIP_UNFIT) */
  const char* name;
  const char* reason; /* the message that belongs to status, or "" */
  int64_t n, k;
  uint32_t experts;
  uint32_t group_size;  /* k when one group spans the row */
  marlin_format from;   /* MARLIN_FORMAT_NONE: floats */
  marlin_format format; /* of the written layer */
  uint32_t flags;       /* MARLIN_LAYER_* and MARLIN_PACK_* of the written layer */
  uint32_t reserved;
  uint64_t bytes_before, bytes_after; /* of all its tensors */
  double squared_error;               /* sum of (written - original)^2 over all elements, in float64; 0 in a dry run */
  double squared_norm;                /* sum of original^2 */
  double kept_norm;                   /* sum of original^2 over what pruning kept; squared_norm when nothing is pruned */
} marlin_convert_outcome;

/* Quantizes a checkpoint from file to file. */
typedef struct marlin_convert_desc {
  uint32_t struct_size;
  uint32_t flags;
  marlin_scheme scheme;
  marlin_format format; /* of the scheme; NONE: see types, and layers that are quantized already stay exact */
  uint32_t group_size;  /* 0: the format's own (MARLIN_24: 128); >= k: the whole row */
  uint32_t layer_count;
  const char* const* layers; /* the layers to quantize, by name; all other tensors are copied unchanged */
  uint64_t shard_bytes;      /* safetensors: most bytes of tensors in one file; 0: as many files as the input has */
  /* Called on the calling thread, at least once per layer and every few million weights. total_bytes is the size of the input,
   * and 0 while the files are being planned. A result other than 0 cancels: MARLIN_E_CANCELLED. layer lives during the call. */
  int32_t (*progress)(void* user, uint64_t done_bytes, uint64_t total_bytes, const char* layer);
  void (*layer_done)(void* user, const marlin_convert_outcome* outcome); /* in file order; outcome is valid during the call */
  void (*log)(void* user, marlin_log_level level, const char* message);  /* as marlin_context_desc::log */
  void (*parallel_for)(void* user, uint32_t tasks, void (*task)(void* task_user, uint32_t index), void* task_user);
  void* user; /* given to each of the four, which may be NULL; without parallel_for all work runs on the calling thread */
  /* One per layer, absent or as in marlin_load_desc, in host memory; or NULL. They rank weights to prune. Their squares weigh
   * the squared errors of SCALES_MSE and of all other scales that are fitted by least squares. */
  const marlin_matrix* column_norms;
  /* GGUF: one per layer, the type of its blocks, as "Q4_K". An entry that is NULL, or types NULL: by format and flags. */
  const char* const* types;
} marlin_convert_desc;

/* What a packed container holds. */
typedef struct marlin_save_desc {
  uint32_t struct_size;
  uint32_t flags;
  const marlin_load_desc* const* loads; /* one entry each; NULL with count 0: every layer that loads, alone and whole */
  uint32_t load_count;
  uint32_t rank, rank_count; /* of the shards in loads, for readers of the file; rank_count 0: 1 */
  marlin_backend backend;    /* whose devices the file is for; this machine needs no such device; AUTO: that of the context */
  /* Hears of each load that is MARLIN_E_UNSUPPORTED. Its layers stay as they are, but one load has to be served. NULL: such a
   * load in loads is an error. */
  void (*refused)(void* user, const marlin_load_desc* load, const marlin_error* why); /* both are valid during the call */
  void* user;
} marlin_save_desc;

/* --- devices, contexts, streams, memory -------------------------------------------------------------------------------- */
/* Describes device `index`, counted over all backends in the order of MARLIN_BACKEND_AUTO. Unusable devices are included.
 * An index past the end is MARLIN_E_NOT_FOUND. */
MARLIN_EXPORT marlin_status marlin_device_get(uint32_t index, marlin_device_info* out, marlin_error* err);
/* desc NULL: all defaults. The library starts no thread before the first work. */
MARLIN_EXPORT marlin_status marlin_context_create(const marlin_context_desc* desc, marlin_context** out, marlin_error* err);
/* The threads end when the last handle of the context is destroyed. */
MARLIN_EXPORT void marlin_context_destroy(marlin_context* context);
/* desc NULL: all defaults. A stream is cheap: one per frame is fine. */
MARLIN_EXPORT marlin_status marlin_stream_create(marlin_context* context, const marlin_stream_desc* desc, marlin_stream** out,
                                                 marlin_error* err);
/* Submits recorded work without waiting. stream must not be NULL, here and in marlin_stream_wait. */
MARLIN_EXPORT marlin_status marlin_stream_flush(marlin_stream* stream, marlin_error* err);
/* Waits until all work so far is done, or returns MARLIN_E_TIMEOUT. timeout_ns 0 polls, UINT64_MAX waits for ever. */
MARLIN_EXPORT marlin_status marlin_stream_wait(marlin_stream* stream, uint64_t timeout_ns, marlin_error* err);
MARLIN_EXPORT void marlin_stream_destroy(marlin_stream* stream);
/* bytes > 0. The memory is zero-filled and aligned to 64 bytes. */
MARLIN_EXPORT marlin_status marlin_buffer_create(marlin_context* context, uint64_t bytes, marlin_buffer** out,
                                                 marlin_error* err);
/* The host's view of the memory; NULL for NULL and for a handle of another kind. */
MARLIN_EXPORT void* marlin_buffer_host(marlin_buffer* buffer);
MARLIN_EXPORT void marlin_buffer_destroy(marlin_buffer* buffer);

/* --- weights ----------------------------------------------------------------------------------------------------------- */
/* Packs part_count matrices, concatenated along N, into one handle. The parts must agree in k, format, group size and kinds of
 * scales and zeros. With expert_count above 1, the parts belong to that many experts: all parts of the first expert come
 * first, and every expert has the same number of parts with the same n. 0 means 1. The parts may be freed afterwards.
 * Rows and columns are padded. Weights that would take more than 64 MiB and four times the bytes of their codes, scales and
 * zeros are MARLIN_E_UNSUPPORTED, here, in marlin_weights_load and in marlin_checkpoint_save.
 * PRUNE_2_4 keeps the two weights of largest |w| in every 4 along K, the lower k on ties, before any scale is chosen; codes are
 * compared by their decoded values. Sparse weights stay as they are. k must be a multiple of 4, and the format must have 4-bit
 * codes and no group_index. */
MARLIN_EXPORT marlin_status marlin_weights_pack(marlin_context* context, const marlin_pack_desc* const* parts,
                                                uint32_t part_count, uint32_t expert_count, marlin_weights** out,
                                                marlin_error* err);
/* Decodes rows to floats, bit-exact: the true value is rounded once to float32, and then once to out's dtype. out is [T, K],
 * F32, F16 or BF16, in the file's order of k. row_ids is [T, 1] I32, and first_row is then ignored; with several experts
 * row_ids is MARLIN_E_UNSUPPORTED. row_ids NULL selects the T rows from first_row on; rows of expert e start at e N. An id
 * outside [0, N) is MARLIN_E_ARGUMENT; on a GPU's stream it gives a row of NaN. stream may be NULL.
 *
 * On the CPU, an out of U8 [T, bytes of a row] without row_ids receives the rows as GGUF's blocks, the bytes that were packed
 * with layout GGUF. Codes of -0 in MXFP4 and NVFP4 are +0 there, and scales of NVFP4 have no sign, as ggml reads them. Weights
 * that no block type holds, weights with a tensor scale other than 1, NVFP4 with a scale byte 0xFF and 2:4 sparse weights are
 * MARLIN_E_UNSUPPORTED. */
MARLIN_EXPORT marlin_status marlin_weights_unpack(marlin_stream* stream, const marlin_weights* weights,
                                                  const marlin_matrix* row_ids, int64_t first_row, const marlin_matrix* out,
                                                  marlin_error* err);
/* The name is the first layer's name if the weights were loaded from a file, and "" otherwise. */
MARLIN_EXPORT marlin_status marlin_weights_info(const marlin_weights* weights, marlin_layer_info* out, marlin_error* err);
MARLIN_EXPORT void marlin_weights_destroy(marlin_weights* weights);

/* --- files ------------------------------------------------------------------------------------------------------------- */
/* path names a .safetensors file, a .safetensors.index.json, a .gguf file, a .marlin file (see marlin_checkpoint_save), or a
 * folder that holds one of them. The first part of a split GGUF (NAME-00001-of-0000N.gguf) stands for all its parts, which lie
 * beside it. Opening reads headers and config.json only. desc NULL: all defaults. */
MARLIN_EXPORT marlin_status marlin_checkpoint_open(const char* path, const marlin_open_desc* desc, marlin_checkpoint** out,
                                                   marlin_error* err);
/* Describes layer `index` in file order. A layer's name is the tensor's name without the layout's suffix; experts that a file
 * stores one by one (A.experts.0.B, ...) are a layer A.experts.B. An index past the end is MARLIN_E_NOT_FOUND. */
MARLIN_EXPORT marlin_status marlin_checkpoint_layer(const marlin_checkpoint* checkpoint, uint64_t index, marlin_layer_info* out,
                                                    marlin_error* err);
/* Gives a borrowed, read-only view of one stored tensor (bias, norm, router), valid while the checkpoint lives. All dimensions
 * but the last count as rows; a tensor with one dimension or none has one row. The view starts where the file has the tensor:
 * copy it to its natural alignment before it becomes an operand. A type without a marlin_dtype is MARLIN_E_UNSUPPORTED. A
 * dimension above 2^31 - 1 of a tensor without elements counts as 0. */
MARLIN_EXPORT marlin_status marlin_checkpoint_tensor(const marlin_checkpoint* checkpoint, const char* name, marlin_matrix* out,
                                                     marlin_error* err);
MARLIN_EXPORT void marlin_checkpoint_destroy(marlin_checkpoint* checkpoint);
/* Loads and packs the named layers, a stripe of rows at a time. Stacks of experts are concatenated expert by expert and must
 * have the same number of experts. With expert_count E, every layer_count / E names make one expert (e0.gate, e0.up, e1.gate,
 * ...). A shard that exceeds its layer is MARLIN_E_SHAPE. */
MARLIN_EXPORT marlin_status marlin_weights_load(marlin_context* context, const marlin_checkpoint* checkpoint,
                                                const marlin_load_desc* desc, marlin_weights** out, marlin_error* err);

/* --- work; stream NULL: in the context of the weights, done on return; all weights of a call share one context --------- */
MARLIN_EXPORT marlin_status marlin_gemm(marlin_stream* stream, const marlin_gemm_desc* desc, marlin_error* err);
/* Runs independent products in one submission. All are validated first. An A that several products share is prepared once. */
MARLIN_EXPORT marlin_status marlin_gemm_many(marlin_stream* stream, const marlin_gemm_desc* const* descs, uint32_t count,
                                             marlin_error* err);
/* Compiles kernels and reserves memory for these products with M (with experts: T) up to max_m, so that later calls neither
 * compile nor allocate. The data of a, c and expert_ids is not read and may be NULL. *scratch_bytes is the size that a host's
 * own scratch memory needs; scratch_bytes may be NULL. */
MARLIN_EXPORT marlin_status marlin_prepare(marlin_stream* stream, const marlin_gemm_desc* const* descs, uint32_t count,
                                           int64_t max_m, uint64_t* scratch_bytes, marlin_error* err);
/* Names the kernel, its tiles and the reason: "kernel: NAME\n", then "key: value\n" lines. The text is cut at capacity and
 * NUL-terminated. *needed is its full size with the NUL; needed may be NULL. text may be NULL if capacity is 0. */
MARLIN_EXPORT marlin_status marlin_explain(const marlin_gemm_desc* desc, char* text, size_t capacity, size_t* needed,
                                           marlin_error* err);

/* --- about ------------------------------------------------------------------------------------------------------------- */
MARLIN_EXPORT uint32_t marlin_version(void); /* major << 16 | minor << 8 | patch */
/* Static text such as "MARLIN_E_SHAPE"; never NULL. */
MARLIN_EXPORT const char* marlin_status_name(marlin_status status);

/* --- converting -------------------------------------------------------------------------------------------------------- */
/* Writes a checkpoint again with some layers quantized. Memory stays at a few times one stripe of rows; GPTQ and marlin-24 hold
 * one packed layer, because their words run across rows. The result does not depend on parallel_for.
 * out_path names a .gguf or .safetensors file in an existing folder, or a folder for model.gguf or for model.safetensors with
 * its index and shards; the folder is made if it does not exist. Beside safetensors the function writes config.json, which is
 * the input's with another quantization_config, and for GPTQ quantize_config.json. The caller copies the tokenizer and the
 * other files of the model. A GGUF keeps the key-values of a GGUF input; a GGUF made from safetensors keeps the tensors' names
 * and names no architecture. A layer that is quantized already keeps every value if the output can hold it so (an outcome with
 * MARLIN_LAYER_EXACT): in what is requested, or without format and types in the smallest type of GGUF or MLX. Else it is
 * decoded and quantized again, with a warning; without format and types it is MARLIN_E_UNSUPPORTED. A layer that the scheme
 * cannot hold is MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name; so is a quantized layer that is not listed and that the
 * output's config cannot describe.
 * All files are written under other names, synced, and renamed at the end: a failure leaves old files as they were. Only
 * regular files are replaced, and never a file of the input, under any name. A process that limits the size of its files must
 * ignore SIGXFSZ. */
MARLIN_EXPORT marlin_status marlin_checkpoint_convert(const marlin_checkpoint* checkpoint, const char* out_path,
                                                      const marlin_convert_desc* desc, marlin_error* err);

/* --- key-values: what a file says about a model -------------------------------------------------------------------------- */
/* Reads one key-value of a GGUF (of a split one: of its first part) or one member of config.json. A member of an inner object
 * has a path with dots: "quantization_config.bits"; of two members with one path, the first is found. Nulls, objects inside of
 * arrays and arrays of mixed kinds are no values; an empty array has the element_type STRING. A key that is not there is
 * MARLIN_E_NOT_FOUND. A config.json whose paths and values would take more than twice its bytes and 64 KB is
 * MARLIN_E_UNSUPPORTED. The library adds the key "marlin.note", a STRING, if it left files of safetensors unopened that lie
 * beside the others, or if it opened others than the index names. */
MARLIN_EXPORT marlin_status marlin_checkpoint_value(const marlin_checkpoint* checkpoint, const char* key, marlin_value* out,
                                                    marlin_error* err);
/* Reads key-value `index` in file order. An index past the end is MARLIN_E_NOT_FOUND. */
MARLIN_EXPORT marlin_status marlin_checkpoint_value_at(const marlin_checkpoint* checkpoint, uint64_t index, marlin_value* out,
                                                       marlin_error* err);
/* Steps through an ARRAY of STRING. *text NULL: gives the first string; otherwise *text and *bytes are those of the call
 * before, and the function gives the string behind it. After the last string it returns MARLIN_E_NOT_FOUND. The checkpoint of
 * the array must live. */
MARLIN_EXPORT marlin_status marlin_value_next_string(const marlin_value* array, const char** text, uint64_t* bytes,
                                                     marlin_error* err);

/* --- packed containers: what packing made, mapped and used in place ------------------------------------------------------ */
/* Writes a packed container (.marlin): each load of desc as marlin_weights_load packs it for desc->backend, one after another,
 * and all tensors that no load names, and the key-values, as the checkpoint has them. desc NULL: all defaults. The file appears
 * when it is complete. A checkpoint that is a container is MARLIN_E_UNSUPPORTED. The threads of the context pack, on the host.
 * The open container is a checkpoint. Its layers are the loads, named by their layers with '+' between them ("q+k+v").
 * marlin_weights_load takes this name or the same layers in the same order, checks the checksum, and uses the mapped bytes in
 * place; CUDA copies them to the device. A shard of a container may choose experts and nothing else. Other layers together,
 * formats and flags that change packed weights, devices and versions for which the file is not packed are MARLIN_E_UNSUPPORTED
 * with the name of the source file. The key-values "marlin.rank", "marlin.ranks", "marlin.source" and
 * "marlin.source_fingerprint" say what was packed. */
MARLIN_EXPORT marlin_status marlin_checkpoint_save(marlin_context* context, const marlin_checkpoint* checkpoint,
                                                   const char* out_path, const marlin_save_desc* desc, marlin_error* err);

/* --- the end of work ------------------------------------------------------------------------------------------------------ */
/* Submits recorded work, and calls done once when all work so far has ended: with MARLIN_OK or the stream's failure, before
 * this function returns or on a thread of the driver, and even if stream and context are destroyed before. If this function
 * fails, done is never called. Work that the host commits itself, or captures, is MARLIN_E_ARGUMENT as for marlin_stream_wait.
 */
MARLIN_EXPORT marlin_status marlin_stream_notify(marlin_stream* stream, void (*done)(void* user, marlin_status status),
                                                 void* user, marlin_error* err);

/* --- plugins: dlopen, dlsym("marlin_get_api"), done ----------------------------------------------------------------------- */
typedef struct marlin_api { /* grows at its end only; no member inside struct_size is NULL */
  uint32_t struct_size, abi_major, abi_minor, library_version;
  marlin_status (*device_get)(uint32_t, marlin_device_info*, marlin_error*);
  marlin_status (*context_create)(const marlin_context_desc*, marlin_context**, marlin_error*);
  void (*context_destroy)(marlin_context*);
  marlin_status (*stream_create)(marlin_context*, const marlin_stream_desc*, marlin_stream**, marlin_error*);
  marlin_status (*stream_flush)(marlin_stream*, marlin_error*);
  marlin_status (*stream_wait)(marlin_stream*, uint64_t, marlin_error*);
  void (*stream_destroy)(marlin_stream*);
  marlin_status (*buffer_create)(marlin_context*, uint64_t, marlin_buffer**, marlin_error*);
  void* (*buffer_host)(marlin_buffer*);
  void (*buffer_destroy)(marlin_buffer*);
  marlin_status (*weights_pack)(marlin_context*, const marlin_pack_desc* const*, uint32_t, uint32_t, marlin_weights**,
                                marlin_error*);
  marlin_status (*weights_unpack)(marlin_stream*, const marlin_weights*, const marlin_matrix*, int64_t, const marlin_matrix*,
                                  marlin_error*);
  marlin_status (*weights_info)(const marlin_weights*, marlin_layer_info*, marlin_error*);
  void (*weights_destroy)(marlin_weights*);
  marlin_status (*checkpoint_open)(const char*, const marlin_open_desc*, marlin_checkpoint**, marlin_error*);
  marlin_status (*checkpoint_layer)(const marlin_checkpoint*, uint64_t, marlin_layer_info*, marlin_error*);
  marlin_status (*checkpoint_tensor)(const marlin_checkpoint*, const char*, marlin_matrix*, marlin_error*);
  void (*checkpoint_destroy)(marlin_checkpoint*);
  marlin_status (*weights_load)(marlin_context*, const marlin_checkpoint*, const marlin_load_desc*, marlin_weights**,
                                marlin_error*);
  marlin_status (*gemm)(marlin_stream*, const marlin_gemm_desc*, marlin_error*);
  marlin_status (*gemm_many)(marlin_stream*, const marlin_gemm_desc* const*, uint32_t, marlin_error*);
  marlin_status (*prepare)(marlin_stream*, const marlin_gemm_desc* const*, uint32_t, int64_t, uint64_t*, marlin_error*);
  marlin_status (*explain)(const marlin_gemm_desc*, char*, size_t, size_t*, marlin_error*);
  uint32_t (*version)(void);
  const char* (*status_name)(marlin_status);
  marlin_status (*checkpoint_convert)(const marlin_checkpoint*, const char*, const marlin_convert_desc*, marlin_error*);
  marlin_status (*checkpoint_value)(const marlin_checkpoint*, const char*, marlin_value*, marlin_error*);
  marlin_status (*checkpoint_value_at)(const marlin_checkpoint*, uint64_t, marlin_value*, marlin_error*);
  marlin_status (*value_next_string)(const marlin_value*, const char**, uint64_t*, marlin_error*);
  marlin_status (*checkpoint_save)(marlin_context*, const marlin_checkpoint*, const char*, const marlin_save_desc*,
                                   marlin_error*);
  marlin_status (*stream_notify)(marlin_stream*, void (*done)(void*, marlin_status), void*, marlin_error*);
} marlin_api;

/* The only symbol that a plugin host needs. The table has static storage. NULL if the library does not serve that major. */
MARLIN_EXPORT const marlin_api* marlin_get_api(uint32_t abi_major);
/* Its type, for dlsym: marlin_get_api_function get_api; *(void**)&get_api = dlsym(library, "marlin_get_api"); */
typedef const marlin_api* (*marlin_get_api_function)(uint32_t abi_major);

#ifdef __cplusplus
}
#endif

#endif /* METAL_MARLIN_METAL_MARLIN_H_ */
