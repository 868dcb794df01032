//! The C ABI of metal-marlin, declared: what `metal_marlin.h` says, no more.
//!
//! Names, comments and rules are the header's; its head is the contract. Use the crate `metal-marlin` unless you need this one.
//!
//! `build.rs` calls pkg-config itself. `METAL_MARLIN_STATIC=1` links the archive. Without the feature `link` (on by default)
//! nothing is linked: the types and [`marlin_api`] are there for a host that loads the library with `dlopen`.
//!
//! ```
//! # #[cfg(feature = "link")]
//! # {
//! use metal_marlin_sys::*;
//!
//! let mut context = std::ptr::null_mut();
//! let mut err = marlin_error::default(); // all zero but struct_size
//! let status = unsafe { marlin_context_create(std::ptr::null(), &mut context, &mut err) };
//! assert_eq!(status, MARLIN_OK);
//! unsafe { marlin_context_destroy(context) };
//! # }
//! ```
#![allow(non_camel_case_types)]

#[allow(clippy::all)]
#[rustfmt::skip]
mod bindings;

pub use bindings::*;
