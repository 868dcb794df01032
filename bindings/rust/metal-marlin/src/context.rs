use std::ffi::c_void;
use std::sync::Arc;

use metal_marlin_sys as sys;

use crate::callback::{self, Callbacks, Memory, Step, Tasks};
use crate::library::{Handle, Library};
use crate::{Backend, Buffer, LogLevel, Result, Stream};

/// A device with its kernels, caches and threads. Cheap to clone: all clones are one context, which lives as long as anything
/// that was made in it.
///
/// ```
/// # #[cfg(feature = "link")]
/// # fn main() -> metal_marlin::Result<()> {
/// use metal_marlin::{Backend, Context};
///
/// let context = Context::builder().backend(Backend::CPU).threads(2).log(|level, text| eprintln!("{level:?}: {text}")).build()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "link"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct Context(Arc<Owned>);

struct Owned(Handle<sys::marlin_context, Arc<Callbacks>>);

// SAFETY: the header allows any number of threads at once, and the callbacks are Send and Sync.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Context {
    /// The first usable device, with a thread for each processor.
    #[cfg(feature = "link")]
    pub fn new() -> Result<Context> {
        Context::builder().build()
    }

    /// A context to be described.
    #[cfg(feature = "link")]
    pub fn builder() -> ContextBuilder {
        Library::linked().context()
    }

    /// The copy of the library that it is of.
    pub fn library(&self) -> &Library {
        self.0 .0.library()
    }

    /// A queue of work.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self)
    }

    /// Memory that host and device both reach, zero-filled.
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        Buffer::new(self, bytes)
    }

    /// The handle, for what this crate has no words for. It stays this context's.
    pub fn as_raw(&self) -> *mut sys::marlin_context {
        self.0 .0.raw()
    }
}

shown!(Context, |this, f| f.debug_tuple("Context").field(&this.as_raw()).finish());

/// A context to be described; see [`Context::builder`] and [`Library::context`].
///
/// Closures run on threads that are inside a call or on the library's own, maybe several at once. They must not call the
/// library: what they try is [`Status::ARGUMENT`](crate::Status::ARGUMENT), and a handle that they drop is lost. A closure that
/// panics does not take the library with it: the panic goes on when the call that it happened in has returned, or, on a thread
/// of the library, is lost.
#[must_use]
pub struct ContextBuilder {
    library: Library,
    desc: sys::marlin_context_desc,
    callbacks: Callbacks,
}

impl ContextBuilder {
    pub(crate) fn new(library: Library) -> ContextBuilder {
        ContextBuilder { library, desc: Default::default(), callbacks: Callbacks::default() }
    }

    setters! {
        /// What computes.
        backend: Backend => desc.backend, 0;
        /// Which of a backend's devices: [`Device::index`](crate::Device::index).
        device: i32 => desc.device_index;
        /// CPU threads to use; 0: as many as the process may run on.
        threads: u32 => desc.threads;
    }

    /// The host's own CUcontext or `id<MTLDevice>`.
    ///
    /// # Safety
    /// It is one, of the chosen backend, and lives as long as the context.
    pub unsafe fn native_device(mut self, device: *mut c_void) -> Self {
        self.desc.native_device = device;
        self
    }

    /// Hears what the library has to say; it never prints.
    pub fn log(mut self, host: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.callbacks.log = Some(Box::new(host));
        self
    }

    /// Hears of each step of a product when it is done, and how long it took. On Metal also threads of the driver tell.
    pub fn trace(mut self, host: impl Fn(&Step<'_>) + Send + Sync + 'static) -> Self {
        self.callbacks.trace = Some(Box::new(host));
        self
    }

    /// The host's threads instead of the library's.
    ///
    /// ```
    /// # #[cfg(feature = "link")]
    /// # fn main() -> metal_marlin::Result<()> {
    /// let context = metal_marlin::Context::builder()
    ///     .parallel_for(|tasks| {
    ///         std::thread::scope(|scope| {
    ///             scope.spawn(|| tasks.run());
    ///             tasks.run();
    ///         })
    ///     })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "link"))]
    /// # fn main() {}
    /// ```
    pub fn parallel_for(mut self, host: impl Fn(&Tasks) + Send + Sync + 'static) -> Self {
        self.callbacks.parallel_for = Some(Box::new(host));
        self
    }

    /// The host's memory for weights, buffers and scratch.
    pub fn memory(mut self, host: impl Memory + 'static) -> Self {
        self.callbacks.memory = Some(Box::new(host));
        self
    }

    /// Makes the context. Starts no thread before the first work.
    pub fn build(self) -> Result<Context> {
        let callbacks = Arc::new(self.callbacks);
        let mut desc = sys::marlin_context_desc { user: Arc::as_ptr(&callbacks) as *mut c_void, ..self.desc };
        if callbacks.log.is_some() {
            desc.log = Some(callback::context_log);
        }
        if callbacks.trace.is_some() {
            desc.trace = Some(callback::context_trace);
        }
        if callbacks.parallel_for.is_some() {
            desc.parallel_for = Some(callback::context_parallel_for);
        }
        if callbacks.memory.is_some() {
            desc.alloc = Some(callback::context_alloc);
            desc.release = Some(callback::context_release);
        }
        let destroy = self.library.api().context_destroy;
        // SAFETY: the handle keeps the callbacks, which do not move, until the context is gone.
        let handle =
            self.library.create(callbacks, destroy, |api, out, err| unsafe { (api.context_create)(&desc, out, err) })?;
        Ok(Context(Arc::new(Owned(handle))))
    }
}

shown!(ContextBuilder, |this, f| f.debug_struct("ContextBuilder").field("desc", &this.desc).finish_non_exhaustive());
