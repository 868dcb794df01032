# Written by bindings/python/generate.py from metal_marlin.h; a test compares it with what that script would write now.
from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p
from ctypes import c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from ._constant import Constant

MARLIN_VERSION_MAJOR = 0
MARLIN_VERSION_MINOR = 9
MARLIN_VERSION_PATCH = 0
# Version of the table that marlin_get_api returns. The major changes when the ABI breaks, the minor when the table grows.
MARLIN_ABI_MAJOR = 0
MARLIN_ABI_MINOR = 2
# marlin_gemm_desc::flags
# C += ...
MARLIN_GEMM_ACCUMULATE = 1
MARLIN_GEMM_ROW_INVARIANT = 2  # a row has the same bits for every M: see RESULTS
# marlin_pack_desc::flags, and the same bits in marlin_layer_info::flags
# q * s + zero: MLX, Q4_1, AWQ gemv_fast
MARLIN_PACK_ADDITIVE_ZEROS = 1
MARLIN_PACK_DIVIDE_SCALE = 2  # tensor_scale divides: compressed-tensors NVFP4
MARLIN_PACK_PRUNE_2_4 = 4  # keep two of every 4 weights along K: see marlin_weights_pack
MARLIN_PACK_GATE_UP_INTERLEAVED = 8  # rows alternate gate, up (gpt-oss): see marlin_gemm_desc; loading sets it
MARLIN_PACK_SCALES_MSE = 16  # when quantizing, search for the scale of least squared error
MARLIN_PACK_OBEYS_2_4 = 32  # dense values already obey 2:4: store them sparse, or fail with MARLIN_E_FORMAT
MARLIN_PACK_TWO_LEVEL_SCALES = 64  # LAYOUT_GGUF: the K-quant of this format (super-blocks of 256; IQ4: IQ4_XS)
# marlin_layer_info::flags only; further MARLIN_PACK_ flags are 128 and from 4096 on
# has integer zero points
MARLIN_LAYER_ZEROS = 256
MARLIN_LAYER_ACT_ORDER = 512  # has a group index
MARLIN_LAYER_SPARSE_2_4 = 1024  # two of every 4 weights along K are kept
MARLIN_LAYER_EXACT = 2048  # in marlin_convert_outcome: no value of a quantized layer has changed
# marlin_open_desc::flags: the order of stacks of experts whose shapes and config leave it open, which else are not read
# [experts, n, k]
MARLIN_OPEN_OUTPUTS_FIRST = 1
MARLIN_OPEN_INPUTS_FIRST = 2  # [experts, k, n]
# marlin_load_desc::flags
# as the MARLIN_PACK_ flags of the same names
MARLIN_LOAD_PRUNE_2_4 = 4
MARLIN_LOAD_SCALES_MSE = 16  # for layers quantized on load
MARLIN_LOAD_OBEYS_2_4 = 32
# marlin_convert_desc::flags
# as the MARLIN_PACK_ flags of the same names
MARLIN_CONVERT_PRUNE_2_4 = 4
MARLIN_CONVERT_SCALES_MSE = 16
MARLIN_CONVERT_OBEYS_2_4 = 32
MARLIN_CONVERT_OVERWRITE = 65536  # replace existing output files; otherwise: MARLIN_E_FILE, EEXIST
MARLIN_CONVERT_ASYMMETRIC = 131072  # INT4 with a zero point a group
MARLIN_CONVERT_SKIP_UNFIT = 262144  # leave layers that the scheme cannot hold as they are; otherwise: an error
MARLIN_CONVERT_DRY_RUN = 524288  # plan, check and report every outcome with its sizes; write nothing
# marlin_save_desc::flags
# replace an existing file; otherwise: MARLIN_E_FILE, EEXIST
MARLIN_SAVE_OVERWRITE = 65536


# values never change; they are spaced by kind
class Status(Constant):
    OK = 0
    ARGUMENT = -10  # a value that no caller may pass: NULL, unknown enum, overlap
    STRUCT_SIZE = -11  # struct_size is no size of any version
    SHAPE = -12  # sizes that do not fit each other
    UNSUPPORTED = -20  # legal, but not served by this version or device
    NOT_PREPARED = -21  # the host's scratch is too small: marlin_prepare says how much
    FILE = -25  # the operating system refused: native_code is errno
    FORMAT = -26  # the content of a file or operand is malformed
    NOT_FOUND = -27  # no such index, layer, tensor or key
    NO_DEVICE = -30  # the backend has no usable device here
    DEVICE = -31  # the device failed: native_code is its own code
    TIMEOUT = -32
    CANCELLED = -33  # a callback asked to stop
    MEMORY = -40
    INTERNAL = -90  # a bug in this library; please report it with the message


class Backend(Constant):
    AUTO = 0  # the first usable backend of CUDA, Metal, CPU
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
    U4 = 7  # two per byte, low nibble first; cols counts nibbles and is even
    E8M0 = 8
    E4M3 = 9  # the FN variant: no infinity, 0x7F and 0xFF are NaN
    U8 = 10
    I16 = 11
    I64 = 12


# where marlin_matrix::data points
class Memory(Constant):
    HOST = 0  # on a GPU only with stream NULL
    CUDA = 1  # a device pointer
    METAL = 2  # an id<MTLBuffer>
    BUFFER = 3  # a marlin_buffer *; bounds are checked


# the value of a weight with code q in a group with scale s
class Format(Constant):
    NONE = 0  # in marlin_layer_info: floats, not quantized
    INT4 = 1  # (q - zero) * s, zero 8 when absent; or q * s + zero (additive)
    FP4 = 2  # e2m1(q) * s, s a float
    MXFP4 = 3  # e2m1(q) * 2^(e - 127), groups of 32 (OCP MX v1.0)
    NVFP4 = 4  # e2m1(q) * e4m3 * tensor_scale, groups of 16
    INT8 = 5  # q * s (+ zero); holds Q8_0 exactly
    INT2 = 6  # as INT4, zero 2 when absent; GGUF's Q2_K
    INT3 = 7  # as INT4, zero 4 when absent; GGUF's Q3_K
    INT5 = 8  # as INT4, zero 16 when absent; GGUF's Q5_0, Q5_1, Q5_K
    INT6 = 9  # as INT4, zero 32 when absent; GGUF's Q6_K
    IQ4 = 10  # iq4(q) * s, 16 integers from -127 to 113; GGUF's IQ4_NL, IQ4_XS
    UINT8 = 11  # as INT4, q 0..255, zero 128 when absent
    FP8 = 12  # e4m3(q) * s, s a float or E8M0
    NF4 = 13  # nf4(q) * s, the 16 floats of QLoRA (bitsandbytes)
    CODEBOOK4 = 14  # codebook[q] * s, 16 floats of the file or the caller
    FLOAT32 = 15  # floats without scales; each compute multiplies them alike
    FLOAT16 = 16
    BFLOAT16 = 17


class Compute(Constant):
    DEFAULT = 0  # activations as given, sums in FP32
    INT8 = 1  # activations rounded to INT8: see marlin_gemm_desc::activation_group
    FP8 = 2  # activations rounded to E4M3; CUDA only
    W16 = 3  # weights may be rounded to 16 bits: see RESULTS


# element order of pre-quantized input; docs/formats.md defines each bit by bit
class Layout(Constant):
    AUTO = 0  # packing: ROWS; opening a file: detected
    ROWS = 1  # 4 bits: U8 [N, ceil(K/2)], even k low; INT8: I8; FP8: U8, E4M3; UINT8: U8, I8 (q - 128); others: U8
    K8N = 2  # U32 [K/8, N], nibble i of a word = element 8 kb + i
    GPTQ_V1 = 3  # GPTQ_V2, but the packed zeros store zero - 1
    GPTQ_V2 = 4  # U32 [K*bits/32, N], columns are streams of codes; packed zeros
    AWQ = 5  # AutoAWQ "gemm"
    AWQ_GEMV = 6  # AutoAWQ "gemv"
    AWQ_GEMV_FAST = 7  # AutoAWQ "gemv_fast", llm-awq
    GGUF = 8  # GGUF blocks: `values` holds whole blocks
    MARLIN = 9  # IST Marlin
    MARLIN_24 = 10  # compressed-tensors marlin-24


# GPTQ v1 stores zero - 1; readers disagree on the largest stored code (INT4: 15)
class GptqZeroF(Constant):
    AUTO = 0  # by the config's meta.quantizer, else WRAP with a warning
    WRAP = 1  # zero 0: AutoGPTQ's CUDA and exllama kernels
    CARRY = 2  # zero 0, the next zero is one more: GPTQModel (INT3: before 7.0)
    PLUS_ONE = 3  # zero 2^bits (16): AutoGPTQ's torch and triton kernels, vLLM


# f in C = f(A W^T + bias) (+ C); two-input ones take gate and up rows, give N/2 columns
class Epilogue(Constant):
    NONE = 0
    SILU = 1
    GELU_TANH = 2
    GELU_ERF = 3
    SWIGLU = 4  # silu(gate) * up; see marlin_gemm_desc::gate_limit
    GEGLU_TANH = 5  # gelu_tanh(gate) * up
    SWIGLU_OAI = 6  # gpt-oss: SWIGLU with limits 7, gate_alpha 1.702, up_offset 1
    SITU = 7  # Kimi K3: see marlin_gemm_desc::gate_limit


# the origin of a stream; `kind` decides, because CUDA's legacy stream is NULL
class Native(Constant):
    NONE = 0
    CUDA_STREAM = 1
    METAL_QUEUE = 2
    METAL_COMMAND_BUFFER = 3  # uncommitted, no encoder open; flush, then commit
    METAL_ENCODER = 4  # we encode into it and change its bindings; the host ends it


# how a file names and stores its quantized layers
class Scheme(Constant):
    AUTO = 0  # GGUF to a name in .gguf or from a GGUF, else compressed-tensors
    COMPRESSED_TENSORS = 1  # safetensors; MXFP4, NVFP4, INT4 (pack-quantized)
    GPTQ = 2  # safetensors; INT4, GPTQ v2
    MARLIN_24 = 3  # safetensors; 2:4 sparse INT4
    GGUF = 4  # GGUF v3; any of its blocks that the library reads
    MLX = 5  # safetensors; affine: INT2 to INT6, UINT8 with additive zeros


# of a key-value of a checkpoint, or of the elements of an array
class ValueType(Constant):
    NONE = 0  # marlin_value::element_type of a value that is no array
    BOOL = 1  # an element is one byte: false if it is 0
    I64 = 2
    U64 = 3
    F64 = 4
    STRING = 5
    ARRAY = 6  # of one element_type that is no ARRAY
    I8 = 7  # from here on: of elements only; a single number has 64 bits
    I16 = 8
    I32 = 9
    U8 = 10
    U16 = 11
    U32 = 12
    F32 = 13


# of marlin_context_desc::log and marlin_convert_desc::log
class LogLevel(Constant):
    ERROR = 1
    WARNING = 2
    INFO = 3


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
    _fields_ = (
        ("struct_size", c_uint32), ("status", c_int32), ("native_code", c_int32), ("reserved", c_uint32),
        ("message", c_char * 240),
    )


class marlin_matrix(Structure):
    _fields_ = (
        ("data", c_void_p), ("offset_bytes", c_uint64), ("rows", c_int64), ("cols", c_int64), ("row_stride", c_int64),
        ("dtype", c_int32), ("memory", c_int32),
    )


class marlin_device_info(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("backend", c_int32), ("index", c_int32), ("flags", c_uint32), ("name", c_char * 64),
        ("isa_or_arch", c_char * 32), ("memory_bytes", c_uint64), ("why_not", c_char * 160), ("threads", c_uint32),
        ("reserved", c_uint32),
    )


class marlin_trace_event(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("together", c_uint32), ("kernel", c_char_p), ("step", c_char_p), ("begin_ns", c_uint64),
        ("end_ns", c_uint64), ("device_ns", c_uint64), ("rows", c_int64), ("n", c_int64), ("k", c_int64),
        ("stream", marlin_stream),
    )


class marlin_context_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("backend", c_int32), ("device_index", c_int32), ("threads", c_uint32),
        ("native_device", c_void_p), ("alloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)), ("log", CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ("parallel_for", CFUNCTYPE(None, c_void_p, c_uint32, CFUNCTYPE(None, c_void_p, c_uint32), c_void_p)), ("user", c_void_p),
        ("trace", CFUNCTYPE(None, c_void_p, POINTER(marlin_trace_event))),
    )


class marlin_stream_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("kind", c_int32), ("native", c_void_p), ("scratch", marlin_matrix), ("wait_fence", c_void_p),
        ("update_fence", c_void_p),
    )


class marlin_pack_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("format", c_int32), ("group_size", c_uint32), ("layout", c_int32), ("n", c_int64),
        ("k", c_int64), ("values", marlin_matrix), ("scales", marlin_matrix), ("zeros", marlin_matrix),
        ("sparse_meta", marlin_matrix), ("group_index", marlin_matrix), ("tensor_scale", marlin_matrix), ("flags", c_uint32),
        ("gptq_zero_f", c_int32), ("column_norms", marlin_matrix), ("codebook", marlin_matrix),
    )


class marlin_gemm_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("compute", c_int32), ("epilogue", c_int32), ("flags", c_uint32), ("weights", marlin_weights),
        ("a", marlin_matrix), ("c", marlin_matrix), ("bias", marlin_matrix), ("expert_ids", marlin_matrix),
        ("expert_scales", marlin_matrix), ("activation_group", c_int64), ("gate_limit", c_float), ("up_limit", c_float),
        ("gate_alpha", c_float), ("up_offset", c_float),
    )


class marlin_shard(Structure):
    _fields_ = (
        ("first", c_int64 * 3), ("count", c_int64 * 3),
    )


class marlin_load_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("flags", c_uint32), ("layers", POINTER(c_char_p)), ("shards", POINTER(marlin_shard)),
        ("layer_count", c_uint32), ("expert_count", c_uint32), ("format", c_int32), ("group_size", c_uint32),
        ("column_norms", POINTER(marlin_matrix)), ("progress", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)),
        ("user", c_void_p),
    )


class marlin_open_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("flags", c_uint32), ("layout", c_int32), ("gptq_zero_f", c_int32), ("config", c_char_p),
    )


class marlin_layer_info(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("status", c_int32), ("name", c_char_p), ("n", c_int64), ("k", c_int64), ("experts", c_uint32),
        ("group_size", c_uint32), ("format", c_int32), ("layout", c_int32), ("flags", c_uint32), ("dtype", c_int32),
        ("bytes", c_uint64), ("kept_share", c_double),
    )


class marlin_value(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("kind", c_int32), ("element_type", c_int32), ("reserved", c_uint32), ("key", c_char_p),
        ("key_bytes", c_uint64), ("i64", c_int64), ("u64", c_uint64), ("f64", c_double), ("data", c_void_p), ("bytes", c_uint64),
        ("count", c_uint64),
    )


class marlin_convert_outcome(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("status", c_int32), ("name", c_char_p), ("reason", c_char_p), ("n", c_int64), ("k", c_int64),
        ("experts", c_uint32), ("group_size", c_uint32), ("from_", c_int32), ("format", c_int32), ("flags", c_uint32),
        ("reserved", c_uint32), ("bytes_before", c_uint64), ("bytes_after", c_uint64), ("squared_error", c_double),
        ("squared_norm", c_double), ("kept_norm", c_double),
    )


class marlin_convert_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("flags", c_uint32), ("scheme", c_int32), ("format", c_int32), ("group_size", c_uint32),
        ("layer_count", c_uint32), ("layers", POINTER(c_char_p)), ("shard_bytes", c_uint64),
        ("progress", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, c_char_p)),
        ("layer_done", CFUNCTYPE(None, c_void_p, POINTER(marlin_convert_outcome))),
        ("log", CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ("parallel_for", CFUNCTYPE(None, c_void_p, c_uint32, CFUNCTYPE(None, c_void_p, c_uint32), c_void_p)), ("user", c_void_p),
        ("column_norms", POINTER(marlin_matrix)), ("types", POINTER(c_char_p)),
    )


class marlin_save_desc(Structure):
    _fields_ = (
        ("struct_size", c_uint32), ("flags", c_uint32), ("loads", POINTER(POINTER(marlin_load_desc))), ("load_count", c_uint32),
        ("rank", c_uint32), ("rank_count", c_uint32), ("backend", c_int32),
        ("refused", CFUNCTYPE(None, c_void_p, POINTER(marlin_load_desc), POINTER(marlin_error))), ("user", c_void_p),
    )


class marlin_api(Structure):
    """The table of functions."""


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
    "marlin_stream_notify": CFUNCTYPE(c_int32, marlin_stream, CFUNCTYPE(None, c_void_p, c_int32), c_void_p, POINTER(marlin_error)),
    "marlin_get_api": CFUNCTYPE(POINTER(marlin_api), c_uint32),
}
MEMBERS = (
    "device_get", "context_create", "context_destroy", "stream_create", "stream_flush", "stream_wait", "stream_destroy",
    "buffer_create", "buffer_host", "buffer_destroy", "weights_pack", "weights_unpack", "weights_info", "weights_destroy",
    "checkpoint_open", "checkpoint_layer", "checkpoint_tensor", "checkpoint_destroy", "weights_load", "gemm", "gemm_many",
    "prepare", "explain", "version", "status_name", "checkpoint_convert", "checkpoint_value", "checkpoint_value_at",
    "value_next_string", "checkpoint_save", "stream_notify",
)
marlin_api._fields_ = (
    ("struct_size", c_uint32), ("abi_major", c_uint32), ("abi_minor", c_uint32), ("library_version", c_uint32),
    *((name, FUNCTIONS["marlin_" + name]) for name in MEMBERS),
)
