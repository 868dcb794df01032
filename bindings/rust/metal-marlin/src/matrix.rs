//! Operands: typed views of slices and buffers.

use std::marker::PhantomData;
use std::ptr;

use metal_marlin_sys as sys;

use crate::half::{Bf16, F16};
use crate::library::Library;
use crate::{Dtype, Error, Result, Status};

mod sealed {
    pub trait Sealed {}
}

/// A type of elements that the library knows. Every pattern of bits is a value of it.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// Its name in the ABI.
    const DTYPE: Dtype;
    /// How many elements one of it holds: two for [`U4x2`], else one.
    const PACKED: usize = 1;
}

/// The types that activations, results and bias can have.
pub trait Float: Element {}

/// Two 4-bit codes, the first in the low nibble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct U4x2(pub u8);

/// A power of two, 2^(e - 127): the scale of MXFP4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct E8m0(pub u8);

/// An 8-bit float of 4 exponent bits, the FN variant: the scale of NVFP4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct E4m3(pub u8);

macro_rules! elements {
    ($($type:ty = $dtype:ident $(* $packed:literal)?),*) => {
        $(impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            $(const PACKED: usize = $packed;)?
        })*
    };
}
elements!(f32 = F32, F16 = F16, Bf16 = BF16, i8 = I8, u8 = U8, i16 = I16, i32 = I32, u32 = U32, i64 = I64);
elements!(U4x2 = U4 * 2, E8m0 = E8M0, E4m3 = E4M3);
impl Float for f32 {}
impl Float for F16 {}
impl Float for Bf16 {}

/// Where operands may go. A buffer means something to its own copy of the library only, and what is shared in the scope of a
/// stream would race with that stream anywhere else.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    library: *const sys::marlin_api,
    stream: *const sys::marlin_stream,
    /// No place serves all operands.
    nowhere: bool,
}

impl Default for Bound {
    /// Anywhere.
    fn default() -> Bound {
        Bound { library: ptr::null(), stream: ptr::null(), nowhere: false }
    }
}

impl Bound {
    pub fn to_library(library: &Library) -> Bound {
        Bound { library: library.api(), ..Bound::default() }
    }

    pub fn to_stream(stream: *const sys::marlin_stream) -> Bound {
        Bound { stream, ..Bound::default() }
    }

    /// Both hold.
    pub fn add(&mut self, other: Bound) {
        fn both<T>(a: *const T, b: *const T) -> (*const T, bool) {
            if a.is_null() {
                (b, false)
            } else {
                (a, !b.is_null() && a != b)
            }
        }
        let (library, libraries) = both(self.library, other.library);
        let (stream, streams) = both(self.stream, other.stream);
        *self = Bound { library, stream, nowhere: self.nowhere || other.nowhere || libraries || streams };
    }

    pub fn check_library(self, library: &Library) -> Result<()> {
        if self.library.is_null() || ptr::eq(self.library, library.api()) {
            return Ok(());
        }
        Err(Error::new(Status::ARGUMENT, "an operand lies in a buffer of another copy of the library"))
    }

    pub fn check(self, library: &Library, stream: *const sys::marlin_stream) -> Result<()> {
        self.check_library(library)?;
        if !self.nowhere && (self.stream.is_null() || self.stream == stream) {
            return Ok(());
        }
        Err(Error::new(Status::ARGUMENT, "an operand is shared in the scope of a stream, and may be used there alone"))
    }
}

/// A row-major matrix in borrowed memory, to be read.
///
/// ```
/// use metal_marlin::Matrix;
///
/// let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let all = Matrix::new(&x, 2, 3)?;
/// let left = Matrix::with_stride(&x, 2, 2, 3)?; // the first two columns
/// assert!(Matrix::new(&x, 2, 4).is_err());
/// # Ok::<(), metal_marlin::Error>(())
/// ```
pub struct Matrix<'a, T> {
    pub(crate) raw: sys::marlin_matrix,
    pub(crate) bound: Bound,
    pub(crate) memory: PhantomData<&'a [T]>,
}

/// A row-major matrix in borrowed memory, to be written. Nobody else can see that memory while this lives.
pub struct MatrixMut<'a, T> {
    pub(crate) raw: sys::marlin_matrix,
    pub(crate) bound: Bound,
    pub(crate) memory: PhantomData<&'a mut [T]>,
}

/// What both have in common.
macro_rules! matrices {
    ($($name:ident)*) => { $(
        // SAFETY: as the slices that it borrows.
        unsafe impl<T: Element> Send for $name<'_, T> {}
        // SAFETY: likewise.
        unsafe impl<T: Element> Sync for $name<'_, T> {}

        impl<T: Element> $name<'_, T> {
            /// How the ABI describes it.
            pub fn as_raw(&self) -> &sys::marlin_matrix {
                &self.raw
            }

            /// How many rows.
            pub fn rows(&self) -> usize {
                self.raw.rows as usize
            }

            /// Elements in a row.
            pub fn cols(&self) -> usize {
                self.raw.cols as usize
            }
        }

        shown!($name<'_, T> where [T: Element], |this, f|
            write!(f, "{}([{}, {}] of {})", stringify!($name), this.raw.rows, this.raw.cols, T::DTYPE));
    )* };
}
matrices!(Matrix MatrixMut);

impl<T> Clone for Matrix<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Matrix<'_, T> {}

/// A matrix of `rows` and `cols` elements somewhere, when `len` of `T` hold it.
pub(crate) fn describe<T: Element>(len: usize, rows: usize, cols: usize, stride: usize) -> Result<sys::marlin_matrix> {
    let fail = |what: String| Err(Error::new(Status::SHAPE, what));
    if stride < cols {
        return fail(format!("a row of {cols} elements does not fit a stride of {stride}"));
    }
    if cols % T::PACKED != 0 || stride % T::PACKED != 0 {
        return fail(format!("rows of {cols} elements, stride {stride}: expected multiples of {}", T::PACKED));
    }
    let last = match rows {
        0 => Some(0),
        _ => (rows - 1).checked_mul(stride).and_then(|before| before.checked_add(cols)),
    };
    match last.filter(|&last| last <= i64::MAX as usize) {
        Some(last) if last / T::PACKED <= len => {}
        _ => {
            let holds = len.saturating_mul(T::PACKED);
            return fail(format!("[{rows}, {cols}] with stride {stride} does not fit a slice of {holds} elements"));
        }
    }
    Ok(sys::marlin_matrix {
        rows: rows as i64,
        cols: cols as i64,
        row_stride: stride as i64,
        dtype: T::DTYPE.0,
        ..Default::default()
    })
}

/// As long as its rows say: only the driver knows how long it is.
fn describe_on_cuda<T: Element>(data: *const T, rows: usize, cols: usize, stride: usize) -> Result<sys::marlin_matrix> {
    let mut raw = describe::<T>(usize::MAX, rows, cols, stride)?;
    raw.data = data as *mut _;
    raw.memory = sys::MARLIN_MEM_CUDA;
    Ok(raw)
}

fn exact<T: Element>(len: usize, rows: usize, cols: usize) -> Result<()> {
    if rows.checked_mul(cols) == len.checked_mul(T::PACKED) {
        return Ok(());
    }
    let holds = len.saturating_mul(T::PACKED);
    Err(Error::new(Status::SHAPE, format!("[{rows}, {cols}] is not what a slice of {holds} elements holds")))
}

impl<'a, T: Element> Matrix<'a, T> {
    /// The whole slice: `rows * cols` elements.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Result<Self> {
        exact::<T>(data.len(), rows, cols)?;
        Matrix::with_stride(data, rows, cols, cols)
    }

    /// Rows that begin `stride` elements apart. The slice may be longer than they need.
    pub fn with_stride(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Result<Self> {
        let mut raw = describe::<T>(data.len(), rows, cols, stride)?;
        raw.data = data.as_ptr() as *mut _;
        Ok(Matrix { raw, bound: Bound::default(), memory: PhantomData })
    }

    /// One row.
    pub fn row(data: &'a [T]) -> Self {
        let cols = data.len() * T::PACKED;
        Matrix::new(data, 1, cols).expect("a slice is one row of its length")
    }

    /// A matrix in memory of a CUDA device: device, managed or pinned memory, whose rows begin `stride` elements apart. `data` is
    /// an address there, to which nothing in Rust need have access. The weights of a product with it are in a context of that
    /// device.
    ///
    /// ```no_run
    /// # use metal_marlin::*;
    /// # fn f(weights: &Weights, stream: &mut Stream, x: *const F16, y: *mut F16) -> Result<()> {
    /// // SAFETY: x and y are device memory of 8 rows, which live until the stream of the host is done, and only it uses y.
    /// unsafe {
    ///     let (x, y) = (Matrix::on_cuda(x, 8, 4096, 4096)?, MatrixMut::on_cuda(y, 8, 4096, 4096)?);
    ///     stream.gemm(&Gemm::new(weights, x, y))
    /// }
    /// # }
    /// ```
    ///
    /// # Safety
    /// Until the work that uses the matrix is done on the device, the memory lives, holds what it describes, and nobody writes it
    /// but work that the stream of the product waits for. `'a` is whatever the caller says: nothing ties it to the memory.
    pub unsafe fn on_cuda(data: *const T, rows: usize, cols: usize, stride: usize) -> Result<Self> {
        Ok(Matrix::from_raw(describe_on_cuda(data, rows, cols, stride)?))
    }

    /// A matrix in memory that Rust has no name for, such as a device pointer.
    ///
    /// # Safety
    /// `raw` describes memory that nobody writes during `'a`.
    pub unsafe fn from_raw(raw: sys::marlin_matrix) -> Self {
        Matrix { raw, bound: Bound::default(), memory: PhantomData }
    }
}

impl<'a, T: Element> MatrixMut<'a, T> {
    /// The whole slice: `rows * cols` elements.
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Result<Self> {
        exact::<T>(data.len(), rows, cols)?;
        MatrixMut::with_stride(data, rows, cols, cols)
    }

    /// Rows that begin `stride` elements apart. The slice may be longer than they need.
    pub fn with_stride(data: &'a mut [T], rows: usize, cols: usize, stride: usize) -> Result<Self> {
        let mut raw = describe::<T>(data.len(), rows, cols, stride)?;
        raw.data = data.as_mut_ptr().cast();
        Ok(MatrixMut { raw, bound: Bound::default(), memory: PhantomData })
    }

    /// One row.
    pub fn row(data: &'a mut [T]) -> Self {
        let cols = data.len() * T::PACKED;
        MatrixMut::new(data, 1, cols).expect("a slice is one row of its length")
    }

    /// A matrix in memory of a CUDA device, to be written: see [`Matrix::on_cuda`].
    ///
    /// # Safety
    /// Until the work that uses the matrix is done on the device, the memory lives, holds what it describes, and nobody else reads
    /// or writes it but work that the stream of the product waits for, or that waits for that stream.
    pub unsafe fn on_cuda(data: *mut T, rows: usize, cols: usize, stride: usize) -> Result<Self> {
        Ok(MatrixMut::from_raw(describe_on_cuda(data, rows, cols, stride)?))
    }

    /// A matrix in memory that Rust has no name for, such as a device pointer.
    ///
    /// # Safety
    /// `raw` describes memory that nobody else reads or writes during `'a`.
    pub unsafe fn from_raw(raw: sys::marlin_matrix) -> Self {
        MatrixMut { raw, bound: Bound::default(), memory: PhantomData }
    }

    /// The same matrix for a while: what takes a `MatrixMut` does not use it up then.
    pub fn reborrow(&mut self) -> MatrixMut<'_, T> {
        MatrixMut { raw: self.raw, bound: self.bound, memory: PhantomData }
    }
}

/// An operand that is read, whatever its type: a [`Matrix`], or what is [shared](crate::Scope::share) in a stream's scope.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub(crate) raw: sys::marlin_matrix,
    pub(crate) bound: Bound,
    pub(crate) memory: PhantomData<&'a [u8]>,
}

/// An operand that is written, whatever its type: a [`MatrixMut`], or what is [shared](crate::Scope::share).
pub struct Output<'a> {
    pub(crate) raw: sys::marlin_matrix,
    pub(crate) bound: Bound,
    pub(crate) memory: PhantomData<&'a mut [u8]>,
}

impl Input<'_> {
    pub(crate) fn absent() -> Self {
        Input { raw: Default::default(), bound: Bound::default(), memory: PhantomData }
    }
}

impl<'a, T: Element> From<Matrix<'a, T>> for Input<'a> {
    fn from(matrix: Matrix<'a, T>) -> Self {
        Input { raw: matrix.raw, bound: matrix.bound, memory: PhantomData }
    }
}

impl<'a, T: Element> From<MatrixMut<'a, T>> for Output<'a> {
    fn from(matrix: MatrixMut<'a, T>) -> Self {
        Output { raw: matrix.raw, bound: matrix.bound, memory: PhantomData }
    }
}

shown!(Input<'_>, |this, f| write!(f, "Input([{}, {}] of {})", this.raw.rows, this.raw.cols, Dtype(this.raw.dtype)));

shown!(Output<'_>, |this, f| write!(f, "Output([{}, {}] of {})", this.raw.rows, this.raw.cols, Dtype(this.raw.dtype)));

/// Of one element.
pub(crate) fn bits(dtype: Dtype) -> Option<usize> {
    Some(match dtype {
        Dtype::U4 => 4,
        Dtype::I8 | Dtype::U8 | Dtype::E8M0 | Dtype::E4M3 => 8,
        Dtype::F16 | Dtype::BF16 | Dtype::I16 => 16,
        Dtype::F32 | Dtype::I32 | Dtype::U32 => 32,
        Dtype::I64 => 64,
        _ => return None,
    })
}
