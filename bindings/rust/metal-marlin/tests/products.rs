//! Products against float64.

mod common;
use common::*;
use metal_marlin::*;

fn check<A: Float, C: Float>(format: Format, m: usize, to: impl Fn(f32) -> A, from: impl Fn(C) -> f32, zero: C, rounding: f64) {
    let (n, k) = (37, 96);
    let weights = quantized(&context(), format, n, k);
    let given: Vec<A> = numbers(m * k, 3).into_iter().map(to).collect();
    let mut c = vec![zero; m * n];
    Gemm::new(&weights, Matrix::new(&given, m, k).unwrap(), MatrixMut::new(&mut c, m, n).unwrap()).run().unwrap();
    // The activations as they were given, by a product with floats that are exact in all types.
    let found: Vec<f32> = c.into_iter().map(from).collect();
    let rounded: Vec<f32> = numbers(m * k, 3)
        .into_iter()
        .map(|x| match A::DTYPE {
            Dtype::F16 => F16::from_f32(x).to_f32(),
            Dtype::BF16 => Bf16::from_f32(x).to_f32(),
            _ => x,
        })
        .collect();
    assert_close(&found, &product(&rounded, &values(&weights), k), SUM_ERROR + rounding);
}

#[test]
fn every_type() {
    check(Format::INT4, 5, |x| x, |x: f32| x, 0.0, 0.0);
    check(Format::INT8, 1, F16::from_f32, F16::to_f32, F16(0), 1.0 / 2048.0);
    check(Format::MXFP4, 2, Bf16::from_f32, |x: f32| x, 0.0, 0.0);
    check(Format::FP4, 3, |x| x, Bf16::to_f32, Bf16(0), 1.0 / 256.0);
}

#[test]
fn codes_scales_and_zeros() {
    let (n, k) = (2, 64);
    let codes: Vec<U4x2> = (0..n * k / 2).map(|i| U4x2((i * 7 % 256) as u8)).collect();
    let (scales, zeros) = ([0.5f32, 2.0, 1.0, 0.25], [8u8, 3, 0, 15]);
    let weights = Pack::codes(Format::INT4, n, k, Matrix::new(&codes, n, k).unwrap(), Matrix::new(&scales, n, 2).unwrap())
        .group_size(32)
        .zeros(Matrix::new(&zeros, n, 2).unwrap())
        .pack(&context())
        .unwrap();
    let expected: Vec<f32> = (0..n * k)
        .map(|i| {
            let (row, column) = (i / k, i % k);
            let byte = codes[i / 2].0;
            let code = if column % 2 == 0 { byte & 15 } else { byte >> 4 };
            let group = row * 2 + column / 32;
            (f32::from(code) - f32::from(zeros[group])) * scales[group]
        })
        .collect();
    assert_eq!(values(&weights), expected);
    let info = weights.info().unwrap();
    assert_eq!((info.n, info.k, info.group_size, info.format), (n, k, 32, Format::INT4));
    assert!(info.flags.contains(LayerFlags::ZEROS));
    assert_eq!(info.name, "");
}

#[test]
fn blocks_of_two_levels() {
    // Q4_K: d = 0.5 and dmin = 0.25 as float16; 8 scales of 3 and 8 minima of 2, packed into 12 bytes; 256 codes.
    let mut block = [0u8; 144];
    block[..4].copy_from_slice(&[0x00, 0x38, 0x00, 0x34]);
    block[4..8].fill(3);
    block[8..12].fill(2);
    block[12..16].fill(3 | 2 << 4);
    block[16..].fill(0x77);
    let pack = |flags| Pack::blocks(Format::INT4, 1, 256, Matrix::row(&block), flags).pack(&context());
    let weights = pack(LayerFlags::ADDITIVE_ZEROS | LayerFlags::TWO_LEVEL_SCALES).unwrap();
    assert_eq!(values(&weights), [7.0 * 1.5 - 0.5; 256]);
    assert_eq!(pack(LayerFlags::TWO_LEVEL_SCALES).unwrap_err().status(), Status::UNSUPPORTED);
}

#[test]
fn other_scales_and_parts() {
    let codes = [U4x2(0x22); 16]; // e2m1 code 2: 1.0
    let one = |e| Pack::codes(Format::MXFP4, 1, 32, Matrix::row(&codes), Matrix::row(e));
    let (a, b) = ([E8m0(127)], [E8m0(130)]);
    let weights = Weights::pack(&context(), &[&one(&a), &one(&b)]).unwrap();
    assert_eq!(values(&weights), [[1.0f32; 32], [8.0; 32]].concat());

    let (scales, tensor) = ([E4m3(0x38), E4m3(0x40)], 3.0f32); // 1 and 2
    let weights = Pack::codes(Format::NVFP4, 1, 32, Matrix::row(&codes), Matrix::row(&scales)).tensor_scale(&tensor);
    assert_eq!(values(&weights.pack(&context()).unwrap()), [[3.0f32; 16], [6.0; 16]].concat());
    let two = 2.0f32;
    let weights = Pack::codes(Format::NVFP4, 1, 32, Matrix::row(&codes), Matrix::row(&scales)).tensor_divisor(&two);
    assert_eq!(values(&weights.pack(&context()).unwrap()), [[0.5f32; 16], [1.0; 16]].concat());

    let (bytes, scale, index) = ([-3i8; 64], [0.5f32, 2.0], (0..64).map(|k| 1 - k / 32).collect::<Vec<i32>>());
    let pack = Pack::codes(Format::INT8, 1, 64, Matrix::row(&bytes), Matrix::row(&scale)).group_size(32).group_index(&index);
    assert_eq!(values(&pack.pack(&context()).unwrap()), [[-6.0f32; 32], [-1.5; 32]].concat());

    let (zeros, nibbles) = ([10.0f32], [U4x2(0x31); 16]);
    let pack = Pack::codes(Format::INT4, 1, 32, Matrix::row(&nibbles), Matrix::row(&scale[..1])).group_size(32);
    let weights = pack.additive_zeros(Matrix::row(&zeros)).pack(&context()).unwrap();
    assert_eq!(values(&weights)[..2], [10.5, 11.5]);
}

#[test]
fn pruned() {
    let w = [1.0f32, 2.0, 3.0, 4.0].repeat(16);
    let norms = [9.0f32, 1.0, 1.0, 1.0].repeat(16);
    let floats = || Pack::floats(Format::FP4, Matrix::row(&w));
    let kept = |weights: Weights| values(&weights)[..4].iter().map(|w| *w != 0.0).collect::<Vec<_>>();
    assert_eq!(kept(floats().prune_2_4(None).pack(&context()).unwrap()), [false, false, true, true]);
    let weights = floats().prune_2_4(Some(&norms)).scales_mse().pack(&context()).unwrap();
    assert!((weights.info().unwrap().kept_share - 17.0 / 30.0).abs() < 1e-12);
    assert!(weights.info().unwrap().flags.contains(LayerFlags::SPARSE_2_4));
    assert_eq!(kept(weights), [true, false, false, true]);
    assert_fails(floats().obeys_2_4().pack(&context()), Status::FORMAT, "");
}

#[test]
fn strides_leave_the_gaps_alone() {
    let (m, n, k) = (3, 8, 64);
    let weights = quantized(&context(), Format::MXFP4, n, k);
    let a = numbers(m * 70, 1);
    let mut c = vec![-7.0f32; m * 10];
    let wide = Matrix::with_stride(&a, m, k, 70).unwrap();
    Gemm::new(&weights, wide, MatrixMut::with_stride(&mut c, m, n, 10).unwrap()).run().unwrap();
    let dense: Vec<f32> = a.chunks(70).flat_map(|row| row[..k].to_vec()).collect();
    let found: Vec<f32> = c.chunks(10).flat_map(|row| row[..n].to_vec()).collect();
    assert_close(&found, &product(&dense, &values(&weights), k), SUM_ERROR);
    assert!(c.chunks(10).all(|row| row[n..] == [-7.0; 2]));
}

#[test]
fn what_a_product_is_told() {
    let (m, n, k) = (2, 32, 64);
    let weights = quantized(&context(), Format::INT8, n, k);
    let (x, bias) = (numbers(m * k, 1), numbers(n, 2));
    let a = Matrix::new(&x, m, k).unwrap();
    let (mut plain, mut c) = (vec![0.0f32; m * n], vec![3.0f32; m * n]);
    Gemm::new(&weights, a, MatrixMut::new(&mut plain, m, n).unwrap()).run().unwrap();
    let mut view = MatrixMut::new(&mut c, m, n).unwrap();
    Gemm::new(&weights, a, view.reborrow()).bias(Matrix::row(&bias)).epilogue(Epilogue::SILU).accumulate(true).run().unwrap();
    for (i, found) in c.iter().enumerate() {
        let sum = plain[i] + bias[i % n];
        assert!((found - (3.0 + sum / (1.0 + (-sum).exp()))).abs() < 1e-4, "{i}: {found}");
    }
    let mut view = MatrixMut::new(&mut c, m, n).unwrap();
    Gemm::new(&weights, a, view.reborrow()).compute(Compute::INT8).run().unwrap();
    let of_rows = Gemm::new(&weights, a, view.reborrow()).compute(Compute::INT8).activation_group(k as i64).explain().unwrap();
    assert!(of_rows.contains("int8 with one scale per row"), "{of_rows}");
    let wide =
        |gemm: Gemm<'_>| gemm.epilogue(Epilogue::SWIGLU).gate_limit(2.0).up_limit(3.0).gate_alpha(1.5).up_offset(0.25).run();
    let mut halves = vec![0.0f32; m * n / 2];
    wide(Gemm::new(&weights, a, MatrixMut::new(&mut halves, m, n / 2).unwrap())).unwrap();
    for (i, found) in halves.iter().enumerate() {
        let (row, column) = (i / (n / 2), i % (n / 2));
        let gate = plain[row * n + column].min(2.0);
        let up = plain[row * n + n / 2 + column].clamp(-3.0, 3.0);
        assert!((found - gate / (1.0 + (-1.5 * gate).exp()) * (up + 0.25)).abs() < 1e-4, "{i}: {found}");
    }
    let text = Gemm::new(&weights, a, view).row_invariant(true).explain().unwrap();
    assert!(text.contains("row_invariant: the same bits for any M"));
    assert!(text.starts_with("kernel: ") && text.ends_with('\n') && !text.contains('\0'), "{text:?}");
    assert!(c != plain && c.iter().zip(&plain).all(|(rounded, exact)| (rounded - exact).abs() < 0.3), "activations of 8 bits");
    let wrong = Gemm::new(&weights, Matrix::row(&x[..k]), MatrixMut::row(&mut c[..n])).epilogue(Epilogue::SWIGLU).run();
    assert_fails(wrong, Status::SHAPE, "16");
}

#[test]
fn many_products_at_once() {
    let context = context();
    let weights: Vec<Weights> =
        [Format::INT4, Format::NVFP4].iter().map(|&format| quantized(&context, format, 24, 64)).collect();
    let a = numbers(2 * 64, 9);
    let mut results = vec![vec![0.0f32; 2 * 24]; weights.len()];
    let a_view = Matrix::new(&a, 2, 64).unwrap();
    let mut products: Vec<_> = weights
        .iter()
        .zip(&mut results)
        .map(|(weights, c)| Gemm::new(weights, a_view, MatrixMut::new(c, 2, 24).unwrap()))
        .collect();
    prepare(&products.iter().collect::<Vec<_>>(), 64).unwrap();
    prepare(&[], 1).unwrap();
    gemm_many(&mut products).unwrap();
    gemm_many(&mut []).unwrap();
    drop(products);
    for (weights, c) in weights.iter().zip(&results) {
        assert_close(c, &product(&a, &values(weights), 64), SUM_ERROR);
    }
}

#[test]
fn rows_by_number() {
    let weights = quantized(&context(), Format::NVFP4, 10, 48);
    let all = values(&weights);
    let mut rows = vec![F16(0); 3 * 48];
    weights.unpack_rows(&[9, 0, 9], MatrixMut::new(&mut rows, 3, 48).unwrap()).unwrap();
    let expected: Vec<F16> = [9, 0, 9].iter().flat_map(|&r| all[r * 48..][..48].to_vec()).map(F16::from_f32).collect();
    assert_eq!(rows, expected);
    assert_fails(weights.unpack_rows(&[10], MatrixMut::row(&mut [0.0f32; 48])), Status::ARGUMENT, "10");
}
