internal import CMetalMarlin

/// An open .safetensors, .safetensors.index.json, .gguf or .marlin file, or a folder with one. It is mapped, and read lazily.
///
/// Any number of threads may use it at once. A file that another process shrinks meanwhile faults in the reader (SIGBUS): replace
/// files by renaming.
public final class Checkpoint: Sendable {
  let handle: Handle

  /// Reads headers and config.json only.
  ///
  /// - Parameters:
  ///   - path: of the file or folder.
  ///   - layout: of quantized layers, taken on trust; ``Layout/auto``: found from config.json, tensor names and dtypes.
  ///   - gptqZeroF: what a zero nibble 15 stands for, in all GPTQ v1 layers.
  ///   - outputsFirst: the order of stacks of experts whose shapes and config leave it open: `true` for [experts, n, k], `false`
  ///     for [experts, k, n]. With `nil` such stacks are not read.
  ///   - config: an object of JSON with members of config.json, which answer what the files leave open or say wrongly:
  ///     `{"quantization_config": {"group_size": 64}}`.
  public init(
    _ path: String, layout: Layout = .auto, gptqZeroF: GPTQZeroF = .auto, outputsFirst: Bool? = nil,
    config: String? = nil
  ) throws(MarlinError) {
    var desc = marlin_open_desc.sized()
    desc.layout = layout.rawValue
    desc.gptq_zero_f = gptqZeroF.rawValue
    if let outputsFirst { desc.flags = outputsFirst ? MARLIN_OPEN_OUTPUTS_FIRST : MARLIN_OPEN_INPUTS_FIRST }
    handle = try withC([path, config ?? ""], what: "the path or config") { (texts) throws(MarlinError) in
      if config != nil { desc.config = texts?[1] }
      return try Handle(destroy: \.checkpoint_destroy) { api, out, error in
        api.pointee.checkpoint_open(texts?.pointee, &desc, out, error)
      }
    }
  }

  /// The layers in file order. One that could not be loaded is listed as well: ``LayerInfo/status``.
  public func layers() throws(MarlinError) -> [LayerInfo] {
    try list(keeping: self) { api, index, error in
      var info = marlin_layer_info.sized()
      let status = api.pointee.checkpoint_layer(handle.raw, UInt64(index), &info, error)
      return (status, LayerInfo(info))
    }
  }

  /// One stored tensor: a bias, a norm, a router. A type that ``DType`` does not name is ``Status/unsupported``.
  public func tensor(_ name: String) throws(MarlinError) -> Tensor {
    var raw = marlin_matrix()
    try withC([name], what: "the tensor's name") { (names) throws(MarlinError) in
      try call(keeping: self) { api, error in api.pointee.checkpoint_tensor(handle.raw, names?.pointee, &raw, error) }
    }
    return Tensor(view: MatrixView(raw: raw, owner: self))
  }
}

/// What a layer is, in a file or packed.
public struct LayerInfo: Hashable, Sendable {
  /// Would it load?
  public let status: Status
  /// "" for weights that do not come from a file.
  public let name: String
  /// Rows: out_features.
  public let n: Int
  /// Columns: in_features.
  public let k: Int
  /// 1 for a plain layer.
  public let experts: Int
  /// K when one group spans the row.
  public let groupSize: Int
  /// ``Format/none``: floats of `dtype`, which can be quantized on load.
  public let format: Format
  /// In the file; of packed weights: what their first part came in.
  public let layout: Layout
  public let flags: LayerFlags
  /// Of the scales; of the values when they are floats.
  public let dtype: DType
  /// In the file, or on the device.
  public let byteCount: UInt64
  /// The share of the squared norm that pruning kept; 1 when nothing was pruned.
  public let keptShare: Double

  /// The name in `info` must be there.
  init(_ info: marlin_layer_info) {
    status = Status(rawValue: info.status)
    name = text(info.name)
    (n, k) = (Int(info.n), Int(info.k))
    experts = Int(info.experts)
    groupSize = Int(info.group_size)
    format = Format(rawValue: info.format)
    layout = Layout(rawValue: info.layout)
    flags = LayerFlags(rawValue: info.flags)
    dtype = DType(rawValue: info.dtype)
    byteCount = info.bytes
    keptShare = info.kept_share
  }
}

/// One stored tensor in a mapped file, as a matrix: all dimensions but the last are rows. It keeps its checkpoint alive.
public struct Tensor: @unchecked Sendable {  // only read
  /// An operand that needs no copy. The file may have it at an address that is not aligned for its type, which the work that
  /// uses it reports: then use a copy.
  public let view: MatrixView

  public var rows: Int { view.rows }
  public var columns: Int { view.columns }
  public var dtype: DType { view.dtype }

  /// A copy of its elements, row by row. ``Status/argument`` when they are of another type.
  public func elements<T: Element>(of type: T.Type) throws(MarlinError) -> [T] {
    defer { withExtendedLifetime(self) {} }
    guard dtype == T.dtype, let bits = dtype.bits else {
      throw MarlinError(.argument, "the tensor holds \(dtype), not \(T.dtype)")
    }
    // A tensor without elements may have more rows than any loop ends, and more columns than bits can be counted of.
    guard rows > 0, columns > 0 else { return [] }
    let bytes = { (elements: Int) in elements * bits / 8 }
    let (row, stride) = (bytes(columns), bytes(max(Int(view.raw.row_stride), columns)))
    let total = rows * row / MemoryLayout<T>.size
    return [T](unsafeUninitializedCapacity: total) { elements, count in
      for r in 0..<rows {
        let from = view.raw.data + Int(view.raw.offset_bytes) + r * stride
        (UnsafeMutableRawPointer(elements.baseAddress!) + r * row).copyMemory(from: from, byteCount: row)
      }
      count = total
    }
  }
}
