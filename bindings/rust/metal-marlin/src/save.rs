use std::path::Path;
use std::ptr;

use metal_marlin_sys as sys;

use crate::checkpoint::LoadArrays;
use crate::text;
use crate::{Backend, Checkpoint, Context, Load, Result};

/// Writes a packed container (.marlin): packed layers, which [`Load`] then uses in place, with all other tensors and the
/// key-values of the checkpoint.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/gptq-v1-sym-g128");
/// # let out = std::env::temp_dir().join(format!("metal-marlin-doc-{}.marlin", std::process::id()));
/// use metal_marlin::{Checkpoint, Context, Save, Weights};
///
/// let (file, context) = (Checkpoint::open(folder)?, Context::new()?);
/// Save::new(&file).overwrite().write(&context, &out)?; // every layer that loads
/// let packed = Checkpoint::open(&out)?;
/// for layer in packed.layers() {
///     let weights = Weights::load(&context, &packed, &layer?.name)?;
///     println!("{} bytes, in place", weights.info()?.bytes);
/// }
/// # let _ = std::fs::remove_file(out);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[must_use = "write() writes"]
pub struct Save<'a> {
    checkpoint: &'a Checkpoint,
    loads: Vec<Load<'a>>,
    desc: sys::marlin_save_desc,
}

impl<'a> Save<'a> {
    /// Of this checkpoint: every layer that loads, unless load() chooses.
    pub fn new(checkpoint: &'a Checkpoint) -> Self {
        Save { checkpoint, loads: Vec::new(), desc: sys::marlin_save_desc { rank_count: 1, ..Default::default() } }
    }

    /// Adds one layer of the container: the layers of this load, with "+" between their names. Its progress hears nothing.
    pub fn load(mut self, load: Load<'a>) -> Self {
        self.loads.push(load);
        self
    }

    /// The loads are shard `rank` of `ranks`. The key-values "marlin.rank" and "marlin.ranks" of the container tell it.
    pub fn rank(mut self, rank: u32, ranks: u32) -> Self {
        (self.desc.rank, self.desc.rank_count) = (rank, ranks);
        self
    }

    setters! {
        /// Whose devices the file is for; this machine needs no such device; without this: that of the context.
        backend: Backend => desc.backend, 0;
    }

    flags! { desc.flags;
        /// Replaces a file that is there; without this it is an error.
        overwrite => MARLIN_SAVE_OVERWRITE;
    }

    /// Packs them on the threads of this context, and writes the file.
    pub fn write(self, context: &Context, out: impl AsRef<Path>) -> Result<()> {
        self.checkpoint.library().check_same(context.library(), "the checkpoint")?;
        let out = text::path_to_c(out.as_ref())?;
        let arrays: Vec<LoadArrays> = self.loads.iter().map(Load::arrays).collect::<Result<_>>()?;
        let descs: Vec<_> = self.loads.iter().zip(&arrays).map(|(load, arrays)| load.desc(arrays)).collect();
        let loads: Vec<_> = descs.iter().map(|desc| desc as *const sys::marlin_load_desc).collect();
        let desc = sys::marlin_save_desc {
            loads: if loads.is_empty() { ptr::null() } else { loads.as_ptr() },
            load_count: loads.len() as u32,
            ..self.desc
        };
        let (raw, file) = (context.as_raw(), self.checkpoint.as_raw());
        // SAFETY: all arrays live during the call.
        context.library().call(|api, err| unsafe { (api.checkpoint_save)(raw, file, out.as_ptr(), &desc, err) })
    }
}

shown!(Save<'_>, |this, f| f
    .debug_struct("Save")
    .field("loads", &this.loads)
    .field("desc", &this.desc)
    .finish_non_exhaustive());
