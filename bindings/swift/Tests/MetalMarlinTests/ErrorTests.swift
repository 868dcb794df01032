// What goes wrong is a value that says what.
import CMetalMarlin
import MetalMarlin
import Testing

@Suite struct ErrorTests {
  @Test func anErrorTellsItsStatusCodeAndWords() {
    do throws(MarlinError) {
      _ = try Checkpoint("/nonexistent/model.gguf")
      Issue.record("there is such a file")
    } catch {
      #expect(error.status == .file && error.nativeCode == 2)  // ENOENT
      #expect(error.message.contains("/nonexistent/model.gguf"))
      #expect("\(error)" == "MARLIN_E_FILE: \(error.message)")
    }
  }

  @Test func statusesHaveTheNamesOfTheHeader() {
    for value in -100...0 as ClosedRange<Int32> {
      let (ours, theirs) = ("\(Status(rawValue: value))", String(cString: marlin_status_name(value)))
      #expect(ours == theirs || (ours == "marlin_status(\(value))" && !theirs.hasPrefix("MARLIN_E_")))
    }
    #expect("\(Format(rawValue: 123)) \(DType.bf16)" == "marlin_format(123) bf16")
    #expect("\(Format.int4) \(Compute.default) \(Layout.gptqV1)" == "int4 default gptqV1")
  }

  @Test func memoryThatDoesNotHoldItsMatrix() throws {
    let elements = [Float](repeating: 0, count: 12)
    let bad: [(rows: Int, columns: Int, stride: Int?)] = [
      (3, 5, nil), (3, 4, 5), (.max, .max, nil), (1 << 62, 4, nil), (.max, 4, 5), (2, 4, 3), (-1, 4, nil), (4, -1, nil),
    ]
    elements.withUnsafeBufferPointer { elements in
      for (rows, columns, stride) in bad {
        expectFailure(.shape, "[\(rows), \(columns)]") { () throws(MarlinError) in
          try MatrixView(elements, rows: rows, columns: columns, rowStride: stride)
        }
      }
    }
    let weights = try quantized(.mxfp4, n: 32, k: 64, in: context())
    var y = [Float](repeating: 0, count: 32)
    for (count, rows) in [(65, 2), (64, 0), (64, -1)] {
      let x = [Float](repeating: 0, count: count)
      expectFailure(.shape, "\(count) elements are not \(rows) equal rows") { () throws(MarlinError) in
        try weights.multiply(x.span, rows: rows, into: y.mutableSpan)
      }
    }
  }

  @Test func operandsThatDoNotFit() throws {
    let context = try context()
    let weights = try quantized(.mxfp4, n: 32, k: 64, in: context)
    let x = [Float](repeating: 0, count: 64)
    var y = [Float](repeating: 0, count: 33)
    expectFailure(.shape, "33") { () throws(MarlinError) in try weights.multiply(x.span, into: y.mutableSpan) }
    y.removeLast()
    let short = Array(x[1...])
    expectFailure(.shape, "63") { () throws(MarlinError) in try weights.multiply(short.span, into: y.mutableSpan) }
    expectFailure(.shape, "bias") { () throws(MarlinError) in try weights.multiply(x.span, into: y.mutableSpan, bias: x.span) }
    expectFailure(.argument, "77") { () throws(MarlinError) in
      try weights.multiply(x.span, into: y.mutableSpan, compute: Compute(rawValue: 77))
    }
    expectFailure(.unsupported, "") { () throws(MarlinError) in try weights.multiply(x.span, into: y.mutableSpan, compute: .fp8)
    }
    expectFailure(.argument, "-1") { () throws(MarlinError) in
      try weights.multiply(x.span, into: y.mutableSpan, epilogue: Epilogue(rawValue: -1))
    }
    for rows in [32..<33, -1..<4, 0..<Int.max] {
      expectFailure(.argument, "\(rows)") { () throws(MarlinError) in try weights.values(rows: rows) }
    }
    var wrong = [Int32](repeating: 0, count: 64)
    expectFailure(.argument, "") { () throws(MarlinError) in
      try wrong.mutableView(1, 64) { out throws(MarlinError) in try weights.unpack(into: out) }
    }
    expectFailure(.argument, "no parts") { () throws(MarlinError) in try Weights(packing: [], in: context) }
    expectFailure(.argument, "55") { () throws(MarlinError) in
      try Weights(quantizing: x.span, rows: 1, to: Format(rawValue: 55), in: context)
    }
    expectFailure(.argument, "the group size is -1") { () throws(MarlinError) in
      try Weights(quantizing: x.span, rows: 1, to: .mxfp4, groupSize: -1, in: context)
    }
    expectFailure(.argument, "overlaps") { () throws(MarlinError) in
      let buffer = try Buffer(byteCount: 256, in: context)
      let a = MatrixView(try buffer.matrix(of: Float.self, rows: 1, columns: 64))
      try Product(a, by: weights, into: buffer.matrix(of: Float.self, rows: 1, columns: 32)).run()
    }
  }

  @Test func devicesContextsAndLayersThatAreNotThere() throws {
    let devices = try Device.all()
    #expect(devices.contains { $0.backend == .cpu && $0.whyNot == nil && !$0.name.isEmpty && $0.memoryBytes > 0 })
    #expect(devices.allSatisfy { $0.backend == .cpu || $0.whyNot?.isEmpty != true })
    #expect(devices.allSatisfy { ($0.threads > 0) == ($0.backend == .cpu) })
    expectFailure(.argument, "9") { () throws(MarlinError) in try Context(backend: Backend(rawValue: 9)) }
    expectFailure(.argument, "-3") { () throws(MarlinError) in try Context(backend: .cpu, device: -3) }
    expectFailure(.argument, "threads is -1") { () throws(MarlinError) in try Context(threads: -1) }
    expectFailure(.noDevice, "") { () throws(MarlinError) in try Context(backend: .cuda) }
    let (file, context) = (try Checkpoint(data("ct-mxfp4")), try context())
    expectFailure(.notFound, "none") { () throws(MarlinError) in try Weights(layer: "none", of: file, in: context) }
    expectFailure(.argument, "NUL") { () throws(MarlinError) in try Weights(layer: "no\0ne", of: file, in: context) }
    expectFailure(.argument, "") { () throws(MarlinError) in try Weights(layers: [], of: file, in: context) }
    expectFailure(.notFound, "none") { () throws(MarlinError) in try file.tensor("none") }
    let version = try libraryVersion()
    #expect(version == (Int(MARLIN_VERSION_MAJOR), Int(MARLIN_VERSION_MINOR), Int(MARLIN_VERSION_PATCH)))
  }

  @Test func productsOfTwoContextsAreRefused() throws {
    let contexts = [try context(), try context()]
    let products = try contexts.map { context in
      Product(
        MatrixView(try Buffer(byteCount: 256, in: context).matrix(of: Float.self, rows: 1, columns: 64)),
        by: try quantized(.mxfp4, n: 4, k: 64, in: context),
        into: try Buffer(byteCount: 16, in: context).matrix(of: Float.self, rows: 1, columns: 4))
    }
    expectFailure(.argument, "context") { () throws(MarlinError) in try Product.run(products) }
  }

  /// Handles may go in any order, and a view keeps what it is a view of.
  @Test func whatIsMadeKeepsWhatItWasMadeIn() throws {
    var context: Context? = try MetalMarlinTests.context()
    var file: Checkpoint? = try Checkpoint(data("float-f32"))
    let tensor = try file!.tensor("encoder.layer.0.attention.self.query.weight")
    let weights = try quantized(.mxfp4, n: 32, k: 64, in: context!)
    let stream = try WorkStream(in: context!)
    let x = MatrixView(try Buffer(byteCount: 256, in: context!).matrix(of: Float.self, rows: 1, columns: 64))
    let y = try Buffer(byteCount: 128, in: context!).matrix(of: Float.self, rows: 1, columns: 32)
    (context, file) = (nil, nil)
    try stream.submit(Product(x, by: weights, into: y))
    try stream.wait(timeout: nil)
    #expect(try tensor.elements(of: Float.self).count == tensor.rows * tensor.columns)
  }
}
