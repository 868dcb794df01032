internal import CMetalMarlin

/// What one ``Weights`` loads, as an entry of a packed container.
public struct PackedEntry: Sendable, ExpressibleByStringLiteral {
  /// Which, in the order of the rows. The entry's name is theirs with "+" between them.
  public var layers: [LayerPart]
  /// What layers of floats are quantized to; ``Format/none``: they stay floats.
  public var format = Format.none
  /// Of layers that are quantized; 0: the format's own.
  public var groupSize = 0
  public var options: LoadOptions = []
  /// Above 1: the layers are of that many experts, first those of expert 0, then as many of expert 1, and so on.
  public var experts = 1

  public init(_ layers: [LayerPart]) { self.layers = layers }
  public init(stringLiteral name: String) { self.init([LayerPart(name)]) }
}

extension Checkpoint {
  /// Writes a packed container (.marlin): packed layers, which ``Weights`` then uses in place, with all other tensors and the
  /// key-values of the checkpoint.
  ///
  /// - Parameters:
  ///   - path: of the file, which appears when it is complete.
  ///   - context: its threads pack, on the host.
  ///   - entries: what to pack; none: every layer that loads, alone.
  ///   - rank: which shard the entries are. The key-values "marlin.rank" and "marlin.ranks" of the container tell it.
  ///   - ranks: of how many shards.
  ///   - backend: whose devices the file is for; this machine needs no such device; ``Backend/auto``: that of the context.
  ///   - overwrite: whether a file that is there is replaced; else it is an error.
  public func save(
    to path: String, in context: Context, entries: [PackedEntry] = [], rank: Int = 0, of ranks: Int = 1,
    for backend: Backend = .auto, overwrite: Bool = false
  ) throws(MarlinError) {
    var desc = marlin_save_desc.sized()
    desc.flags = overwrite ? MARLIN_SAVE_OVERWRITE : 0
    desc.load_count = try count(entries.count, "the number of entries")
    desc.rank = try count(rank, "the rank")
    desc.rank_count = try count(ranks, "the number of ranks")
    desc.backend = backend.rawValue
    try withLoads(entries[...], []) { (loads) throws(MarlinError) in
      try withPointers(to: loads) { (loads) throws(MarlinError) in
        try withC([path], what: "the path") { (paths) throws(MarlinError) in
          desc.loads = entries.isEmpty ? nil : loads
          try call(keeping: (self, context)) { api, error in
            api.pointee.checkpoint_save(context.handle.raw, handle.raw, paths?.pointee, &desc, error)
          }
        }
      }
    }
  }
}

/// Calls with C's form of these entries, behind those that are `made`. What they point to lives during the call.
func withLoads<R>(
  _ entries: ArraySlice<PackedEntry>, _ made: [marlin_load_desc], _ body: ([marlin_load_desc]) throws(MarlinError) -> R
) throws(MarlinError) -> R {
  guard let entry = entries.first else { return try body(made) }
  var desc = marlin_load_desc.sized()
  desc.flags = entry.options.rawValue
  desc.format = entry.format.rawValue
  desc.group_size = try count(entry.groupSize, "the group size")
  desc.layer_count = try count(entry.layers.count, "the number of layers")
  desc.expert_count = try count(entry.experts, "the number of experts")
  var shards: [marlin_shard] = []
  for layer in entry.layers { shards.append(try layer.shard()) }
  return try withC(entry.layers.map(\.name), what: "the layer's name") { (names) throws(MarlinError) in
    try withRows(entry.layers.map(\.columnNorms)) { (norms) throws(MarlinError) in
      try shards.withUnsafeBufferPointer { (shards) throws(MarlinError) in
        desc.layers = names
        desc.shards = shards.baseAddress
        desc.column_norms = entry.options.contains(.prune2of4) ? norms : nil
        return try withLoads(entries.dropFirst(), made + [desc], body)
      }
    }
  }
}
