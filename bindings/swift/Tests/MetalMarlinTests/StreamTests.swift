// Streams and buffers.
import Foundation
import MetalMarlin
import Testing

@Suite struct StreamTests {
  @Test func aChainOfProducts() async throws {
    let context = try context()
    let (up, down) = (try quantized(.int4, n: 128, k: 64, in: context), try quantized(.mxfp4, n: 32, k: 128, in: context))
    let x = try Buffer(numbers(3 * 64, seed: 1), in: context)
    let (hidden, y) = (try Buffer(byteCount: 3 * 128 * 4, in: context), try Buffer(byteCount: 3 * 32 * 4, in: context))
    let between = try hidden.matrix(of: Float.self, rows: 3, columns: 128)
    let stream = try WorkStream(in: context)
    try stream.submit(Product(MatrixView(x.matrix(of: Float.self, rows: 3, columns: 64)), by: up, into: between))
    try stream.flush()
    try stream.submit([Product(MatrixView(between), by: down, into: y.matrix(of: Float.self, rows: 3, columns: 32))])
    try await stream.wait()
    #expect(try stream.wait(timeout: .zero) && stream.wait(timeout: .seconds(Int64.max)))
    expectProduct(hidden.elements(of: Float.self), x.elements(of: Float.self), try values(up), k: 64)
    expectProduct(y.elements(of: Float.self), hidden.elements(of: Float.self), try values(down), k: 128)
    // What submits one product that writes what another one reads is refused by the library.
    expectFailure(.argument, "independent") { () throws(MarlinError) in
      try stream.submit([
        Product(MatrixView(x.matrix(of: Float.self, rows: 3, columns: 64)), by: up, into: between),
        Product(MatrixView(between), by: down, into: y.matrix(of: Float.self, rows: 3, columns: 32)),
      ])
    }
  }

  @Test func decodingOnAStream() async throws {
    let context = try context()
    let weights = try quantized(.int8, n: 64, k: 64, in: context)
    let (row, rows) = (try Buffer(byteCount: 64 * 4, in: context), try Buffer(byteCount: 2 * 64 * 4, in: context))
    let ids = try Buffer([Int32(1), 2], in: context)
    let stream = try WorkStream(in: context)
    try stream.unpack(weights, firstRow: 5, into: row.matrix(of: Float.self, rows: 1, columns: 64))
    try stream.unpack(
      weights, rows: MatrixView(ids.matrix(of: Int32.self, rows: 2, columns: 1)),
      into: rows.matrix(of: Float.self, rows: 2, columns: 64))
    try await stream.wait()
    let all = try values(weights)
    #expect(row.elements(of: Float.self) == Array(all[5 * 64..<6 * 64]))
    #expect(rows.elements(of: Float.self) == Array(all[64..<3 * 64]))
  }

  @Test func whatWorkUsesStaysUntilTheStreamIsWaitedFor() throws {
    weak var weights: Weights?
    weak var buffer: Buffer?
    let context = try context()
    let stream = try WorkStream(in: context)
    func give() throws {
      let (w, y) = (try quantized(.mxfp4, n: 32, k: 64, in: context), try Buffer(byteCount: 32 * 4, in: context))
      let x = try Buffer(numbers(64, seed: 1), in: context)
      (weights, buffer) = (w, x)
      try stream.submit(
        Product(
          MatrixView(x.matrix(of: Float.self, rows: 1, columns: 64)), by: w,
          into: y.matrix(of: Float.self, rows: 1, columns: 32)))
    }
    try give()
    #expect(weights != nil && buffer != nil)
    try stream.wait(timeout: nil)
    #expect(weights == nil && buffer == nil)
  }

  @Test func buffersAsOperands() throws {
    let context = try context()
    let weights = try quantized(.nvfp4, n: 16, k: 64, in: context)
    let input = try Buffer(byteCount: 4 + 2 * 64 * 4, in: context)
    #expect(input.byteCount == 516 && input.elements(of: UInt8.self).allSatisfy { $0 == 0 })
    let a = numbers(2 * 64, seed: 4)
    input.withUnsafeElements(of: Float.self) { elements in
      for (i, x) in a.enumerated() { elements[i + 1] = x }
    }
    let output = try Buffer(byteCount: 2 * 16 * 4, in: context)
    let to = try output.matrix(of: Float.self, rows: 2, columns: 16)
    try Product(MatrixView(input.matrix(of: Float.self, rows: 2, columns: 64, byteOffset: 4)), by: weights, into: to).run()
    expectProduct(output.elements(of: Float.self), a, try values(weights), k: 64)

    let outside: [(rows: Int, columns: Int, offset: Int, words: String)] = [
      (2, 64, 8, "does not fit"), (0, 0, 517, "outside"), (0, 0, -1, "outside"), (.max, .max, 0, "does not fit"),
      (-1, 4, 0, "0 <= rows"), (1, -4, 0, "0 <= columns"),
    ]
    for (rows, columns, offset, words) in outside {
      expectFailure(.shape, words) { () throws(MarlinError) in
        try input.matrix(of: Float.self, rows: rows, columns: columns, byteOffset: offset)
      }
    }
    expectFailure(.argument, "bytes is 0") { () throws(MarlinError) in try Buffer(byteCount: 0, in: context) }
    expectFailure(.argument, "-1") { () throws(MarlinError) in try Buffer(byteCount: -1, in: context) }
    expectFailure(.memory, "") { () throws(MarlinError) in try Buffer(byteCount: .max, in: context) }
    expectFailure(.argument, "multiple of its element") { () throws(MarlinError) in
      let odd = MatrixView(try input.matrix(of: Float.self, rows: 2, columns: 64, byteOffset: 2))
      try Product(odd, by: weights, into: to).run()
    }
  }

  @Test func preparedWorkInTheHostsScratch() throws {
    let context = try context()
    let weights = try quantized(.int4, n: 64, k: 256, in: context)
    let (a, c) = (try Buffer(numbers(8 * 256, seed: 2), in: context), try Buffer(byteCount: 8 * 64 * 4, in: context))
    let product = Product(
      MatrixView(try a.matrix(of: Float.self, rows: 8, columns: 256)), by: weights,
      into: try c.matrix(of: Float.self, rows: 8, columns: 64), compute: .int8)
    let stream = try WorkStream(in: context)
    expectFailure(.shape, "max_m") { () throws(MarlinError) in try stream.prepare([product], maxRows: .max) }
    let bytes = try stream.prepare([product], maxRows: 8)
    #expect(bytes > 0)
    let small = try WorkStream(in: context, scratch: Buffer(byteCount: 64, in: context))
    expectFailure(.notPrepared, "holds 64 bytes") { () throws(MarlinError) in try small.submit(product) }
    let large = try WorkStream(in: context, scratch: Buffer(byteCount: Int(bytes), in: context))
    try large.submit(product)
    try large.wait(timeout: nil)
    #expect(c.elements(of: Float.self).contains { $0 != 0 })
    expectFailure(.argument, "backend") { () throws(MarlinError) in try WorkStream(in: context, on: nil, .cudaStream) }
    let fence = UnsafeMutableRawPointer(bitPattern: 8)!
    expectFailure(.argument, "update_fence") { () throws(MarlinError) in
      try WorkStream(in: context, on: nil, .none, fences: (wait: nil, update: fence))
    }
  }

  @Test func threadsShareWeightsAndAStream() async throws {
    let weights = try quantized(.int4, n: 48, k: 128, in: context())
    let w = try values(weights)
    let stream = try WorkStream(in: weights.context)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for seed in 0..<8 as Range<UInt64> {
        group.addTask {
          let x = numbers(128, seed: seed)
          let (from, to) = (try Buffer(x, in: weights.context), try Buffer(byteCount: 48 * 4, in: weights.context))
          for _ in 0..<25 {
            var y = [Float](repeating: 0, count: 48)
            try weights.multiply(x.span, into: y.mutableSpan)
            expectProduct(y, x, w, k: 128)
            try stream.submit(
              Product(
                MatrixView(from.matrix(of: Float.self, rows: 1, columns: 128)), by: weights,
                into: to.matrix(of: Float.self, rows: 1, columns: 48)))
            try await stream.wait()
            #expect(to.elements(of: Float.self) == y)
          }
        }
      }
      try await group.waitForAll()
    }
  }
}
