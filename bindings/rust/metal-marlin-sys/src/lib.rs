//! The C ABI of metal-marlin, declared: what `metal_marlin.h` says, no more.
//!
//! Names, comments and rules are the header's; its head is the contract. Use the crate `metal-marlin` unless you need this one.
//!
//! `build.rs` calls pkg-config itself, or builds the repository's sources. `METAL_MARLIN_STATIC=1` links the archive. Without the
//! feature `link` (on by default) nothing is linked: the types and [`marlin_api`] are there for a host that loads the library with `dlopen`.
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

/// Structs of which only pointers exist.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            _bytes: [u8; 0],
            _not_send_nor_sync: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
        }
    )* };
}

/// The types of the header and their constants.
macro_rules! declare {
    ($($(#[$about:meta])* $_name:ident: $type:ident { $($(#[$doc:meta])* $_short:ident = $name:ident = $value:expr,)* })*) => { $(
        $(#[$about])*
        pub type $type = i32;
        $($(#[$doc])* pub const $name: $type = $value;)*
    )* };
}

/// The size that a struct says it has, where it says one.
macro_rules! size_field {
    ($all:ident, struct_size) => {
        $all.struct_size = core::mem::size_of::<Self>() as u32
    };
    ($all:ident, $_field:ident) => {};
}

/// The structs of the header. But for the table of functions, whose members are never NULL, all of their bits may be 0.
macro_rules! structs {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* })*) => { $(
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }
        structs!(default $name: $($field)*);
    )* };
    (default marlin_api: $($_field:ident)*) => {};
    (default $name:ident: $($field:ident)*) => {
        impl Default for $name {
            /// All zero but for `struct_size`, where it has one.
            #[allow(unused_mut)]
            fn default() -> Self {
                // SAFETY: zero is a value of every field: integers, floats, nullable pointers and functions.
                let mut all: Self = unsafe { core::mem::zeroed() };
                $(size_field!(all, $field);)*
                all
            }
        }
    };
}

/// A test that every struct has the size, alignment and offsets that a C compiler gave it.
#[cfg(test)]
macro_rules! layouts {
    ($($name:ident $size:literal $align:literal: $($field:ident $offset:literal),*;)*) => {
        #[test]
        fn layouts() {
            use core::mem::{align_of, size_of, MaybeUninit};
            $(
                assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $align), stringify!($name));
                let place = MaybeUninit::<$name>::uninit();
                $(
                    // SAFETY: the address lies inside `place`, and nothing is read.
                    let field = unsafe { core::ptr::addr_of!((*place.as_ptr()).$field) };
                    assert_eq!(field as usize - place.as_ptr() as usize, $offset, stringify!($name.$field));
                )*
            )*
        }
    };
}

#[allow(clippy::all)]
#[rustfmt::skip]
mod bindings;

pub use bindings::*;
