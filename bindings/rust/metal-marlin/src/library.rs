//! The table of functions, linked or loaded, and how to call them.

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use metal_marlin_sys as sys;

use crate::callback;
use crate::{Backend, Checkpoint, ContextBuilder, Error, OpenOptions, Result, Status};

/// One copy of the library, linked or loaded. Cheap to clone; a loaded one stays while anything made with it lives.
///
/// Programs that link the library need not name it: [`Context::new`](crate::Context::new) and
/// [`Checkpoint::open`] use [`Library::linked`].
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

struct Loaded {
    api: NonNull<sys::marlin_api>,
    #[cfg(all(feature = "load", unix))]
    _object: Option<crate::load::Object>,
}

// SAFETY: the table is immutable, and the library has no state of its own.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Library {
    /// The library that this program is linked with.
    #[cfg(feature = "link")]
    pub fn linked() -> Library {
        // SAFETY: any major may be asked for; the linker found the library of this one.
        let api = unsafe { sys::marlin_get_api(sys::MARLIN_ABI_MAJOR) };
        let api = NonNull::new(api as *mut _).expect("libmetal-marlin serves the ABI that its soname names");
        Library(Arc::new(Loaded {
            api,
            #[cfg(all(feature = "load", unix))]
            _object: None,
        }))
    }

    /// Loads a shared library: a path, or a name such as `libmetal-marlin.so.0` for the system to find.
    ///
    /// One that lacks functions which this crate knows is [`Status::UNSUPPORTED`], one that cannot be loaded [`Status::FILE`].
    ///
    /// # Safety
    /// Loading runs the file's initializers, and what it calls `marlin_get_api` is believed: it must be this library.
    ///
    /// ```no_run
    /// # fn main() -> metal_marlin::Result<()> {
    /// let library = unsafe { metal_marlin::Library::load("libmetal-marlin.so.0") }?;
    /// let context = library.context().build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(all(feature = "load", unix))]
    pub unsafe fn load(path: impl AsRef<std::path::Path>) -> Result<Library> {
        let object = crate::load::Object::open(path.as_ref())?;
        let api = object.api()?;
        Ok(Library(Arc::new(Loaded { api, _object: Some(object) })))
    }

    pub(crate) fn api(&self) -> &sys::marlin_api {
        // SAFETY: static storage of a library that `self` keeps loaded.
        unsafe { self.0.api.as_ref() }
    }

    /// A context to be described: `library.context().threads(4).build()`.
    pub fn context(&self) -> ContextBuilder {
        ContextBuilder::new(self.clone())
    }

    /// Opens a checkpoint, as [`Checkpoint::open`] does.
    pub fn open(&self, path: impl AsRef<std::path::Path>) -> Result<Checkpoint> {
        OpenOptions::default().open_with(self, path)
    }

    /// Major, minor and patch version.
    pub fn version(&self) -> (u32, u32, u32) {
        // SAFETY: it takes nothing.
        let version = unsafe { (self.api().version)() };
        (version >> 16, version >> 8 & 0xFF, version & 0xFF)
    }

    /// All devices, unusable ones included, in the order of [`Backend::AUTO`].
    pub fn devices(&self) -> Result<Vec<Device>> {
        let mut all = Vec::new();
        loop {
            let mut info = sys::marlin_device_info::default();
            let index = all.len() as u32;
            // SAFETY: `info` says its size.
            match self.call(|api, err| unsafe { (api.device_get)(index, &mut info, err) }) {
                Ok(()) => all.push(Device::from_raw(&info)),
                Err(e) if e.status() == Status::NOT_FOUND => return Ok(all),
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether both are the same copy: a handle means something only to the copy that made it.
    pub(crate) fn check_same(&self, other: &Library, what: &str) -> Result<()> {
        if ptr::eq(self.api(), other.api()) {
            return Ok(());
        }
        Err(Error::new(Status::ARGUMENT, format!("{what} is of another copy of the library")))
    }

    /// Calls a function that returns a status. A panic of a callback goes on from here.
    pub(crate) fn call(
        &self,
        function: impl FnOnce(&sys::marlin_api, *mut sys::marlin_error) -> sys::marlin_status,
    ) -> Result<()> {
        let result = self.call_and_keep_panic(function);
        callback::resume_panic();
        result
    }

    /// Calls a function while a panic is under way already: one of a callback would end the process.
    pub(crate) fn call_and_forget_panic(
        &self,
        function: impl FnOnce(&sys::marlin_api, *mut sys::marlin_error) -> sys::marlin_status,
    ) -> Result<()> {
        let result = self.call_and_keep_panic(function);
        callback::forget_panic();
        result
    }

    fn call_and_keep_panic(
        &self,
        function: impl FnOnce(&sys::marlin_api, *mut sys::marlin_error) -> sys::marlin_status,
    ) -> Result<()> {
        let mut err = sys::marlin_error::default();
        let status = callback::calling(|| function(self.api(), &mut err))?;
        if status == sys::MARLIN_OK {
            return Ok(());
        }
        Err(Error::from_raw(status, &err))
    }

    /// Calls a function that makes a handle. `keeps` lives as long as the handle.
    pub(crate) fn create<T, K>(
        &self,
        keeps: K,
        destroy: unsafe extern "C" fn(*mut T),
        function: impl FnOnce(&sys::marlin_api, *mut *mut T, *mut sys::marlin_error) -> sys::marlin_status,
    ) -> Result<Handle<T, K>> {
        let mut out = ptr::null_mut();
        let result = self.call_and_keep_panic(|api, err| function(api, &mut out, err));
        let handle = NonNull::new(out).map(|raw| Handle { raw, destroy, keeps: Some((keeps, self.clone())) });
        callback::resume_panic();
        result?;
        handle.ok_or_else(|| Error::new(Status::INTERNAL, "the library gave neither a handle nor an error"))
    }
}

shown!(Library, |this, f| f.debug_struct("Library").field("version", &this.version()).finish_non_exhaustive());

/// Owns one handle, and with it what must outlive that: the library, what the library may call, and for children their context.
pub(crate) struct Handle<T, K = ()> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
    keeps: Option<(K, Library)>,
}

impl<T, K> Handle<T, K> {
    pub fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    fn kept(&self) -> &(K, Library) {
        self.keeps.as_ref().expect("it is taken by drop only")
    }

    pub fn keeps(&self) -> &K {
        &self.kept().0
    }

    pub fn library(&self) -> &Library {
        &self.kept().1
    }
}

impl<T, K> Drop for Handle<T, K> {
    fn drop(&mut self) {
        if callback::inside() {
            // The library may not be called here. The handle is lost, and all that it needs lives on with it.
            std::mem::forget(self.keeps.take());
        } else {
            // SAFETY: the only owner; the context outlives its children by itself.
            unsafe { (self.destroy)(self.raw.as_ptr()) }
        }
    }
}

/// What a machine has to compute on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Device {
    /// What drives it.
    pub backend: Backend,
    /// For [`ContextBuilder::device`].
    pub index: i32,
    /// As its maker calls it.
    pub name: String,
    /// Such as "avx512-vnni-bf16", "sm_90a", "apple9".
    pub isa_or_arch: String,
    /// All of it, in use or not.
    pub memory_bytes: u64,
    /// Why it cannot be used; `None` when it can.
    pub why_not: Option<String>,
    /// The CPU: as many as a context has that asks for none in particular; 0 for other devices.
    pub threads: u32,
}

impl Device {
    fn from_raw(raw: &sys::marlin_device_info) -> Device {
        // SAFETY: the library ends each text with a NUL inside its array.
        let text = |at: *const std::os::raw::c_char| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned();
        let why_not = text(raw.why_not.as_ptr());
        Device {
            backend: Backend(raw.backend),
            index: raw.index,
            name: text(raw.name.as_ptr()),
            isa_or_arch: text(raw.isa_or_arch.as_ptr()),
            memory_bytes: raw.memory_bytes,
            why_not: if why_not.is_empty() { None } else { Some(why_not) },
            threads: raw.threads,
        }
    }
}

/// All devices that the linked library knows of, unusable ones included.
#[cfg(feature = "link")]
pub fn devices() -> Result<Vec<Device>> {
    Library::linked().devices()
}
