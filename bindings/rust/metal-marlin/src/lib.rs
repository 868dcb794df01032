#![doc = include_str!("../README.md")]
//!
//! # Rules
//!
//! - **Ownership.** Every handle has one owner and is destroyed with it. What is made in a [`Context`] keeps it alive, and
//!   everything keeps its [`Library`]: drop in any order.
//! - **Threads.** [`Context`], [`Weights`], [`Checkpoint`] and [`Buffer`] are `Send + Sync`, a [`Stream`] is `Send`.
//! - **Borrows.** What the work of a stream uses is borrowed until the work is done: see [`Stream::scope`].
//! - **Errors** are [`Error`]s. Nothing here panics, but for a closure of yours that did: its panic goes on after the call.
#![warn(missing_debug_implementations, missing_docs)]

/// Methods of a builder with a descriptor, which set a field, or a part of a value in it, and give the builder back.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => desc.$field:ident $(, $part:tt)?;)*) => { $(
        $(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.desc.$field = $name $(.$part)?;
            self
        }
    )* };
}

/// The same, which set bits of the descriptor's flags.
macro_rules! flags {
    (desc.flags; $($(#[$doc:meta])* $name:ident => $flag:ident;)*) => { $(
        $(#[$doc])*
        pub fn $name(mut self) -> Self {
            self.desc.flags |= sys::$flag;
            self
        }
    )* };
}

/// How a type shows itself with `{:?}`.
macro_rules! shown {
    ($type:ty $(where [$($generic:tt)*])?, |$this:ident, $f:ident| $shown:expr) => {
        impl$(<$($generic)*>)? std::fmt::Debug for $type {
            fn fmt(&self, $f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                $shown
            }
        }
    };
}

mod buffer;
mod callback;
mod checkpoint;
mod constants;
mod context;
mod convert;
mod error;
mod gemm;
mod half;
mod library;
#[cfg(all(feature = "load", unix))]
mod load;
mod matrix;
mod save;
mod stream;
mod text;
mod values;
mod weights;

/// The C ABI, for what this crate has no words for.
pub use metal_marlin_sys as sys;

pub use buffer::Buffer;
pub use callback::{Memory, Step, Tasks};
pub use checkpoint::{Checkpoint, LayerInfo, Layers, Load, OpenOptions, Shard, Tensor};
pub use constants::{
    Backend, Compute, Dtype, Epilogue, Format, GptqZeroF, LayerFlags, Layout, LogLevel, Native, Scheme, Status,
};
pub use context::{Context, ContextBuilder};
pub use convert::{Convert, Outcome, Progress};
pub use error::{Error, Result};
pub use gemm::{gemm_many, prepare, Gemm};
pub use half::{Bf16, F16};
#[cfg(feature = "link")]
pub use library::devices;
pub use library::{Device, Library};
pub use matrix::{E4m3, E8m0, Element, Float, Input, Matrix, MatrixMut, Output, U4x2};
pub use save::Save;
pub use stream::{Scope, Shared, Stream};
pub use values::{Value, Values};
pub use weights::{Pack, Weights};
