//! The open enumerations of the ABI: values that this version does not know stay legal to hold. `{:?}` shows the name of a constant
//! (`INT4`), `{}` a word (`int4`). A [`Status`] shows the header's name (`MARLIN_E_SHAPE`) in both.

use metal_marlin_sys as sys;

macro_rules! open_enum {
    ($(#[$about:meta])* $name:ident: $raw:ident { $($(#[$doc:meta])* $constant:ident = $value:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub i32);

        impl $name {
            $($(#[$doc])* #[doc = concat!("\n\n`", stringify!($value), "` in the header.")] pub const $constant: $name = $name(sys::$value);)*
        }

        impl $name {
            /// The name of the constant and that of the header; none for a value that this version does not know.
            fn names(self) -> Option<(&'static str, &'static str)> {
                match self {
                    $($name::$constant => Some((stringify!($constant), stringify!($value))),)*
                    _ => None,
                }
            }

            fn unknown(self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($raw), self.0)
            }
        }
    };
}

/// How all but [`Status`] show themselves.
macro_rules! shown_as_words {
    ($($name:ident)*) => { $(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.names() {
                    Some((name, _)) => f.write_str(name),
                    None => self.unknown(f),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.names() {
                    Some((name, _)) => f.pad(&name.to_ascii_lowercase().replace('_', "-")),
                    None => self.unknown(f),
                }
            }
        }
    )* };
}

shown_as_words! { Backend Dtype Format Compute Layout GptqZeroF Epilogue Native Scheme }

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.names() {
            Some((_, name)) => f.write_str(name),
            None => self.unknown(f),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

open_enum! {
    /// What a call came to. Values are pinned for ever.
    Status: marlin_status {
        OK = MARLIN_OK,
        /// A value that no caller may pass: unknown enum, overlap.
        ARGUMENT = MARLIN_E_ARGUMENT,
        STRUCT_SIZE = MARLIN_E_STRUCT_SIZE,
        /// Sizes that do not fit each other.
        SHAPE = MARLIN_E_SHAPE,
        /// Legal, but not served by this version or device.
        UNSUPPORTED = MARLIN_E_UNSUPPORTED,
        /// Would have to allocate where that is forbidden: see [`Stream::prepare`](crate::Stream::prepare).
        NOT_PREPARED = MARLIN_E_NOT_PREPARED,
        /// The operating system refused; the error's source says why.
        FILE = MARLIN_E_FILE,
        /// The content of a file or operand is malformed.
        FORMAT = MARLIN_E_FORMAT,
        /// No such index, layer or tensor.
        NOT_FOUND = MARLIN_E_NOT_FOUND,
        /// The backend has no usable device here.
        NO_DEVICE = MARLIN_E_NO_DEVICE,
        /// The device failed.
        DEVICE = MARLIN_E_DEVICE,
        TIMEOUT = MARLIN_E_TIMEOUT,
        /// A callback asked to stop.
        CANCELLED = MARLIN_E_CANCELLED,
        MEMORY = MARLIN_E_MEMORY,
        /// A bug in the library; please report it with the message.
        INTERNAL = MARLIN_E_INTERNAL,
    }
}

open_enum! {
    /// What computes.
    Backend: marlin_backend {
        /// The first usable of CUDA, Metal, CPU.
        AUTO = MARLIN_BACKEND_AUTO,
        CPU = MARLIN_BACKEND_CPU,
        METAL = MARLIN_BACKEND_METAL,
        CUDA = MARLIN_BACKEND_CUDA,
    }
}

open_enum! {
    /// The type of an element.
    Dtype: marlin_dtype {
        F32 = MARLIN_F32,
        F16 = MARLIN_F16,
        BF16 = MARLIN_BF16,
        I8 = MARLIN_I8,
        I32 = MARLIN_I32,
        U32 = MARLIN_U32,
        /// Two a byte, low nibble first.
        U4 = MARLIN_U4,
        E8M0 = MARLIN_E8M0,
        /// The FN variant: no infinity, 0x7F and 0xFF are NaN.
        E4M3 = MARLIN_E4M3,
        U8 = MARLIN_U8,
        I16 = MARLIN_I16,
        I64 = MARLIN_I64,
    }
}

open_enum! {
    /// What a weight is worth; q is its code, s its group's scale.
    Format: marlin_format {
        /// Floats, not quantized.
        NONE = MARLIN_FORMAT_NONE,
        /// (q - zero) * s, zero 8 when absent; or q * s + zero (additive).
        INT4 = MARLIN_INT4,
        /// e2m1(q) * s, s a float.
        FP4 = MARLIN_FP4,
        /// e2m1(q) * 2^(e - 127), groups of 32 (OCP MX v1.0).
        MXFP4 = MARLIN_MXFP4,
        /// e2m1(q) * e4m3 * tensor scale, groups of 16.
        NVFP4 = MARLIN_NVFP4,
        /// q * s (+ zero).
        INT8 = MARLIN_INT8,
        /// As INT4, zero 2 when absent.
        INT2 = MARLIN_INT2,
        /// As INT4, zero 4 when absent.
        INT3 = MARLIN_INT3,
        /// As INT4, zero 16 when absent.
        INT5 = MARLIN_INT5,
        /// As INT4, zero 32 when absent.
        INT6 = MARLIN_INT6,
        /// iq4(q) * s, 16 integers from -127 to 113.
        IQ4 = MARLIN_IQ4,
        /// (q - zero) * s, q 0..255, zero 128 when absent; or q * s + zero (additive).
        UINT8 = MARLIN_UINT8,
        /// e4m3(q) * s, s a float or E8M0.
        FP8 = MARLIN_FP8,
        /// nf4(q) * s, the 16 floats of QLoRA.
        NF4 = MARLIN_NF4,
        /// codebook\[q\] * s, 16 floats of the file or the caller.
        CODEBOOK4 = MARLIN_CODEBOOK4,
        /// Floats as they are, without scales.
        FLOAT32 = MARLIN_FLOAT32,
        /// The same in float16.
        FLOAT16 = MARLIN_FLOAT16,
        /// The same in bfloat16.
        BFLOAT16 = MARLIN_BFLOAT16,
    }
}

open_enum! {
    /// What becomes of activations.
    Compute: marlin_compute {
        /// As given, with sums in FP32.
        DEFAULT = MARLIN_COMPUTE_DEFAULT,
        /// Rounded to INT8 in blocks of 32 with their own scale.
        INT8 = MARLIN_COMPUTE_INT8,
        /// Rounded to E4M3; CUDA only.
        FP8 = MARLIN_COMPUTE_FP8,
    }
}

open_enum! {
    /// Order of the elements of quantized input; docs/formats.md of metal-marlin defines each bit by bit.
    Layout: marlin_layout {
        /// Packing: [`ROWS`](Layout::ROWS). Opening a file: found from the file.
        AUTO = MARLIN_LAYOUT_AUTO,
        /// One row after the other, low nibble first.
        ROWS = MARLIN_LAYOUT_ROWS,
        K8N = MARLIN_LAYOUT_K8N,
        GPTQ_V1 = MARLIN_LAYOUT_GPTQ_V1,
        GPTQ_V2 = MARLIN_LAYOUT_GPTQ_V2,
        AWQ = MARLIN_LAYOUT_AWQ,
        AWQ_GEMV = MARLIN_LAYOUT_AWQ_GEMV,
        AWQ_GEMV_FAST = MARLIN_LAYOUT_AWQ_GEMV_FAST,
        GGUF = MARLIN_LAYOUT_GGUF,
        MARLIN = MARLIN_LAYOUT_MARLIN,
        MARLIN_24 = MARLIN_LAYOUT_MARLIN_24,
    }
}

open_enum! {
    /// What a zero nibble 15 of GPTQ v1 stands for: readers disagree.
    GptqZeroF: marlin_gptq_zero_f {
        /// By the config's `meta.quantizer`, else `WRAP` with a warning.
        AUTO = MARLIN_GPTQ_ZERO_F_AUTO,
        WRAP = MARLIN_GPTQ_ZERO_F_WRAP,
        CARRY = MARLIN_GPTQ_ZERO_F_CARRY,
        SIXTEEN = MARLIN_GPTQ_ZERO_F_SIXTEEN,
    }
}

open_enum! {
    /// f in C = f(A W^T + bias) (+ C). Those of two inputs take rows of gate and up, and give N/2 columns.
    Epilogue: marlin_epilogue {
        NONE = MARLIN_EPILOGUE_NONE,
        SILU = MARLIN_EPILOGUE_SILU,
        GELU_TANH = MARLIN_EPILOGUE_GELU_TANH,
        GELU_ERF = MARLIN_EPILOGUE_GELU_ERF,
        /// silu(gate) * up.
        SWIGLU = MARLIN_EPILOGUE_SWIGLU,
        /// gelu_tanh(gate) * up.
        GEGLU_TANH = MARLIN_EPILOGUE_GEGLU_TANH,
        /// gpt-oss: g sigmoid(1.702 g) (u + 1), gate and up clamped.
        SWIGLU_OAI = MARLIN_EPILOGUE_SWIGLU_OAI,
    }
}

open_enum! {
    /// What the host's own stream is.
    Native: marlin_native {
        NONE = MARLIN_NATIVE_NONE,
        CUDA_STREAM = MARLIN_NATIVE_CUDA_STREAM,
        METAL_QUEUE = MARLIN_NATIVE_METAL_QUEUE,
        METAL_COMMAND_BUFFER = MARLIN_NATIVE_METAL_COMMAND_BUFFER,
        METAL_ENCODER = MARLIN_NATIVE_METAL_ENCODER,
    }
}

open_enum! {
    /// How a file names and stores its quantized layers.
    Scheme: marlin_scheme {
        /// GGUF to a name in .gguf or from a GGUF, else compressed-tensors.
        AUTO = MARLIN_SCHEME_AUTO,
        COMPRESSED_TENSORS = MARLIN_SCHEME_COMPRESSED_TENSORS,
        GPTQ = MARLIN_SCHEME_GPTQ,
        MARLIN_24 = MARLIN_SCHEME_MARLIN_24,
        GGUF = MARLIN_SCHEME_GGUF,
        /// MLX's affine mode, in safetensors.
        MLX = MARLIN_SCHEME_MLX,
    }
}

/// What is special about a layer: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerFlags(pub u32);

impl LayerFlags {
    /// Zeros are added: q * s + zero.
    pub const ADDITIVE_ZEROS: LayerFlags = LayerFlags(sys::MARLIN_PACK_ADDITIVE_ZEROS);
    /// Rows alternate gate and up.
    pub const GATE_UP_INTERLEAVED: LayerFlags = LayerFlags(sys::MARLIN_PACK_GATE_UP_INTERLEAVED);
    /// Has integer zero points.
    pub const ZEROS: LayerFlags = LayerFlags(sys::MARLIN_LAYER_ZEROS);
    /// Has a group index.
    pub const ACT_ORDER: LayerFlags = LayerFlags(sys::MARLIN_LAYER_ACT_ORDER);
    /// Of every 4 elements along K two are kept.
    pub const SPARSE_2_4: LayerFlags = LayerFlags(sys::MARLIN_LAYER_SPARSE_2_4);
    /// Of an [`crate::Outcome`]: it was quantized already, and no value has changed.
    pub const EXACT: LayerFlags = LayerFlags(sys::MARLIN_LAYER_EXACT);
    /// Scales are integers times a float of a super-block (K-quants, IQ4_XS).
    pub const TWO_LEVEL_SCALES: LayerFlags = LayerFlags(sys::MARLIN_PACK_TWO_LEVEL_SCALES);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: LayerFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for LayerFlags {
    type Output = LayerFlags;
    fn bitor(self, other: LayerFlags) -> LayerFlags {
        LayerFlags(self.0 | other.0)
    }
}
