use std::borrow::Cow;
use std::ffi::{c_void, CString};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;
use std::ptr;

use metal_marlin_sys as sys;

use crate::callback;
use crate::library::{Handle, Library};
use crate::matrix::{self, Element, Matrix};
use crate::text;
use crate::{Context, Dtype, Error, Format, GptqZeroF, LayerFlags, Layout, Result, Status, Weights};

/// An open .safetensors, .safetensors.index.json, .gguf or .marlin file, or a folder with one. It is mapped, and read lazily.
///
/// A file that another process shrinks in the meantime faults in the reader (SIGBUS): replace files by renaming.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/gptq-v1-sym-g128");
/// let file = metal_marlin::Checkpoint::open(folder)?;
/// for layer in file.layers() {
///     let layer = layer?;
///     println!("{} is {} x {} of {}", layer.name, layer.n, layer.k, layer.format);
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
///
/// Tensors and names live no longer than their checkpoint:
///
/// ```compile_fail,E0505
/// # use metal_marlin::*;
/// # fn f(file: Checkpoint) -> Result<Vec<f32>> {
/// let tensor = file.tensor("model.norm.weight")?;
/// drop(file);
/// tensor.to_vec()
/// # }
/// ```
pub struct Checkpoint {
    handle: Handle<sys::marlin_checkpoint>,
}

// SAFETY: the header allows any number of threads at once.
unsafe impl Send for Checkpoint {}
// SAFETY: as above.
unsafe impl Sync for Checkpoint {}

/// How to open a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    desc: sys::marlin_open_desc,
    config: Option<String>,
}

impl OpenOptions {
    /// Everything found from the file.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// The layout of quantized layers, taken on trust; [`Layout::AUTO`]: found from config.json, tensor names and dtypes.
        layout: Layout => desc.layout, 0;
        /// What a zero nibble 15 stands for, in all GPTQ v1 layers.
        gptq_zero_f: GptqZeroF => desc.gptq_zero_f, 0;
    }

    /// The order of stacks of experts whose shapes and config leave it open: \[experts, n, k\], or else \[experts, k, n\].
    /// Without an answer such stacks are not read.
    pub fn outputs_first(mut self, outputs_first: bool) -> Self {
        self.desc.flags = if outputs_first { sys::MARLIN_OPEN_OUTPUTS_FIRST } else { sys::MARLIN_OPEN_INPUTS_FIRST };
        self
    }

    /// An object of JSON with members of config.json, which answer what the files leave open or say wrongly:
    /// `{"quantization_config": {"group_size": 64}}`.
    pub fn config(mut self, json: impl Into<String>) -> Self {
        self.config = Some(json.into());
        self
    }

    /// Opens it with the linked library.
    #[cfg(feature = "link")]
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        self.open_with(&Library::linked(), path)
    }

    /// Opens it with this library.
    pub fn open_with(&self, library: &Library, path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = text::path_to_c(path.as_ref())?;
        let config = self.config.as_deref().map(|json| text::to_c(json, "the config")).transpose()?;
        let mut desc = self.desc;
        desc.config = config.as_ref().map_or(ptr::null(), |json| json.as_ptr());
        let destroy = library.api().checkpoint_destroy;
        // SAFETY: texts and descriptor live during the call.
        let handle =
            library.create((), destroy, |api, out, err| unsafe { (api.checkpoint_open)(path.as_ptr(), &desc, out, err) })?;
        Ok(Checkpoint { handle })
    }
}

impl Checkpoint {
    /// Opens it with the linked library. Reads headers and config.json only.
    #[cfg(feature = "link")]
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        OpenOptions::new().open(path)
    }

    pub(crate) fn library(&self) -> &Library {
        self.handle.library()
    }

    /// The layers in file order. One that could not be loaded is listed as well: [`LayerInfo::status`].
    pub fn layers(&self) -> Layers<'_> {
        Layers { checkpoint: self, next: 0 }
    }

    /// One stored tensor: a bias, a norm, a router. A type that [`Dtype`] does not name is [`Status::UNSUPPORTED`].
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        let name = text::to_c(name, "the tensor's name")?;
        let mut raw = sys::marlin_matrix::default();
        // SAFETY: the name lives during the call.
        self.library().call(|api, err| unsafe { (api.checkpoint_tensor)(self.as_raw(), name.as_ptr(), &mut raw, err) })?;
        Ok(Tensor { raw, file: PhantomData })
    }

    /// The handle, for what this crate has no words for. It stays this checkpoint's.
    pub fn as_raw(&self) -> *mut sys::marlin_checkpoint {
        self.handle.raw()
    }
}

shown!(Checkpoint, |this, f| f.debug_tuple("Checkpoint").field(&this.as_raw()).finish());

/// The layers of a [`Checkpoint`].
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    checkpoint: &'a Checkpoint,
    next: u64,
}

impl<'a> Iterator for Layers<'a> {
    type Item = Result<LayerInfo<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut info = sys::marlin_layer_info::default();
        let (checkpoint, index) = (self.checkpoint.as_raw(), self.next);
        self.next += 1;
        // SAFETY: `info` says its size.
        match self.checkpoint.library().call(|api, err| unsafe { (api.checkpoint_layer)(checkpoint, index, &mut info, err) }) {
            // SAFETY: the name lives as long as the checkpoint.
            Ok(()) => Some(Ok(unsafe { layer_info(&info) })),
            Err(e) if e.status() == Status::NOT_FOUND => None,
            Err(e) => Some(Err(e)),
        }
    }
}

/// What a layer is, in a file or packed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerInfo<'a> {
    /// Would it load?
    pub status: Status,
    /// "" for weights that do not come from a file.
    pub name: Cow<'a, str>,
    /// Rows: out_features.
    pub n: usize,
    /// Columns: in_features.
    pub k: usize,
    /// 1 for a plain layer.
    pub experts: u32,
    /// K when one group spans the row.
    pub group_size: u32,
    /// [`Format::NONE`]: floats of `dtype`, which can be quantized on load.
    pub format: Format,
    /// In the file; of packed weights: what their first part came in.
    pub layout: Layout,
    /// What is special about it.
    pub flags: LayerFlags,
    /// Of the scales; of the values when they are floats.
    pub dtype: Dtype,
    /// In the file, or on the device.
    pub bytes: u64,
    /// The share of the squared norm that pruning kept; 1 when nothing was pruned.
    pub kept_share: f64,
}

/// # Safety
/// The name is NULL or lives during `'a`.
pub(crate) unsafe fn layer_info<'a>(raw: &sys::marlin_layer_info) -> LayerInfo<'a> {
    LayerInfo {
        status: Status(raw.status),
        name: text::from_c(raw.name),
        n: raw.n as usize,
        k: raw.k as usize,
        experts: raw.experts,
        group_size: raw.group_size,
        format: Format(raw.format),
        layout: Layout(raw.layout),
        flags: LayerFlags(raw.flags),
        dtype: Dtype(raw.dtype),
        bytes: raw.bytes,
        kept_share: raw.kept_share,
    }
}

/// One stored tensor in a mapped file, as a matrix: all dimensions but the last are rows.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    raw: sys::marlin_matrix,
    file: PhantomData<&'a Checkpoint>,
}

// SAFETY: a read-only view.
unsafe impl Send for Tensor<'_> {}
// SAFETY: likewise.
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        Dtype(self.raw.dtype)
    }

    /// The product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        self.raw.rows as usize
    }

    /// The last dimension.
    pub fn cols(&self) -> usize {
        self.raw.cols as usize
    }

    fn start<T: Element>(&self) -> Result<*const T> {
        if self.dtype() == T::DTYPE {
            return Ok(self.raw.data.cast::<u8>().wrapping_add(self.raw.offset_bytes as usize) as *const T);
        }
        Err(Error::new(Status::ARGUMENT, format!("the tensor holds {}, not {}", self.dtype(), T::DTYPE)))
    }

    /// A copy of its elements, row by row.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let from = self.start::<T>()?;
        let (row, stride) = (self.cols() / T::PACKED, self.raw.row_stride.max(self.raw.cols) as usize / T::PACKED);
        // Empty rows may be more than any loop ends.
        let rows = if row == 0 { 0 } else { self.rows() };
        let mut all: Vec<T> = Vec::with_capacity(rows * row);
        for r in 0..rows {
            // SAFETY: the library has checked that the rows lie in the file; any bits are a T, at any address.
            unsafe {
                let to = all.as_mut_ptr().add(r * row).cast::<u8>();
                ptr::copy_nonoverlapping(from.add(r * stride).cast::<u8>(), to, row * std::mem::size_of::<T>());
            }
        }
        // SAFETY: just written.
        unsafe { all.set_len(rows * row) };
        Ok(all)
    }

    /// An operand that needs no copy. [`Status::ARGUMENT`] when the file has it at an odd address: then use a copy.
    pub fn matrix<T: Element>(&self) -> Result<Matrix<'a, T>> {
        let from = self.start::<T>()?;
        if from as usize % std::mem::align_of::<T>() != 0 {
            return Err(Error::new(Status::ARGUMENT, "the file has the tensor at an address that is not aligned for its type"));
        }
        // SAFETY: checked by the library, aligned, and the file stays mapped.
        Ok(unsafe { Matrix::from_raw(self.raw) })
    }

    /// Its bytes in the file, when its rows follow each other.
    ///
    /// # Safety
    /// Nobody changes the file while the slice is in use.
    pub unsafe fn bytes(&self) -> Option<&'a [u8]> {
        let bits = matrix::bits(self.dtype())?;
        if self.raw.row_stride != 0 && self.raw.row_stride != self.raw.cols && self.raw.rows > 1 {
            return None;
        }
        let from = self.raw.data.cast::<u8>().wrapping_add(self.raw.offset_bytes as usize);
        Some(std::slice::from_raw_parts(from, self.rows() * self.cols() * bits / 8))
    }
}

shown!(Tensor<'_>, |this, f| write!(f, "Tensor([{}, {}] of {})", this.raw.rows, this.raw.cols, this.dtype()));

/// A part of a layer, in elements of N, K and experts: the first, and how many; 0: all from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// Where it begins.
    pub first: [usize; 3],
    /// How many; 0: all from there on.
    pub count: [usize; 3],
}

/// Layers of a checkpoint to be loaded as one, concatenated along N.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/float-bf16");
/// use metal_marlin::{Checkpoint, Context, Format, Load, Shard};
///
/// let file = Checkpoint::open(folder)?;
/// let half = Shard { first: [0, 0, 0], count: [48, 0, 0] }; // the first 48 rows
/// let weights = Load::new(&file)
///     .shard("encoder.layer.0.attention.self.query", half)
///     .quantize(Format::MXFP4, 0)
///     .load(&Context::new()?)?;
/// assert_eq!(weights.info()?.n, 48);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[must_use = "load() loads"]
pub struct Load<'a> {
    checkpoint: &'a Checkpoint,
    layers: Vec<(String, Shard, Option<&'a [f32]>)>,
    desc: sys::marlin_load_desc,
    progress: Option<Box<OnLoaded<'a>>>,
}

type OnLoaded<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

impl<'a> Load<'a> {
    /// Of this checkpoint, no layer yet.
    pub fn new(checkpoint: &'a Checkpoint) -> Self {
        let desc = sys::marlin_load_desc { expert_count: 1, ..Default::default() };
        Load { checkpoint, layers: Vec::new(), desc, progress: None }
    }

    /// Adds a whole layer, named as [`Checkpoint::layers`] does.
    pub fn layer(self, name: &str) -> Self {
        self.shard(name, Shard::default())
    }

    /// Adds a part of a layer.
    pub fn shard(mut self, name: &str, shard: Shard) -> Self {
        self.layers.push((name.to_owned(), shard, None));
        self
    }

    setters! {
        /// The layers are of so many experts: first those of expert 0, then as many of expert 1, and so on.
        experts: u32 => desc.expert_count;
    }

    /// Quantizes layers of floats; without this they are an error. Group size 0: the format's own.
    pub fn quantize(mut self, format: Format, group_size: u32) -> Self {
        self.desc.format = format.0;
        self.desc.group_size = group_size;
        self
    }

    flags! { desc.flags;
        /// Quantizes with the scales of least squared error.
        scales_mse => MARLIN_LOAD_SCALES_MSE;
        /// Keeps two of every 4 along K, the largest.
        prune_2_4 => MARLIN_LOAD_PRUNE_2_4;
    }

    /// Prunes the layer that was added last by the products with these norms, one for each column of the whole layer.
    pub fn column_norms(mut self, norms: &'a [f32]) -> Self {
        if let Some(last) = self.layers.last_mut() {
            last.2 = Some(norms);
        }
        self.prune_2_4()
    }

    flags! { desc.flags;
        /// The values obey 2:4, and are to be stored sparse.
        obeys_2_4 => MARLIN_LOAD_OBEYS_2_4;
    }

    /// Hears how many elements of W are done, and of how many: first 0, last all. It may stop the load: [`Status::CANCELLED`].
    /// Runs on the calling thread. When it panics the load stops, and the panic goes on after it.
    pub fn progress(mut self, host: impl FnMut(u64, u64) -> ControlFlow<()> + 'a) -> Self {
        self.progress = Some(Box::new(host));
        self
    }

    /// Loads and packs them.
    pub fn load(mut self, context: &Context) -> Result<Weights> {
        self.checkpoint.library().check_same(context.library(), "the checkpoint")?;
        let made = self.arrays()?;
        let mut desc: sys::marlin_load_desc = self.desc(&made);
        desc.progress = self.progress.is_some().then_some(progress as _);
        desc.user = ptr::addr_of_mut!(self.progress).cast();
        let (raw, file) = (context.as_raw(), self.checkpoint.as_raw());
        // SAFETY: arrays and closure live during the call, and the library keeps what the weights use of the file.
        Weights::create(context, |api, out, err| unsafe { (api.weights_load)(raw, file, &desc, out, err) })
    }

    pub(crate) fn arrays(&self) -> Result<LoadArrays> {
        let names: Vec<CString> =
            self.layers.iter().map(|(name, ..)| text::to_c(name, "the layer's name")).collect::<Result<_>>()?;
        let layers = names.iter().map(|name| name.as_ptr()).collect();
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let shards = self
            .layers
            .iter()
            .map(|(_, shard, _)| sys::marlin_shard { first: shard.first.map(number), count: shard.count.map(number) })
            .collect();
        let norms = self
            .layers
            .iter()
            .map(|(_, _, norms)| norms.map_or_else(Default::default, |norms| *Matrix::row(norms).as_raw()))
            .collect();
        Ok(LoadArrays { _names: names, layers, shards, norms })
    }

    /// Without progress. It points into the arrays.
    pub(crate) fn desc(&self, arrays: &LoadArrays) -> sys::marlin_load_desc {
        sys::marlin_load_desc {
            layers: arrays.layers.as_ptr(),
            shards: arrays.shards.as_ptr(),
            layer_count: arrays.layers.len() as u32,
            column_norms: if self.desc.flags & sys::MARLIN_LOAD_PRUNE_2_4 != 0 { arrays.norms.as_ptr() } else { ptr::null() },
            ..self.desc
        }
    }
}

/// What a descriptor of a load points to.
pub(crate) struct LoadArrays {
    _names: Vec<CString>,
    layers: Vec<*const std::os::raw::c_char>,
    shards: Vec<sys::marlin_shard>,
    norms: Vec<sys::marlin_matrix>,
}

shown!(Load<'_>, |this, f| f
    .debug_struct("Load")
    .field("layers", &this.layers)
    .field("desc", &this.desc)
    .finish_non_exhaustive());

/// `user` is the closure of a Load.
unsafe extern "C" fn progress(user: *mut c_void, done: u64, total: u64) -> i32 {
    callback::cancels(&mut *user.cast::<Option<Box<OnLoaded<'_>>>>(), |host| host(done, total))
}
