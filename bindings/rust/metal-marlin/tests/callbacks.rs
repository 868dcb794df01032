//! Closures that the library calls.

mod common;
use common::*;
use metal_marlin::*;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn check(weights: &Weights) {
    let (n, k) = (weights.info().unwrap().n, weights.info().unwrap().k);
    let (x, mut y) = (numbers(4 * k, 1), vec![0.0f32; 4 * n]);
    let (x_view, y_view) = (Matrix::new(&x, 4, k).unwrap(), MatrixMut::new(&mut y, 4, n).unwrap());
    Gemm::new(weights, x_view, y_view).run().unwrap();
    assert_close(&y, &product(&x, &values(weights), k), SUM_ERROR);
}

#[test]
fn the_hosts_threads() {
    let tasks_seen = Arc::new(AtomicUsize::new(0));
    let seen = tasks_seen.clone();
    let several = library().context().threads(4).parallel_for(move |tasks| {
        seen.fetch_add(tasks.count(), Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| while tasks.run_one() {});
            }
        });
        assert!(!tasks.run_one());
    });
    check(&quantized(&several.build().unwrap(), Format::MXFP4, 300, 512));
    assert!(tasks_seen.load(Ordering::Relaxed) > 0);
    // What the host leaves undone is made up for.
    let idle = library().context().threads(4).parallel_for(|_| ()).build().unwrap();
    check(&quantized(&idle, Format::MXFP4, 300, 512));
}

#[test]
fn a_panic_goes_on_after_the_call_and_the_context_stays_usable() {
    let left = AtomicUsize::new(1);
    let context = library()
        .context()
        .threads(4)
        .parallel_for(move |tasks| {
            tasks.run_one();
            if left.swap(0, Ordering::Relaxed) == 1 {
                panic!("in parallel_for");
            }
        })
        .build()
        .unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| quantized(&context, Format::MXFP4, 300, 512)));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in parallel_for"));
    check(&quantized(&context, Format::MXFP4, 300, 512));
}

/// Blocks by address, with their layout.
#[derive(Default)]
struct Counted {
    blocks: Arc<Mutex<HashMap<usize, std::alloc::Layout>>>,
    left: Arc<AtomicUsize>,
}

// SAFETY: the system's allocator.
unsafe impl Memory for Counted {
    fn alloc(&self, size: usize, align: usize) -> *mut u8 {
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            return std::ptr::null_mut();
        }
        let layout = std::alloc::Layout::from_size_align(size, align).unwrap();
        // SAFETY: the library asks for one byte or more.
        let block = unsafe { std::alloc::alloc(layout) };
        self.blocks.lock().unwrap().insert(block as usize, layout);
        block
    }

    unsafe fn release(&self, memory: *mut u8, size: usize) {
        let layout = self.blocks.lock().unwrap().remove(&(memory as usize)).unwrap();
        assert_eq!(layout.size(), size);
        std::alloc::dealloc(memory, layout);
    }
}

#[test]
fn the_hosts_memory() {
    let (blocks, left) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(AtomicUsize::new(usize::MAX)));
    let memory = Counted { blocks: blocks.clone(), left: left.clone() };
    let context = library().context().memory(memory).build().unwrap();
    let weights = quantized(&context, Format::INT8, 64, 64);
    assert!(!blocks.lock().unwrap().is_empty());
    left.store(0, Ordering::Relaxed);
    assert_fails(context.buffer(100), Status::MEMORY, "");
    left.store(usize::MAX, Ordering::Relaxed);
    drop(context); // the weights keep it
    check(&weights);
    drop(weights);
    assert!(blocks.lock().unwrap().is_empty());
}

#[test]
fn a_load_tells_how_far_it_is_and_stops_when_asked_or_by_a_panic() {
    let (context, file) = (context(), open("float-f32"));
    let layer = file.layers().next().unwrap().unwrap();
    let load = || Load::new(&file).layer(&layer.name).quantize(Format::MXFP4, 0);
    let mut told = Vec::new();
    let weights = load().progress(|done, total| {
        told.push((done, total));
        ControlFlow::Continue(())
    });
    check(&weights.load(&context).unwrap());
    let total = (layer.n * layer.k) as u64;
    assert_eq!((told.first(), told.last()), (Some(&(0, total)), Some(&(total, total))));

    let mut calls = 0;
    let stopped = load().progress(|_, _| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert_fails(stopped.load(&context), Status::CANCELLED, "");
    assert_eq!(calls, 1);

    let calls = AtomicUsize::new(0);
    let panics = load().progress(|_, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        panic!("in progress")
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| panics.load(&context)));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in progress"));
    assert_eq!(calls.into_inner(), 1);
    check(&load().load(&context).unwrap());
}

#[test]
fn callbacks_may_not_call_the_library() {
    let inner = context();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let lost = Mutex::new(Some(quantized(&inner, Format::MXFP4, 4, 64)));
    let outer = library()
        .context()
        .threads(2)
        .parallel_for(move |_| {
            seen.lock().unwrap().push(inner.buffer(64).map(drop));
            drop(lost.lock().unwrap().take()); // lost, as the documentation says, and harmless
        })
        .build()
        .unwrap();
    check(&quantized(&outer, Format::MXFP4, 300, 512));
    let attempts = std::mem::take(&mut *attempts.lock().unwrap());
    assert!(!attempts.is_empty());
    for attempt in attempts {
        assert_fails(attempt, Status::ARGUMENT, "by one of its own callbacks");
    }
}

#[test]
fn the_logger_hears_warnings() {
    // In a process of its own, because the environment is everybody's.
    if std::env::var_os("METAL_MARLIN_RUST_LOGGER").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_logger_hears_warnings"])
            .env("METAL_MARLIN_RUST_LOGGER", "1")
            .env("METAL_MARLIN_ISA", "no-such-isa")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = lines.clone();
    let context = library().context().log(move |level, text| heard.lock().unwrap().push((level, text.to_owned()))).build();
    assert!(context.is_ok());
    let lines = lines.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].0 == LogLevel::WARNING && lines[0].1.contains("no-such-isa"), "{lines:?}");
    let panicked = catch_unwind(|| library().context().log(|_, _| panic!("in log")).build());
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in log"));
}

#[test]
fn a_trace_hears_of_each_step() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let heard = steps.clone();
    let context = library()
        .context()
        .backend(Backend::CPU)
        .threads(1)
        .trace(move |step| {
            heard.lock().unwrap().push((step.step.to_owned(), step.rows, step.n, step.k, step.end_ns - step.begin_ns))
        })
        .build()
        .unwrap();
    check(&quantized(&context, Format::MXFP4, 32, 64));
    let steps = steps.lock().unwrap();
    let found: Vec<_> = steps.iter().map(|(step, _, n, k, _)| (step.as_str(), *n, *k)).collect();
    assert!(found.contains(&("prepare A", 32, 64)) && found.contains(&("multiply", 32, 64)), "{found:?}");
}

#[test]
fn the_end_of_work_is_told_once() {
    let context = library().context().backend(Backend::CPU).build().unwrap();
    let ended = Arc::new(Mutex::new(Vec::new()));
    let told = ended.clone();
    context.stream().unwrap().notify(move |status| told.lock().unwrap().push(status)).unwrap();
    assert_eq!(*ended.lock().unwrap(), [Status::OK]);
    assert_eq!(Arc::strong_count(&ended), 1, "the closure is gone");
}
