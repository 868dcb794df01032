// Weights from memory.
import MetalMarlin
import Testing

@Suite struct PackTests {
  @Test func codesScalesAndZeros() throws {
    let (n, k) = (2, 64)
    let codes = (0..<n * k / 2).map { UInt4x2(bitPattern: UInt8($0 * 7 % 256)) }
    let (scales, zeros): ([Float], [UInt8]) = ([0.5, 2, 1, 0.25], [8, 3, 0, 15])
    let weights = try codes.view(n, k) { codes throws(MarlinError) in
      try scales.view(n, 2) { scales throws(MarlinError) in
        try zeros.view(n, 2) { zeros throws(MarlinError) in
          var pack = Pack(codes, as: .int4, n: n, k: k, scales: scales)
          pack.groupSize = 32
          pack.zeros = zeros
          return try Weights(packing: [pack], in: Context(backend: .cpu))
        }
      }
    }
    let expected = (0..<n * k).map { i in
      let (byte, group) = (codes[i / 2].bitPattern, i / k * 2 + i % k / 32)
      return (Float(i % 2 == 0 ? byte & 15 : byte >> 4) - Float(zeros[group])) * scales[group]
    }
    #expect(try values(weights) == expected)
    let info = try weights.info()
    #expect((info.n, info.k, info.groupSize) == (n, k, 32) && info.format == .int4 && info.name == "")
    #expect(info.flags.contains(.zeros))
  }

  @Test func partsAndOtherScales() throws {
    let codes = [UInt4x2](repeating: UInt4x2(bitPattern: 0x22), count: 16)  // e2m1 code 2: 1.0
    let context = try context()
    let powers = [E8M0(bitPattern: 127), E8M0(bitPattern: 130)]
    let weights = try codes.view(1, 32) { codes throws(MarlinError) in
      try powers.withUnsafeBufferPointer { powers throws(MarlinError) in
        var parts: [Pack] = []
        for i in 0..<2 {
          let scale = try MatrixView(UnsafeBufferPointer(rebasing: powers[i...i]), rows: 1, columns: 1)
          parts.append(Pack(codes, as: .mxfp4, n: 1, k: 32, scales: scale))
        }
        return try Weights(packing: parts, in: context)
      }
    }
    #expect(try values(weights) == [Float](repeating: 1, count: 32) + [Float](repeating: 8, count: 32))

    let scales = [E4M3(bitPattern: 0x38), E4M3(bitPattern: 0x40)]  // 1 and 2
    let tensorScale: [Float] = [4]
    for (options, factor) in [(PackOptions(), Float(4)), (.divideScale, 0.25)] {
      let weights = try codes.view(1, 32) { codes throws(MarlinError) in
        try scales.view(1, 2) { scales throws(MarlinError) in
          try tensorScale.view(1, 1) { tensorScale throws(MarlinError) in
            var pack = Pack(codes, as: .nvfp4, n: 1, k: 32, scales: scales)
            pack.tensorScale = tensorScale
            pack.options = options
            return try Weights(packing: [pack], in: context)
          }
        }
      }
      #expect(try values(weights) == [Float](repeating: factor, count: 16) + [Float](repeating: 2 * factor, count: 16))
    }

    let (bytes, halves, index) = (
      [Int8](repeating: -3, count: 64), [Float](arrayLiteral: 0.5, 2), (0..<64).map { Int32(1 - $0 / 32) }
    )
    let ordered = try bytes.view(1, 64) { bytes throws(MarlinError) in
      try halves.view(1, 2) { halves throws(MarlinError) in
        try index.view(1, 64) { index throws(MarlinError) in
          var pack = Pack(bytes, as: .int8, n: 1, k: 64, scales: halves)
          (pack.groupSize, pack.groupIndex) = (32, index)
          return try Weights(packing: [pack], in: context)
        }
      }
    }
    #expect(try values(ordered) == [Float](repeating: -6, count: 32) + [Float](repeating: -1.5, count: 32))
  }

  @Test func pruned() throws {
    let w = (0..<64).map { Float($0 % 4 + 1) }
    let norms = (0..<64).map { $0 % 4 == 0 ? Float(9) : 1 }
    let context = try context()
    func kept(_ options: PackOptions, _ norms: [Float]?) throws -> (kept: [Bool], info: LayerInfo) {
      let weights = try w.view(1, 64) { w throws(MarlinError) in
        var pack = Pack(w, as: .fp4)
        pack.options = options
        guard let norms else { return try Weights(packing: [pack], in: context) }
        return try norms.view(1, 64) { norms throws(MarlinError) in
          pack.columnNorms = norms
          return try Weights(packing: [pack], in: context)
        }
      }
      return (try values(weights)[..<4].map { $0 != 0 }, try weights.info())
    }
    #expect(try kept(.prune2of4, nil).kept == [false, false, true, true])
    let (byNorms, info) = try kept([.prune2of4, .scalesMse], norms)
    #expect(byNorms == [true, false, false, true])
    #expect(abs(info.keptShare - 17 / 30) < 1e-12 && info.flags.contains(.sparse2of4))
    expectFailure(.format, "") { () throws(MarlinError) in
      try Weights(quantizing: w.span, rows: 1, to: .fp4, options: .obeys2of4, in: context)
    }
  }
}
