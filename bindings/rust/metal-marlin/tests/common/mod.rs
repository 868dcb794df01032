//! What the tests share: a library, data, and products in float64.
#![allow(dead_code)] // not every test needs all of it

use metal_marlin::*;

/// The library under test: linked, or loaded by name where nothing is linked.
pub fn library() -> Library {
    #[cfg(feature = "link")]
    {
        Library::linked()
    }
    #[cfg(not(feature = "link"))]
    {
        // SAFETY: the suite says where it is.
        unsafe { Library::load("libmetal-marlin.so.0") }.expect("LD_LIBRARY_PATH has libmetal-marlin.so.0")
    }
}

pub fn context() -> Context {
    library().context().backend(Backend::CPU).threads(2).build().unwrap()
}

/// A checkpoint of tests/data.
pub fn data(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data").join(name)
}

pub fn open(name: &str) -> Checkpoint {
    library().open(data(name)).unwrap()
}

/// `count` numbers between -1 and 1, always the same for a seed (a linear congruential generator, Knuth's MMIX constants).
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f32 / (1 << 24) as f32) * 2.0 - 1.0
        })
        .collect()
}

pub fn quantized(context: &Context, format: Format, n: usize, k: usize) -> Weights {
    Pack::floats(format, Matrix::new(&numbers(n * k, 7), n, k).unwrap()).pack(context).unwrap()
}

/// The exact values of packed weights, [N, K].
pub fn values(weights: &Weights) -> Vec<f32> {
    let info = weights.info().unwrap();
    let mut all = vec![f32::NAN; info.n * info.k];
    weights.unpack(0, MatrixMut::new(&mut all, info.n, info.k).unwrap()).unwrap();
    all
}

/// A W^T in float64, and the sums of |a w| that an error is measured by.
pub fn product(a: &[f32], w: &[f32], k: usize) -> (Vec<f64>, Vec<f64>) {
    let mut sums = Vec::new();
    let mut sizes = Vec::new();
    for a in a.chunks(k) {
        for w in w.chunks(k) {
            let terms = a.iter().zip(w).map(|(&a, &w)| f64::from(a) * f64::from(w));
            sums.push(terms.clone().sum());
            sizes.push(terms.map(f64::abs).sum());
        }
    }
    (sums, sizes)
}

/// FP32 sums of fewer than 2^10 terms, in any order.
pub const SUM_ERROR: f64 = 1e-5;

pub fn assert_close(found: &[f32], (sums, sizes): &(Vec<f64>, Vec<f64>), error: f64) {
    assert_eq!(found.len(), sums.len());
    for (i, &found) in found.iter().enumerate() {
        let difference = (f64::from(found) - sums[i]).abs();
        assert!(difference <= error * sizes[i], "element {i}: {found}, expected {}, within {error} * {}", sums[i], sizes[i]);
    }
}

#[track_caller]
pub fn assert_fails<T: std::fmt::Debug>(result: Result<T>, status: Status, words: &str) {
    let error = result.expect_err(words);
    assert_eq!(error.status(), status, "{error}");
    assert!(error.message().contains(words), "{error}");
}
