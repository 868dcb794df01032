//! Mixtures of experts: a product of experts is the sum of plain products, weighted by scales.

mod common;
use common::*;
use metal_marlin::*;

const EXPERTS: usize = 4;
const TOKENS: usize = 3;
const TOP_K: usize = 2;
const N: usize = 10;
const K: usize = 64;
const IDS: [i32; TOKENS * TOP_K] = [2, 0, 2, 2, 3, 1];
const SCALES: [f32; TOKENS * TOP_K] = [0.5, 0.25, 1.0, -2.0, 0.125, 3.0];

/// All experts in one handle, and each by itself.
fn mixture(context: &Context) -> (Weights, Vec<Weights>) {
    let floats = numbers(EXPERTS * N * K, 1);
    let packs: Vec<_> = floats.chunks(N * K).map(|each| Pack::floats(Format::INT4, Matrix::new(each, N, K).unwrap())).collect();
    let parts: Vec<_> = packs.iter().collect();
    let all = Weights::pack_experts(context, &parts, EXPERTS as u32).unwrap();
    (all, packs.iter().map(|each| each.pack(context).unwrap()).collect())
}

/// [T, top_k, N]: each token times each of its experts, by plain products.
fn routed(plain: &[Weights], x: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let mut all = Vec::new();
    for (slot, &id) in IDS.iter().enumerate() {
        let (expert, token) = (id as usize, slot / TOP_K);
        let mut row = vec![0.0; N];
        let mut gemm = Gemm::new(&plain[expert], Matrix::row(&x[token * K..][..K]), MatrixMut::row(&mut row));
        if let Some(bias) = bias {
            gemm = gemm.bias(Matrix::row(&bias[expert * N..][..N]));
        }
        gemm.run().unwrap();
        all.extend(row);
    }
    all
}

fn ids() -> Matrix<'static, i32> {
    Matrix::new(&IDS, TOKENS, TOP_K).unwrap()
}

fn scales() -> Matrix<'static, f32> {
    Matrix::new(&SCALES, TOKENS, TOP_K).unwrap()
}

fn rows(c: &mut [f32], rows: usize) -> MatrixMut<'_, f32> {
    MatrixMut::new(&mut c[..rows * N], rows, N).unwrap()
}

/// [T, N]
fn summing<'a>(weights: &'a Weights, a: Matrix<'a, f32>, y: &'a mut [f32]) -> Gemm<'a> {
    Gemm::new(weights, a, rows(y, TOKENS)).expert_ids(ids()).expert_scales(scales())
}

fn assert_near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-4 * (1.0 + expected.abs()), "element {i}: {found}, expected {expected}");
    }
}

/// The sum of each token's products times the scales.
fn summed(products: &[f32]) -> Vec<f32> {
    let term = |slot: usize, n: usize| SCALES[slot] * products[slot * N + n];
    (0..TOKENS * N).map(|i| (0..TOP_K).map(|s| term(i / N * TOP_K + s, i % N)).sum()).collect()
}

#[test]
fn packed_as_one() {
    let context = context();
    let (all, plain) = mixture(&context);
    let info = all.info().unwrap();
    assert_eq!((info.experts as usize, info.n, info.k), (EXPERTS, N, K));
    let mut found = vec![0.0; EXPERTS * N * K];
    all.unpack(0, MatrixMut::new(&mut found, EXPERTS * N, K).unwrap()).unwrap();
    assert_eq!(found, plain.iter().flat_map(values).collect::<Vec<_>>());
    let floats = numbers(N * K, 1);
    let one = Pack::floats(Format::INT4, Matrix::new(&floats, N, K).unwrap());
    assert_fails(Weights::pack_experts(&context, &[&one; 3], 2), Status::SHAPE, "expected a multiple of expert_count = 2");
}

#[test]
fn loaded_as_one() {
    let (file, context) = (open("float-bf16"), context());
    let layer = "encoder.layer.0.attention.self.query";
    let rows = |first| Shard { first: [first, 0, 0], count: [48, 0, 0] };
    let load = || Load::new(&file).quantize(Format::MXFP4, 0);
    let apart: Vec<f32> =
        [0, 48].iter().flat_map(|&first| values(&load().shard(layer, rows(first)).load(&context).unwrap())).collect();
    let all = load().shard(layer, rows(0)).shard(layer, rows(48)).experts(2).load(&context).unwrap();
    let info = all.info().unwrap();
    assert_eq!((info.experts, info.n), (2, 48));
    let mut found = vec![0.0; apart.len()];
    all.unpack(0, MatrixMut::new(&mut found, 96, info.k).unwrap()).unwrap();
    assert_eq!(found, apart);
    assert_fails(load().layer(layer).experts(2).load(&context), Status::SHAPE, "expert_count = 2");
}

#[test]
fn products_and_their_sums() {
    let context = context();
    let (all, plain) = mixture(&context);
    let (x, bias) = (numbers(TOKENS * K, 2), numbers(EXPERTS * N, 3));
    let a = Matrix::new(&x, TOKENS, K).unwrap();

    let mut c = vec![0.0; TOKENS * TOP_K * N];
    Gemm::new(&all, a, rows(&mut c, TOKENS * TOP_K)).expert_ids(ids()).run().unwrap();
    assert_near(&c, &routed(&plain, &x, None));

    let mut y = vec![0.0; TOKENS * N];
    summing(&all, a, &mut y).run().unwrap();
    assert_near(&y, &summed(&routed(&plain, &x, None)));
    summing(&all, a, &mut y).bias(Matrix::new(&bias, EXPERTS, N).unwrap()).run().unwrap();
    assert_near(&y, &summed(&routed(&plain, &x, Some(&bias))));

    y.fill(0.0);
    let mut stream = context.stream().unwrap();
    stream.prepare(&[&summing(&all, a, &mut y)], TOKENS).unwrap();
    stream.scope(|s| s.gemm(summing(&all, a, &mut y))).unwrap();
    assert_near(&y, &summed(&routed(&plain, &x, None)));
}

#[test]
fn what_does_not_fit() {
    let (all, _) = mixture(&context());
    let x = numbers(TOKENS * K, 2);
    let a = Matrix::new(&x, TOKENS, K).unwrap();
    let mut c = vec![77.0; TOKENS * TOP_K * N];
    assert_fails(Gemm::new(&all, a, rows(&mut c, TOKENS * TOP_K)).run(), Status::ARGUMENT, "expert_ids are absent");
    let product = Gemm::new(&all, a, rows(&mut c, TOKENS * TOP_K)).expert_ids(scales()).run();
    assert_fails(product, Status::ARGUMENT, "expert_ids.dtype");
    assert!(c.iter().all(|&c| c == 77.0));
}
