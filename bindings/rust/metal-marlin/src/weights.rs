use std::marker::PhantomData;
use std::ptr;

use metal_marlin_sys as sys;

use crate::checkpoint::{self, LayerInfo};
use crate::library::{Handle, Library};
use crate::matrix::{Bound, Float, Input, Matrix, Output};
use crate::{Checkpoint, Context, Format, GptqZeroF, LayerFlags, Layout, Load, Result};

/// Packed weights on a device: immutable, to be shared among threads, independent of the file that they came from.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/gptq-v1-sym-g128");
/// use metal_marlin::{Checkpoint, Context, MatrixMut, Weights};
///
/// let file = Checkpoint::open(folder)?;
/// let weights = Weights::load(&Context::new()?, &file, "model.layers.0.mlp.down_proj")?;
/// let info = weights.info()?;
/// let mut first_row = vec![0.0f32; info.k];
/// weights.unpack(0, MatrixMut::row(&mut first_row))?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
pub struct Weights {
    handle: Handle<sys::marlin_weights, Context>,
}

// SAFETY: the header allows any number of threads at once.
unsafe impl Send for Weights {}
// SAFETY: as above.
unsafe impl Sync for Weights {}

impl Weights {
    /// One whole layer of a checkpoint. [`Load`] has more to choose from.
    pub fn load(context: &Context, from: &Checkpoint, layer: &str) -> Result<Weights> {
        Load::new(from).layer(layer).load(context)
    }

    /// Packs parts, concatenated along N, into one. They must agree in K, format, group size and kinds of scales and zeros.
    pub fn pack(context: &Context, parts: &[&Pack<'_>]) -> Result<Weights> {
        Weights::pack_experts(context, parts, 1)
    }

    /// Packs the parts of so many experts: first all of expert 0, concatenated along N, then as many with the same N of expert 1,
    /// and so on. [`Gemm::expert_ids`](crate::Gemm::expert_ids) says who is multiplied by which.
    pub fn pack_experts(context: &Context, parts: &[&Pack<'_>], experts: u32) -> Result<Weights> {
        let descs: Vec<_> = parts.iter().map(|part| part.desc_for(context.library())).collect::<Result<_>>()?;
        let (raw, count) = (context.as_raw(), descs.len() as u32);
        // SAFETY: the parts are borrowed, and not used after the call.
        Weights::create(context, |api, out, err| unsafe { (api.weights_pack)(raw, descs.as_ptr(), count, experts, out, err) })
    }

    pub(crate) fn create(
        context: &Context,
        function: impl FnOnce(&sys::marlin_api, *mut *mut sys::marlin_weights, *mut sys::marlin_error) -> sys::marlin_status,
    ) -> Result<Weights> {
        let library = context.library();
        let handle = library.create(context.clone(), library.api().weights_destroy, function)?;
        Ok(Weights { handle })
    }

    pub(crate) fn library(&self) -> &Library {
        self.handle.library()
    }

    /// The context they were packed in.
    pub fn context(&self) -> &Context {
        self.handle.keeps()
    }

    /// Shape, format and size.
    pub fn info(&self) -> Result<LayerInfo<'_>> {
        let mut info = sys::marlin_layer_info::default();
        // SAFETY: `info` says its size.
        self.library().call(|api, err| unsafe { (api.weights_info)(self.as_raw(), &mut info, err) })?;
        // SAFETY: the name lives as long as the weights.
        Ok(unsafe { checkpoint::layer_info(&info) })
    }

    /// Decodes the rows from `first_row` on, as many as `out` has, bit-exactly: `out` is [T, K] of floats, in the file's order
    /// of K. The rows of expert e begin at e N.
    pub fn unpack<'a>(&self, first_row: usize, out: impl Into<Output<'a>>) -> Result<()> {
        self.unpack_on(ptr::null_mut(), None, first_row, out.into())
    }

    /// Decodes the rows of these numbers: an embedding.
    pub fn unpack_rows<'a>(&self, rows: &[i32], out: impl Into<Output<'a>>) -> Result<()> {
        self.unpack_on(ptr::null_mut(), Some(rows), 0, out.into())
    }

    pub(crate) fn unpack_on(
        &self,
        stream: *mut sys::marlin_stream,
        rows: Option<&[i32]>,
        first_row: usize,
        out: Output<'_>,
    ) -> Result<()> {
        out.bound.check(self.library(), stream)?;
        let ids = rows.map(|rows| Matrix::new(rows, rows.len(), 1)).transpose()?;
        let ids = ids.as_ref().map_or(ptr::null(), |ids| ids.as_raw() as *const _);
        let first = i64::try_from(first_row).unwrap_or(i64::MAX);
        // SAFETY: the operands are borrowed, on a stream until its scope ends.
        self.library().call(|api, err| unsafe { (api.weights_unpack)(stream, self.as_raw(), ids, first, &out.raw, err) })
    }

    /// The handle, for what this crate has no words for. It stays these weights'.
    pub fn as_raw(&self) -> *mut sys::marlin_weights {
        self.handle.raw()
    }
}

shown!(Weights, |this, f| f.debug_tuple("Weights").field(&this.info()).finish());

/// One matrix W[N, K] to be packed: codes with their scales, or floats to be quantized.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// use metal_marlin::{Context, Format, Matrix, MatrixMut, Pack, U4x2};
///
/// let codes = [U4x2(0x99); 16]; // one row of 32 codes: 9, which is +1 times the scale
/// let weights = Pack::codes(Format::INT4, 1, 32, Matrix::row(&codes), Matrix::row(&[0.5f32]))
///     .group_size(32)
///     .pack(&Context::new()?)?;
/// let mut row = [0.0f32; 32];
/// weights.unpack(0, MatrixMut::row(&mut row))?;
/// assert_eq!(row, [0.5; 32]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[must_use = "pack() packs"]
pub struct Pack<'a> {
    desc: sys::marlin_pack_desc,
    bound: Bound,
    operands: PhantomData<&'a [u8]>,
}

impl<'a> Pack<'a> {
    /// Floats [N, K], quantized to `format`.
    pub fn floats<T: Float>(format: Format, values: Matrix<'a, T>) -> Pack<'a> {
        Pack::codes(format, values.rows(), values.cols(), values, Input::absent())
    }

    /// Codes and scales in the order of [`layout`](Pack::layout), by default one row after the other: `values` [N, K] of
    /// [`U4x2`](crate::U4x2) (INT8: `i8`), `scales` [N, ceil(K / group size)].
    pub fn codes(format: Format, n: usize, k: usize, values: impl Into<Input<'a>>, scales: impl Into<Input<'a>>) -> Pack<'a> {
        let mut pack = Pack { desc: Default::default(), bound: Bound::default(), operands: PhantomData };
        pack.desc.format = format.0;
        pack.desc.n = i64::try_from(n).unwrap_or(i64::MAX);
        pack.desc.k = i64::try_from(k).unwrap_or(i64::MAX);
        pack.desc.values = pack.take(values.into());
        pack.desc.scales = pack.take(scales.into());
        pack
    }

    /// Blocks of GGUF, which hold codes and scales: [N, bytes of a row]. `flags` tell types of the same format apart:
    /// [`LayerFlags::ADDITIVE_ZEROS`] stands for a minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K), and [`LayerFlags::TWO_LEVEL_SCALES`]
    /// for super-blocks of 256 elements (K-quants, IQ4_XS).
    pub fn blocks(format: Format, n: usize, k: usize, values: Matrix<'a, u8>, flags: LayerFlags) -> Pack<'a> {
        let mut pack = Pack::codes(format, n, k, values, Input::absent()).layout(Layout::GGUF);
        pack.desc.flags |= flags.0;
        pack
    }

    fn take(&mut self, input: Input<'a>) -> sys::marlin_matrix {
        self.bound.add(input.bound);
        input.raw
    }

    setters! {
        /// Elements of K that share a scale; 0: the format's own; K or more: the whole row.
        group_size: u32 => desc.group_size;
        /// The order of codes, scales and zeros.
        layout: Layout => desc.layout, 0;
        /// What a zero nibble 15 stands for, with [`Layout::GPTQ_V1`].
        gptq_zero_f: GptqZeroF => desc.gptq_zero_f, 0;
    }

    /// Zero points: `u8` 0 to 15.
    pub fn zeros(mut self, zeros: impl Into<Input<'a>>) -> Self {
        self.desc.zeros = self.take(zeros.into());
        self
    }

    /// Floats that are added: q * s + zero.
    pub fn additive_zeros(mut self, zeros: impl Into<Input<'a>>) -> Self {
        self.desc.flags |= sys::MARLIN_PACK_ADDITIVE_ZEROS;
        self.zeros(zeros)
    }

    /// 2:4 sparse: `values` hold what is kept, and this says where: `u8` masks or `i16` nibbles.
    pub fn sparse_meta(mut self, meta: impl Into<Input<'a>>) -> Self {
        self.desc.sparse_meta = self.take(meta.into());
        self
    }

    /// The group of each k (act-order).
    pub fn group_index(mut self, index: &'a [i32]) -> Self {
        self.desc.group_index = *Matrix::row(index).as_raw();
        self
    }

    /// A scale of the whole matrix.
    pub fn tensor_scale(mut self, scale: &'a f32) -> Self {
        self.desc.tensor_scale = *Matrix::row(std::slice::from_ref(scale)).as_raw();
        self
    }

    /// A scale that the whole matrix is divided by (compressed-tensors NVFP4).
    pub fn tensor_divisor(mut self, divisor: &'a f32) -> Self {
        self.desc.flags |= sys::MARLIN_PACK_DIVIDE_SCALE;
        self.tensor_scale(divisor)
    }

    /// With [`Format::CODEBOOK4`]: the value of each code in units of its scale.
    pub fn codebook(mut self, values: &'a [f32; 16]) -> Self {
        self.desc.codebook = *Matrix::row(values).as_raw();
        self
    }

    /// Keeps two of every 4 along K: the largest, or the largest times these norms of the columns of the activations.
    pub fn prune_2_4(mut self, column_norms: Option<&'a [f32]>) -> Self {
        self.desc.flags |= sys::MARLIN_PACK_PRUNE_2_4;
        if let Some(norms) = column_norms {
            self.desc.column_norms = *Matrix::row(norms).as_raw();
        }
        self
    }

    flags! { desc.flags;
        /// Dense values obey 2:4, and are to be stored sparse.
        obeys_2_4 => MARLIN_PACK_OBEYS_2_4;
        /// Rows alternate gate and up (gpt-oss).
        gate_up_interleaved => MARLIN_PACK_GATE_UP_INTERLEAVED;
        /// Quantizes with the scales of least squared error.
        scales_mse => MARLIN_PACK_SCALES_MSE;
    }

    /// Packs this one matrix.
    pub fn pack(&self, context: &Context) -> Result<Weights> {
        Weights::pack(context, &[self])
    }

    fn desc_for(&self, library: &Library) -> Result<*const sys::marlin_pack_desc> {
        self.bound.check(library, ptr::null_mut())?;
        Ok(&self.desc)
    }
}

shown!(Pack<'_>, |this, f| f.debug_tuple("Pack").field(&this.desc).finish());
