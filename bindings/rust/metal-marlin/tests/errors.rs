//! What goes wrong is a value that says what, and threads.

mod common;
use common::*;
use metal_marlin::*;
use std::error::Error as _;

#[test]
fn an_error_tells_its_status_code_and_source() {
    let error = library().open("/nonexistent/model.gguf").unwrap_err();
    assert_eq!((error.status(), error.native_code()), (Status::FILE, 2));
    let source = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), format!("MARLIN_E_FILE: {}", error.message()));
    assert!(error.message().contains("/nonexistent/model.gguf"));
    let error = context().buffer(0).unwrap_err();
    assert!(error.source().is_none() && error.native_code() == 0);
}

#[test]
fn statuses_have_the_names_of_the_header() {
    for value in -100..=0 {
        let name = format!("{:?}", Status(value));
        if !name.starts_with("marlin_status(") {
            assert!(name == "MARLIN_OK" || name.starts_with("MARLIN_E_"), "{name}");
        }
        #[cfg(feature = "link")]
        {
            // SAFETY: it takes any number and returns static text.
            let theirs = unsafe { std::ffi::CStr::from_ptr(sys::marlin_status_name(value)) }.to_str().unwrap();
            assert_eq!(name.starts_with("MARLIN_"), theirs == name, "{name}, {theirs}");
        }
    }
    assert_eq!(format!("{:?} {}", Status(-77), Format(123)), "marlin_status(-77) marlin_format(123)");
}

/// As a program prints them that does not care: `main` shows what it returns with `{:?}`.
#[test]
fn errors_and_constants_read_well() {
    let error = library().open("/nonexistent/model.gguf").unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    let boxed: Box<dyn std::error::Error> = Box::new(error);
    assert!(format!("{boxed:?}").starts_with("MARLIN_E_FILE: /nonexistent/model.gguf"), "{boxed:?}");
    assert_eq!(format!("{} {:?}", Format::INT4, Format::INT4), "int4 INT4");
    assert_eq!(format!("{} {} {}", Dtype::BF16, Backend::CPU, Layout::GPTQ_V1), "bf16 cpu gptq-v1");
    assert_eq!(format!("[{:>6}] {:?}", Format::FP4, Format(123)), "[   fp4] marlin_format(123)");
    let file = open("gptq-v1-sym-g128");
    let info = file.layers().next().unwrap().unwrap();
    assert!(format!("{info:?}").contains("format: INT4"), "{info:?}");
}

#[test]
fn slices_that_do_not_hold_their_matrix() {
    let data = [0.0f32; 12];
    let fails = |result: Result<Matrix<'_, f32>>| assert_fails(result, Status::SHAPE, "slice of 12");
    fails(Matrix::new(&data, 3, 5));
    fails(Matrix::new(&data, 2, 5)); // the slice may not be longer either
    fails(Matrix::new(&data, usize::MAX, usize::MAX));
    fails(Matrix::new(&data, 1 << 63, 2));
    fails(Matrix::with_stride(&data, 3, 4, 5));
    fails(Matrix::with_stride(&data, usize::MAX, 4, 5));
    assert_fails(Matrix::with_stride(&data, 2, 4, 3), Status::SHAPE, "stride of 3");
    assert_fails(MatrixMut::new(&mut [0i8; 3], 2, 2), Status::SHAPE, "slice of 3");
    assert_fails(MatrixMut::with_stride(&mut [0i8; 3], 2, 2, 2), Status::SHAPE, "slice of 3");
    assert_fails(Matrix::with_stride(&[U4x2(0); 4], 1, 3, 8), Status::SHAPE, "multiples of 2");
    assert_fails(Matrix::new(&[U4x2(0); 4], 1, 4), Status::SHAPE, "slice of 8");
    let last = Matrix::with_stride(&data, 3, 2, 5).unwrap(); // 5 + 5 + 2
    assert_eq!((last.rows(), last.cols()), (3, 2));
    assert_eq!(Matrix::new(&data[..0], 0, 7).unwrap().rows(), 0);
    assert_eq!(format!("{last:?}"), "Matrix([3, 2] of f32)");
}

#[test]
fn operands_that_do_not_fit() {
    let context = context();
    let weights = quantized(&context, Format::MXFP4, 32, 64);
    let x = [0.0f32; 64];
    let product = |a, c: &mut [f32]| Gemm::new(&weights, a, MatrixMut::row(c)).run();
    let x_row = Matrix::row(&x);
    assert_fails(product(Matrix::row(&x[..63]), &mut [0.0; 32]), Status::SHAPE, "63");
    assert_fails(product(x_row, &mut [0.0; 31]), Status::SHAPE, "31");
    assert!(product(Matrix::new(&x[..0], 0, 64).unwrap(), &mut []).is_err()); // one row of nothing is no [0, 32]
    let mut c = [0.0f32; 32];
    Gemm::new(&weights, Matrix::new(&x[..0], 0, 64).unwrap(), MatrixMut::new(&mut c[..0], 0, 32).unwrap()).run().unwrap();
    let bias = Gemm::new(&weights, x_row, MatrixMut::row(&mut c)).bias(Matrix::row(&x)).run();
    assert_fails(bias, Status::SHAPE, "bias");
    let compute = Gemm::new(&weights, x_row, MatrixMut::row(&mut c)).compute(Compute(77)).run();
    assert_fails(compute, Status::ARGUMENT, "77");
    assert_fails(weights.unpack(32, MatrixMut::row(&mut [0.0f32; 64])), Status::ARGUMENT, "32");
    assert_fails(weights.unpack(usize::MAX, MatrixMut::row(&mut [0.0f32; 64])), Status::ARGUMENT, "");
    assert_fails(weights.unpack(0, MatrixMut::row(&mut [0i32; 64])), Status::ARGUMENT, "");

    assert_fails(Weights::pack(&context, &[]), Status::ARGUMENT, "no parts");
    assert_fails(Pack::floats(Format(55), x_row).pack(&context), Status::ARGUMENT, "55");
    assert_fails(library().context().backend(Backend(9)).build(), Status::ARGUMENT, "9");
    assert_fails(library().context().backend(Backend::CUDA).build(), Status::NO_DEVICE, "");
    assert_fails(Weights::load(&context, &open("ct-mxfp4"), "none"), Status::NOT_FOUND, "none");
    assert_fails(Weights::load(&context, &open("ct-mxfp4"), "no\0ne"), Status::ARGUMENT, "NUL");
    assert_fails(Load::new(&open("ct-mxfp4")).load(&context), Status::ARGUMENT, "");
}

#[test]
fn products_of_two_contexts_are_refused() {
    let (one, other) = (quantized(&context(), Format::MXFP4, 4, 64), quantized(&context(), Format::MXFP4, 4, 64));
    let (x, mut y, mut z) = ([0.0f32; 64], [0.0f32; 4], [0.0f32; 4]);
    let x = Matrix::row(&x);
    let mut products = [Gemm::new(&one, x, MatrixMut::row(&mut y)), Gemm::new(&other, x, MatrixMut::row(&mut z))];
    assert_fails(prepare(&products.iter().collect::<Vec<_>>(), 1), Status::ARGUMENT, "context");
    assert_fails(gemm_many(&mut products), Status::ARGUMENT, "context");
}

#[test]
fn devices_are_listed() {
    let devices = library().devices().unwrap();
    let cpu = devices.iter().find(|device| device.backend == Backend::CPU).unwrap();
    assert!(cpu.why_not.is_none() && !cpu.name.is_empty() && cpu.memory_bytes > 0, "{cpu:?}");
    assert!(devices.iter().all(|device| (device.threads > 0) == (device.backend == Backend::CPU)), "{devices:?}");
    assert!(devices.iter().filter(|device| device.why_not.is_some()).all(|device| device.backend != Backend::CPU));
    let version = library().version();
    assert_eq!(version, (sys::MARLIN_VERSION_MAJOR, sys::MARLIN_VERSION_MINOR, sys::MARLIN_VERSION_PATCH));
}

#[test]
fn what_may_cross_threads_may() {
    fn both<T: Send + Sync>() {}
    fn send<T: Send>() {}
    both::<(Context, Weights, Checkpoint, Buffer, Library, Error)>();
    both::<(Matrix<'_, f32>, MatrixMut<'_, F16>, Tensor<'_>)>();
    send::<Stream>();
}

#[test]
fn threads_share_weights() {
    let weights = quantized(&context(), Format::INT4, 48, 128);
    let expected: Vec<_> = (0..8).map(|seed| product(&numbers(128, seed), &values(&weights), 128)).collect();
    std::thread::scope(|scope| {
        for (seed, expected) in expected.iter().enumerate() {
            let weights = &weights;
            scope.spawn(move || {
                let mut stream = weights.context().stream().unwrap();
                let x = numbers(128, seed as u64);
                for round in 0..50 {
                    let mut y = [0.0f32; 48];
                    if round % 2 == 0 {
                        Gemm::new(weights, Matrix::row(&x), MatrixMut::row(&mut y)).run().unwrap();
                    } else {
                        stream.scope(|s| s.gemm(Gemm::new(weights, Matrix::row(&x), MatrixMut::row(&mut y)))).unwrap();
                    }
                    assert_close(&y, expected, SUM_ERROR);
                }
                stream // moves to the thread that joins
            });
        }
    });
}
