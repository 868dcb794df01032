/* SPDX-License-Identifier: Apache-2.0
 *
 * metal-marlin: multiply by 4-bit weights at the speed of memory.
 *
 * One header, C99, 64-bit targets. The rules, once:
 *
 * Errors     A function returns MARLIN_OK or a negative status; on failure *out is NULL and nothing was done. `err` may be
 *            NULL, belongs to the caller, and is filled only on failure; one with a bad struct_size is
 *            MARLIN_E_STRUCT_SIZE. Nothing is kept per thread or per process, no exception crosses, nothing aborts, exits
 *            or prints. Every descriptor is validated before any work starts. A device failure after that sticks to its
 *            stream and comes out of the next call on it.
 * Structs    Descriptors start with struct_size = sizeof the struct the caller was compiled with. 0, less than the size of
 *            version 1, or more than 4096 is MARLIN_E_STRUCT_SIZE. A longer one than this version's is accepted when its
 *            unknown tail is zero, else it is MARLIN_E_UNSUPPORTED. Output structs are filled up to the caller's
 *            struct_size, what this version does not know with 0. There is no implicit padding. marlin_matrix and
 *            marlin_shard are frozen: they never grow. `reserved` fields and unknown bits of flags must be 0:
 *            MARLIN_E_UNSUPPORTED. An unknown enum value is MARLIN_E_ARGUMENT.
 * Defaults   A zero field means the default. data == NULL: an absent matrix; one that must be given has it only without rows.
 * Matrices   Row-major. row_stride 0 means cols; a negative one is MARLIN_E_ARGUMENT, one below cols MARLIN_E_SHAPE.
 *            Strides count elements, *_bytes count bytes. Natural alignment of the element type suffices, less is
 *            MARLIN_E_ARGUMENT, as is memory that the context's backend does not reach.
 * Sizes      M (rows of A) or count 0: MARLIN_OK, no work. N or K 0: MARLIN_E_SHAPE. Outputs that overlap each other or an
 *            input: MARLIN_E_ARGUMENT.
 * Lifetime   Children keep their context alive: handles may be destroyed in any order. Operands, weights and scratch must
 *            live until the stream has passed them. NULL, a handle of another kind, and a destroyed stream of a live
 *            context are MARLIN_E_ARGUMENT; destroying them does nothing. marlin_stream_destroy never waits.
 * Threads    Contexts, weights, buffers and checkpoints may be used by any number of threads at once. A stream: one thread at
 *            a time, but it may move between threads. No handle may be destroyed while in use, no thread cancelled in a call. A
 *            forked child may go on with CPU contexts that no other thread was using; GPU contexts are MARLIN_E_DEVICE there.
 * Callbacks  Run on threads that are inside a call of this library or on its workers, maybe several at once, never after
 *            the context and all its children are destroyed. They must not call this library, throw or jump out. Tasks
 *            given to parallel_for never wait for each other: a serial loop is legal. Calls and tasks need 128 KB of stack.
 * Modes      The host's floating-point modes (rounding, flush-to-zero, traps) change no result; a call leaves them and the
 *            exception flags as they were. Callbacks may find the default modes in their place, and leave the modes alone.
 * Streams    CPU: work is done when the call returns. GPU: it goes on; operands in host memory need stream NULL, which waits.
 * Results    Which kernel runs depends only on the device, the descriptor and M; never on the number of threads, on what
 *            else runs, or on which other rows are in the batch. In a mixture of experts M is the rows of the one expert. An
 *            unavailable compute is MARLIN_E_UNSUPPORTED, never a silent fallback. marlin_explain tells which kernel, and why.
 * Files      A checkpoint is mapped. A file that another process shrinks while it is mapped faults in the reader (SIGBUS);
 *            write new files and rename them over old ones, as all tools do. Loaded weights never alias a file.
 */
#ifndef METAL_MARLIN_METAL_MARLIN_H_
#define METAL_MARLIN_METAL_MARLIN_H_

#include <stddef.h>
#include <stdint.h>

#define MARLIN_VERSION_MAJOR 0
#define MARLIN_VERSION_MINOR 1
#define MARLIN_VERSION_PATCH 0
/* The table that marlin_get_api serves: the major changes when the ABI breaks, the minor when the table grows. */
#define MARLIN_ABI_MAJOR 0
#define MARLIN_ABI_MINOR 1
#if defined(_WIN32)
#define MARLIN_EXPORT
#else
#define MARLIN_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- handles: opaque, one owner each ------------------------------------------------------------------------------- */
typedef struct marlin_context marlin_context;       /* a device with its kernels, caches and threads */
typedef struct marlin_weights marlin_weights;       /* packed weights on a device; immutable, shareable, never alias a file */
typedef struct marlin_stream marlin_stream;         /* in-order queue of work */
typedef struct marlin_buffer marlin_buffer;         /* memory that host and device both reach */
typedef struct marlin_checkpoint marlin_checkpoint; /* an open .safetensors, .safetensors.index.json or .gguf */

/* --- constants: typed macros, so that bindings import them with their type; unknown values stay legal ---------------- */
typedef int32_t marlin_status; /* values are pinned for ever and spaced by kind */
#define MARLIN_OK ((marlin_status)0)
#define MARLIN_E_ARGUMENT ((marlin_status) - 10)     /* a value that no caller may pass: NULL, unknown enum, overlap */
#define MARLIN_E_STRUCT_SIZE ((marlin_status) - 11)  /* struct_size is 0 or shorter than version 1 */
#define MARLIN_E_SHAPE ((marlin_status) - 12)        /* sizes that do not fit each other */
#define MARLIN_E_UNSUPPORTED ((marlin_status) - 20)  /* legal, but not served by this version or device */
#define MARLIN_E_NOT_PREPARED ((marlin_status) - 21) /* would have to allocate where that is forbidden: call marlin_prepare */
#define MARLIN_E_FILE ((marlin_status) - 25)         /* the operating system refused: native_code is errno */
#define MARLIN_E_FORMAT ((marlin_status) - 26)       /* the content of a file or operand is malformed */
#define MARLIN_E_NOT_FOUND ((marlin_status) - 27)    /* no such index, layer or tensor */
#define MARLIN_E_NO_DEVICE ((marlin_status) - 30)    /* the backend has no usable device here */
#define MARLIN_E_DEVICE ((marlin_status) - 31)       /* the device failed: native_code is its own code */
#define MARLIN_E_TIMEOUT ((marlin_status) - 32)
#define MARLIN_E_CANCELLED ((marlin_status) - 33) /* a callback asked to stop */
#define MARLIN_E_MEMORY ((marlin_status) - 40)
#define MARLIN_E_INTERNAL ((marlin_status) - 90) /* a bug in this library; please report it with the message */

typedef int32_t marlin_backend;
#define MARLIN_BACKEND_AUTO ((marlin_backend)0) /* the first usable of CUDA, Metal, CPU */
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
#define MARLIN_U4 ((marlin_dtype)7) /* two a byte, low nibble first; cols counts nibbles and is even */
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

typedef int32_t marlin_format;                /* what a weight is worth; q is its code, s its group's scale */
#define MARLIN_FORMAT_NONE ((marlin_format)0) /* in marlin_layer_info: floats, not quantised */
#define MARLIN_INT4 ((marlin_format)1)        /* (q - zero) * s, zero 8 when absent; or q * s + zero (additive) */
#define MARLIN_FP4 ((marlin_format)2)         /* e2m1(q) * s, s a float */
#define MARLIN_MXFP4 ((marlin_format)3)       /* e2m1(q) * 2^(e - 127), groups of 32 (OCP MX v1.0) */
#define MARLIN_NVFP4 ((marlin_format)4)       /* e2m1(q) * e4m3 * tensor_scale, groups of 16 */
#define MARLIN_INT8 ((marlin_format)5)        /* q * s (+ zero): the exact home of Q8_0 */

typedef int32_t marlin_compute;
#define MARLIN_COMPUTE_DEFAULT ((marlin_compute)0) /* activations as given, FP32 sums */
#define MARLIN_COMPUTE_INT8 ((marlin_compute)1)    /* activations rounded to INT8 in blocks of 32 with their own scale */
#define MARLIN_COMPUTE_FP8 ((marlin_compute)2)     /* activations rounded to E4M3; CUDA only */

typedef int32_t marlin_layout; /* element order of pre-quantised input; docs/formats.md defines each bit by bit */
#define MARLIN_LAYOUT_AUTO ((marlin_layout)0)          /* packing: ROWS; opening a file: found from the file */
#define MARLIN_LAYOUT_ROWS ((marlin_layout)1)          /* U8 [N, ceil(K/2)], low nibble = even k; INT8: I8 [N, K] */
#define MARLIN_LAYOUT_K8N ((marlin_layout)2)           /* U32 [K/8, N], nibble i of a word = element 8 kb + i */
#define MARLIN_LAYOUT_GPTQ_V1 ((marlin_layout)3)       /* K8N with packed zeros that store zero - 1 */
#define MARLIN_LAYOUT_GPTQ_V2 ((marlin_layout)4)       /* K8N with packed zeros */
#define MARLIN_LAYOUT_AWQ ((marlin_layout)5)           /* AutoAWQ "gemm" */
#define MARLIN_LAYOUT_AWQ_GEMV ((marlin_layout)6)      /* AutoAWQ "gemv" */
#define MARLIN_LAYOUT_AWQ_GEMV_FAST ((marlin_layout)7) /* AutoAWQ "gemv_fast", llm-awq */
#define MARLIN_LAYOUT_GGUF ((marlin_layout)8)          /* GGUF blocks: values hold the whole block bytes */
#define MARLIN_LAYOUT_MARLIN ((marlin_layout)9)        /* IST Marlin */
#define MARLIN_LAYOUT_MARLIN_24 ((marlin_layout)10)    /* compressed-tensors marlin-24 */

typedef int32_t marlin_gptq_zero_f; /* what a zero nibble 15 of GPTQ v1, which stores zero - 1, stands for: readers disagree */
#define MARLIN_GPTQ_ZERO_F_AUTO ((marlin_gptq_zero_f)0)    /* by the config's meta.quantizer, else WRAP with a warning */
#define MARLIN_GPTQ_ZERO_F_WRAP ((marlin_gptq_zero_f)1)    /* zero 0: AutoGPTQ's CUDA and exllama kernels */
#define MARLIN_GPTQ_ZERO_F_CARRY ((marlin_gptq_zero_f)2)   /* zero 0, and the next nibble is one more: GPTQModel */
#define MARLIN_GPTQ_ZERO_F_SIXTEEN ((marlin_gptq_zero_f)3) /* zero 16: AutoGPTQ's torch and triton kernels, vLLM */

typedef int32_t marlin_epilogue; /* f in C = f(A W^T + bias) (+ C); two-input ones take gate and up rows, give N/2 columns */
#define MARLIN_EPILOGUE_NONE ((marlin_epilogue)0)
#define MARLIN_EPILOGUE_SILU ((marlin_epilogue)1)
#define MARLIN_EPILOGUE_GELU_TANH ((marlin_epilogue)2)
#define MARLIN_EPILOGUE_GELU_ERF ((marlin_epilogue)3)
#define MARLIN_EPILOGUE_SWIGLU ((marlin_epilogue)4)     /* silu(gate) * up */
#define MARLIN_EPILOGUE_GEGLU_TANH ((marlin_epilogue)5) /* gelu_tanh(gate) * up */
#define MARLIN_EPILOGUE_SWIGLU_OAI ((marlin_epilogue)6) /* gpt-oss: g sigmoid(1.702 g) (u + 1), clamped: g <= 7, |u| <= 7 */

typedef int32_t marlin_native; /* what a stream is made from; the kind decides, not NULL (CUDA's legacy stream is NULL) */
#define MARLIN_NATIVE_NONE ((marlin_native)0)
#define MARLIN_NATIVE_CUDA_STREAM ((marlin_native)1)
#define MARLIN_NATIVE_METAL_QUEUE ((marlin_native)2)
#define MARLIN_NATIVE_METAL_COMMAND_BUFFER ((marlin_native)3) /* uncommitted, no encoder open; flush, then commit */
#define MARLIN_NATIVE_METAL_ENCODER ((marlin_native)4)        /* encoded into; bindings are clobbered; the host ends it */

typedef int32_t marlin_scheme;                /* how a file names and stores its quantised layers */
#define MARLIN_SCHEME_AUTO ((marlin_scheme)0) /* GGUF to a name in .gguf or from a GGUF, else compressed-tensors */
#define MARLIN_SCHEME_COMPRESSED_TENSORS ((marlin_scheme)1) /* safetensors; MXFP4, NVFP4, INT4 (pack-quantized) */
#define MARLIN_SCHEME_GPTQ ((marlin_scheme)2)               /* safetensors; INT4, GPTQ v2 */
#define MARLIN_SCHEME_MARLIN_24 ((marlin_scheme)3)          /* safetensors; 2:4 sparse INT4 */
#define MARLIN_SCHEME_GGUF ((marlin_scheme)4)               /* GGUF v3; MXFP4, NVFP4, INT4 (Q4_0) */

/* marlin_gemm_desc::flags */
#define MARLIN_GEMM_ACCUMULATE 1u /* C += ... */
/* marlin_pack_desc::flags, and the same bits in marlin_layer_info::flags */
#define MARLIN_PACK_ADDITIVE_ZEROS 1u      /* q * s + zero: MLX, Q4_1, AWQ gemv_fast */
#define MARLIN_PACK_DIVIDE_SCALE 2u        /* tensor_scale divides: compressed-tensors NVFP4 */
#define MARLIN_PACK_PRUNE_2_4 4u           /* keep two of every 4 along K: see marlin_weights_pack */
#define MARLIN_PACK_GATE_UP_INTERLEAVED 8u /* rows alternate gate, up (gpt-oss); loading sets it */
#define MARLIN_PACK_SCALES_MSE 16u         /* quantising: search the scale of least squared error */
#define MARLIN_PACK_OBEYS_2_4 32u /* dense values obey 2:4: store them sparse; three non-zeros in a block: MARLIN_E_FORMAT */
/* marlin_layer_info::flags only */
#define MARLIN_LAYER_ZEROS 256u       /* has integer zero points */
#define MARLIN_LAYER_ACT_ORDER 512u   /* has a group index */
#define MARLIN_LAYER_SPARSE_2_4 1024u /* of every 4 elements along K two are kept */
/* marlin_load_desc::flags */
#define MARLIN_LOAD_PRUNE_2_4 4u   /* as the MARLIN_PACK_ flags of these names */
#define MARLIN_LOAD_SCALES_MSE 16u /* for layers quantised on load */
#define MARLIN_LOAD_OBEYS_2_4 32u
/* marlin_convert_desc::flags */
#define MARLIN_CONVERT_PRUNE_2_4 4u /* as the MARLIN_PACK_ flags of these names */
#define MARLIN_CONVERT_SCALES_MSE 16u
#define MARLIN_CONVERT_OBEYS_2_4 32u
#define MARLIN_CONVERT_ASYMMETRIC 64u  /* INT4 with a zero point a group */
#define MARLIN_CONVERT_SKIP_UNFIT 128u /* a layer that the scheme cannot hold stays, with its outcome; else: an error */
#define MARLIN_CONVERT_OVERWRITE 512u  /* replace files of the names that are written; else: MARLIN_E_FILE, EEXIST */
#define MARLIN_CONVERT_DRY_RUN 1024u   /* plan and check, report every outcome with its sizes, write nothing */

/* --- structs --------------------------------------------------------------------------------------------------------- */
typedef struct marlin_error {
  uint32_t struct_size;
  marlin_status status;
  int32_t native_code; /* errno, CUresult, NSError.code; 0 when there is none */
  uint32_t reserved;
  char message[240]; /* UTF-8, NUL-terminated, control characters escaped: what was expected, what was found, and where */
} marlin_error;

typedef struct marlin_matrix { /* frozen */
  void* data;                  /* NULL: absent */
  uint64_t offset_bytes;       /* added to data; the place for offsets into MTLBuffers */
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
  char why_not[160]; /* empty when the device is usable */
} marlin_device_info;

typedef struct marlin_context_desc {
  uint32_t struct_size;
  marlin_backend backend;
  int32_t device_index; /* marlin_device_info::index; 0 with AUTO */
  uint32_t threads;     /* CPU threads to use; 0: as many as the process may run on (affinity, cgroup) */
  void* native_device;  /* CUcontext or id<MTLDevice> of the host; NULL: by index, and always with AUTO and CPU */
  void* (*alloc)(void* user, size_t size, size_t align);       /* NULL result is MARLIN_E_MEMORY; align is a power of two */
  void (*release)(void* user, void* p, size_t size);           /* both or neither of alloc and release */
  void (*log)(void* user, int32_t level, const char* message); /* level 1 error, 2 warning, 3 info */
  void (*parallel_for)(void* user, uint32_t tasks, void (*task)(void* task_user, uint32_t index), void* task_user);
  void* user; /* given to each of the four */
} marlin_context_desc;

typedef struct marlin_stream_desc {
  uint32_t struct_size;
  marlin_native kind;
  void* native;
  marlin_matrix scratch; /* the host's memory for temporaries, U8, any alignment, no gaps between rows, apart from all
                            operands; marlin_prepare says how much; absent: the library's own, owned by the stream */
} marlin_stream_desc;

/* One matrix W[n, k] to pack. Quantised values come with scales; float values (F32, F16, BF16 [n, k]) are quantised here. */
typedef struct marlin_pack_desc {
  uint32_t struct_size;
  marlin_format format;
  uint32_t group_size; /* elements of K that share a scale; 0: the format's own (32, NVFP4 16); >= k: the whole row */
  marlin_layout layout;
  int64_t n, k;              /* out_features, in_features */
  marlin_matrix values;      /* codes in `layout`, or floats [n, k] */
  marlin_matrix scales;      /* ROWS: [n, ceil(k/group)] F32, F16, BF16, E8M0 or U8, E4M3; else as the layout stores them */
  marlin_matrix zeros;       /* ROWS: [n, ceil(k/group)] U8 0..15, or floats with ADDITIVE_ZEROS; absent: 8 (INT8: 0) */
  marlin_matrix sparse_meta; /* 2:4, values hold what is kept. ROWS: U8 bitmask [n, ceil(k/8)] or I16 nibbles [n, ceil(k/16)] */
  marlin_matrix group_index; /* [1, k] I32, the group of each k (act-order); absent: k / group_size */
  marlin_matrix tensor_scale; /* [1, 1] F32; absent: 1 */
  uint32_t flags;
  marlin_gptq_zero_f gptq_zero_f; /* layout GPTQ_V1 only */
  marlin_matrix column_norms;     /* with PRUNE_2_4 only: [1, k] F32 >= 0; chosen by |w| * norm, as Wanda does; absent: all 1 */
} marlin_pack_desc;

/* C[M, N] = f(A[M, K] W^T + bias) (+ C). A, C, bias are each F32, F16 or BF16.
 * Weights of E experts need expert_ids [T, top_k]; those of one may have them. Slot s of token t, row t top_k + s, is
 * multiplied by expert expert_ids[t, s]; a token may name one twice. A has a row a token, [T, K] (gate and up), or one a slot,
 * [T top_k, K] (down). C has a row a slot; or, with expert_scales, one a token, [T, N]: the sum of its slots' f(A W^T + bias)
 * times their scales, in float32, in the order of s. An id outside [0, E) gives 0, its scale is not read: a host that has some
 * experts passes id - first. CPU only so far, elsewhere MARLIN_E_UNSUPPORTED. */
typedef struct marlin_gemm_desc {
  uint32_t struct_size;
  marlin_compute compute;
  marlin_epilogue epilogue;
  uint32_t flags;
  const marlin_weights* weights;
  marlin_matrix a;             /* [M, K] */
  marlin_matrix c;             /* [M, N]; N/2 columns for two-input epilogues */
  marlin_matrix bias;          /* [1, N], of experts [1 or E, N], or absent; in the row order of the weights */
  marlin_matrix expert_ids;    /* [T, top_k] I32, or absent: no mixture of experts */
  marlin_matrix expert_scales; /* [T, top_k] F32, F16 or BF16, or absent: no sum */
} marlin_gemm_desc;

typedef struct marlin_shard { /* frozen; in elements of N, K and experts; count 0: all from first on */
  int64_t first[3], count[3];
} marlin_shard;

typedef struct marlin_load_desc {
  uint32_t struct_size;
  uint32_t flags;
  const char* const* layers;  /* names as marlin_checkpoint_layer lists them; several: one handle, N concatenated */
  const marlin_shard* shards; /* one a name, or NULL: everything */
  uint32_t layer_count;
  uint32_t expert_count;             /* 0 or 1: as the layers have them; more: of names of one each, expert by expert */
  marlin_format format;              /* for layers that are not quantised: quantise to this; 0: they are an error */
  uint32_t group_size;               /* with format; 0: the format's own */
  const marlin_matrix* column_norms; /* LOAD_PRUNE_2_4: one a name, absent or as above over the whole layer's K; or NULL */
  /* On the calling thread: first, last, now and then. Counts elements of W. Not 0 cancels: MARLIN_E_CANCELLED. May be NULL. */
  int32_t (*progress)(void* user, uint64_t done, uint64_t total);
  void* user; /* given to progress */
} marlin_load_desc;

typedef struct marlin_open_desc {
  uint32_t struct_size;
  uint32_t flags;
  marlin_layout layout; /* MARLIN_LAYOUT_AUTO: found from config.json, tensor names and dtypes; else it is taken on trust */
  marlin_gptq_zero_f gptq_zero_f; /* for all GPTQ v1 layers of the file */
} marlin_open_desc;

typedef struct marlin_layer_info {
  uint32_t struct_size;
  marlin_status status; /* would it load? */
  const char* name;     /* lives as long as the checkpoint or weights it came from */
  int64_t n, k;
  uint32_t experts;     /* 1 for a plain layer */
  uint32_t group_size;  /* k when one group spans the row */
  marlin_format format; /* MARLIN_FORMAT_NONE: floats of `dtype`, can be quantised on load */
  marlin_layout layout; /* in the file; of packed weights: what their first part came in */
  uint32_t flags;
  marlin_dtype dtype; /* of the scales; of the values when format is NONE */
  uint64_t bytes;     /* in the file, or on the device */
  double kept_share;  /* sum of w^2 over what pruning kept / over all, of whole layers; 1 when nothing was pruned or all is 0 */
} marlin_layer_info;

/* What became of one layer. */
typedef struct marlin_convert_outcome {
  uint32_t struct_size;
  marlin_status status; /* MARLIN_OK: quantised; else why it stays as it was (MARLIN_CONVERT_SKIP_UNFIT) */
  const char* name;
  const char* reason; /* the words for status, or "" */
  int64_t n, k;
  uint32_t experts;
  uint32_t group_size;  /* k when one group spans the row */
  marlin_format from;   /* MARLIN_FORMAT_NONE: floats */
  marlin_format format; /* that was written */
  uint32_t flags;       /* MARLIN_LAYER_*, MARLIN_PACK_* of what was written */
  uint32_t reserved;
  uint64_t bytes_before, bytes_after; /* of all its tensors */
  double squared_error;               /* sum of (written - original)^2 over all elements, in float64; 0 in a dry run */
  double squared_norm;                /* sum of original^2 */
  double kept_norm;                   /* sum of original^2 over what pruning kept; squared_norm when nothing is pruned */
} marlin_convert_outcome;

/* Quantising a checkpoint from file to file. */
typedef struct marlin_convert_desc {
  uint32_t struct_size;
  uint32_t flags;
  marlin_scheme scheme;
  marlin_format format; /* MXFP4, NVFP4 or INT4 */
  uint32_t group_size;  /* 0: the format's own (MARLIN_24: 128); >= k: the whole row */
  uint32_t layer_count;
  const char* const* layers; /* to quantise, as marlin_checkpoint_layer lists them; all other tensors are copied unchanged */
  uint64_t shard_bytes;      /* safetensors: at most so many bytes of tensors a file; 0: as many files as the input has */
  /* Called on the calling thread, at least once a layer and every few million weights; total_bytes is of the input, and 0 while
   * the files are being planned. What is not 0 cancels: MARLIN_E_CANCELLED. layer lives during the call. */
  int32_t (*progress)(void* user, uint64_t done_bytes, uint64_t total_bytes, const char* layer);
  void (*layer_done)(void* user, const marlin_convert_outcome* outcome); /* in file order; lives during the call */
  void (*log)(void* user, int32_t level, const char* message);           /* as marlin_context_desc::log */
  void (*parallel_for)(void* user, uint32_t tasks, void (*task)(void* task_user, uint32_t index), void* task_user);
  void* user; /* given to each of the four; any of them may be NULL, without parallel_for all runs on the calling thread */
  const marlin_matrix* column_norms; /* PRUNE_2_4: one for each of layers, in host memory, as in marlin_load_desc; or NULL */
} marlin_convert_desc;

/* --- devices, contexts, streams, memory -------------------------------------------------------------------------------- */
/* Device `index` of all backends in the order of MARLIN_BACKEND_AUTO, unusable ones too. Past the end: MARLIN_E_NOT_FOUND. */
MARLIN_EXPORT marlin_status marlin_device_get(uint32_t index, marlin_device_info* out, marlin_error* err);
/* desc NULL: all defaults. Starts no thread before the first work. */
MARLIN_EXPORT marlin_status marlin_context_create(const marlin_context_desc* desc, marlin_context** out, marlin_error* err);
/* Joins the threads once the last child is gone. */
MARLIN_EXPORT void marlin_context_destroy(marlin_context* context);
/* desc NULL: all defaults. Cheap: one a frame is fine. */
MARLIN_EXPORT marlin_status marlin_stream_create(marlin_context* context, const marlin_stream_desc* desc, marlin_stream** out,
                                                 marlin_error* err);
/* Submits what is recorded; does not wait. stream must not be NULL, here and in marlin_stream_wait. */
MARLIN_EXPORT marlin_status marlin_stream_flush(marlin_stream* stream, marlin_error* err);
/* Waits until the work given so far is done. timeout_ns 0 polls, UINT64_MAX waits for ever; MARLIN_E_TIMEOUT. */
MARLIN_EXPORT marlin_status marlin_stream_wait(marlin_stream* stream, uint64_t timeout_ns, marlin_error* err);
MARLIN_EXPORT void marlin_stream_destroy(marlin_stream* stream);
/* bytes > 0; zero-filled, aligned to 64 bytes. */
MARLIN_EXPORT marlin_status marlin_buffer_create(marlin_context* context, uint64_t bytes, marlin_buffer** out,
                                                 marlin_error* err);
/* The host's view of it; NULL for NULL and for what is no buffer. */
MARLIN_EXPORT void* marlin_buffer_host(marlin_buffer* buffer);
MARLIN_EXPORT void marlin_buffer_destroy(marlin_buffer* buffer);

/* --- weights ----------------------------------------------------------------------------------------------------------- */
/* Packs part_count matrices, concatenated along N, into one handle. Parts must agree in k, format, group size and kinds of
 * scales and zeros. expert_count above 1: the parts are those of as many experts, all of the first expert first, the same
 * number and n for each; 0 is 1. The parts may be freed afterwards.
 * PRUNE_2_4 keeps the two of the largest |w| (of codes: decoded) in every 4 along K, the lower k on ties, before any scale is
 * chosen; what is sparse already stays as it is. k must be a multiple of 4, the format one of 4 bits, without group_index. */
MARLIN_EXPORT marlin_status marlin_weights_pack(marlin_context* context, const marlin_pack_desc* const* parts,
                                                uint32_t part_count, uint32_t expert_count, marlin_weights** out,
                                                marlin_error* err);
/* Decodes rows to floats, bit-exact: the true value rounded once to float32 (then once to out's dtype). out is [T, K] F32,
 * F16 or BF16 in the file's order of k. row_ids [T, 1] I32 (first_row is ignored; not of several experts:
 * MARLIN_E_UNSUPPORTED), or NULL: the T rows from first_row on, expert e's from e N on.
 * An id outside [0, N) is MARLIN_E_ARGUMENT; on a GPU's stream it gives a row of NaN. stream may be NULL. */
MARLIN_EXPORT marlin_status marlin_weights_unpack(marlin_stream* stream, const marlin_weights* weights,
                                                  const marlin_matrix* row_ids, int64_t first_row, const marlin_matrix* out,
                                                  marlin_error* err);
/* name is "" unless the weights were loaded from a file (then: the first layer's name). */
MARLIN_EXPORT marlin_status marlin_weights_info(const marlin_weights* weights, marlin_layer_info* out, marlin_error* err);
MARLIN_EXPORT void marlin_weights_destroy(marlin_weights* weights);

/* --- files ------------------------------------------------------------------------------------------------------------- */
/* path: a .safetensors file, a .safetensors.index.json, a .gguf file, or a folder that holds one of them. Reads headers
 * and config.json only. desc NULL: all defaults. */
MARLIN_EXPORT marlin_status marlin_checkpoint_open(const char* path, const marlin_open_desc* desc, marlin_checkpoint** out,
                                                   marlin_error* err);
/* Layers in file order, by the tensor's name without the layout's suffix. Past the end: MARLIN_E_NOT_FOUND. */
MARLIN_EXPORT marlin_status marlin_checkpoint_layer(const marlin_checkpoint* checkpoint, uint64_t index, marlin_layer_info* out,
                                                    marlin_error* err);
/* A borrowed, read-only view of one stored tensor (bias, norm, router), valid while the checkpoint lives. More than two
 * dimensions: all but the last are rows; one or none: one row. It starts wherever the file has it, so an operand made of it may
 * have to be copied to its natural alignment first. A type that marlin_dtype does not name is MARLIN_E_UNSUPPORTED. */
MARLIN_EXPORT marlin_status marlin_checkpoint_tensor(const marlin_checkpoint* checkpoint, const char* name, marlin_matrix* out,
                                                     marlin_error* err);
MARLIN_EXPORT void marlin_checkpoint_destroy(marlin_checkpoint* checkpoint);
/* Loads and packs the named layers by stripes of rows. Names of stacks are concatenated expert by expert; all must have as
 * many. With expert_count E, every layer_count / E names are one expert (e0.gate, e0.up, e1.gate, ...). A shard outside of its
 * layer: MARLIN_E_SHAPE. */
MARLIN_EXPORT marlin_status marlin_weights_load(marlin_context* context, const marlin_checkpoint* checkpoint,
                                                const marlin_load_desc* desc, marlin_weights** out, marlin_error* err);

/* --- work (stream NULL: on the weights' context, done on return; all weights of a call are of one context) ---------------- */
MARLIN_EXPORT marlin_status marlin_gemm(marlin_stream* stream, const marlin_gemm_desc* desc, marlin_error* err);
/* Independent products in one submission; an A that several of them share is prepared once. All are validated first. */
MARLIN_EXPORT marlin_status marlin_gemm_many(marlin_stream* stream, const marlin_gemm_desc* const* descs, uint32_t count,
                                             marlin_error* err);
/* Compiles and reserves for these products with M (of experts: T) up to max_m, so that later calls neither allocate nor
 * compile. The data of a, c and expert_ids is not read and may be NULL. scratch_bytes (may be NULL): what a host's own scratch
 * must hold. */
MARLIN_EXPORT marlin_status marlin_prepare(marlin_stream* stream, const marlin_gemm_desc* const* descs, uint32_t count,
                                           int64_t max_m, uint64_t* scratch_bytes, marlin_error* err);
/* Which kernel, which tiles, why: "kernel: NAME\n", then "key: value\n" lines, NUL-terminated and cut at capacity.
 * *needed (may be NULL) is the size with the NUL; text may be NULL when capacity is 0. */
MARLIN_EXPORT marlin_status marlin_explain(const marlin_gemm_desc* desc, char* text, size_t capacity, size_t* needed,
                                           marlin_error* err);

/* --- about ------------------------------------------------------------------------------------------------------------- */
MARLIN_EXPORT uint32_t marlin_version(void); /* major << 16 | minor << 8 | patch */
/* Static text like "MARLIN_E_SHAPE"; never NULL. */
MARLIN_EXPORT const char* marlin_status_name(marlin_status status);

/* --- converting -------------------------------------------------------------------------------------------------------- */
/* Writes a checkpoint again with some layers quantised. Memory stays at a few times one stripe of rows; GPTQ and marlin-24,
 * whose words run across rows, hold one packed layer. The result does not depend on parallel_for. out_path: a .gguf or
 * .safetensors file in an existing folder, or a folder (made when there is none) for model.gguf or model.safetensors, its index
 * and shards. Beside safetensors go config.json, the input's with its quantization_config replaced, and for GPTQ
 * quantize_config.json; a tokenizer and whatever else a model's folder holds is the caller's to copy. A GGUF keeps the
 * key-values of a GGUF; made from safetensors it keeps the tensors' names and says no architecture. Layers that are quantised
 * already are decoded and quantised again, with a warning. A layer that the scheme cannot hold, and a quantised layer that is
 * not listed and that the output's config could not describe, is MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name.
 * Everything is written under other names, synced, and renamed at the end: whatever fails leaves old files as they were. Only
 * regular files are replaced, and no input under any name. A process that limits the size of its files must ignore SIGXFSZ. */
MARLIN_EXPORT marlin_status marlin_checkpoint_convert(const marlin_checkpoint* checkpoint, const char* out_path,
                                                      const marlin_convert_desc* desc, marlin_error* err);

/* --- plugins: dlopen, dlsym("marlin_get_api"), done ----------------------------------------------------------------------- */
typedef struct marlin_api { /* append-only; inside struct_size no member is NULL */
  uint32_t struct_size, abi_major, abi_minor, version;
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
  uint32_t (*get_version)(void);
  const char* (*status_name)(marlin_status);
  marlin_status (*checkpoint_convert)(const marlin_checkpoint*, const char*, const marlin_convert_desc*, marlin_error*);
} marlin_api;

/* The only symbol a plugin host needs. Static storage; NULL when that major is not served. */
MARLIN_EXPORT const marlin_api* marlin_get_api(uint32_t abi_major);

#ifdef __cplusplus
}
#endif

#endif /* METAL_MARLIN_METAL_MARLIN_H_ */
