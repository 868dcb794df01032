internal import CMetalMarlin

/// Memory that host and device both reach: operands in it need no copy, and work on a ``WorkStream`` finds its operands here.
/// Aligned to 64 bytes, zero-filled at first.
public final class Buffer: Sendable {
  let handle: Handle
  /// Its size.
  public let byteCount: Int
  // Safe: an address, which stays as long as the buffer.
  nonisolated(unsafe) private let host: UnsafeMutableRawPointer

  /// `byteCount` is 1 or more.
  public init(byteCount: Int, in context: Context) throws(MarlinError) {
    guard let bytes = UInt64(exactly: byteCount) else { throw MarlinError(.argument, "a buffer of \(byteCount) bytes") }
    handle = try Handle(keeping: context, destroy: \.buffer_destroy) { api, out, error in
      api.pointee.buffer_create(context.handle.raw, bytes, out, error)
    }
    guard let host = try Library.api().pointee.buffer_host(handle.raw) else {
      throw MarlinError(.internal, "the library made a buffer that the host cannot see")
    }
    self.host = host
    self.byteCount = byteCount
  }

  /// A buffer that holds these elements.
  public convenience init<T: Element>(_ elements: some Collection<T>, in context: Context) throws(MarlinError) {
    try self.init(byteCount: elements.count * MemoryLayout<T>.stride, in: context)
    withUnsafeElements(of: T.self) { _ = $0.initialize(from: elements) }
  }

  /// The host's view, of as many whole elements as there are. Nobody may write meanwhile, or read when `body` writes: neither
  /// another thread nor work on a stream.
  public func withUnsafeElements<T: Element, R, E: Error>(
    of type: T.Type, _ body: (UnsafeMutableBufferPointer<T>) throws(E) -> R
  ) throws(E) -> R {
    defer { withExtendedLifetime(self) {} }
    let count = byteCount / MemoryLayout<T>.stride
    return try body(UnsafeMutableBufferPointer(start: host.bindMemory(to: T.self, capacity: count), count: count))
  }

  /// A copy of the elements, under the conditions of ``withUnsafeElements(of:_:)``.
  public func elements<T: Element>(of type: T.Type) -> [T] { withUnsafeElements(of: type) { Array($0) } }

  /// A matrix inside it, from a byte on that is a multiple of the element's size.
  public func matrix<T: Element>(
    of type: T.Type, rows: Int, columns: Int, rowStride: Int? = nil, byteOffset: Int = 0
  ) throws(MarlinError) -> MutableMatrixView {
    guard (0...byteCount).contains(byteOffset) else {
      throw MarlinError(.shape, "offset \(byteOffset) lies outside a buffer of \(byteCount) bytes")
    }
    var raw = try described(nil, bytes: byteCount - byteOffset, T.self, rows, columns, rowStride)
    raw.data = UnsafeMutableRawPointer(handle.raw)
    raw.offset_bytes = UInt64(byteOffset)
    raw.memory = MARLIN_MEM_BUFFER
    return MutableMatrixView(raw: raw, owner: self)
  }
}
