// What the tests share: data, products in float64, and how failures are told.
import Foundation
import MetalMarlin
import Testing

func context() throws -> Context { try Context(backend: .cpu, threads: 2) }

/// A checkpoint of tests/data.
func data(_ name: String) -> String {
  URL(filePath: #filePath).appending(path: "../../../../../tests/data/\(name)").standardizedFileURL.path()
}

/// The true values of a layer, which lie beside the checkpoint.
func decoded(_ folder: String, _ layer: String) throws -> [Float] {
  try Checkpoint(data(folder) + "/decoded.safetensors").tensor(layer).elements(of: Float.self)
}

/// A folder of its own for files that a test writes.
func scratch(_ name: String) throws -> String {
  let folder = FileManager.default.temporaryDirectory.appending(path: "metal-marlin-swift-\(name)-\(getpid())")
  try? FileManager.default.removeItem(at: folder)
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  return folder.path()
}

/// `count` numbers between -1 and 1, always the same for a seed (a linear congruential generator, Knuth's MMIX constants).
func numbers(_ count: Int, seed: UInt64) -> [Float] {
  var state = seed
  return (0..<count).map { _ in
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return Float(state >> 40) / Float(1 << 24) * 2 - 1
  }
}

func quantized(_ format: Format, n: Int, k: Int, in context: Context) throws -> Weights {
  try Weights(quantizing: numbers(n * k, seed: 7).span, rows: n, to: format, in: context)
}

/// Of all experts, one after the other.
func values(_ weights: Weights) throws -> [Float] {
  let info = try weights.info()
  return try weights.values(rows: 0..<info.n * info.experts)
}

/// FP32 sums of fewer than 2^10 terms, in any order.
let sumError = 1e-5

/// Whether C is A W^T, each element within `error` times the sum of its |a w|.
func expectProduct(
  _ c: [Float], _ a: [Float], _ w: [Float], k: Int, error: Double = sumError, at location: SourceLocation = #_sourceLocation
) {
  var expected: [(sum: Double, size: Double)] = []
  for row in stride(from: 0, to: a.count, by: k) {
    for column in stride(from: 0, to: w.count, by: k) {
      let terms = (0..<k).map { Double(a[row + $0]) * Double(w[column + $0]) }
      expected.append((terms.reduce(0, +), terms.map(abs).reduce(0, +)))
    }
  }
  #expect(c.count == expected.count, sourceLocation: location)
  let wrong = zip(c, expected).enumerated().first { !(abs(Double($1.0) - $1.1.sum) <= error * $1.1.size) }
  #expect(wrong == nil, sourceLocation: location)
}

/// Whether it throws this status with these words.
func expectFailure<R>(
  _ status: Status, _ words: String, at location: SourceLocation = #_sourceLocation, _ body: () throws(MarlinError) -> R
) {
  do throws(MarlinError) {
    _ = try body()
    Issue.record("expected \(status) with '\(words)', found no error", sourceLocation: location)
  } catch {
    let expected = error.status == status && (words.isEmpty || error.message.contains(words))
    #expect(expected, "expected \(status) with '\(words)', found \(error)", sourceLocation: location)
  }
}

extension Array {
  /// Calls with a view of all elements.
  func view<R>(_ rows: Int, _ columns: Int, _ body: (MatrixView) throws(MarlinError) -> R) throws(MarlinError) -> R
  where Element: MetalMarlin.Element {
    try withUnsafeBufferPointer { (elements) throws(MarlinError) in try body(MatrixView(elements, rows: rows, columns: columns))
    }
  }

  /// Calls with a view of all elements, to be written.
  mutating func mutableView<R>(
    _ rows: Int, _ columns: Int, _ body: (MutableMatrixView) throws(MarlinError) -> R
  ) throws(MarlinError) -> R where Element: MetalMarlin.Element {
    try withUnsafeMutableBufferPointer { (elements) throws(MarlinError) in
      try body(MutableMatrixView(elements, rows: rows, columns: columns))
    }
  }
}
