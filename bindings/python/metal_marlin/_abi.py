# Written by bindings/python/generate.py from metal_marlin.h; a test compares it with what that script would write now.
from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p
from ctypes import c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from ._constant import Constant

MARLIN_VERSION_MAJOR = 0
MARLIN_VERSION_MINOR = 1
MARLIN_VERSION_PATCH = 0
# Version of the table that marlin_get_api returns. The major changes when the ABI breaks, the minor when the table grows.
MARLIN_ABI_MAJOR = 0
MARLIN_ABI_MINOR = 1
# marlin_gemm_desc::flags
# C += ...
MARLIN_GEMM_ACCUMULATE = 1
# a row has the same bits whatever M is: see RESULTS
MARLIN_GEMM_ROW_INVARIANT = 2
# marlin_pack_desc::flags, and the same bits in marlin_layer_info::flags
# q * s + zero: MLX, Q4_1, AWQ gemv_fast
MARLIN_PACK_ADDITIVE_ZEROS = 1
# tensor_scale divides: compressed-tensors NVFP4
MARLIN_PACK_DIVIDE_SCALE = 2
# keep two of every 4 weights along K: see marlin_weights_pack
MARLIN_PACK_PRUNE_2_4 = 4
# rows alternate gate, up (gpt-oss): see marlin_gemm_desc; loading sets it
MARLIN_PACK_GATE_UP_INTERLEAVED = 8
# when quantizing, search for the scale of least squared error
MARLIN_PACK_SCALES_MSE = 16
# dense values already obey 2:4: store them sparse, or fail with MARLIN_E_FORMAT
MARLIN_PACK_OBEYS_2_4 = 32
# LAYOUT_GGUF: the K-quant of this format (super-blocks of 256; IQ4: IQ4_XS)
MARLIN_PACK_TWO_LEVEL_SCALES = 64
# marlin_layer_info::flags only
# has integer zero points
MARLIN_LAYER_ZEROS = 256
# has a group index
MARLIN_LAYER_ACT_ORDER = 512
# two of every 4 weights along K are kept
MARLIN_LAYER_SPARSE_2_4 = 1024
# in marlin_convert_outcome: no value of a quantized layer has changed
MARLIN_LAYER_EXACT = 2048
# marlin_open_desc::flags: the order of stacks of experts whose shapes and config leave it open, which else are not read
# [experts, n, k]
MARLIN_OPEN_OUTPUTS_FIRST = 1
# [experts, k, n]
MARLIN_OPEN_INPUTS_FIRST = 2
# marlin_load_desc::flags
# as the MARLIN_PACK_ flags of the same names
MARLIN_LOAD_PRUNE_2_4 = 4
# for layers quantized on load
MARLIN_LOAD_SCALES_MSE = 16
MARLIN_LOAD_OBEYS_2_4 = 32
# marlin_convert_desc::flags
# as the MARLIN_PACK_ flags of the same names
MARLIN_CONVERT_PRUNE_2_4 = 4
MARLIN_CONVERT_SCALES_MSE = 16
MARLIN_CONVERT_OBEYS_2_4 = 32
# INT4 with a zero point a group
MARLIN_CONVERT_ASYMMETRIC = 64
# leave layers that the scheme cannot hold as they are; otherwise: an error
MARLIN_CONVERT_SKIP_UNFIT = 128
# replace existing output files; otherwise: MARLIN_E_FILE, EEXIST
MARLIN_CONVERT_OVERWRITE = 512
# plan, check and report every outcome with its sizes; write nothing
MARLIN_CONVERT_DRY_RUN = 1024
# marlin_save_desc::flags
# replace an existing file; otherwise: MARLIN_E_FILE, EEXIST
MARLIN_SAVE_OVERWRITE = 1


# values never change; they are spaced by kind
class Status(Constant):
    OK = 0
    # a value that no caller may pass: NULL, unknown enum, overlap
    ARGUMENT = -10
    # struct_size is no size of any version
    STRUCT_SIZE = -11
    # sizes that do not fit each other
    SHAPE = -12
    # legal, but not served by this version or device
    UNSUPPORTED = -20
    # the host's scratch is too small: marlin_prepare says how much
    NOT_PREPARED = -21
    # the operating system refused: native_code is errno
    FILE = -25
    # the content of a file or operand is malformed
    FORMAT = -26
    # no such index, layer, tensor or key
    NOT_FOUND = -27
    # the backend has no usable device here
    NO_DEVICE = -30
    # the device failed: native_code is its own code
    DEVICE = -31
    TIMEOUT = -32
    # a callback asked to stop
    CANCELLED = -33
    MEMORY = -40
    # a bug in this library; please report it with the message
    INTERNAL = -90


class Backend(Constant):
    # the first usable backend of CUDA, Metal, CPU
    AUTO = 0
    CPU = 1
    METAL = 2
    CUDA = 3


class DType(Constant):
    F32 = 1
    F16 = 2
    BF16 = 3
    I8 = 4
    I32 = 5
    U32 = 6
    # two per byte, low nibble first; cols counts nibbles and is even
    U4 = 7
    E8M0 = 8
    # the FN variant: no infinity, 0x7F and 0xFF are NaN
    E4M3 = 9
    U8 = 10
    I16 = 11
    I64 = 12


# where marlin_matrix::data points
class Memory(Constant):
    # on a GPU only with stream NULL
    HOST = 0
    # a device pointer
    CUDA = 1
    # an id<MTLBuffer>
    METAL = 2
    # a marlin_buffer *; bounds are checked
    BUFFER = 3


# the value of a weight with code q in a group with scale s
class Format(Constant):
    # in marlin_layer_info: floats, not quantized
    NONE = 0
    # (q - zero) * s, zero 8 when absent; or q * s + zero (additive)
    INT4 = 1
    # e2m1(q) * s, s a float
    FP4 = 2
    # e2m1(q) * 2^(e - 127), groups of 32 (OCP MX v1.0)
    MXFP4 = 3
    # e2m1(q) * e4m3 * tensor_scale, groups of 16
    NVFP4 = 4
    # q * s (+ zero); holds Q8_0 exactly
    INT8 = 5
    # as INT4, zero 2 when absent; GGUF's Q2_K
    INT2 = 6
    # as INT4, zero 4 when absent; GGUF's Q3_K
    INT3 = 7
    # as INT4, zero 16 when absent; GGUF's Q5_0, Q5_1, Q5_K
    INT5 = 8
    # as INT4, zero 32 when absent; GGUF's Q6_K
    INT6 = 9
    # iq4(q) * s, 16 integers from -127 to 113; GGUF's IQ4_NL, IQ4_XS
    IQ4 = 10
    # (q - zero) * s, q 0..255, zero 128 when absent; or q * s + zero (additive)
    UINT8 = 11
    # e4m3(q) * s, s a float or E8M0
    FP8 = 12
    # nf4(q) * s, the 16 floats of QLoRA (bitsandbytes)
    NF4 = 13
    # codebook[q] * s, 16 floats of the file or the caller
    CODEBOOK4 = 14
    # floats as they are, without scales; any compute multiplies them as the default does
    FLOAT32 = 15
    FLOAT16 = 16
    BFLOAT16 = 17


class Compute(Constant):
    # activations as given, sums in FP32
    DEFAULT = 0
    # activations rounded to INT8, one scale for each block of 32
    INT8 = 1
    # activations rounded to E4M3; CUDA only
    FP8 = 2


# element order of pre-quantized input; docs/formats.md defines each bit by bit
class Layout(Constant):
    # packing: ROWS; opening a file: detected
    AUTO = 0
    # 4 bits: U8 [N, ceil(K/2)], even k low; INT8: I8; FP8: U8, E4M3; UINT8: U8, I8 (q - 128); others: U8
    ROWS = 1
    # U32 [K/8, N], nibble i of a word = element 8 kb + i
    K8N = 2
    # GPTQ_V2, but the packed zeros store zero - 1
    GPTQ_V1 = 3
    # U32 [K*bits/32, N], columns are streams of codes; packed zeros
    GPTQ_V2 = 4
    # AutoAWQ "gemm"
    AWQ = 5
    # AutoAWQ "gemv"
    AWQ_GEMV = 6
    # AutoAWQ "gemv_fast", llm-awq
    AWQ_GEMV_FAST = 7
    # GGUF blocks: `values` holds whole blocks
    GGUF = 8
    # IST Marlin
    MARLIN = 9
    # compressed-tensors marlin-24
    MARLIN_24 = 10


# GPTQ v1 stores zero - 1; readers disagree on the largest stored code (INT4: 15)
class GptqZeroF(Constant):
    # by the config's meta.quantizer, else WRAP with a warning
    AUTO = 0
    # zero 0: AutoGPTQ's CUDA and exllama kernels
    WRAP = 1
    # zero 0, the next zero is one more: GPTQModel (INT3: before 7.0)
    CARRY = 2
    # zero 16 (2^bits): AutoGPTQ's torch and triton kernels, vLLM
    SIXTEEN = 3


# f in C = f(A W^T + bias) (+ C); two-input ones take gate and up rows, give N/2 columns
class Epilogue(Constant):
    NONE = 0
    SILU = 1
    GELU_TANH = 2
    GELU_ERF = 3
    # silu(gate) * up
    SWIGLU = 4
    # gelu_tanh(gate) * up
    GEGLU_TANH = 5
    # gpt-oss: g sigmoid(1.702 g) (u + 1), clamped: g <= 7, |u| <= 7
    SWIGLU_OAI = 6


# the origin of a stream; `kind` decides, because CUDA's legacy stream is NULL
class Native(Constant):
    NONE = 0
    CUDA_STREAM = 1
    METAL_QUEUE = 2
    # uncommitted, no encoder open; flush, then commit
    METAL_COMMAND_BUFFER = 3
    # we encode into it and change its bindings; the host ends it
    METAL_ENCODER = 4


# how a file names and stores its quantized layers
class Scheme(Constant):
    # GGUF to a name in .gguf or from a GGUF, else compressed-tensors
    AUTO = 0
    # safetensors; MXFP4, NVFP4, INT4 (pack-quantized)
    COMPRESSED_TENSORS = 1
    # safetensors; INT4, GPTQ v2
    GPTQ = 2
    # safetensors; 2:4 sparse INT4
    MARLIN_24 = 3
    # GGUF v3; any of its blocks that the library reads
    GGUF = 4
    # safetensors; affine: INT2 to INT6, UINT8 with additive zeros
    MLX = 5


# of a key-value of a checkpoint, or of the elements of an array
class ValueType(Constant):
    # marlin_value::element_type of a value that is no array
    NONE = 0
    # an element is one byte: false if it is 0
    BOOL = 1
    I64 = 2
    U64 = 3
    F64 = 4
    STRING = 5
    # of one element_type that is no ARRAY
    ARRAY = 6
    # from here on: of elements only; a single number has 64 bits
    I8 = 7
    I16 = 8
    I32 = 9
    U8 = 10
    U16 = 11
    U32 = 12
    F32 = 13


class marlin_context(c_void_p):
    """a device with its kernels, caches and threads."""


class marlin_weights(c_void_p):
    """packed weights on a device; immutable, shareable."""


class marlin_stream(c_void_p):
    """in-order queue of work."""


class marlin_buffer(c_void_p):
    """memory that host and device both reach."""


class marlin_checkpoint(c_void_p):
    """an open .safetensors, its index, .gguf or .marlin."""


class marlin_error(Structure):
    struct_size: int
    status: int
    # errno, CUresult or NSError.code; 0 if there is none
    native_code: int
    reserved: int
    # UTF-8, NUL-terminated, control characters escaped: the expected value, the found value, the place
    message: bytes
    _fields_ = (
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("native_code", c_int32),
        ("reserved", c_uint32),
        ("message", c_char * 240),
    )


# frozen
class marlin_matrix(Structure):
    # NULL: absent
    data: int | None
    # added to data; use it for offsets into MTLBuffers
    offset_bytes: int
    rows: int
    cols: int
    # in elements; 0: cols
    row_stride: int
    dtype: int
    memory: int
    _fields_ = (
        ("data", c_void_p),
        ("offset_bytes", c_uint64),
        ("rows", c_int64),
        ("cols", c_int64),
        ("row_stride", c_int64),
        ("dtype", c_int32),
        ("memory", c_int32),
    )


class marlin_device_info(Structure):
    struct_size: int
    backend: int
    # for marlin_context_desc::device_index
    index: int
    flags: int
    name: bytes
    # "avx512-vnni-bf16", "sm_90a", "apple9"
    isa_or_arch: bytes
    memory_bytes: int
    # empty if the device is usable
    why_not: bytes
    # CPU: what marlin_context_desc::threads 0 means to this process now; 0 for other backends
    threads: int
    reserved: int
    _fields_ = (
        ("struct_size", c_uint32),
        ("backend", c_int32),
        ("index", c_int32),
        ("flags", c_uint32),
        ("name", c_char * 64),
        ("isa_or_arch", c_char * 32),
        ("memory_bytes", c_uint64),
        ("why_not", c_char * 160),
        ("threads", c_uint32),
        ("reserved", c_uint32),
    )


class marlin_context_desc(Structure):
    struct_size: int
    backend: int
    # marlin_device_info::index; 0 with AUTO
    device_index: int
    # CPU threads, with parallel_for those that work is divided for; 0: as many as the process may use
    threads: int
    # the host's CUcontext or id<MTLDevice>; NULL: by index. NULL with AUTO and CPU
    native_device: int | None
    # returning NULL is MARLIN_E_MEMORY; align is a power of two
    alloc: Any
    # give alloc and release, or neither
    release: Any
    # level 1 error, 2 warning, 3 info
    log: Any
    parallel_for: Any
    # given to each of the four
    user: int | None
    _fields_ = (
        ("struct_size", c_uint32),
        ("backend", c_int32),
        ("device_index", c_int32),
        ("threads", c_uint32),
        ("native_device", c_void_p),
        ("alloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ("log", CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ("parallel_for", CFUNCTYPE(None, c_void_p, c_uint32, CFUNCTYPE(None, c_void_p, c_uint32), c_void_p)),
        ("user", c_void_p),
    )


class marlin_stream_desc(Structure):
    struct_size: int
    kind: int
    native: int | None
    # the host's memory for temporaries: U8, any alignment, no gaps between rows, no overlap with operands. marlin_prepare says how much; a call that needs more is MARLIN_E_NOT_PREPARED. Absent: the stream owns memory of its own
    scratch: marlin_matrix
    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("native", c_void_p),
        ("scratch", marlin_matrix),
    )


# One matrix W[n, k] to pack. Quantized values need scales. Float values (F32, F16 or BF16, [n, k]) are quantized here.
class marlin_pack_desc(Structure):
    struct_size: int
    format: int
    # weights along K that share a scale; 0: the format's own (32, NVFP4 16, FP8 128, NF4 64); >= k: the row
    group_size: int
    layout: int
    # out_features, in_features
    n: int
    # out_features, in_features
    k: int
    # codes in `layout`, or floats [n, k]
    values: marlin_matrix
    # ROWS: [n, ceil(k/group)] F32, F16, BF16, E8M0 or U8, E4M3; else as the layout stores them
    scales: marlin_matrix
    # ROWS: [n, ceil(k/group)] U8 0..15, or floats with ADDITIVE_ZEROS; absent: see marlin_format
    zeros: marlin_matrix
    # 2:4: values hold kept codes only. ROWS: U8 mask [n, ceil(k/8)] or I16 nibbles [n, ceil(k/16)]
    sparse_meta: marlin_matrix
    # [1, k] I32, the group of each k (act-order); absent: k / group_size
    group_index: marlin_matrix
    # [1, 1] F32; absent: 1
    tensor_scale: marlin_matrix
    flags: int
    # layout GPTQ_V1 only
    gptq_zero_f: int
    # PRUNE_2_4 only: [1, k] F32 >= 0; absent: all 1. Pruning ranks by |w| * norm (Wanda), and norm^2 weighs the squared errors of SCALES_MSE.
    column_norms: marlin_matrix
    # CODEBOOK4 only: [1, 16] F32, the value of each code in units of its scale
    codebook: marlin_matrix
    _fields_ = (
        ("struct_size", c_uint32),
        ("format", c_int32),
        ("group_size", c_uint32),
        ("layout", c_int32),
        ("n", c_int64),
        ("k", c_int64),
        ("values", marlin_matrix),
        ("scales", marlin_matrix),
        ("zeros", marlin_matrix),
        ("sparse_meta", marlin_matrix),
        ("group_index", marlin_matrix),
        ("tensor_scale", marlin_matrix),
        ("flags", c_uint32),
        ("gptq_zero_f", c_int32),
        ("column_norms", marlin_matrix),
        ("codebook", marlin_matrix),
    )


# C[M, N] = f(A[M, K] W^T + bias) (+ C). A, C, bias are each F32, F16 or BF16. Sums are float32: C may be infinite or NaN where the sum of |a| |w| exceeds float32, and with NVFP4 where this sum over tensor_scale does (|a| above about 1e34). Two-input epilogues: all gate rows of W come first, then all up rows, as when the layers gate and up are loaded as one handle in this order: column j of C combines row j with row N/2 + j. In weights with PACK_GATE_UP_INTERLEAVED, gate and up rows alternate: column j of C combines row 2 j with row 2 j + 1. Other epilogues ignore the flag. Mixture of experts: weights of E experts need expert_ids [T, top_k]; weights of one expert may have them. Row t top_k + s of the product, the routed row s of token t, is multiplied by expert expert_ids[t, s]. A token may name one expert twice. A has one row per token, [T, K] (as for gate and up), or one per routed row, [T top_k, K] (as for down). Without expert_scales, C has one row per routed row. With expert_scales, C has one row per token, [T, N]: the sum over s of f(A W^T + bias) times the scale, in float32 and in the order of s. An id outside [0, E) contributes 0, and its scale is not read, so a host that holds experts first..last passes id - first. On a GPU, more than 4096 experts, and experts whose packed layouts differ, as act-order with groups of unequal sizes can make them do, are MARLIN_E_UNSUPPORTED.
class marlin_gemm_desc(Structure):
    struct_size: int
    compute: int
    epilogue: int
    flags: int
    weights: marlin_weights
    # [M, K]
    a: marlin_matrix
    # [M, N]; N/2 columns for two-input epilogues
    c: marlin_matrix
    # [1, N], for experts [1 or E, N], or absent; in the row order of the weights
    bias: marlin_matrix
    # [T, top_k] I32, or absent: no mixture of experts
    expert_ids: marlin_matrix
    # [T, top_k] F32, F16 or BF16, or absent: no sum
    expert_scales: marlin_matrix
    _fields_ = (
        ("struct_size", c_uint32),
        ("compute", c_int32),
        ("epilogue", c_int32),
        ("flags", c_uint32),
        ("weights", marlin_weights),
        ("a", marlin_matrix),
        ("c", marlin_matrix),
        ("bias", marlin_matrix),
        ("expert_ids", marlin_matrix),
        ("expert_scales", marlin_matrix),
    )


# frozen; in elements of N, K and experts; count 0: everything from first on
class marlin_shard(Structure):
    first: bytes
    count: bytes
    _fields_ = (
        ("first", c_int64 * 3),
        ("count", c_int64 * 3),
    )


class marlin_load_desc(Structure):
    struct_size: int
    flags: int
    # as marlin_checkpoint_layer names them; several names: one handle, concatenated along N
    layers: Any
    # one per name; or NULL: everything
    shards: Any
    layer_count: int
    # 0 or 1: as in the layers; above 1: each name is (a part of) one expert
    expert_count: int
    # quantize layers of floats to this format; 0: layers of floats are an error
    format: int
    # with format; 0: the format's own
    group_size: int
    # LOAD_PRUNE_2_4: one per name, absent or [1, K of the layer] as above; or NULL
    column_norms: Any
    # Called on the calling thread at the start, at the end and at intervals. It counts elements of W. A result other than 0 cancels the load: MARLIN_E_CANCELLED. May be NULL.
    progress: Any
    # given to progress
    user: int | None
    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("layers", POINTER(c_char_p)),
        ("shards", POINTER(marlin_shard)),
        ("layer_count", c_uint32),
        ("expert_count", c_uint32),
        ("format", c_int32),
        ("group_size", c_uint32),
        ("column_norms", POINTER(marlin_matrix)),
        ("progress", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)),
        ("user", c_void_p),
    )


class marlin_open_desc(Structure):
    struct_size: int
    flags: int
    # AUTO: detected from config.json, tensor names and dtypes; otherwise taken on trust
    layout: int
    # for all GPTQ v1 layers of the file
    gptq_zero_f: int
    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("layout", c_int32),
        ("gptq_zero_f", c_int32),
    )


class marlin_layer_info(Structure):
    struct_size: int
    # MARLIN_OK if the layer can be loaded
    status: int
    # valid as long as its checkpoint or weights
    name: bytes | None
    n: int
    k: int
    # 1 for a layer without experts
    experts: int
    # k when one group spans the row
    group_size: int
    # MARLIN_FORMAT_NONE: floats of `dtype`, which can be quantized on load
    format: int
    # in the file; for packed weights: the layout of their first part
    layout: int
    flags: int
    # of the scales; of the values if they are floats
    dtype: int
    # in the file, or on the device
    bytes: int
    # sum of w^2 over kept weights / over all weights; 1 if nothing was pruned or all weights are 0
    kept_share: float
    _fields_ = (
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("name", c_char_p),
        ("n", c_int64),
        ("k", c_int64),
        ("experts", c_uint32),
        ("group_size", c_uint32),
        ("format", c_int32),
        ("layout", c_int32),
        ("flags", c_uint32),
        ("dtype", c_int32),
        ("bytes", c_uint64),
        ("kept_share", c_double),
    )


# A key-value of a checkpoint. Its pointers are valid as long as the checkpoint, and its texts have no NUL at their end.
class marlin_value(Structure):
    struct_size: int
    # BOOL, I64, U64, F64, STRING or ARRAY
    kind: int
    # of an ARRAY
    element_type: int
    reserved: int
    # as the file has it; UTF-8 is not checked, here and in `data`
    key: bytes | None
    key_bytes: int
    # BOOL: 0 or 1. A number out of range is the nearest in range, a fraction is cut off, and NaN is 0
    i64: int
    # the same number for sizes: 0 if it is negative
    u64: int
    # the nearest float to the number
    f64: float
    # STRING: its text. ARRAY: its elements, little-endian; they begin at any byte, so copy them
    data: int | None
    # of data
    bytes: int
    # ARRAY: elements; STRING: bytes
    count: int
    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("element_type", c_int32),
        ("reserved", c_uint32),
        ("key", c_char_p),
        ("key_bytes", c_uint64),
        ("i64", c_int64),
        ("u64", c_uint64),
        ("f64", c_double),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("count", c_uint64),
    )


# The result of converting one layer.
class marlin_convert_outcome(Structure):
    struct_size: int
    # MARLIN_OK: quantized; else the reason to leave it as it was (SKIP_UNFIT)
    status: int
    name: bytes | None
    # the message that belongs to status, or ""
    reason: bytes | None
    n: int
    k: int
    experts: int
    # k when one group spans the row
    group_size: int
    # MARLIN_FORMAT_NONE: floats
    from_: int
    # of the written layer
    format: int
    # MARLIN_LAYER_* and MARLIN_PACK_* of the written layer
    flags: int
    reserved: int
    # of all its tensors
    bytes_before: int
    # of all its tensors
    bytes_after: int
    # sum of (written - original)^2 over all elements, in float64; 0 in a dry run
    squared_error: float
    # sum of original^2
    squared_norm: float
    # sum of original^2 over what pruning kept; squared_norm when nothing is pruned
    kept_norm: float
    _fields_ = (
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("name", c_char_p),
        ("reason", c_char_p),
        ("n", c_int64),
        ("k", c_int64),
        ("experts", c_uint32),
        ("group_size", c_uint32),
        ("from_", c_int32),
        ("format", c_int32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("bytes_before", c_uint64),
        ("bytes_after", c_uint64),
        ("squared_error", c_double),
        ("squared_norm", c_double),
        ("kept_norm", c_double),
    )


# Quantizes a checkpoint from file to file.
class marlin_convert_desc(Structure):
    struct_size: int
    flags: int
    scheme: int
    # of the scheme; NONE: see types, and layers that are quantized already stay exact
    format: int
    # 0: the format's own (MARLIN_24: 128); >= k: the whole row
    group_size: int
    layer_count: int
    # the layers to quantize, by name; all other tensors are copied unchanged
    layers: Any
    # safetensors: most bytes of tensors in one file; 0: as many files as the input has
    shard_bytes: int
    # Called on the calling thread, at least once per layer and every few million weights. total_bytes is the size of the input, and 0 while the files are being planned. A result other than 0 cancels: MARLIN_E_CANCELLED. layer lives during the call.
    progress: Any
    # in file order; outcome is valid during the call
    layer_done: Any
    # as marlin_context_desc::log
    log: Any
    parallel_for: Any
    # given to each of the four, which may be NULL; without parallel_for all work runs on the calling thread
    user: int | None
    # One per layer, absent or as in marlin_load_desc, in host memory; or NULL. They rank weights to prune. Their squares weigh the squared errors of SCALES_MSE and of all other scales that are fitted by least squares.
    column_norms: Any
    # GGUF: one per layer, the type of its blocks, as "Q4_K". An entry that is NULL, or types NULL: by format and flags.
    types: Any
    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("scheme", c_int32),
        ("format", c_int32),
        ("group_size", c_uint32),
        ("layer_count", c_uint32),
        ("layers", POINTER(c_char_p)),
        ("shard_bytes", c_uint64),
        ("progress", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, c_char_p)),
        ("layer_done", CFUNCTYPE(None, c_void_p, POINTER(marlin_convert_outcome))),
        ("log", CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ("parallel_for", CFUNCTYPE(None, c_void_p, c_uint32, CFUNCTYPE(None, c_void_p, c_uint32), c_void_p)),
        ("user", c_void_p),
        ("column_norms", POINTER(marlin_matrix)),
        ("types", POINTER(c_char_p)),
    )


# What a packed container holds.
class marlin_save_desc(Structure):
    struct_size: int
    flags: int
    # one entry each; NULL with count 0: every layer that loads, alone and whole
    loads: Any
    load_count: int
    # of the shards in loads, for readers of the file; rank_count 0: 1
    rank: int
    # of the shards in loads, for readers of the file; rank_count 0: 1
    rank_count: int
    reserved: int
    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("loads", POINTER(POINTER(marlin_load_desc))),
        ("load_count", c_uint32),
        ("rank", c_uint32),
        ("rank_count", c_uint32),
        ("reserved", c_uint32),
    )


# grows at its end only; no member inside struct_size is NULL
class marlin_api(Structure):
    struct_size: int
    abi_major: int
    abi_minor: int
    version: int
    device_get: Any
    context_create: Any
    context_destroy: Any
    stream_create: Any
    stream_flush: Any
    stream_wait: Any
    stream_destroy: Any
    buffer_create: Any
    buffer_host: Any
    buffer_destroy: Any
    weights_pack: Any
    weights_unpack: Any
    weights_info: Any
    weights_destroy: Any
    checkpoint_open: Any
    checkpoint_layer: Any
    checkpoint_tensor: Any
    checkpoint_destroy: Any
    weights_load: Any
    gemm: Any
    gemm_many: Any
    prepare: Any
    explain: Any
    get_version: Any
    status_name: Any
    checkpoint_convert: Any
    checkpoint_value: Any
    checkpoint_value_at: Any
    value_next_string: Any
    checkpoint_save: Any
    _fields_ = (
        ("struct_size", c_uint32),
        ("abi_major", c_uint32),
        ("abi_minor", c_uint32),
        ("version", c_uint32),
        ("device_get", CFUNCTYPE(c_int32, c_uint32, POINTER(marlin_device_info), POINTER(marlin_error))),
        ("context_create", CFUNCTYPE(c_int32, POINTER(marlin_context_desc), POINTER(marlin_context), POINTER(marlin_error))),
        ("context_destroy", CFUNCTYPE(None, marlin_context)),
        ("stream_create", CFUNCTYPE(c_int32, marlin_context, POINTER(marlin_stream_desc), POINTER(marlin_stream), POINTER(marlin_error))),
        ("stream_flush", CFUNCTYPE(c_int32, marlin_stream, POINTER(marlin_error))),
        ("stream_wait", CFUNCTYPE(c_int32, marlin_stream, c_uint64, POINTER(marlin_error))),
        ("stream_destroy", CFUNCTYPE(None, marlin_stream)),
        ("buffer_create", CFUNCTYPE(c_int32, marlin_context, c_uint64, POINTER(marlin_buffer), POINTER(marlin_error))),
        ("buffer_host", CFUNCTYPE(c_void_p, marlin_buffer)),
        ("buffer_destroy", CFUNCTYPE(None, marlin_buffer)),
        ("weights_pack", CFUNCTYPE(c_int32, marlin_context, POINTER(POINTER(marlin_pack_desc)), c_uint32, c_uint32, POINTER(marlin_weights), POINTER(marlin_error))),
        ("weights_unpack", CFUNCTYPE(c_int32, marlin_stream, marlin_weights, POINTER(marlin_matrix), c_int64, POINTER(marlin_matrix), POINTER(marlin_error))),
        ("weights_info", CFUNCTYPE(c_int32, marlin_weights, POINTER(marlin_layer_info), POINTER(marlin_error))),
        ("weights_destroy", CFUNCTYPE(None, marlin_weights)),
        ("checkpoint_open", CFUNCTYPE(c_int32, c_char_p, POINTER(marlin_open_desc), POINTER(marlin_checkpoint), POINTER(marlin_error))),
        ("checkpoint_layer", CFUNCTYPE(c_int32, marlin_checkpoint, c_uint64, POINTER(marlin_layer_info), POINTER(marlin_error))),
        ("checkpoint_tensor", CFUNCTYPE(c_int32, marlin_checkpoint, c_char_p, POINTER(marlin_matrix), POINTER(marlin_error))),
        ("checkpoint_destroy", CFUNCTYPE(None, marlin_checkpoint)),
        ("weights_load", CFUNCTYPE(c_int32, marlin_context, marlin_checkpoint, POINTER(marlin_load_desc), POINTER(marlin_weights), POINTER(marlin_error))),
        ("gemm", CFUNCTYPE(c_int32, marlin_stream, POINTER(marlin_gemm_desc), POINTER(marlin_error))),
        ("gemm_many", CFUNCTYPE(c_int32, marlin_stream, POINTER(POINTER(marlin_gemm_desc)), c_uint32, POINTER(marlin_error))),
        ("prepare", CFUNCTYPE(c_int32, marlin_stream, POINTER(POINTER(marlin_gemm_desc)), c_uint32, c_int64, POINTER(c_uint64), POINTER(marlin_error))),
        ("explain", CFUNCTYPE(c_int32, POINTER(marlin_gemm_desc), POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(marlin_error))),
        ("get_version", CFUNCTYPE(c_uint32)),
        ("status_name", CFUNCTYPE(c_char_p, c_int32)),
        ("checkpoint_convert", CFUNCTYPE(c_int32, marlin_checkpoint, c_char_p, POINTER(marlin_convert_desc), POINTER(marlin_error))),
        ("checkpoint_value", CFUNCTYPE(c_int32, marlin_checkpoint, c_char_p, POINTER(marlin_value), POINTER(marlin_error))),
        ("checkpoint_value_at", CFUNCTYPE(c_int32, marlin_checkpoint, c_uint64, POINTER(marlin_value), POINTER(marlin_error))),
        ("value_next_string", CFUNCTYPE(c_int32, POINTER(marlin_value), POINTER(c_char_p), POINTER(c_uint64), POINTER(marlin_error))),
        ("checkpoint_save", CFUNCTYPE(c_int32, marlin_context, marlin_checkpoint, c_char_p, POINTER(marlin_save_desc), POINTER(marlin_error))),
    )


# A handle among the parameters is a pointer to it.
FUNCTIONS = {
    "marlin_device_get": CFUNCTYPE(c_int32, c_uint32, POINTER(marlin_device_info), POINTER(marlin_error)),
    "marlin_context_create": CFUNCTYPE(c_int32, POINTER(marlin_context_desc), POINTER(marlin_context), POINTER(marlin_error)),
    "marlin_context_destroy": CFUNCTYPE(None, marlin_context),
    "marlin_stream_create": CFUNCTYPE(c_int32, marlin_context, POINTER(marlin_stream_desc), POINTER(marlin_stream), POINTER(marlin_error)),
    "marlin_stream_flush": CFUNCTYPE(c_int32, marlin_stream, POINTER(marlin_error)),
    "marlin_stream_wait": CFUNCTYPE(c_int32, marlin_stream, c_uint64, POINTER(marlin_error)),
    "marlin_stream_destroy": CFUNCTYPE(None, marlin_stream),
    "marlin_buffer_create": CFUNCTYPE(c_int32, marlin_context, c_uint64, POINTER(marlin_buffer), POINTER(marlin_error)),
    "marlin_buffer_host": CFUNCTYPE(c_void_p, marlin_buffer),
    "marlin_buffer_destroy": CFUNCTYPE(None, marlin_buffer),
    "marlin_weights_pack": CFUNCTYPE(c_int32, marlin_context, POINTER(POINTER(marlin_pack_desc)), c_uint32, c_uint32, POINTER(marlin_weights), POINTER(marlin_error)),
    "marlin_weights_unpack": CFUNCTYPE(c_int32, marlin_stream, marlin_weights, POINTER(marlin_matrix), c_int64, POINTER(marlin_matrix), POINTER(marlin_error)),
    "marlin_weights_info": CFUNCTYPE(c_int32, marlin_weights, POINTER(marlin_layer_info), POINTER(marlin_error)),
    "marlin_weights_destroy": CFUNCTYPE(None, marlin_weights),
    "marlin_checkpoint_open": CFUNCTYPE(c_int32, c_char_p, POINTER(marlin_open_desc), POINTER(marlin_checkpoint), POINTER(marlin_error)),
    "marlin_checkpoint_layer": CFUNCTYPE(c_int32, marlin_checkpoint, c_uint64, POINTER(marlin_layer_info), POINTER(marlin_error)),
    "marlin_checkpoint_tensor": CFUNCTYPE(c_int32, marlin_checkpoint, c_char_p, POINTER(marlin_matrix), POINTER(marlin_error)),
    "marlin_checkpoint_destroy": CFUNCTYPE(None, marlin_checkpoint),
    "marlin_weights_load": CFUNCTYPE(c_int32, marlin_context, marlin_checkpoint, POINTER(marlin_load_desc), POINTER(marlin_weights), POINTER(marlin_error)),
    "marlin_gemm": CFUNCTYPE(c_int32, marlin_stream, POINTER(marlin_gemm_desc), POINTER(marlin_error)),
    "marlin_gemm_many": CFUNCTYPE(c_int32, marlin_stream, POINTER(POINTER(marlin_gemm_desc)), c_uint32, POINTER(marlin_error)),
    "marlin_prepare": CFUNCTYPE(c_int32, marlin_stream, POINTER(POINTER(marlin_gemm_desc)), c_uint32, c_int64, POINTER(c_uint64), POINTER(marlin_error)),
    "marlin_explain": CFUNCTYPE(c_int32, POINTER(marlin_gemm_desc), POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(marlin_error)),
    "marlin_version": CFUNCTYPE(c_uint32),
    "marlin_status_name": CFUNCTYPE(c_char_p, c_int32),
    "marlin_checkpoint_convert": CFUNCTYPE(c_int32, marlin_checkpoint, c_char_p, POINTER(marlin_convert_desc), POINTER(marlin_error)),
    "marlin_checkpoint_value": CFUNCTYPE(c_int32, marlin_checkpoint, c_char_p, POINTER(marlin_value), POINTER(marlin_error)),
    "marlin_checkpoint_value_at": CFUNCTYPE(c_int32, marlin_checkpoint, c_uint64, POINTER(marlin_value), POINTER(marlin_error)),
    "marlin_value_next_string": CFUNCTYPE(c_int32, POINTER(marlin_value), POINTER(c_char_p), POINTER(c_uint64), POINTER(marlin_error)),
    "marlin_checkpoint_save": CFUNCTYPE(c_int32, marlin_context, marlin_checkpoint, c_char_p, POINTER(marlin_save_desc), POINTER(marlin_error)),
    "marlin_get_api": CFUNCTYPE(POINTER(marlin_api), c_uint32),
}
