internal import CMetalMarlin

/// One matrix W[N, K] to be packed: codes with their scales, or floats to be quantized.
public struct Pack {
  public var format: Format
  /// Elements of K that share a scale; 0: the format's own; K or more: the whole row.
  public var groupSize = 0
  /// The order of codes, scales and zeros; ``Layout/auto``: one row after the other.
  public var layout = Layout.auto
  /// Rows: out_features.
  public var n: Int
  /// Columns: in_features.
  public var k: Int
  /// [N, K]: codes, or floats.
  public var values: MatrixView
  /// [N, ceil(K / group size)]; nil with floats.
  public var scales: MatrixView?
  /// [N, ceil(K / group size)]: 0 to 15, or floats with ``PackOptions/additiveZeros``; nil: 8, INT8: 0.
  public var zeros: MatrixView?
  /// 2:4 sparse: `values` hold what is kept, and this says where: bytes of masks, or `Int16` of nibbles.
  public var sparseMeta: MatrixView?
  /// [1, K] of `Int32`: the group of each k (act-order).
  public var groupIndex: MatrixView?
  /// [1, 1] of `Float`.
  public var tensorScale: MatrixView?
  /// [1, K] of `Float`, with ``PackOptions/prune2of4``: what is kept is the largest |w| * norm.
  public var columnNorms: MatrixView?
  /// [1, 16] of `Float`, with ``Format/codebook4``: the value of each code in units of its scale.
  public var codebook: MatrixView?
  public var options: PackOptions = []
  /// With ``Layout/gptqV1``.
  public var gptqZeroF = GPTQZeroF.auto

  /// Codes and scales; `values` are [N, K] when their layout is rows.
  public init(_ values: MatrixView, as format: Format, n: Int, k: Int, scales: MatrixView?) {
    (self.values, self.format, self.n, self.k, self.scales) = (values, format, n, k, scales)
  }

  /// Floats [N, K], to be quantized.
  public init(_ values: MatrixView, as format: Format) {
    self.init(values, as: format, n: values.rows, k: values.columns, scales: nil)
  }

  func desc() throws(MarlinError) -> marlin_pack_desc {
    var desc = marlin_pack_desc.sized()
    desc.format = format.rawValue
    desc.group_size = try count(groupSize, "the group size")
    desc.layout = layout.rawValue
    (desc.n, desc.k) = (Int64(n), Int64(k))
    desc.values = values.raw
    desc.scales = scales?.raw ?? marlin_matrix()
    desc.zeros = zeros?.raw ?? marlin_matrix()
    desc.sparse_meta = sparseMeta?.raw ?? marlin_matrix()
    desc.group_index = groupIndex?.raw ?? marlin_matrix()
    desc.tensor_scale = tensorScale?.raw ?? marlin_matrix()
    desc.column_norms = columnNorms?.raw ?? marlin_matrix()
    desc.codebook = codebook?.raw ?? marlin_matrix()
    desc.flags = options.rawValue
    desc.gptq_zero_f = gptqZeroF.rawValue
    return desc
  }
}
