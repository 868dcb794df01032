// Mixtures of experts: a product of experts is the sum of plain products, weighted by scales.
import MetalMarlin
import Testing

@Suite struct ExpertTests {
  let experts = 4
  let tokens = 3
  let topK = 2
  let n = 10
  let k = 64
  let ids: [Int32] = [2, 0, 2, 2, 3, 1]
  let scales: [Float] = [0.5, 0.25, 1, -2, 0.125, 3]
  let x = numbers(3 * 64, seed: 2)
  let bias = numbers(4 * 10, seed: 3)
  /// All experts in one handle, and each by itself.
  let mixture: Weights
  let plain: [Weights]

  init() throws {
    let context = try context()
    let floats = numbers(experts * n * k, seed: 1)
    let size = n * k
    (mixture, plain) = try floats.withUnsafeBufferPointer { [n, k, experts] floats in
      let packs = try (0..<experts).map { e in
        Pack(try MatrixView(UnsafeBufferPointer(rebasing: floats[e * size..<(e + 1) * size]), rows: n, columns: k), as: .int4)
      }
      return (
        try Weights(packing: packs, experts: experts, in: context), try packs.map { try Weights(packing: [$0], in: context) }
      )
    }
  }

  /// [T, topK, N]: each token times each of its experts, by plain products.
  func routed(bias: Bool) throws -> [Float] {
    try ids.enumerated().flatMap { slot, id in
      let (expert, token) = (Int(id), slot / topK)
      let row = Array(x[token * k..<(token + 1) * k])
      var c = [Float](repeating: 0, count: n)
      if bias {
        let own = Array(self.bias[expert * n..<(expert + 1) * n])
        try plain[expert].multiply(row.span, into: c.mutableSpan, bias: own.span)
      } else {
        try plain[expert].multiply(row.span, into: c.mutableSpan)
      }
      return c
    }
  }

  /// The sum of each token's products times the scales.
  func summed(_ products: [Float]) -> [Float] {
    (0..<tokens * n).map { i in
      (0..<topK).reduce(0) { sum, s in
        let slot = i / n * topK + s
        return sum + scales[slot] * products[slot * n + i % n]
      }
    }
  }

  /// The product of the mixture; the sum by the scales, when they are given.
  func product(rows: Int, ids: [Int32]? = nil, scales: [Float]? = nil, bias: [Float]? = nil) throws -> [Float] {
    var c = [Float](repeating: 77, count: rows * n)
    try x.view(tokens, k) { (a) throws(MarlinError) in
      try (ids ?? []).view(ids == nil ? 0 : 3, topK) { (idView) throws(MarlinError) in
        try (scales ?? []).view(scales == nil ? 0 : 3, topK) { (scaleView) throws(MarlinError) in
          try (bias ?? []).view((bias?.count ?? 0) / n, n) { (biasView) throws(MarlinError) in
            try c.mutableView(rows, n) { (c) throws(MarlinError) in
              try Product(
                a, by: mixture, into: c, bias: bias == nil ? nil : biasView,
                expertIDs: ids == nil ? nil : idView, expertScales: scales == nil ? nil : scaleView
              ).run()
            }
          }
        }
      }
    }
    return c
  }

  func expectNear(_ found: [Float], _ expected: [Float], at location: SourceLocation = #_sourceLocation) {
    #expect(found.count == expected.count, sourceLocation: location)
    let wrong = zip(found, expected).first { !(abs($0 - $1) <= 1e-4 * (1 + abs($1))) }
    #expect(wrong == nil, sourceLocation: location)
  }

  @Test func packedAsOne() throws {
    let info = try mixture.info()
    #expect((info.experts, info.n, info.k) == (experts, n, k))
    #expect(try values(mixture) == plain.flatMap { try values($0) })
    expectFailure(.argument, "rows 39..<41 of weights that have 40") { () throws(MarlinError) in
      try mixture.values(rows: 39..<41)
    }
    let floats = numbers(3 * n * k, seed: 1)
    try floats.view(3 * n, k) { values throws(MarlinError) in
      let one = Pack(values, as: .int4)
      expectFailure(.shape, "expected a multiple of expert_count = 2") { () throws(MarlinError) in
        try Weights(packing: [one, one, one], experts: 2, in: mixture.context)
      }
      expectFailure(.argument, "the number of experts is -1") { () throws(MarlinError) in
        try Weights(packing: [one], experts: -1, in: mixture.context)
      }
    }
  }

  @Test func loadedAsOne() throws {
    let (file, context, layer) = (try Checkpoint(data("float-bf16")), try context(), "encoder.layer.0.attention.self.query")
    let parts = [LayerPart(layer, rows: 0..<48), LayerPart(layer, rows: 48..<96)]
    let apart = try parts.map { try Weights(layers: [$0], of: file, in: context, quantizedTo: .mxfp4) }
    let one = try Weights(layers: parts, of: file, in: context, quantizedTo: .mxfp4, experts: 2)
    #expect(try one.info().experts == 2 && one.info().n == 48)
    #expect(try values(one) == apart.flatMap { try values($0) })
    expectFailure(.shape, "expert_count = 2") { () throws(MarlinError) in
      try Weights(layers: [LayerPart(layer)], of: file, in: context, quantizedTo: .mxfp4, experts: 2)
    }
  }

  @Test func productsAndTheirSums() throws {
    expectNear(try product(rows: tokens * topK, ids: ids), try routed(bias: false))
    expectNear(try product(rows: tokens, ids: ids, scales: scales), summed(try routed(bias: false)))
    expectNear(try product(rows: tokens, ids: ids, scales: scales, bias: bias), summed(try routed(bias: true)))
    #expect(try product(rows: tokens, ids: [-1, 4, -1, 4, 99, 4], scales: scales) == [Float](repeating: 0, count: tokens * n))
  }

  @Test func onAStream() throws {
    let context = mixture.context
    let c = try Buffer(byteCount: tokens * n * 4, in: context)
    let stream = try WorkStream(in: context)
    do {
      // The stream keeps the memory of ids and scales.
      let (a, i, s) = (try Buffer(x, in: context), try Buffer(ids, in: context), try Buffer(scales, in: context))
      let product = Product(
        MatrixView(try a.matrix(of: Float.self, rows: tokens, columns: k)), by: mixture,
        into: try c.matrix(of: Float.self, rows: tokens, columns: n),
        expertIDs: MatrixView(try i.matrix(of: Int32.self, rows: tokens, columns: topK)),
        expertScales: MatrixView(try s.matrix(of: Float.self, rows: tokens, columns: topK)))
      try stream.prepare([product], maxRows: tokens)
      try stream.submit(product)
    }
    try stream.wait(timeout: nil)
    expectNear(c.elements(of: Float.self), summed(try routed(bias: false)))
  }

  @Test func whatDoesNotFit() throws {
    let absent = #expect(throws: MarlinError.self) { try product(rows: 6) }
    #expect(absent?.message.contains("expert_ids are absent") == true)
    let rows = #expect(throws: MarlinError.self) { try product(rows: 6, ids: ids, scales: scales) }
    #expect(rows?.message.contains("c.rows is 6") == true)
  }
}
