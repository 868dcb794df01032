internal import CMetalMarlin

/// Writes a checkpoint again with some layers quantized, from file to file.
///
/// Everything is written under other names and renamed at the end: what fails leaves old files as they were. All tensors that are
/// not listed are copied unchanged.
public struct Conversion {
  /// The input.
  public var file: Checkpoint
  /// To quantize, named as ``Checkpoint/layers()`` does.
  public var layers: [String]
  /// A format of the scheme. ``Format/none`` is for ``blockTypes``, and for layers that are quantized already and are to keep every
  /// value.
  public var format: Format
  /// How the files name and store them.
  public var scheme = Scheme.auto
  /// 0: the format's own; K or more: the whole row.
  public var groupSize = 0
  public var options: ConversionOptions = []
  /// By the layer's name, one norm for each column: with ``ConversionOptions/prune2of4`` to prune by, else for the errors that
  /// ``ConversionOptions/scalesMse`` and ``blockTypes`` minimize.
  public var columnNorms: [String: [Float]] = [:]
  /// GGUF: by the layer's name, the type of its blocks, as "Q4_K". All layers have one, or none.
  public var blockTypes: [String: String] = [:]
  /// Safetensors: at most so many bytes of tensors a file; 0: as many files as the input has.
  public var shardBytes: UInt64 = 0
  /// Hears how far it is, on the calling thread. False stops it: ``Status/cancelled``.
  public var progress: ((Progress) -> Bool)?
  /// Hears of each layer when it is done, in file order, on the calling thread.
  public var layerDone: ((Outcome) -> Void)?
  /// Hears what the library has to say.
  public var log: (@Sendable (LogLevel, String) -> Void)?
  /// Runs tasks on the host's threads; without it all runs on the calling one. The result is the same.
  public var parallelFor: (@Sendable (Tasks) -> Void)?

  public init(of file: Checkpoint, layers: [String], to format: Format) {
    (self.file, self.layers, self.format) = (file, layers, format)
  }

  /// Writes a .gguf or .safetensors file in an existing folder, or a folder.
  public func write(to path: String) throws(MarlinError) {
    let callbacks = Callbacks()
    (callbacks.progress, callbacks.layerDone, callbacks.log, callbacks.parallelFor) = (progress, layerDone, log, parallelFor)
    var desc = marlin_convert_desc.sized()
    desc.flags = options.rawValue
    desc.scheme = scheme.rawValue
    desc.format = format.rawValue
    desc.group_size = try count(groupSize, "the group size")
    desc.layer_count = try count(layers.count, "the number of layers")
    desc.shard_bytes = shardBytes
    desc.progress = callbacks.cProgress
    desc.layer_done = callbacks.cLayerDone
    desc.log = callbacks.cLog
    desc.parallel_for = callbacks.cParallelFor
    desc.user = callbacks.user
    try withC(layers, what: "the layer's name") { (names) throws(MarlinError) in
      try withRows(layers.map { columnNorms[$0] ?? [] }) { (norms) throws(MarlinError) in
        try withC([path], what: "the path") { (paths) throws(MarlinError) in
          try withC(layers.map { blockTypes[$0] ?? "" }, what: "the type of blocks") { (types) throws(MarlinError) in
            desc.layers = names
            desc.column_norms = columnNorms.isEmpty ? nil : norms
            desc.types = blockTypes.isEmpty ? nil : types
            try call(keeping: (file, callbacks)) { api, error in
              api.pointee.checkpoint_convert(file.handle.raw, paths?.pointee, &desc, error)
            }
          }
        }
      }
    }
  }

  /// How far a conversion is.
  public struct Progress: Hashable, Sendable {
    /// Of the input.
    public let doneBytes: UInt64
    /// Of the input; 0 while the files are being planned.
    public let totalBytes: UInt64
    /// The layer that is at work.
    public let layer: String
  }

  /// What became of one layer.
  public struct Outcome: Hashable, Sendable {
    /// ``Status/ok``: quantized; else why it stays as it was.
    public let status: Status
    public let name: String
    /// The words for status, or "".
    public let reason: String
    /// Rows: out_features.
    public let n: Int
    /// Columns: in_features.
    public let k: Int
    /// 1 for a plain layer.
    public let experts: Int
    /// K when one group spans the row.
    public let groupSize: Int
    /// What it was; ``Format/none``: floats.
    public let from: Format
    /// That was written.
    public let format: Format
    /// Of what was written.
    public let flags: LayerFlags
    /// Of all its tensors.
    public let bytesBefore: UInt64
    /// Of all its tensors.
    public let bytesAfter: UInt64
    /// Sum of (written - original)^2; 0 in a dry run.
    public let squaredError: Double
    /// Sum of original^2.
    public let squaredNorm: Double
    /// Sum of original^2 over what pruning kept.
    public let keptNorm: Double

    init(_ raw: marlin_convert_outcome) {
      status = Status(rawValue: raw.status)
      name = text(raw.name)
      reason = text(raw.reason)
      (n, k) = (Int(raw.n), Int(raw.k))
      experts = Int(raw.experts)
      groupSize = Int(raw.group_size)
      from = Format(rawValue: raw.from)
      format = Format(rawValue: raw.format)
      flags = LayerFlags(rawValue: raw.flags)
      (bytesBefore, bytesAfter) = (raw.bytes_before, raw.bytes_after)
      (squaredError, squaredNorm, keptNorm) = (raw.squared_error, raw.squared_norm, raw.kept_norm)
    }
  }
}

extension Callbacks {
  typealias CProgress = @convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64, UnsafePointer<CChar>?) -> Int32
  fileprivate var cProgress: CProgress? {
    if progress == nil { return nil }
    return { user, done, total, layer in
      let progress = Conversion.Progress(doneBytes: done, totalBytes: total, layer: text(layer))
      return Callbacks.of(user).progress?(progress) == false ? 1 : 0
    }
  }

  typealias CLayerDone = @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<marlin_convert_outcome>?) -> Void
  fileprivate var cLayerDone: CLayerDone? {
    if layerDone == nil { return nil }
    return { user, outcome in
      if let outcome { Callbacks.of(user).layerDone?(Conversion.Outcome(outcome.pointee)) }
    }
  }
}
