//! The library loaded at run time. LD_LIBRARY_PATH has to have it, or the linker's path.
#![cfg(all(feature = "load", unix))]

mod common;
use common::*;
use metal_marlin::*;

/// The library in a file of its own, so that the dynamic linker takes it for another one than that which is loaded.
#[cfg(target_os = "linux")]
fn second_copy() -> Library {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path =
        maps.lines().find_map(|line| line.find('/').map(|at| &line[at..]).filter(|path| path.contains("libmetal-marlin")));
    let copy = std::env::temp_dir().join(format!("libmetal-marlin-copy-{}.so", std::process::id()));
    std::fs::copy(path.unwrap(), &copy).unwrap();
    // SAFETY: it is the library.
    let library = unsafe { Library::load(&copy) }.unwrap();
    std::fs::remove_file(copy).unwrap();
    library
}

#[cfg(target_os = "linux")]
#[test]
fn a_loaded_library_serves_the_same_and_does_not_mix() {
    let ours = context(); // first: the dynamic linker would take the copy for what it looks for
    let other = second_copy();
    let weights = quantized(&other.context().build().unwrap(), Format::MXFP4, 8, 64);
    let (x, mut y) = (numbers(64, 1), [0.0f32; 8]);
    Gemm::new(&weights, Matrix::row(&x), MatrixMut::row(&mut y)).run().unwrap();
    assert_close(&y, &product(&x, &values(&weights), 64), SUM_ERROR);

    const WORDS: &str = "of another copy of the library";
    let mut buffer = ours.buffer(64 * 4).unwrap();
    let row = buffer.matrix::<f32>(0, 1, 64).unwrap();
    assert_fails(Gemm::new(&weights, row, MatrixMut::row(&mut y)).run(), Status::ARGUMENT, WORDS);
    assert_fails(Pack::floats(Format::MXFP4, row).pack(weights.context()), Status::ARGUMENT, WORDS);
    assert_fails(weights.unpack(0, buffer.matrix_mut::<f32>(0, 1, 64).unwrap()), Status::ARGUMENT, WORDS);
    let file = open("ct-mxfp4");
    assert_fails(Weights::load(weights.context(), &file, "model.layers.0.mlp.down_proj"), Status::ARGUMENT, WORDS);
    let (mut stream, mut w) = (ours.stream().unwrap(), [0.0f32; 64]);
    let mixed = stream.scope(|s| {
        assert_fails(s.unpack(&weights, 0, MatrixMut::row(&mut w)), Status::ARGUMENT, WORDS);
        s.gemm(Gemm::new(&weights, Matrix::row(&x), MatrixMut::row(&mut y)))
    });
    assert_fails(mixed, Status::ARGUMENT, WORDS);
    assert_fails(Stream::with_scratch(weights.context(), buffer), Status::ARGUMENT, WORDS);
    let linked = quantized(&ours, Format::MXFP4, 8, 64);
    let (mut a, mut b) = ([0.0f32; 8], [0.0f32; 8]);
    let (x, a, b) = (Matrix::row(&x), MatrixMut::row(&mut a), MatrixMut::row(&mut b));
    assert_fails(gemm_many(&mut [Gemm::new(&linked, x, a), Gemm::new(&weights, x, b)]), Status::ARGUMENT, WORDS);
}

#[test]
fn what_is_no_library() {
    // SAFETY: neither is loaded.
    let (none, text) = unsafe { (Library::load("/nonexistent/library.so"), Library::load(data("README.md"))) };
    assert_fails(none, Status::FILE, "/nonexistent/library.so");
    assert_fails(text, Status::FILE, "README.md");
    // SAFETY: the C library, which is loaded already.
    #[cfg(target_os = "linux")]
    assert_fails(unsafe { Library::load("libc.so.6") }, Status::UNSUPPORTED, "marlin_get_api");
    // SAFETY: a path with a NUL is none.
    assert_fails(unsafe { Library::load("a\0b") }, Status::ARGUMENT, "NUL");
}
