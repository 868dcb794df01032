internal import CMetalMarlin

/// A row-major matrix to be read, in memory that somebody else owns.
///
/// A view of a ``Buffer`` or of a ``Tensor`` keeps it alive. One of unsafe memory keeps nothing: that memory must stay until the
/// work that uses the view is done.
public struct MatrixView {
  let raw: marlin_matrix
  /// What the memory belongs to.
  let owner: (any AnyObject & Sendable)?

  /// Rows of `columns` elements that begin `rowStride` elements apart; nil: `columns`. The memory may be longer than they need;
  /// ``Status/shape`` when it is shorter.
  public init<T: Element>(
    _ elements: UnsafeBufferPointer<T>, rows: Int, columns: Int, rowStride: Int? = nil
  ) throws(MarlinError) {
    raw = try described(elements.baseAddress, bytes: elements.count * MemoryLayout<T>.stride, T.self, rows, columns, rowStride)
    owner = nil
  }

  /// What was written, to be read.
  public init(_ view: MutableMatrixView) { (raw, owner) = (view.raw, view.owner) }

  init(raw: marlin_matrix, owner: (any AnyObject & Sendable)?) { (self.raw, self.owner) = (raw, owner) }

  public var rows: Int { Int(raw.rows) }
  public var columns: Int { Int(raw.cols) }
  /// The type of its elements.
  public var dtype: DType { DType(rawValue: raw.dtype) }
}

/// A row-major matrix to be written, in memory that somebody else owns; see ``MatrixView``.
public struct MutableMatrixView {
  let raw: marlin_matrix
  let owner: (any AnyObject & Sendable)?

  /// Rows of `columns` elements that begin `rowStride` elements apart; nil: `columns`. The memory may be longer than they need;
  /// ``Status/shape`` when it is shorter. What lies between rows is left alone.
  public init<T: Element>(
    _ elements: UnsafeMutableBufferPointer<T>, rows: Int, columns: Int, rowStride: Int? = nil
  ) throws(MarlinError) {
    raw = try described(elements.baseAddress, bytes: elements.count * MemoryLayout<T>.stride, T.self, rows, columns, rowStride)
    owner = nil
  }

  /// Memory that Swift has no name for: `native` is a device pointer or an `MTLBuffer`, as `memory` says. Nobody checks that
  /// the matrix fits into it.
  public init(
    native: UnsafeMutableRawPointer, _ memory: Memory, of dtype: DType, rows: Int, columns: Int, rowStride: Int? = nil,
    byteOffset: UInt64 = 0
  ) {
    raw = marlin_matrix(
      data: native, offset_bytes: byteOffset, rows: Int64(rows), cols: Int64(columns), row_stride: Int64(rowStride ?? 0),
      dtype: dtype.rawValue, memory: memory.rawValue)
    owner = nil
  }

  init(raw: marlin_matrix, owner: (any AnyObject & Sendable)?) { (self.raw, self.owner) = (raw, owner) }

  public var rows: Int { Int(raw.rows) }
  public var columns: Int { Int(raw.cols) }
  /// The type of its elements.
  public var dtype: DType { DType(rawValue: raw.dtype) }
}

/// A matrix at `base`, when `bytes` of memory hold it.
func described<T: Element>(
  _ base: UnsafeRawPointer?, bytes: Int, _ type: T.Type, _ rows: Int, _ columns: Int, _ rowStride: Int?
) throws(MarlinError) -> marlin_matrix {
  guard let bits = T.dtype.bits, MemoryLayout<T>.size == (bits + 7) / 8 else {
    throw MarlinError(.argument, "\(T.self) has \(MemoryLayout<T>.size) bytes, which is not the size of \(T.dtype)")
  }
  let stride = rowStride ?? columns
  guard rows >= 0, columns >= 0, stride >= columns else {
    throw MarlinError(.shape, "[\(rows), \(columns)] with stride \(stride): expected 0 <= rows, 0 <= columns <= stride")
  }
  // Bits stay below 2^63 because the elements do not.
  let (before, overflows) = max(rows - 1, 0).multipliedReportingOverflow(by: stride)
  let holds = bytes * 8 / bits
  guard !overflows, rows == 0 || (before <= holds && columns <= holds - before) else {
    throw MarlinError(.shape, "[\(rows), \(columns)] with stride \(stride) does not fit memory of \(holds) elements")
  }
  return marlin_matrix(
    data: UnsafeMutableRawPointer(mutating: base), offset_bytes: 0, rows: Int64(rows), cols: Int64(columns),
    row_stride: Int64(stride), dtype: T.dtype.rawValue, memory: MARLIN_MEM_HOST)
}

extension Span where Element: MetalMarlin.Element {
  /// Calls with a view of all elements in `rows` equal rows.
  func withView<R>(rows: Int, _ body: (MatrixView) throws(MarlinError) -> R) throws(MarlinError) -> R {
    try withUnsafeBufferPointer { (elements) throws(MarlinError) in
      try body(MatrixView(elements, rows: rows, columns: columns(of: elements.count, Element.self, rows)))
    }
  }
}

extension MutableSpan where Element: MetalMarlin.Element {
  /// Calls with a view of all elements in `rows` equal rows.
  mutating func withView<R>(rows: Int, _ body: (MutableMatrixView) throws(MarlinError) -> R) throws(MarlinError) -> R {
    try withUnsafeMutableBufferPointer { (elements) throws(MarlinError) in
      try body(MutableMatrixView(elements, rows: rows, columns: columns(of: elements.count, Element.self, rows)))
    }
  }
}

private func columns<T: Element>(of count: Int, _ type: T.Type, _ rows: Int) throws(MarlinError) -> Int {
  let elements = T.dtype == .u4 ? 2 * count : count
  guard rows > 0, elements % rows == 0 else {
    throw MarlinError(.shape, "\(elements) elements are not \(rows) equal rows")
  }
  return elements / rows
}
