//! moe CHECKPOINT: some tokens through the mixture of experts of one layer of Qwen3-MoE. A router chooses two experts for each
//! token; y is the sum over both of scale * W_down f(W_gate x, W_up x). `main` returns errors, which print as one line.

use metal_marlin::{Checkpoint, Context, Epilogue, Gemm, Load, Matrix, MatrixMut, Weights};

const TOKENS: usize = 3;
const TOP_K: usize = 2;

/// The experts with the largest logits, and the softmax of these logits: [TOKENS, TOP_K] of each.
fn route(logits: &[f32], experts: usize) -> (Vec<i32>, Vec<f32>) {
    let (mut ids, mut scales) = (Vec::new(), Vec::new());
    for of_token in logits.chunks(experts) {
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| of_token[b].total_cmp(&of_token[a]));
        order.truncate(TOP_K);
        let weights: Vec<f32> = order.iter().map(|&e| (of_token[e] - of_token[order[0]]).exp()).collect();
        let sum: f32 = weights.iter().sum();
        ids.extend(order.iter().map(|&e| e as i32));
        scales.extend(weights.iter().map(|w| w / sum));
    }
    (ids, scales)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: moe CHECKPOINT")?;
    let (context, file) = (Context::new()?, Checkpoint::open(path)?);
    let router = Weights::load(&context, &file, "model.layers.0.mlp.gate")?;
    // All gate rows of an expert, then all its up rows, in one handle.
    let experts = "model.layers.0.mlp.experts.";
    let gate_up = Load::new(&file).layer(&format!("{experts}gate_proj")).layer(&format!("{experts}up_proj")).load(&context)?;
    let down = Weights::load(&context, &file, &format!("{experts}down_proj"))?;
    let (count, width, inner) = (router.info()?.n, down.info()?.n, down.info()?.k);

    let x: Vec<f32> = (0..TOKENS * width).map(|i| (i % 7) as f32 - 3.0).collect();
    let x = Matrix::new(&x, TOKENS, width)?;
    let mut logits = vec![0.0f32; TOKENS * count];
    Gemm::new(&router, x, MatrixMut::new(&mut logits, TOKENS, count)?).run()?;
    let (ids, scales) = route(&logits, count);
    let ids_view = Matrix::new(&ids, TOKENS, TOP_K)?;

    let mut hidden = vec![0.0f32; TOKENS * TOP_K * inner]; // a row for each token and expert
    Gemm::new(&gate_up, x, MatrixMut::new(&mut hidden, TOKENS * TOP_K, inner)?)
        .epilogue(Epilogue::SWIGLU)
        .expert_ids(ids_view)
        .run()?;
    let mut y = vec![0.0f32; TOKENS * width]; // the scales sum the rows of a token
    Gemm::new(&down, Matrix::new(&hidden, TOKENS * TOP_K, inner)?, MatrixMut::new(&mut y, TOKENS, width)?)
        .expert_ids(ids_view)
        .expert_scales(Matrix::new(&scales, TOKENS, TOP_K)?)
        .run()?;

    for (token, (y, ids)) in y.chunks(width).zip(ids.chunks(TOP_K)).enumerate() {
        println!("token {token}: experts {} and {}, y = {:.3} ... {:.3}", ids[0], ids[1], y[0], y[width - 1]);
    }
    Ok(())
}
