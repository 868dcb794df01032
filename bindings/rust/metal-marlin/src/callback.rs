//! What the library calls back: closures behind C functions, which never let a panic out and never let the library in.
#![allow(clippy::declare_interior_mutable_const)] // clippy 1.63 takes what thread_local! makes for such a constant

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_void, CStr};
use std::ops::ControlFlow;
use std::os::raw::c_char;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use metal_marlin_sys as sys;

use crate::{Error, LogLevel, Result, Status};

thread_local! {
    /// How many callbacks this thread is inside of.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread is inside a call of the library that will look at PANIC afterwards.
    static CALLING: Cell<bool> = const { Cell::new(false) };
    /// The first panic of a callback in that call.
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
}

/// Whether this thread runs a callback: then the library must not be called.
pub(crate) fn inside() -> bool {
    INSIDE.with(Cell::get) != 0
}

/// Runs a call of the library. The caller has to call `resume_panic` afterwards.
pub(crate) fn calling<R>(call: impl FnOnce() -> R) -> Result<R> {
    if inside() {
        return Err(Error::new(Status::ARGUMENT, "the library was called by one of its own callbacks"));
    }
    CALLING.with(|calling| calling.set(true));
    let result = call();
    CALLING.with(|calling| calling.set(false));
    Ok(result)
}

/// Goes on with the panic of a callback that ran on this thread during the last call.
pub(crate) fn resume_panic() {
    let panic = PANIC.with(|panic| panic.borrow_mut().take());
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// Loses the panic of a callback that ran on this thread during the last call.
pub(crate) fn forget_panic() {
    std::mem::forget(PANIC.with(|panic| panic.borrow_mut().take()));
}

/// Runs a callback's body. A panic ends here: it goes on when the call that this thread is in has returned, and is lost on
/// threads that are in none.
pub(crate) fn guarded<R>(when_it_panics: R, body: impl FnOnce() -> R) -> R {
    INSIDE.with(|inside| inside.set(inside.get() + 1));
    let result = catch_unwind(AssertUnwindSafe(body));
    INSIDE.with(|inside| inside.set(inside.get() - 1));
    result.unwrap_or_else(|panic| {
        if CALLING.with(Cell::get) {
            let earlier = PANIC.with(|first| {
                let mut first = first.borrow_mut();
                match *first {
                    Some(_) => Some(panic),
                    None => first.replace(panic),
                }
            });
            std::mem::forget(earlier); // its drop may panic too
        } else {
            std::mem::forget(panic);
        }
        when_it_panics
    })
}

/// Asks a host how to go on: what the library's C functions for progress return. A panic cancels, too.
pub(crate) fn cancels<H>(host: &mut Option<H>, ask: impl FnOnce(&mut H) -> ControlFlow<()>) -> i32 {
    let cancelled = 1;
    guarded(cancelled, || match host.as_mut().map(ask) {
        Some(ControlFlow::Break(())) => cancelled,
        _ => 0,
    })
}

/// A step of work that is done: on the CPU of a product, on a GPU a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step<'a> {
    /// As [`Gemm::explain`](crate::Gemm::explain) names it.
    pub kernel: &'a str,
    /// "multiply", "prepare A", ...
    pub step: &'a str,
    /// When it began, in nanoseconds of the host's monotonic clock.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What the device's own clock says that it took; 0: unknown, as on the CPU.
    pub device_ns: u64,
    /// So many steps have these times, which are those of all of them; 1: it is timed alone.
    pub together: u32,
    /// The rows of the product that it works on.
    pub rows: i64,
    /// Of its weights.
    pub n: i64,
    /// Of its weights.
    pub k: i64,
    /// The [`Stream::as_raw`](crate::Stream::as_raw) that it ran on; NULL: a call without one.
    pub stream: *const sys::marlin_stream,
}

/// The host's memory for weights, buffers and scratch.
///
/// # Safety
/// `alloc` returns NULL or memory of that size and alignment that nobody else uses until it comes back by `release`.
pub unsafe trait Memory: Send + Sync {
    /// `align` is a power of two. NULL: there is no memory, which the caller of the library sees as [`Status::MEMORY`].
    fn alloc(&self, size: usize, align: usize) -> *mut u8;

    /// Takes back what `alloc` gave.
    ///
    /// # Safety
    /// `memory` is of `alloc` with this size, and comes once.
    unsafe fn release(&self, memory: *mut u8, size: usize);
}

type TaskFunction = unsafe extern "C" fn(*mut c_void, u32);

/// Tasks to be shared among threads, for a host that brings its own. Each runs once, whoever comes first, and all have run when
/// the host's function returns: what it leaves undone is done then, on the calling thread.
pub struct Tasks {
    count: u32,
    next: AtomicUsize,
    function: TaskFunction,
    user: *mut c_void,
}

// SAFETY: the library's tasks may run on any threads at once, and the counter gives each to one.
unsafe impl Sync for Tasks {}

impl Tasks {
    /// How many there were at the start.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Runs one task that nobody has begun. False when there is none.
    pub fn run_one(&self) -> bool {
        // The check keeps the counter from ever wrapping.
        if self.next.load(Ordering::Relaxed) >= self.count() {
            return false;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= self.count() {
            return false;
        }
        // SAFETY: `index` is below the count and was drawn once. No borrow of self outlives the library's call.
        unsafe { (self.function)(self.user, index as u32) };
        true
    }

    /// Runs tasks until none is left to begin. To be called by each thread that takes part.
    pub fn run(&self) {
        while self.run_one() {}
    }
}

shown!(Tasks, |this, f| f.debug_struct("Tasks").field("count", &this.count).finish_non_exhaustive());

/// Hands the library's tasks to a host's function, and makes up for what that leaves undone.
pub(crate) unsafe fn parallel_for(host: &(dyn Fn(&Tasks) + '_), count: u32, function: Option<TaskFunction>, user: *mut c_void) {
    let function = match function {
        Some(function) => function,
        None => return,
    };
    let tasks = Tasks { count, next: AtomicUsize::new(0), function, user };
    guarded((), || host(&tasks));
    tasks.run();
}

pub(crate) unsafe fn log(host: &(dyn Fn(LogLevel, &str) + '_), level: i32, message: *const c_char) {
    guarded((), || host(LogLevel(level), &CStr::from_ptr(message).to_string_lossy()));
}

type Log = dyn Fn(LogLevel, &str) + Send + Sync;
type Trace = dyn Fn(&Step<'_>) + Send + Sync;
type ParallelFor = dyn Fn(&Tasks) + Send + Sync;

/// A context's callbacks, at an address of their own for as long as the context lives.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub log: Option<Box<Log>>,
    pub trace: Option<Box<Trace>>,
    pub parallel_for: Option<Box<ParallelFor>>,
    pub memory: Option<Box<dyn Memory>>,
}

// The C functions for a context: `user` is its `Callbacks`, and each is given to the library only when its closure is there.

pub(crate) unsafe extern "C" fn context_log(user: *mut c_void, level: i32, message: *const c_char) {
    if let Some(host) = &(*user.cast::<Callbacks>()).log {
        log(host, level, message);
    }
}

pub(crate) unsafe extern "C" fn context_trace(user: *mut c_void, event: *const sys::marlin_trace_event) {
    if let Some(host) = &(*user.cast::<Callbacks>()).trace {
        guarded((), || host(&step_of(&*event)));
    }
}

unsafe fn step_of(event: &sys::marlin_trace_event) -> Step<'_> {
    Step {
        kernel: CStr::from_ptr(event.kernel).to_str().unwrap_or_default(),
        step: CStr::from_ptr(event.step).to_str().unwrap_or_default(),
        begin_ns: event.begin_ns,
        end_ns: event.end_ns,
        device_ns: event.device_ns,
        together: event.together,
        rows: event.rows,
        n: event.n,
        k: event.k,
        stream: event.stream,
    }
}

/// What [`Stream::notify`](crate::Stream::notify) waits for.
pub(crate) type Done = Box<dyn FnOnce(Status) + Send>;

/// `user` is a `Box<Done>`, which comes once.
pub(crate) unsafe extern "C" fn stream_done(user: *mut c_void, status: i32) {
    let done = Box::from_raw(user.cast::<Done>());
    guarded((), || done(Status(status)));
}

pub(crate) unsafe extern "C" fn context_parallel_for(
    user: *mut c_void,
    count: u32,
    function: Option<TaskFunction>,
    task_user: *mut c_void,
) {
    if let Some(host) = &(*user.cast::<Callbacks>()).parallel_for {
        parallel_for(host, count, function, task_user);
    }
}

pub(crate) unsafe extern "C" fn context_alloc(user: *mut c_void, size: usize, align: usize) -> *mut c_void {
    let memory = &(*user.cast::<Callbacks>()).memory;
    guarded(ptr::null_mut(), || memory.as_ref().map_or(ptr::null_mut(), |host| host.alloc(size, align).cast()))
}

pub(crate) unsafe extern "C" fn context_release(user: *mut c_void, at: *mut c_void, size: usize) {
    if let Some(host) = &(*user.cast::<Callbacks>()).memory {
        guarded((), || host.release(at.cast(), size));
    }
}
