use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

use metal_marlin_sys as sys;

use crate::callback::{self, Done};
use crate::gemm::{self, Gemm};
use crate::library::{Handle, Library};
use crate::matrix::{Bound, Element, Input, MatrixMut, Output};
use crate::{Buffer, Context, Error, Native, Result, Status, Weights};

/// An in-order queue of work. It may move between threads, but one at a time uses it.
///
/// Work is given to it in a [`scope`](Stream::scope), which ends when the work is done.
///
/// ```compile_fail,E0277
/// fn at_once<T: Sync>() {}
/// at_once::<metal_marlin::Stream>();
/// ```
pub struct Stream {
    handle: Handle<sys::marlin_stream, (Context, Option<Buffer>)>,
    /// Its work ends when the host has committed it, so that nothing here can wait for that.
    host_commits: bool,
    one_thread_at_a_time: PhantomData<Cell<()>>,
}

// SAFETY: the header lets streams move between threads.
unsafe impl Send for Stream {}

impl Stream {
    pub(crate) fn new(context: &Context) -> Result<Stream> {
        // SAFETY: there is no native stream.
        unsafe { Stream::create(context, Native::NONE, ptr::null_mut(), None, [ptr::null_mut(); 2]) }
    }

    /// A stream whose temporaries lie in the host's memory; [`prepare`](Stream::prepare) says how much they need.
    pub fn with_scratch(context: &Context, scratch: Buffer) -> Result<Stream> {
        // SAFETY: there is no native stream.
        unsafe { Stream::create(context, Native::NONE, ptr::null_mut(), Some(scratch), [ptr::null_mut(); 2]) }
    }

    /// A stream on top of the host's own, such as a `cudaStream_t` with [`Native::CUDA_STREAM`], where NULL is the legacy default
    /// stream. It works in order with what else the host gives to that stream, on matrices of [`Matrix::on_cuda`](crate::Matrix::on_cuda).
    /// After [`prepare`](Stream::prepare), [`gemm`](Stream::gemm) may be captured into a CUDA graph. A [`scope`](Stream::scope) may
    /// not, because it waits.
    ///
    /// # Safety
    /// `native` is what `kind` says, of the context's device, and lives as long as this stream. This stream, the weights and the
    /// matrices live as long as a graph that has captured them. What is encoded into a command
    /// buffer or encoder is done when the host has committed it and waited: such a stream has no [`scope`](Stream::scope), but
    /// [`gemm`](Stream::gemm).
    pub unsafe fn from_native(context: &Context, kind: Native, native: *mut c_void) -> Result<Stream> {
        Stream::create(context, kind, native, None, [ptr::null_mut(); 2])
    }

    /// A stream on a queue or command buffer of Metal whose memory Metal does not track: its encoders wait for the first `MTLFence`,
    /// which the host has updated, or for none if it is NULL, and update the second. They may be the same one.
    ///
    /// # Safety
    /// As for [`from_native`](Stream::from_native). The fences live as long as the stream and the command buffers that use them.
    pub unsafe fn between_fences(
        context: &Context,
        kind: Native,
        native: *mut c_void,
        fences: [*mut c_void; 2],
    ) -> Result<Stream> {
        Stream::create(context, kind, native, None, fences)
    }

    unsafe fn create(
        context: &Context,
        kind: Native,
        native: *mut c_void,
        mut scratch: Option<Buffer>,
        fences: [*mut c_void; 2],
    ) -> Result<Stream> {
        let mut desc = sys::marlin_stream_desc { kind: kind.0, native, ..Default::default() };
        desc.wait_fence = fences[0];
        desc.update_fence = fences[1];
        if let Some(buffer) = &mut scratch {
            context.library().check_same(buffer.handle.library(), "the scratch buffer")?;
            let bytes = buffer.len();
            desc.scratch = *buffer.matrix_mut::<u8>(0, 1, bytes)?.as_raw();
        }
        let (library, raw) = (context.library().clone(), context.as_raw());
        let keeps = (context.clone(), scratch);
        let handle =
            library.create(keeps, library.api().stream_destroy, |api, out, err| (api.stream_create)(raw, &desc, out, err))?;
        let host_commits = kind == Native::METAL_COMMAND_BUFFER || kind == Native::METAL_ENCODER;
        Ok(Stream { handle, host_commits, one_thread_at_a_time: PhantomData })
    }

    fn library(&self) -> &Library {
        self.handle.library()
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.handle.keeps().0
    }

    /// Gives work to the stream. What the work uses is borrowed until the scope ends, and the scope ends when all work is done,
    /// also by an error or a panic.
    ///
    /// Work runs in order, and an error of the device comes out of a later call or of the scope's end. To use the result of one
    /// product in the next, [share](Scope::share) it.
    ///
    /// ```
    /// # #[cfg(feature = "link")]
    /// # fn main() -> metal_marlin::Result<()> {
    /// use metal_marlin::{Context, Format, Gemm, Matrix, MatrixMut, Pack};
    ///
    /// let context = Context::new()?;
    /// let w = vec![1.0f32; 64 * 64];
    /// let weights = Pack::floats(Format::MXFP4, Matrix::new(&w, 64, 64)?).pack(&context)?;
    /// let (x, mut hidden, mut y) = (vec![1.0f32; 64], vec![0.0f32; 64], vec![0.0f32; 64]);
    ///
    /// context.stream()?.scope(|s| {
    ///     let hidden = s.share(MatrixMut::row(&mut hidden));
    ///     s.gemm(Gemm::new(&weights, Matrix::row(&x), hidden))?;
    ///     s.gemm(Gemm::new(&weights, hidden, MatrixMut::row(&mut y)))
    /// })?;
    /// assert_eq!(y[0], 64.0 * 64.0);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "link"))]
    /// # fn main() {}
    /// ```
    ///
    /// What the work writes cannot be seen before it is done:
    ///
    /// ```compile_fail,E0503
    /// # use metal_marlin::*;
    /// # fn f(stream: &mut Stream, weights: &Weights, x: &[f32], y: &mut [f32]) -> Result<f32> {
    /// stream.scope(|s| {
    ///     s.gemm(Gemm::new(weights, Matrix::row(x), MatrixMut::row(&mut *y)))?;
    ///     Ok(y[0])
    /// })
    /// # }
    /// ```
    ///
    /// nor can memory go that the work still uses:
    ///
    /// ```compile_fail,E0597
    /// # use metal_marlin::*;
    /// # fn f(stream: &mut Stream, weights: &Weights, y: &mut [f32]) -> Result<()> {
    /// stream.scope(|s| {
    ///     let x = vec![0.0f32; 64]; // gone before the work is done
    ///     s.gemm(Gemm::new(weights, Matrix::row(&x), MatrixMut::row(y)))
    /// })
    /// # }
    /// ```
    ///
    /// whether that are operands, as above, or weights. What is shared does not leave its scope either:
    ///
    /// ```compile_fail,E0521
    /// # use metal_marlin::*;
    /// # fn f(stream: &mut Stream, weights: &Weights, x: &[f32], y: &mut [f32]) -> Result<()> {
    /// let mut shared = None;
    /// stream.scope(|s| {
    ///     shared = Some(s.share(MatrixMut::row(y)));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn scope<'env, R, F>(&mut self, work: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        struct WaitAlways<'a>(&'a Stream);
        impl Drop for WaitAlways<'_> {
            fn drop(&mut self) {
                // Only a panic of the scope's work comes here: it goes on, and what goes wrong now is lost.
                let stream = self.0;
                // SAFETY: the stream is alive.
                let _ = stream
                    .library()
                    .call_and_forget_panic(|api, err| unsafe { (api.stream_wait)(stream.as_raw(), u64::MAX, err) });
            }
        }
        if self.host_commits {
            let message = "the host commits what this stream encodes, and so a scope cannot wait for it; there is Stream::gemm";
            return Err(Error::new(Status::ARGUMENT, message));
        }
        let wait = WaitAlways(self);
        let scope = Scope { stream: wait.0, scope: PhantomData, env: PhantomData };
        let result = work(&scope);
        std::mem::forget(wait);
        let done = self.wait_for_ever();
        let result = result?;
        done.map(|()| result)
    }

    fn wait_for_ever(&self) -> Result<()> {
        // SAFETY: the stream is alive.
        self.library().call(|api, err| unsafe { (api.stream_wait)(self.as_raw(), u64::MAX, err) })
    }

    /// Gives one product to the stream and does not wait for it.
    ///
    /// # Safety
    /// Until [`wait`](Stream::wait) has returned nothing may be dropped or moved that the product uses, its output may not be
    /// looked at, and its inputs may not be changed; other work on this stream may do so.
    pub unsafe fn gemm(&mut self, gemm: &Gemm<'_>) -> Result<()> {
        gemm::submit(self.library(), self.as_raw(), gemm)
    }

    /// Submits what is recorded; does not wait.
    pub fn flush(&mut self) -> Result<()> {
        // SAFETY: the stream is alive.
        self.library().call(|api, err| unsafe { (api.stream_flush)(self.as_raw(), err) })
    }

    /// Calls `done` once when the work given so far has ended, with [`Status::OK`] or the failure of the device: at once on a CPU,
    /// else on a thread of the driver. It must not call the library, and it runs even if the stream is dropped before.
    pub fn notify(&mut self, done: impl FnOnce(Status) + Send + 'static) -> Result<()> {
        let user = Box::into_raw(Box::new(Box::new(done) as Done));
        // SAFETY: the stream is alive, and stream_done() takes the box back.
        let told = self
            .library()
            .call(|api, err| unsafe { (api.stream_notify)(self.as_raw(), Some(callback::stream_done), user.cast(), err) });
        if told.is_err() {
            // SAFETY: nobody else has the box.
            drop(unsafe { Box::from_raw(user) });
        }
        told
    }

    /// Waits until the work given so far is done. False when it was not in time.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the stream is alive.
        match self.library().call(|api, err| unsafe { (api.stream_wait)(self.as_raw(), nanoseconds, err) }) {
            Ok(()) => Ok(true),
            Err(e) if e.status() == Status::TIMEOUT => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Compiles and reserves for these products with up to `max_rows` rows of A, or tokens of experts, so that later
    /// calls neither allocate nor compile. Returns how many bytes a host's own scratch must hold.
    pub fn prepare(&mut self, products: &[&Gemm<'_>], max_rows: usize) -> Result<u64> {
        gemm::prepare_on(self.library(), self.as_raw(), products, max_rows)
    }

    /// The handle, for what this crate has no words for. It stays this stream's.
    pub fn as_raw(&self) -> *mut sys::marlin_stream {
        self.handle.raw()
    }
}

shown!(Stream, |this, f| f.debug_tuple("Stream").field(&this.as_raw()).finish());

/// Where work is given to a [`Stream`]: see [`Stream::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    stream: &'scope Stream,
    // Both lifetimes must be exactly these, as in std::thread::scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Memory that the work of this scope both writes and reads: the result of one product as the input of the next. It can be
    /// used any number of times, by work given to this scope only; elsewhere it is [`Status::ARGUMENT`].
    pub fn share<T: Element>(&'scope self, matrix: MatrixMut<'scope, T>) -> Shared<'scope, T> {
        let mut bound = matrix.bound;
        bound.add(Bound::to_stream(self.stream.as_raw()));
        Shared { raw: *matrix.as_raw(), bound, memory: PhantomData }
    }

    /// C = f(A W^T + bias) (+ C), after the work that was given before.
    pub fn gemm(&'scope self, product: Gemm<'scope>) -> Result<()> {
        gemm::submit(self.stream.library(), self.stream.as_raw(), &product)
    }

    /// Independent products in one submission. All are checked before any is done.
    pub fn gemm_many(&'scope self, products: impl IntoIterator<Item = Gemm<'scope>>) -> Result<()> {
        let products: Vec<_> = products.into_iter().collect();
        gemm::submit_many(self.stream.library(), self.stream.as_raw(), &products.iter().collect::<Vec<_>>())
    }

    /// Decodes rows of `weights` from `first_row` on, as [`Weights::unpack`] does.
    pub fn unpack(&'scope self, weights: &'scope Weights, first_row: usize, out: impl Into<Output<'scope>>) -> Result<()> {
        weights.library().check_same(self.stream.library(), "the stream")?;
        weights.unpack_on(self.stream.as_raw(), None, first_row, out.into())
    }

    /// Decodes the rows of these numbers, as [`Weights::unpack_rows`] does.
    pub fn unpack_rows(
        &'scope self,
        weights: &'scope Weights,
        rows: &'scope [i32],
        out: impl Into<Output<'scope>>,
    ) -> Result<()> {
        weights.library().check_same(self.stream.library(), "the stream")?;
        weights.unpack_on(self.stream.as_raw(), Some(rows), 0, out.into())
    }

    /// Submits what is recorded; does not wait.
    pub fn flush(&'scope self) -> Result<()> {
        let stream = self.stream;
        // SAFETY: the stream is alive, and this thread has it.
        stream.library().call(|api, err| unsafe { (api.stream_flush)(stream.as_raw(), err) })
    }
}

shown!(Scope<'_, '_>, |this, f| f.debug_tuple("Scope").field(this.stream).finish());

/// Memory that the work of one scope both writes and reads: see [`Scope::share`].
pub struct Shared<'scope, T> {
    raw: sys::marlin_matrix,
    bound: Bound,
    memory: PhantomData<&'scope mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

shown!(Shared<'_, T> where [T: Element], |this, f| write!(f, "Shared([{}, {}] of {})", this.raw.rows, this.raw.cols, T::DTYPE));

impl<'scope, T: Element> From<Shared<'scope, T>> for Input<'scope> {
    fn from(shared: Shared<'scope, T>) -> Self {
        Input { raw: shared.raw, bound: shared.bound, memory: PhantomData }
    }
}

impl<'scope, T: Element> From<Shared<'scope, T>> for Output<'scope> {
    fn from(shared: Shared<'scope, T>) -> Self {
        Output { raw: shared.raw, bound: shared.bound, memory: PhantomData }
    }
}
