use std::ffi::{c_void, CString};
use std::ops::ControlFlow;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr;

use metal_marlin_sys as sys;

use crate::callback::{self, Tasks};
use crate::text;
use crate::{Checkpoint, Format, LayerFlags, LogLevel, Matrix, Result, Scheme, Status};

/// Writes a checkpoint again with some layers quantized, from file to file.
///
/// Everything is written under other names and renamed at the end: what fails leaves old files as they were. All tensors that
/// are not listed are copied unchanged.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/float-bf16");
/// # let out = std::env::temp_dir().join(format!("metal-marlin-convert-{}", std::process::id()));
/// use metal_marlin::{Checkpoint, Convert, Format};
///
/// let file = Checkpoint::open(folder)?;
/// Convert::new(&file, Format::MXFP4)
///     .layer("encoder.layer.0.attention.self.query")
///     .on_layer(|layer| println!("{}: {} bytes became {}", layer.name, layer.bytes_before, layer.bytes_after))
///     .write(&out)?;
/// # std::fs::remove_dir_all(out).unwrap();
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[must_use = "write() writes"]
pub struct Convert<'a> {
    checkpoint: &'a Checkpoint,
    desc: sys::marlin_convert_desc,
    layers: Vec<Listed<'a>>,
    with_norms: bool,
    host: Host<'a>,
}

/// One layer, with what is said of it alone.
#[derive(Debug)]
struct Listed<'a> {
    name: String,
    norms: Option<&'a [f32]>,
    block_type: Option<String>,
}

/// The closures of one conversion. Those that are FnMut are called on the calling thread only.
#[derive(Default)]
struct Host<'a> {
    progress: Option<Box<OnProgress<'a>>>,
    layer_done: Option<Box<OnLayer<'a>>>,
    log: Option<Box<Log<'a>>>,
    parallel_for: Option<Box<ParallelFor<'a>>>,
}

type OnProgress<'a> = dyn FnMut(Progress<'_>) -> ControlFlow<()> + 'a;
type OnLayer<'a> = dyn FnMut(&Outcome<'_>) + 'a;
type Log<'a> = dyn Fn(LogLevel, &str) + Sync + 'a;
type ParallelFor<'a> = dyn Fn(&Tasks) + Sync + 'a;

/// How far a conversion is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Of the input.
    pub done_bytes: u64,
    /// Of the input; 0 while the files are being planned.
    pub total_bytes: u64,
    /// The layer that is at work.
    pub layer: std::borrow::Cow<'a, str>,
}

/// What became of one layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome<'a> {
    /// [`Status::OK`]: quantized; else why it stays as it was.
    pub status: Status,
    /// The layer.
    pub name: std::borrow::Cow<'a, str>,
    /// The words for status, or "".
    pub reason: std::borrow::Cow<'a, str>,
    /// Rows: out_features.
    pub n: usize,
    /// Columns: in_features.
    pub k: usize,
    /// 1 for a plain layer.
    pub experts: u32,
    /// K when one group spans the row.
    pub group_size: u32,
    /// What it was; [`Format::NONE`]: floats.
    pub from: Format,
    /// That was written.
    pub format: Format,
    /// Of what was written.
    pub flags: LayerFlags,
    /// Of all its tensors.
    pub bytes_before: u64,
    /// Of all its tensors.
    pub bytes_after: u64,
    /// Sum of (written - original)^2; 0 in a dry run.
    pub squared_error: f64,
    /// Sum of original^2.
    pub squared_norm: f64,
    /// Sum of original^2 over what pruning kept.
    pub kept_norm: f64,
}

impl<'a> Convert<'a> {
    /// To a format of the scheme; no layer yet. [`Format::NONE`] is for layers with a [`Convert::block_type`], and for layers that
    /// are quantized already and are to keep every value.
    pub fn new(checkpoint: &'a Checkpoint, format: Format) -> Self {
        let desc = sys::marlin_convert_desc { format: format.0, ..Default::default() };
        Convert { checkpoint, desc, layers: Vec::new(), with_norms: false, host: Host::default() }
    }

    /// Adds a layer, named as [`Checkpoint::layers`] does.
    pub fn layer(mut self, name: &str) -> Self {
        self.layers.push(Listed { name: name.to_owned(), norms: None, block_type: None });
        self
    }

    setters! {
        /// How files name and store them.
        scheme: Scheme => desc.scheme, 0;
        /// 0: the format's own; K or more: the whole row.
        group_size: u32 => desc.group_size;
        /// Safetensors: at most so many bytes of tensors a file; 0: as many files as the input has.
        shard_bytes: u64 => desc.shard_bytes;
    }

    /// Prunes the layer that was added last by the products with these norms, one for each column.
    pub fn column_norms(self, norms: &'a [f32]) -> Self {
        self.importance(norms).prune_2_4()
    }

    /// Weighs the squared errors of the layer that was added last by the squares of these norms, one for each column. That is
    /// for [`Convert::scales_mse`] and [`Convert::block_type`].
    pub fn importance(mut self, norms: &'a [f32]) -> Self {
        if let Some(last) = self.layers.last_mut() {
            last.norms = Some(norms);
            self.with_norms = true;
        }
        self
    }

    /// GGUF: the type of the blocks of the layer that was added last, as "Q4_K".
    pub fn block_type(mut self, name: &str) -> Self {
        if let Some(last) = self.layers.last_mut() {
            last.block_type = Some(name.to_owned());
        }
        self
    }

    flags! { desc.flags;
        /// Keeps two of every 4 along K, the largest.
        prune_2_4 => MARLIN_CONVERT_PRUNE_2_4;
        /// The values obey 2:4, and are to be stored sparse.
        obeys_2_4 => MARLIN_CONVERT_OBEYS_2_4;
        /// The scales of least squared error.
        scales_mse => MARLIN_CONVERT_SCALES_MSE;
        /// INT4 with a zero point a group.
        asymmetric => MARLIN_CONVERT_ASYMMETRIC;
        /// A layer that the scheme cannot hold stays as it is; else it is an error.
        skip_unfit => MARLIN_CONVERT_SKIP_UNFIT;
        /// Replaces files of the names that are written; else they are an error.
        overwrite => MARLIN_CONVERT_OVERWRITE;
        /// Plans and checks, reports every outcome with its sizes, writes nothing.
        dry_run => MARLIN_CONVERT_DRY_RUN;
    }

    /// Hears how far it is, and may stop it: [`Status::CANCELLED`]. Runs on the calling thread.
    pub fn progress(mut self, host: impl FnMut(Progress<'_>) -> ControlFlow<()> + 'a) -> Self {
        self.host.progress = Some(Box::new(host));
        self
    }

    /// Hears of each layer when it is done, in file order. Runs on the calling thread.
    pub fn on_layer(mut self, host: impl FnMut(&Outcome<'_>) + 'a) -> Self {
        self.host.layer_done = Some(Box::new(host));
        self
    }

    /// Hears what the library has to say.
    pub fn log(mut self, host: impl Fn(LogLevel, &str) + Sync + 'a) -> Self {
        self.host.log = Some(Box::new(host));
        self
    }

    /// The host's threads; without them all runs on the calling one. The result is the same.
    pub fn parallel_for(mut self, host: impl Fn(&Tasks) + Sync + 'a) -> Self {
        self.host.parallel_for = Some(Box::new(host));
        self
    }

    /// Writes it: a .gguf or .safetensors file in an existing folder, or a folder.
    pub fn write(mut self, out: impl AsRef<Path>) -> Result<()> {
        let out = text::path_to_c(out.as_ref())?;
        let names: Vec<CString> =
            self.layers.iter().map(|layer| text::to_c(&layer.name, "the layer's name")).collect::<Result<_>>()?;
        let layers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let norms: Vec<_> = self
            .layers
            .iter()
            .map(|layer| layer.norms.map_or_else(Default::default, |norms| *Matrix::row(norms).as_raw()))
            .collect();
        let block_types: Vec<Option<CString>> = self
            .layers
            .iter()
            .map(|layer| layer.block_type.as_deref().map(|name| text::to_c(name, "the type of blocks")).transpose())
            .collect::<Result<_>>()?;
        let types: Vec<_> = block_types.iter().map(|name| name.as_ref().map_or(ptr::null(), |name| name.as_ptr())).collect();
        let mut desc = self.desc;
        desc.layers = layers.as_ptr();
        desc.layer_count = layers.len() as u32;
        if self.with_norms {
            desc.column_norms = norms.as_ptr();
        }
        if block_types.iter().any(Option::is_some) {
            desc.types = types.as_ptr();
        }
        desc.progress = self.host.progress.is_some().then_some(progress as _);
        desc.layer_done = self.host.layer_done.is_some().then_some(layer_done as _);
        desc.log = self.host.log.is_some().then_some(log as _);
        desc.parallel_for = self.host.parallel_for.is_some().then_some(parallel_for as _);
        desc.user = ptr::addr_of_mut!(self.host).cast();
        let file = self.checkpoint.as_raw();
        let library = self.checkpoint.library();
        // SAFETY: all arrays and closures live during the call, after which nothing of them is kept.
        library.call(|api, err| unsafe { (api.checkpoint_convert)(file, out.as_ptr(), &desc, err) })
    }
}

shown!(Convert<'_>, |this, f| f
    .debug_struct("Convert")
    .field("layers", &this.layers)
    .field("desc", &this.desc)
    .finish_non_exhaustive());

// The C functions: `user` is a Host. Each reaches for its own field only, because log may run beside the others.

unsafe extern "C" fn progress(user: *mut c_void, done_bytes: u64, total_bytes: u64, layer: *const c_char) -> i32 {
    let host = &mut *ptr::addr_of_mut!((*user.cast::<Host>()).progress);
    callback::cancels(host, |host| host(Progress { done_bytes, total_bytes, layer: text::from_c(layer) }))
}

unsafe extern "C" fn layer_done(user: *mut c_void, raw: *const sys::marlin_convert_outcome) {
    let host = &mut *ptr::addr_of_mut!((*user.cast::<Host>()).layer_done);
    let raw = &*raw;
    let outcome = Outcome {
        status: Status(raw.status),
        name: text::from_c(raw.name),
        reason: text::from_c(raw.reason),
        n: raw.n as usize,
        k: raw.k as usize,
        experts: raw.experts,
        group_size: raw.group_size,
        from: Format(raw.from),
        format: Format(raw.format),
        flags: LayerFlags(raw.flags),
        bytes_before: raw.bytes_before,
        bytes_after: raw.bytes_after,
        squared_error: raw.squared_error,
        squared_norm: raw.squared_norm,
        kept_norm: raw.kept_norm,
    };
    callback::guarded((), || host.iter_mut().for_each(|host| host(&outcome)));
}

unsafe extern "C" fn log(user: *mut c_void, level: i32, message: *const c_char) {
    if let Some(host) = &*ptr::addr_of!((*user.cast::<Host>()).log) {
        callback::log(host, level, message);
    }
}

unsafe extern "C" fn parallel_for(
    user: *mut c_void,
    count: u32,
    task: Option<unsafe extern "C" fn(*mut c_void, u32)>,
    task_user: *mut c_void,
) {
    if let Some(host) = &*ptr::addr_of!((*user.cast::<Host>()).parallel_for) {
        callback::parallel_for(host, count, task, task_user);
    }
}
