// moe CHECKPOINT: some tokens through the mixture of experts of one layer of Qwen3-MoE. A router chooses two experts for each
// token; y is the sum over both of scale * W_down f(W_gate x, W_up x).
import Foundation
import MetalMarlin

let tokens = 3
let topK = 2

/// The experts with the largest logits, and the softmax of these logits: [tokens, topK] of each.
func route(_ logits: [Float], experts: Int) -> (ids: [Int32], scales: [Float]) {
  var ids: [Int32] = []
  var scales: [Float] = []
  for token in 0..<tokens {
    let ofToken = logits[(token * experts)..<((token + 1) * experts)].map { $0 }
    let order = (0..<experts).sorted { ofToken[$0] > ofToken[$1] }.prefix(topK)
    let weights = order.map { exp(ofToken[$0] - ofToken[order[0]]) }
    ids += order.map { Int32($0) }
    scales += weights.map { $0 / weights.reduce(0, +) }
  }
  return (ids, scales)
}

func run(_ path: String) throws(MarlinError) {
  let context = try Context()
  let file = try Checkpoint(path)
  let router = try Weights(layer: "model.layers.0.mlp.gate", of: file, in: context)
  // All gate rows of an expert, then all its up rows, in one handle.
  let gateUp = try Weights(
    layers: ["model.layers.0.mlp.experts.gate_proj", "model.layers.0.mlp.experts.up_proj"], of: file, in: context)
  let down = try Weights(layer: "model.layers.0.mlp.experts.down_proj", of: file, in: context)
  let experts = try router.info().n
  let (width, inner) = (try down.info().n, try down.info().k)

  let x = (0..<tokens * width).map { Float($0 % 7) - 3 }
  var logits = [Float](repeating: 0, count: tokens * experts)
  try router.multiply(x, rows: tokens, into: &logits)
  let routes = route(logits, experts: experts)

  // Products of experts take views of buffers, whose memory they keep alive.
  let ids = try Buffer(routes.ids, in: context).matrix(of: Int32.self, rows: tokens, columns: topK)
  let scales = try Buffer(routes.scales, in: context).matrix(of: Float.self, rows: tokens, columns: topK)
  let a = try Buffer(x, in: context).matrix(of: Float.self, rows: tokens, columns: width)
  let hidden = try Buffer(byteCount: tokens * topK * inner * 4, in: context)
    .matrix(of: Float.self, rows: tokens * topK, columns: inner)  // a row for each token and expert
  let y = try Buffer(byteCount: tokens * width * 4, in: context)
  try Product(MatrixView(a), by: gateUp, into: hidden, epilogue: .swiglu, expertIDs: MatrixView(ids)).run()
  try Product(
    MatrixView(hidden), by: down, into: try y.matrix(of: Float.self, rows: tokens, columns: width),
    expertIDs: MatrixView(ids), expertScales: MatrixView(scales)
  ).run()  // the scales sum the rows of a token

  let results = y.elements(of: Float.self)
  for token in 0..<tokens {
    let (first, last) = (results[token * width], results[(token + 1) * width - 1])
    let chosen = routes.ids[token * topK..<(token + 1) * topK].map(String.init).joined(separator: " and ")
    print("token \(token): experts \(chosen), y = \(String(format: "%.3f ... %.3f", first, last))")
  }
}

guard CommandLine.arguments.count == 2 else {
  print("usage: moe CHECKPOINT")
  exit(2)
}
do {
  try run(CommandLine.arguments[1])
} catch {
  print(error)
  exit(1)
}
