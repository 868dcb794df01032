use std::marker::PhantomData;
use std::os::raw::c_char;
use std::ptr;

use metal_marlin_sys as sys;

use crate::library::Library;
use crate::matrix::{Bound, Input, Output};
use crate::{Compute, Epilogue, Error, Result, Weights};

/// A product to be described: C[M, N] = f(A[M, K] W^T + bias) (+ C), where A, C and bias are each `f32`, `F16` or `Bf16`.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// use metal_marlin::{Context, Epilogue, Format, Gemm, Matrix, MatrixMut, Pack};
///
/// let context = Context::new()?;
/// let w = vec![0.5f32; 32 * 64];
/// let weights = Pack::floats(Format::MXFP4, Matrix::new(&w, 32, 64)?).pack(&context)?;
///
/// let (x, bias) = (vec![1.0f32; 3 * 64], vec![-100.0f32; 32]);
/// let mut y = vec![0.0f32; 3 * 32];
/// Gemm::new(&weights, Matrix::new(&x, 3, 64)?, MatrixMut::new(&mut y, 3, 32)?)
///     .bias(Matrix::row(&bias))
///     .epilogue(Epilogue::SILU)
///     .run()?;
/// assert!(y.iter().all(|y| y.abs() < 1e-20)); // silu(64 * 0.5 - 100)
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[must_use = "a product is computed by run() or by a stream"]
pub struct Gemm<'a> {
    desc: sys::marlin_gemm_desc,
    weights: &'a Weights,
    bound: Bound,
    operands: PhantomData<&'a mut [u8]>,
}

impl<'a> Gemm<'a> {
    /// `a` is [M, K] and `c` [M, N], or N/2 columns for epilogues of two inputs.
    pub fn new(weights: &'a Weights, a: impl Into<Input<'a>>, c: impl Into<Output<'a>>) -> Gemm<'a> {
        let (a, c) = (a.into(), c.into());
        let desc = sys::marlin_gemm_desc { weights: weights.as_raw(), a: a.raw, c: c.raw, ..Default::default() };
        let mut bound = a.bound;
        bound.add(c.bound);
        Gemm { desc, weights, bound, operands: PhantomData }
    }

    /// [1, N], in the order of the weights' rows; of experts also [E, N], a row for each.
    pub fn bias(mut self, bias: impl Into<Input<'a>>) -> Self {
        let bias = bias.into();
        self.desc.bias = bias.raw;
        self.bound.add(bias.bound);
        self
    }

    /// Routes each token to `top_k` of the weights' experts: [T, top_k] of `i32`; an id outside [0, E) contributes 0. `a` is then
    /// [T, K], or [T * top_k, K] with a row for each expert of a token, and `c` is [T * top_k, N].
    ///
    /// ```
    /// # #[cfg(feature = "link")]
    /// # fn main() -> metal_marlin::Result<()> {
    /// use metal_marlin::{Backend, Context, Format, Gemm, Matrix, MatrixMut, Pack, Weights};
    ///
    /// let context = Context::builder().backend(Backend::CPU).build()?;
    /// let (ones, twos) = (vec![1.0f32; 32 * 64], vec![2.0f32; 32 * 64]);
    /// let one = Pack::floats(Format::MXFP4, Matrix::new(&ones, 32, 64)?);
    /// let two = Pack::floats(Format::MXFP4, Matrix::new(&twos, 32, 64)?);
    /// let weights = Weights::pack_experts(&context, &[&one, &two], 2)?;
    ///
    /// let (x, mut y) = (vec![1.0f32; 64], vec![0.0f32; 32]);
    /// let (ids, scales) = ([0i32, 1], [0.25f32, 0.5]);
    /// Gemm::new(&weights, Matrix::row(&x), MatrixMut::row(&mut y))
    ///     .expert_ids(Matrix::row(&ids))
    ///     .expert_scales(Matrix::row(&scales))
    ///     .run()?;
    /// assert_eq!(y, [80.0; 32]); // 0.25 * 64 * 1 + 0.5 * 64 * 2
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "link"))]
    /// # fn main() {}
    /// ```
    pub fn expert_ids(mut self, ids: impl Into<Input<'a>>) -> Self {
        let ids = ids.into();
        self.desc.expert_ids = ids.raw;
        self.bound.add(ids.bound);
        self
    }

    /// [T, top_k] of floats, with [`expert_ids`](Gemm::expert_ids): `c` is [T, N], the sum of each token's products times these.
    pub fn expert_scales(mut self, scales: impl Into<Input<'a>>) -> Self {
        let scales = scales.into();
        self.desc.expert_scales = scales.raw;
        self.bound.add(scales.bound);
        self
    }

    setters! {
        /// What becomes of the sums.
        epilogue: Epilogue => desc.epilogue, 0;
    }

    /// Whether the result is added to what C holds.
    pub fn accumulate(self, accumulate: bool) -> Self {
        self.set_flag(sys::MARLIN_GEMM_ACCUMULATE, accumulate)
    }

    /// Whether a row of C has the same bits whatever M is, and whatever the other rows hold: those that it has alone.
    pub fn row_invariant(self, row_invariant: bool) -> Self {
        self.set_flag(sys::MARLIN_GEMM_ROW_INVARIANT, row_invariant)
    }

    fn set_flag(mut self, flag: u32, on: bool) -> Self {
        self.desc.flags = if on { self.desc.flags | flag } else { self.desc.flags & !flag };
        self
    }

    setters! {
        /// What becomes of the activations.
        compute: Compute => desc.compute, 0;
        /// Of [`Compute::INT8`]: activations of a row that share a scale, 32, 64, 128, or K and more for one scale per row; 0: 32.
        activation_group: i64 => desc.activation_group;
        /// Of [`Epilogue::SWIGLU`] and [`Epilogue::SITU`]: the most that the gate becomes; 0: no limit.
        gate_limit: f32 => desc.gate_limit;
        /// Of the same: the most that the other becomes, and less 1 times it the least.
        up_limit: f32 => desc.up_limit;
        /// Of [`Epilogue::SWIGLU`], whose gate is `g sigmoid(alpha g)`; 0: 1.
        gate_alpha: f32 => desc.gate_alpha;
        /// Of [`Epilogue::SWIGLU`]: is added to the other.
        up_offset: f32 => desc.up_offset;
    }

    /// Computes it on the weights' context; it is done on return. A product may run again.
    pub fn run(&mut self) -> Result<()> {
        submit(self.weights.library(), ptr::null_mut(), self)
    }

    /// Which kernel would run, which tiles, and why: `kernel: NAME`, then `key: value` lines.
    pub fn explain(&self) -> Result<String> {
        let library = self.weights.library();
        self.bound.check_library(library)?;
        let explain = |text: &mut Vec<u8>| {
            let mut needed = 0;
            let capacity = text.len();
            let at = if capacity == 0 { ptr::null_mut() } else { text.as_mut_ptr().cast::<c_char>() };
            // SAFETY: `text` has `capacity` bytes; the operands are only looked at as shapes.
            library.call(|api, err| unsafe { (api.explain)(&self.desc, at, capacity, &mut needed, err) })?;
            Ok::<usize, Error>(needed)
        };
        let mut text = Vec::new();
        let needed = explain(&mut text)?;
        text.resize(needed, 0);
        explain(&mut text)?;
        text.truncate(needed - 1); // without the NUL
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The descriptor, once it is sure that it may be given to this stream.
    fn desc_for(&self, library: &Library, stream: *mut sys::marlin_stream) -> Result<*const sys::marlin_gemm_desc> {
        self.weights.library().check_same(library, "a product's weights")?;
        self.bound.check(library, stream)?;
        Ok(&self.desc)
    }
}

shown!(Gemm<'_>, |this, f| f.debug_tuple("Gemm").field(&this.desc).finish());

pub(crate) fn submit(library: &Library, stream: *mut sys::marlin_stream, product: &Gemm<'_>) -> Result<()> {
    let desc = product.desc_for(library, stream)?;
    // SAFETY: the operands are borrowed by the product, and the caller keeps that borrow until the work is done.
    library.call(|api, err| unsafe { (api.gemm)(stream, desc, err) })
}

fn descs_for(
    library: &Library,
    stream: *mut sys::marlin_stream,
    products: &[&Gemm<'_>],
) -> Result<Vec<*const sys::marlin_gemm_desc>> {
    products.iter().map(|product| product.desc_for(library, stream)).collect()
}

pub(crate) fn submit_many(library: &Library, stream: *mut sys::marlin_stream, products: &[&Gemm<'_>]) -> Result<()> {
    let descs = descs_for(library, stream, products)?;
    // SAFETY: as in submit(); that the products are independent is checked by the library.
    library.call(|api, err| unsafe { (api.gemm_many)(stream, descs.as_ptr(), descs.len() as u32, err) })
}

pub(crate) fn prepare_on(
    library: &Library,
    stream: *mut sys::marlin_stream,
    products: &[&Gemm<'_>],
    max_rows: usize,
) -> Result<u64> {
    let descs = descs_for(library, stream, products)?;
    let max_m = i64::try_from(max_rows).unwrap_or(i64::MAX);
    let mut bytes = 0;
    // SAFETY: A and C are not read.
    library.call(|api, err| unsafe { (api.prepare)(stream, descs.as_ptr(), descs.len() as u32, max_m, &mut bytes, err) })?;
    Ok(bytes)
}

/// Compiles and reserves for these products with up to `max_rows` rows of A, or tokens of experts, so that [`Gemm::run`] and
/// [`gemm_many`] neither allocate nor compile. Work of a stream needs [`Stream::prepare`](crate::Stream::prepare).
pub fn prepare(products: &[&Gemm<'_>], max_rows: usize) -> Result<()> {
    match products.first() {
        None => Ok(()),
        Some(first) => prepare_on(first.weights.library(), ptr::null_mut(), products, max_rows).map(drop),
    }
}

/// Independent products in one submission, done on return; an A that several of them share is prepared once. All are checked
/// before any is done, and their weights have to be of one context.
pub fn gemm_many(products: &mut [Gemm<'_>]) -> Result<()> {
    match products.first() {
        None => Ok(()),
        Some(first) => {
            let library = first.weights.library().clone();
            submit_many(&library, ptr::null_mut(), &products.iter().collect::<Vec<_>>())
        }
    }
}
