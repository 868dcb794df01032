//! Every struct, constant and function is what a C compiler sees in the header.

/// A test of a struct: its size and alignment, and of each field the offset and size.
macro_rules! layout {
    ($name:ident, $size:expr, $align:expr, $(($field:ident, $offset:expr, $bytes:expr)),*) => {
        #[test]
        fn $name() {
            use std::mem::{align_of, size_of, MaybeUninit};

            fn size_of_pointee<T>(_: *const T) -> usize {
                size_of::<T>()
            }
            assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $align));
            let place = MaybeUninit::<$name>::uninit();
            $({
                // SAFETY: the address lies inside `place`, and nothing is read.
                let field = unsafe { std::ptr::addr_of!((*place.as_ptr()).$field) };
                let offset = field as usize - place.as_ptr() as usize;
                assert_eq!((offset, size_of_pointee(field)), ($offset, $bytes), stringify!($field));
            })*
        }
    };
}

#[rustfmt::skip]
mod table;
