//! The open enumerations of the ABI: values that this version does not know stay legal to hold. `{:?}` shows the name of a constant
//! (`INT4`), `{}` a word (`int4`). A [`Status`] shows the header's name (`MARLIN_E_SHAPE`) in both.

use std::fmt;

use metal_marlin_sys as sys;

// Nothing uses the types Memory and ValueType.
macro_rules! open_enum {
    ($($(#[$about:meta])* $name:ident: $raw:ident { $($(#[$doc:meta])* $constant:ident = $value:ident = $_number:expr,)* })*) => { $(
        $(#[$about])*
        #[doc = concat!("\n\n`", stringify!($raw), "` in the header.")]
        #[allow(dead_code)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub i32);

        #[allow(dead_code)]
        impl $name {
            $($(#[$doc])* #[doc = concat!("\n\n`", stringify!($value), "` in the header.")] pub const $constant: $name = $name(sys::$value);)*
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let of_header = stringify!($raw) == "marlin_status";
                match *self {
                    $($name::$constant => f.pad(if of_header { stringify!($value) } else { stringify!($constant) }),)*
                    _ => write!(f, "{}({})", stringify!($raw), self.0),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = format!("{:?}", self);
                match name.starts_with("MARLIN_") || name.starts_with("marlin_") {
                    true => f.pad(&name),
                    false => f.pad(&name.to_ascii_lowercase().replace('_', "-")),
                }
            }
        }
    )* };
}

sys::marlin_constants!(open_enum);

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
