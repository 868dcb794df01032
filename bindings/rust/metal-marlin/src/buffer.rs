use std::marker::PhantomData;

use metal_marlin_sys as sys;

use crate::library::Handle;
use crate::matrix::{self, Bound, Element, Matrix, MatrixMut};
use crate::{Context, Error, Result, Status};

/// Memory that host and device both reach: operands in it need no copy. Aligned to 64 bytes.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// let context = metal_marlin::Context::new()?;
/// let mut buffer = context.buffer(1024)?;
/// buffer.as_mut_slice::<f32>()[0] = 1.0;
/// let row = buffer.matrix::<f32>(0, 1, 256)?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
pub struct Buffer {
    pub(crate) handle: Handle<sys::marlin_buffer, Context>,
    host: *mut u8,
    bytes: usize,
}

// SAFETY: memory with one owner; the handle is not changed by calls that use it.
unsafe impl Send for Buffer {}
// SAFETY: likewise.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(context: &Context, bytes: usize) -> Result<Buffer> {
        let (library, raw) = (context.library(), context.as_raw());
        let destroy = library.api().buffer_destroy;
        // SAFETY: the context is alive.
        let handle = library
            .create(context.clone(), destroy, |api, out, err| unsafe { (api.buffer_create)(raw, bytes as u64, out, err) })?;
        // SAFETY: the buffer is alive.
        let host = unsafe { (library.api().buffer_host)(handle.raw()) }.cast();
        Ok(Buffer { handle, host, bytes })
    }

    /// In bytes.
    #[allow(clippy::len_without_is_empty)] // there is no empty one
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The host's view, of as many whole elements as there are.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        // SAFETY: aligned to 64, zero-filled at first, and any bits are a T. Nobody writes while self is borrowed.
        unsafe { std::slice::from_raw_parts(self.host.cast(), self.bytes / std::mem::size_of::<T>()) }
    }

    /// The host's view, to be written.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: as above, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.host.cast(), self.bytes / std::mem::size_of::<T>()) }
    }

    fn describe<T: Element>(&self, offset_bytes: usize, rows: usize, cols: usize) -> Result<sys::marlin_matrix> {
        let left = self.bytes.checked_sub(offset_bytes).ok_or_else(|| {
            Error::new(Status::SHAPE, format!("offset {offset_bytes} lies outside a buffer of {} bytes", self.bytes))
        })?;
        let mut raw: sys::marlin_matrix = matrix::describe::<T>(left / std::mem::size_of::<T>(), rows, cols, cols)?;
        raw.data = self.handle.raw().cast();
        raw.offset_bytes = offset_bytes as u64;
        raw.memory = sys::MARLIN_MEM_BUFFER;
        Ok(raw)
    }

    /// A matrix inside it, to be read.
    pub fn matrix<T: Element>(&self, offset_bytes: usize, rows: usize, cols: usize) -> Result<Matrix<'_, T>> {
        let raw = self.describe::<T>(offset_bytes, rows, cols)?;
        Ok(Matrix { raw, bound: Bound::to_library(self.handle.library()), memory: PhantomData })
    }

    /// A matrix inside it, to be written.
    pub fn matrix_mut<T: Element>(&mut self, offset_bytes: usize, rows: usize, cols: usize) -> Result<MatrixMut<'_, T>> {
        let raw = self.describe::<T>(offset_bytes, rows, cols)?;
        Ok(MatrixMut { raw, bound: Bound::to_library(self.handle.library()), memory: PhantomData })
    }
}

shown!(Buffer, |this, f| f.debug_struct("Buffer").field("bytes", &this.bytes).finish_non_exhaustive());
