// hello CHECKPOINT LAYER: packs one layer and multiplies one row by it.
import Foundation
import MetalMarlin

guard CommandLine.arguments.count == 3 else {
  print("usage: hello CHECKPOINT LAYER")
  exit(2)
}
do {
  let file = try Checkpoint(CommandLine.arguments[1])
  let weights = try Weights(layer: CommandLine.arguments[2], of: file, in: Context())
  let info = try weights.info()
  var x = [Float](repeating: 0, count: info.k)  // one row of activations
  var y = [Float](repeating: 0, count: info.n)  // one row of results
  x[0] = 1  // picks the first column of W
  try weights.multiply(x.span, into: y.mutableSpan)
  print("W is \(info.n) x \(info.k), W[0][0] = \(y[0])")
} catch {
  print(error)
  exit(1)
}
