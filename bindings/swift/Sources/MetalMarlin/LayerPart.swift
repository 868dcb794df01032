internal import CMetalMarlin

/// A layer of a checkpoint, or a part of it.
public struct LayerPart: Sendable, ExpressibleByStringLiteral {
  /// As ``Checkpoint/layers()`` lists it.
  public var name: String
  /// Of N; nil: all.
  public var rows: Range<Int>?
  /// Of K; nil: all.
  public var columns: Range<Int>?
  /// Of a layer with experts; nil: all, in one handle.
  public var expert: Int?
  /// With ``LoadOptions/prune2of4``: one norm for each column of the whole layer, or none.
  public var columnNorms: [Float]

  public init(
    _ name: String, rows: Range<Int>? = nil, columns: Range<Int>? = nil, expert: Int? = nil, columnNorms: [Float] = []
  ) {
    (self.name, self.rows, self.columns, self.expert, self.columnNorms) = (name, rows, columns, expert, columnNorms)
  }

  public init(stringLiteral name: String) { self.init(name) }

  func shard() throws(MarlinError) -> marlin_shard {
    // To the library a count of 0 means everything.
    for range in [rows, columns] where range?.isEmpty == true {
      throw MarlinError(.shape, "\(name): the range \(range!) is empty")
    }
    // A count that overflows is negative, which the library refuses.
    func number(_ range: Range<Int>?) -> Int64 { range.map { Int64($0.upperBound &- $0.lowerBound) } ?? 0 }
    var shard = marlin_shard()
    shard.first = (Int64(rows?.lowerBound ?? 0), Int64(columns?.lowerBound ?? 0), Int64(expert ?? 0))
    shard.count = (number(rows), number(columns), expert == nil ? 0 : 1)
    return shard
  }
}

/// Calls with a row for each array; an empty one is an absent matrix.
func withRows<R>(
  _ rows: [[Float]], _ body: (UnsafePointer<marlin_matrix>?) throws(MarlinError) -> R
) throws(MarlinError) -> R {
  let all = rows.flatMap(\.self)
  return try all.withUnsafeBufferPointer { (all) throws(MarlinError) in
    var matrices: [marlin_matrix] = []
    var first = 0
    for row in rows {
      let elements = UnsafeBufferPointer(rebasing: all[first..<first + row.count])
      matrices.append(row.isEmpty ? marlin_matrix() : try MatrixView(elements, rows: 1, columns: row.count).raw)
      first += row.count
    }
    return try matrices.withUnsafeBufferPointer { (matrices) throws(MarlinError) in try body(matrices.baseAddress) }
  }
}
