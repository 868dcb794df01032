//! Streams, scopes and buffers.

mod common;
use common::*;
use metal_marlin::*;
use std::time::Duration;

#[test]
fn a_chain_of_products_in_one_scope() {
    let context = context();
    let (up, down) = (quantized(&context, Format::INT4, 128, 64), quantized(&context, Format::MXFP4, 32, 128));
    let x = numbers(3 * 64, 1);
    let (mut hidden, mut y) = (vec![0.0f32; 3 * 128], vec![0.0f32; 3 * 32]);
    let mut stream = context.stream().unwrap();
    let answer = stream
        .scope(|s| {
            let hidden = s.share(MatrixMut::new(&mut hidden, 3, 128)?);
            s.gemm(Gemm::new(&up, Matrix::new(&x, 3, 64)?, hidden))?;
            s.flush()?;
            s.gemm(Gemm::new(&down, hidden, MatrixMut::new(&mut y, 3, 32)?))?;
            Ok(42)
        })
        .unwrap();
    assert_eq!(answer, 42);
    assert_close(&hidden, &product(&x, &values(&up), 64), SUM_ERROR);
    assert_close(&y, &product(&hidden, &values(&down), 128), SUM_ERROR);
    assert!(stream.wait(Duration::from_secs(0)).unwrap());
    stream.flush().unwrap();
}

#[test]
fn decoding_and_many_products_in_a_scope() {
    let context = context();
    let weights = quantized(&context, Format::INT8, 64, 64);
    let (mut row, mut rows, mut y, mut z) = ([0.0f32; 64], [0.0f32; 128], [0.0f32; 64], [0.0f32; 64]);
    context
        .stream()
        .unwrap()
        .scope(|s| {
            let row = s.share(MatrixMut::row(&mut row));
            s.unpack(&weights, 5, row)?;
            s.unpack_rows(&weights, &[1, 2], MatrixMut::new(&mut rows, 2, 64)?)?;
            s.gemm_many([Gemm::new(&weights, row, MatrixMut::row(&mut y)), Gemm::new(&weights, row, MatrixMut::row(&mut z))])
        })
        .unwrap();
    let all = values(&weights);
    assert_eq!(row, all[5 * 64..6 * 64]);
    assert_eq!(rows, all[64..3 * 64]);
    assert_eq!(y, z);
    assert_close(&y, &product(&row, &all, 64), SUM_ERROR);
}

#[test]
fn what_is_shared_stays_in_its_scope() {
    let context = context();
    let weights = quantized(&context, Format::MXFP4, 64, 64);
    let (x, mut a, mut b, mut y) = ([0.0f32; 64], [0.0f32; 64], [0.0f32; 64], [0.0f32; 64]);
    let (mut first, mut second) = (context.stream().unwrap(), context.stream().unwrap());
    const WORDS: &str = "shared in the scope of a stream";
    first
        .scope(|s| {
            let a = s.share(MatrixMut::row(&mut a));
            assert_fails(Gemm::new(&weights, Matrix::row(&x), a).run(), Status::ARGUMENT, WORDS);
            assert_fails(weights.unpack(0, a), Status::ARGUMENT, WORDS);
            second.scope(|t| {
                let b = t.share(MatrixMut::row(&mut b));
                assert_fails(t.gemm(Gemm::new(&weights, a, b)), Status::ARGUMENT, WORDS);
                assert_fails(t.unpack(&weights, 0, a), Status::ARGUMENT, WORDS);
                let c = Pack::codes(Format::INT8, 1, 64, a, Matrix::row(&x));
                assert_fails(c.pack(&context), Status::ARGUMENT, WORDS);
                Ok(())
            })?;
            // The library sees to it that products of one submission are independent, and that none reads what it writes.
            assert_fails(s.gemm(Gemm::new(&weights, a, a)), Status::ARGUMENT, "overlaps");
            let y = s.share(MatrixMut::row(&mut y));
            let dependent = [Gemm::new(&weights, Matrix::row(&x), a), Gemm::new(&weights, a, y)];
            assert_fails(s.gemm_many(dependent), Status::ARGUMENT, "independent");
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_scope_waits_when_its_work_fails_or_panics() {
    let context = context();
    let weights = quantized(&context, Format::MXFP4, 32, 64);
    let mut stream = context.stream().unwrap();
    let mut y = [0.0f32; 32];
    let failed = stream.scope(|s| {
        s.gemm(Gemm::new(&weights, Matrix::row(&[1.0f32; 64]), MatrixMut::row(&mut y)))?;
        s.gemm(Gemm::new(&weights, Matrix::row(&[1.0f32; 63]), MatrixMut::row(&mut [0.0f32; 0])))
    });
    assert_fails(failed, Status::SHAPE, "63");
    assert_close(&y, &product(&[1.0; 64], &values(&weights), 64), SUM_ERROR);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stream.scope(|s| -> Result<()> {
            s.flush()?;
            panic!("in the scope")
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in the scope"));
    stream.scope(|_| Ok(())).unwrap();
}

#[test]
fn buffers_as_operands() {
    let context = context();
    let weights = quantized(&context, Format::NVFP4, 16, 64);
    let mut input = context.buffer(4 + 2 * 64 * 4).unwrap();
    assert_eq!(input.len(), 516);
    assert!(input.as_slice::<u8>().iter().all(|&byte| byte == 0));
    let a = numbers(2 * 64, 4);
    input.as_mut_slice::<f32>()[1..].copy_from_slice(&a);
    let mut output = context.buffer(2 * 16 * 4).unwrap();
    let (from, to) = (input.matrix::<f32>(4, 2, 64).unwrap(), output.matrix_mut::<f32>(0, 2, 16).unwrap());
    Gemm::new(&weights, from, to).run().unwrap();
    assert_close(output.as_slice(), &product(&a, &values(&weights), 64), SUM_ERROR);

    assert_fails(input.matrix::<f32>(8, 2, 64), Status::SHAPE, "does not fit");
    assert_fails(input.matrix::<f32>(517, 0, 0), Status::SHAPE, "outside");
    assert_fails(input.matrix_mut::<f32>(0, usize::MAX, usize::MAX), Status::SHAPE, "does not fit");
    assert_fails(context.buffer(0), Status::ARGUMENT, "bytes is 0");
    assert_fails(context.buffer(usize::MAX), Status::MEMORY, "");
    let odd = input.matrix::<f32>(2, 1, 64).unwrap();
    let mut y = [0.0f32; 16];
    assert_fails(Gemm::new(&weights, odd, MatrixMut::row(&mut y)).run(), Status::ARGUMENT, "multiple of its element");
}

#[test]
fn prepared_work_in_the_hosts_scratch() {
    let context = context();
    let weights = quantized(&context, Format::INT4, 64, 256);
    let (a, mut c) = (numbers(8 * 256, 2), vec![0.0f32; 8 * 64]);
    fn product_of<'a>(weights: &'a Weights, a: Matrix<'a, f32>, c: &'a mut [f32]) -> Gemm<'a> {
        Gemm::new(weights, a, MatrixMut::new(c, 8, 64).unwrap()).compute(Compute::INT8)
    }
    let a = Matrix::new(&a, 8, 256).unwrap();
    let bytes = {
        let gemm = product_of(&weights, a, &mut c);
        let mut stream = context.stream().unwrap();
        assert_fails(stream.prepare(&[&gemm], usize::MAX), Status::SHAPE, "max_m");
        stream.prepare(&[&gemm], 8).unwrap()
    };
    assert!(bytes > 0);
    let mut small = Stream::with_scratch(&context, context.buffer(64).unwrap()).unwrap();
    let none = small.scope(|s| s.gemm(product_of(&weights, a, &mut c)));
    assert_fails(none, Status::NOT_PREPARED, "holds 64 bytes");
    let scratch = context.buffer(bytes as usize).unwrap();
    let mut stream = Stream::with_scratch(&context, scratch).unwrap();
    stream.scope(|s| s.gemm(product_of(&weights, a, &mut c))).unwrap();
    assert!(c.iter().any(|&c| c != 0.0));
}

#[test]
fn unscoped_work_is_for_those_who_promise() {
    let context = context();
    let weights = quantized(&context, Format::MXFP4, 32, 64);
    let (x, mut y) = ([1.0f32; 64], [0.0f32; 32]);
    let mut stream = context.stream().unwrap();
    let gemm = Gemm::new(&weights, Matrix::row(&x), MatrixMut::row(&mut y));
    // SAFETY: nothing is touched before wait() has returned.
    unsafe { stream.gemm(&gemm) }.unwrap();
    assert!(stream.wait(Duration::MAX).unwrap());
    assert_close(&y, &product(&x, &values(&weights), 64), SUM_ERROR);
    // SAFETY: there is no such stream on this backend, which the library says before it looks at the pointer.
    let native = unsafe { Stream::from_native(&context, Native::CUDA_STREAM, std::ptr::null_mut()) };
    assert_fails(native, Status::ARGUMENT, "backend");
    // SAFETY: likewise, there is no such fence.
    let fenced = unsafe {
        Stream::between_fences(&context, Native::NONE, std::ptr::null_mut(), [std::ptr::NonNull::dangling().as_ptr(); 2])
    };
    assert_fails(fenced, Status::ARGUMENT, "update_fence");
}

#[test]
fn memory_of_a_cuda_device_is_for_its_backend() {
    let context = context();
    let weights = quantized(&context, Format::MXFP4, 32, 64);
    // An address that only a device could read.
    let (x, y) = (std::ptr::null::<F16>().wrapping_add(4096), std::ptr::null_mut::<f32>().wrapping_add(1 << 20));
    // SAFETY: no work uses them, because this backend refuses them.
    let (a, c) = unsafe { (Matrix::on_cuda(x, 2, 64, 80).unwrap(), MatrixMut::on_cuda(y, 2, 32, 32).unwrap()) };
    let raw = *a.as_raw();
    assert_eq!((raw.data as *const F16, raw.memory), (x, sys::MARLIN_MEM_CUDA));
    assert_eq!((raw.rows, raw.cols, raw.row_stride, raw.dtype), (2, 64, 80, Dtype::F16.0));
    assert_eq!(c.as_raw().memory, sys::MARLIN_MEM_CUDA);
    assert_fails(Gemm::new(&weights, a, c).run(), Status::ARGUMENT, "memory");
    // SAFETY: likewise.
    unsafe {
        assert_fails(Matrix::on_cuda(x, 2, 64, 63), Status::SHAPE, "does not fit a stride of 63");
        assert_fails(MatrixMut::on_cuda(y, usize::MAX, 32, 32), Status::SHAPE, "does not fit");
    }
}
