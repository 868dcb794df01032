// Products against float64.
import Foundation
import MetalMarlin
import Testing

@Suite struct ProductTests {
  @Test(arguments: [Format.int4, .mxfp4, .int8], [1, 5])
  func everyFormatAndType(format: Format, m: Int) throws {
    let (n, k) = (37, 96)
    let weights = try quantized(format, n: n, k: k, in: context())
    let w = try values(weights)
    func check<A: FloatElement, C: FloatElement>(
      _ to: (Float) -> A, _ exactA: (A) -> Float, _ zero: C, _ exactC: (C) -> Float, rounding: Double
    ) throws {
      let a = numbers(m * k, seed: 3).map(to)
      var c = [C](repeating: zero, count: m * n)
      try weights.multiply(a.span, rows: m, into: c.mutableSpan)
      expectProduct(c.map(exactC), a.map(exactA), w, k: k, error: sumError + rounding)
    }
    try check({ $0 }, { $0 }, Float(0), { $0 }, rounding: 0)
    try check(Float16.init(_:), Float.init, Float16(0), Float.init, rounding: 1 / 2048)
    try check(BFloat16.init(_:), Float.init, Float(0), { $0 }, rounding: 0)
    try check({ $0 }, { $0 }, BFloat16(0), Float.init, rounding: 1 / 256)
  }

  @Test func arraysServeAsSpansDo() throws {
    let (n, k) = (32, 64)
    // A temporary, whose span crashes the compiler of Swift 6.3.1.
    let weights = try Weights(quantizing: (0..<n * k).map { Float($0 % 7) }, rows: n, to: .int8, in: context())
    let (x, bias) = (numbers(2 * k, seed: 1), numbers(n, seed: 2))
    var (ours, theirs) = ([Float](repeating: 3, count: 2 * n), [Float](repeating: 3, count: 2 * n))
    try weights.multiply(x, rows: 2, into: &ours, bias: bias, epilogue: .silu, accumulate: true)
    try weights.multiply(x.span, rows: 2, into: theirs.mutableSpan, bias: bias.span, epilogue: .silu, accumulate: true)
    #expect(ours == theirs && ours[0] != 3)
    try weights.multiply(x, rows: 2, into: &ours)
    try weights.multiply(x.span, rows: 2, into: theirs.mutableSpan)
    #expect(ours == theirs)
    expectFailure(.shape, "65 elements are not 2 equal rows") { () throws(MarlinError) in
      try weights.multiply([Float](repeating: 0, count: 65), rows: 2, into: &ours)
    }
  }

  @Test func rowInvariantProducts() throws {
    let weights = try quantized(.mxfp4, n: 32, k: 64, in: context())
    var c = [Float](repeating: 0, count: 32)
    try numbers(64, seed: 1).view(1, 64) { (a) throws(MarlinError) in
      try c.mutableView(1, 32) { (c) throws(MarlinError) in
        let text = try Product(a, by: weights, into: c, rowInvariant: true).explanation()
        #expect(text.contains("row_invariant: the same bits for any M"))
        let ofRows = try Product(a, by: weights, into: c, compute: .int8, activationGroup: 64).explanation()
        #expect(ofRows.contains("int8 with one scale per row"))
        var gated = Product(a, by: weights, into: c, epilogue: .situ)
        gated.gateLimit = 2
        expectFailure(.argument, "up_limit is 0") { () throws(MarlinError) in try gated.run() }
      }
    }
  }

  @Test func biasEpilogueAndAccumulation() throws {
    let (n, k) = (32, 64)
    let weights = try quantized(.mxfp4, n: n, k: k, in: context())
    let (x, bias) = (numbers(k, seed: 1), numbers(n, seed: 2))
    var plain = [Float](repeating: 0, count: n)
    try weights.multiply(x.span, into: plain.mutableSpan)
    var c = [Float](repeating: 3, count: n)
    try weights.multiply(x.span, into: c.mutableSpan, bias: bias.span, epilogue: .silu, accumulate: true)
    for i in 0..<n {
      let sum = Double(plain[i] + bias[i])
      #expect(abs(Double(c[i]) - (3 + sum / (1 + exp(-sum)))) < 1e-4)
    }
    expectFailure(.shape, "16") { () throws(MarlinError) in
      try weights.multiply(x.span, into: c.mutableSpan, epilogue: .swiglu)
    }
    var rounded = [Float](repeating: 0, count: n)
    try weights.multiply(x.span, into: rounded.mutableSpan, compute: .int8)
    #expect(rounded != plain)
    #expect(zip(rounded, plain).allSatisfy { abs($0 - $1) < 0.3 }, "activations of 8 bits")
  }

  @Test func stridesLeaveTheGapsAlone() throws {
    let (m, n, k) = (3, 8, 64)
    let weights = try quantized(.mxfp4, n: n, k: k, in: context())
    let a = numbers(m * 70, seed: 1)
    var c = [Float](repeating: -7, count: m * 10)
    try a.withUnsafeBufferPointer { a in
      try c.withUnsafeMutableBufferPointer { c in
        let from = try MatrixView(a, rows: m, columns: k, rowStride: 70)
        try Product(from, by: weights, into: MutableMatrixView(c, rows: m, columns: n, rowStride: 10)).run()
      }
    }
    let rows = (0..<m).flatMap { a[$0 * 70..<$0 * 70 + k] }
    expectProduct((0..<m).flatMap { c[$0 * 10..<$0 * 10 + n] }, rows, try values(weights), k: k)
    #expect((0..<m).allSatisfy { c[$0 * 10 + n] == -7 && c[$0 * 10 + n + 1] == -7 })
  }

  @Test func manyAtOnce() throws {
    let context = try context()
    let all = try [Format.int4, .nvfp4, .int8].map { try quantized($0, n: 24, k: 64, in: context) }
    let a = try Buffer(numbers(2 * 64, seed: 9), in: context)
    let results = try all.map { _ in try Buffer(byteCount: 2 * 24 * 4, in: context) }
    let products = try zip(all, results).map {
      Product(
        MatrixView(try a.matrix(of: Float.self, rows: 2, columns: 64)), by: $0,
        into: try $1.matrix(of: Float.self, rows: 2, columns: 24))
    }
    try Product.prepare(products, maxRows: 8)
    try Product.prepare([], maxRows: 8)
    expectFailure(.shape, "max_m") { () throws(MarlinError) in try Product.prepare(products, maxRows: .max) }
    try Product.run(products)
    try Product.run([])
    for (weights, c) in zip(all, results) {
      expectProduct(c.elements(of: Float.self), a.elements(of: Float.self), try values(weights), k: 64)
    }
    let text = try products[0].explanation()
    #expect(text.hasPrefix("kernel: ") && text.hasSuffix("\n"))
  }

  @Test func rowsByNumber() throws {
    let weights = try quantized(.nvfp4, n: 10, k: 48, in: context())
    let all = try values(weights)
    var rows = [Float16](repeating: 0, count: 3 * 48)
    try rows.mutableView(3, 48) { out throws(MarlinError) in try weights.unpack(rows: [9, 0, 9], into: out) }
    let expected = [9, 0, 9].flatMap { row in all[row * 48..<(row + 1) * 48] }
    #expect(rows.map { Float($0) } == expected.map { Float(Float16($0)) })
    var row = [Float](repeating: 0, count: 48)
    expectFailure(.argument, "10") { () throws(MarlinError) in
      try row.mutableView(1, 48) { out throws(MarlinError) in try weights.unpack(rows: [10], into: out) }
    }
  }

  @Test func bfloat16Rounds() {
    #expect(BFloat16(1).bitPattern == 0x3F80 && Float(BFloat16(bitPattern: 0xC000)) == -2)
    #expect(BFloat16(Float(bitPattern: 0x3F80_8000)).bitPattern == 0x3F80)  // halfway: to even
    #expect(BFloat16(Float(bitPattern: 0x3F81_8000)).bitPattern == 0x3F82)
    #expect(BFloat16(Float(bitPattern: 0x3F80_8001)).bitPattern == 0x3F81)
    #expect(BFloat16(.greatestFiniteMagnitude).bitPattern == 0x7F80)
    #expect(Float(BFloat16(Float(bitPattern: 0x7F80_0001))).isNaN)
  }
}
