// Every checkpoint of tests/data, against the true values that lie beside it; and conversion from file to file.
import Foundation
import MetalMarlin
import Synchronization
import Testing

@Suite struct CheckpointTests {
  @Test func everyLayerOfEveryCheckpointIsExact() throws {
    let context = try context()
    var layers = 0
    for folder in try FileManager.default.contentsOfDirectory(atPath: data("")) where !folder.contains(".") {
      let file = try Checkpoint(data(folder))
      for layer in try file.layers() {
        #expect(layer.status == .ok, "\(folder): \(layer.name)")
        if layer.format == .none { continue }
        let truth = try decoded(folder, layer.name)
        for expert in 0..<layer.experts {
          let part = LayerPart(layer.name, expert: layer.experts > 1 ? expert : nil)
          let weights = try Weights(layers: [part], of: file, in: context)
          let expected = truth[expert * layer.n * layer.k..<(expert + 1) * layer.n * layer.k]
          #expect(try values(weights).map(\.bitPattern) == expected.map(\.bitPattern), "\(folder): \(layer.name)")
          #expect(try weights.info().name == layer.name)
          layers += 1
        }
      }
    }
    #expect(layers > 40)
  }

  // The other dimension of a tensor without elements takes no byte of a file: a loop over it would not end.
  @Test func aTensorWithoutElementsCostsNothing() throws {
    for shape in ["2147483647,0", "4611686018427387904,0", "0,2147483647", "0,4611686018427387904", "3,0"] {
      let header = Data(#"{"x":{"dtype":"F32","shape":[\#(shape)],"data_offsets":[0,0]}}"#.utf8)
      let path = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID().uuidString).safetensors")
      try (withUnsafeBytes(of: UInt64(header.count).littleEndian) { Data($0) } + header).write(to: path)
      defer { try? FileManager.default.removeItem(at: path) }
      #expect(try Checkpoint(path.path).tensor("x").elements(of: Float.self).isEmpty, "\(shape)")
    }
  }

  @Test func theOrderOfStacksThatAFileLeavesOpen() throws {
    let header = Data(#"{"m.experts.odd":{"dtype":"F32","shape":[2,2,2],"data_offsets":[0,32]}}"#.utf8)
    let floats = (0..<8).map(Float.init).withUnsafeBytes { Data($0) }
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID().uuidString).safetensors")
    try (withUnsafeBytes(of: UInt64(header.count).littleEndian) { Data($0) } + header + floats).write(to: path)
    defer { try? FileManager.default.removeItem(at: path) }
    #expect(try Checkpoint(path.path).layers()[0].status != .ok)
    for (outputsFirst, expected) in [(true, [0, 1, 2, 3, 4, 5, 6, 7]), (false, [0, 2, 1, 3, 4, 6, 5, 7] as [Float])] {
      let file = try Checkpoint(path.path, outputsFirst: outputsFirst)
      let weights = try Weights(layers: [LayerPart("m.experts.odd")], of: file, in: try context())
      #expect(try values(weights) == expected)
    }
  }

  @Test func layersSideBySideAndPartsOfThem() throws {
    let file = try Checkpoint(data("sharded-gptq"))
    let names = try file.layers().map(\.name)
    let context = try context()
    let weights = try Weights(layers: [LayerPart(names[1]), LayerPart(names[0], rows: 32..<48)], of: file, in: context)
    let (first, second) = (try decoded("sharded-gptq", names[1]), try decoded("sharded-gptq", names[0]))
    #expect(try values(weights) == first + second[32 * 128..<48 * 128])
    expectFailure(.shape, "65") { () throws(MarlinError) in
      try Weights(layers: [LayerPart(names[0], rows: 65..<70)], of: file, in: context)
    }
    expectFailure(.shape, "empty") { () throws(MarlinError) in
      try Weights(layers: [LayerPart(names[0], rows: 3..<3)], of: file, in: context)
    }
    expectFailure(.argument, "-1") { () throws(MarlinError) in
      try Weights(layers: [LayerPart(names[0], columns: -1..<3)], of: file, in: context)
    }
    for part in [LayerPart(names[0], rows: .min..<Int.max), LayerPart(names[0], expert: .max), LayerPart(names[0], expert: -1)]
    {
      #expect(throws: MarlinError.self) { try Weights(layers: [part], of: file, in: context) }
    }
  }

  @Test func floatsQuantizedOnLoad() throws {
    let file = try Checkpoint(data("float-f16"))
    let layer = try file.layers()[0]
    #expect(layer.format == .none && layer.dtype == .f16)
    let context = try context()
    let kept = try Weights(layer: layer.name, of: file, in: context).info()
    #expect(kept.format == .float16 && kept.dtype == .f16)
    let part = LayerPart(layer.name, columnNorms: [Float](repeating: 1, count: layer.k))
    let pruned = try Weights(
      layers: [part], of: file, in: context, quantizedTo: .int4, groupSize: 64, options: [.prune2of4, .scalesMse])
    let info = try pruned.info()
    #expect(info.format == .int4 && info.groupSize == 64 && info.flags.contains(.sparse2of4) && info.keptShare < 1)
    expectFailure(.format, "") { () throws(MarlinError) in
      try Weights(layers: [part], of: file, in: context, quantizedTo: .int4, options: .obeys2of4)
    }
  }

  @Test func aLoadTellsHowFarItIsAndCanBeStopped() throws {
    let file = try Checkpoint(data("sharded-gptq"))
    let (layer, context) = (try file.layers()[0], try context())
    var steps: [(done: UInt64, total: UInt64)] = []
    _ = try Weights(layers: [LayerPart(layer.name)], of: file, in: context) { done, total in
      steps.append((done, total))
      return true
    }
    let elements = UInt64(layer.n * layer.k)
    #expect(steps.count > 1 && steps.first?.done == 0 && steps.last?.done == elements)
    #expect(steps.allSatisfy { $0.total == elements })
    expectFailure(.cancelled, "") { () throws(MarlinError) in
      try Weights(layers: [LayerPart(layer.name)], of: file, in: context) { _, _ in false }
    }
  }

  @Test func tensors() throws {
    let tensor = try Checkpoint(data("float-bf16")).tensor("encoder.layer.0.attention.self.query.weight")
    #expect((tensor.rows, tensor.columns) == (96, 384) && tensor.dtype == .bf16)
    let floats = try tensor.elements(of: BFloat16.self).map { Float($0) }
    #expect(floats == (try decoded("float-bf16", "encoder.layer.0.attention.self.query")))
    expectFailure(.argument, "bf16, not f32") { () throws(MarlinError) in try tensor.elements(of: Float.self) }
    // As an operand where it lies, when the file has it aligned.
    do throws(MarlinError) {
      let weights = try Weights(packing: [Pack(tensor.view, as: .int8)], in: Context(backend: .cpu))
      #expect(try weights.info().n == 96)
    } catch {
      #expect(error.status == .argument && error.message.contains("multiple of its element"))
    }
  }

  @Test func aTrustedLayout() throws {
    let file = try Checkpoint(data("gptq-v1-sym-g128"), layout: .gptqV1, gptqZeroF: .wrap)
    #expect(try file.layers()[0].layout == .gptqV1)
    expectFailure(.argument, "99") { () throws(MarlinError) in
      try Checkpoint(data("ct-mxfp4"), layout: Layout(rawValue: 99))
    }
  }

  @Test func conversionFromFileToFile() throws {
    let folder = try scratch("convert")
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let file = try Checkpoint(data("float-f32"))
    let name = try file.layers()[0].name
    var (calls, outcomes): (Int, [Conversion.Outcome]) = (0, [])
    var conversion = Conversion(of: file, layers: [name], to: .int4)
    conversion.scheme = .gptq
    conversion.groupSize = 64
    conversion.options = [.asymmetric, .scalesMse]
    conversion.shardBytes = 1 << 20
    conversion.log = { _, _ in }
    conversion.progress = { progress in
      calls += 1
      return progress.doneBytes <= progress.totalBytes || progress.totalBytes == 0
    }
    conversion.layerDone = { outcomes.append($0) }
    try conversion.write(to: folder + "/gptq")
    #expect(calls > 0 && outcomes.count == 1)
    #expect(outcomes[0].status == .ok && outcomes[0].name == name && outcomes[0].bytesAfter < outcomes[0].bytesBefore / 5)
    #expect(outcomes[0].squaredError > 0 && outcomes[0].squaredError < outcomes[0].squaredNorm / 50)
    #expect(try Checkpoint(folder + "/gptq").layers()[0].layout == .gptqV2)

    expectFailure(.file, "") { () throws(MarlinError) in try conversion.write(to: folder + "/gptq") }
    conversion.options.insert([.overwrite, .dryRun])
    try conversion.write(to: folder + "/gptq")
    conversion.progress = { _ in false }
    expectFailure(.cancelled, "") { () throws(MarlinError) in try conversion.write(to: folder + "/other") }
    expectFailure(.argument, "no layers") { () throws(MarlinError) in
      try Conversion(of: file, layers: [], to: .mxfp4).write(to: folder + "/other")
    }
    expectFailure(.notFound, "x") { () throws(MarlinError) in
      try Conversion(of: file, layers: ["x"], to: .mxfp4).write(to: folder + "/other")
    }
    var blocks = Conversion(of: file, layers: [name], to: .none)
    blocks.blockTypes[name] = "Q5_1"
    blocks.columnNorms[name] = [Float](repeating: 1, count: 384)
    blocks.layerDone = { outcomes.append($0) }
    try blocks.write(to: folder + "/blocks.gguf")
    #expect(outcomes.last?.format == .int5 && outcomes.last?.flags == .additiveZeros)
    blocks.blockTypes[name] = "Q9_K"
    expectFailure(.argument, "expected one of Q4_0") { () throws(MarlinError) in try blocks.write(to: folder + "/other.gguf") }
    var pruned = Conversion(of: file, layers: [name], to: .int4)
    pruned.options = .prune2of4
    pruned.columnNorms[name] = [1, 2]
    expectFailure(.shape, "column_norms") { () throws(MarlinError) in try pruned.write(to: folder + "/other") }
  }

  @Test func aConversionOnTheHostsThreadsWritesTheSame() throws {
    let folder = try scratch("threads")
    defer { try? FileManager.default.removeItem(atPath: folder) }
    // Two stripes of 2^18 weights: fewer are not worth a second task.
    let (n, k) = (1024, 512)
    let header = #"{"w.weight":{"dtype":"F32","shape":[\#(n),\#(k)],"data_offsets":[0,\#(n * k * 4)]}}"#
    var bytes = withUnsafeBytes(of: UInt64(header.utf8.count).littleEndian) { Data($0) }
    bytes += Data(header.utf8)
    numbers(n * k, seed: 1).withUnsafeBytes { bytes += $0 }
    try bytes.write(to: URL(filePath: folder + "/in.safetensors"))
    var conversion = Conversion(of: try Checkpoint(folder + "/in.safetensors"), layers: ["w"], to: .mxfp4)
    try conversion.write(to: folder + "/one.gguf")
    let seen = Mutex(0)
    conversion.parallelFor = { tasks in
      seen.withLock { $0 += tasks.count }
      DispatchQueue.concurrentPerform(iterations: 2) { _ in tasks.run() }
    }
    try conversion.write(to: folder + "/two.gguf")
    #expect(seen.withLock { $0 } >= 2)
    #expect(FileManager.default.contentsEqual(atPath: folder + "/one.gguf", andPath: folder + "/two.gguf"))
  }

  @Test func aPackedContainerHoldsTheSame() throws {
    let file = try Checkpoint(data("sharded-gptq"))
    let names = try file.layers().map(\.name)
    let context = try context()
    let path = NSTemporaryDirectory() + "metal-marlin-swift-\(UUID().uuidString).marlin"
    defer { try? FileManager.default.removeItem(atPath: path) }
    let pair = PackedEntry([LayerPart(names[0]), LayerPart(names[1])])
    let half = PackedEntry([LayerPart(names[2], rows: 32..<48)])
    try file.save(to: path, in: context, entries: [pair, half], rank: 1, of: 2)
    let packed = try Checkpoint(path)
    #expect(try packed.layers().map(\.name) == ["\(names[0])+\(names[1])", names[2]])
    let expected = try Weights(layers: half.layers, of: file, in: context)
    let found = try Weights(layers: [LayerPart(names[2])], of: packed, in: context)
    #expect(try values(found) == values(expected))
    expectFailure(.file, "is there already") { () throws(MarlinError) in try file.save(to: path, in: context) }
    try file.save(to: path, in: context, overwrite: true)
    #expect(try Checkpoint(path).layers().count == names.count)
  }
}
