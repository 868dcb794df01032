//! hello CHECKPOINT LAYER: packs one layer and multiplies one row by it.

use metal_marlin::{Checkpoint, Context, Gemm, Matrix, MatrixMut, Weights};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (path, layer) = arguments.next().zip(arguments.next()).ok_or("usage: hello CHECKPOINT LAYER")?;
    let file = Checkpoint::open(path)?;
    let weights = Weights::load(&Context::new()?, &file, &layer)?;
    let info = weights.info()?;
    let mut x = vec![0.0f32; info.k]; // one row of activations
    let mut y = vec![0.0f32; info.n]; // one row of results
    x[0] = 1.0; // picks the first column of W
    Gemm::new(&weights, Matrix::row(&x), MatrixMut::row(&mut y)).run()?;
    println!("W is {} x {}, W[0][0] = {}", info.n, info.k, y[0]);
    Ok(())
}
