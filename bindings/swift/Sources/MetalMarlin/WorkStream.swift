internal import CMetalMarlin
import Dispatch

/// An in-order queue of work. On the CPU work is done when it has been given; a GPU goes on with it.
///
/// What the work uses is kept alive until the stream has been waited for: weights, buffers and tensors. Unsafe memory is yours to
/// keep, and a GPU takes no host memory here: use a ``Buffer``. The last reference to the stream waits for the work. Nobody but the work of this stream may touch what its work writes
/// before it is done.
///
/// Threads that use a stream at the same time wait for each other.
public final class WorkStream: Sendable {
  private let handle: Handle
  /// Where it was made.
  public let context: Context
  private let hostCommits: Bool
  private let used = Locked<[ObjectIdentifier: any AnyObject & Sendable]>([:])

  /// - Parameters:
  ///   - context: whose work it takes.
  ///   - scratch: memory for temporaries, which nothing else may use; ``prepare(_:maxRows:)`` says how much. nil: the library's
  ///     own.
  public convenience init(in context: Context, scratch: Buffer? = nil) throws(MarlinError) {
    try self.init(in: context, .none, nil, scratch)
  }

  /// A stream on top of the host's own: `native` is what `kind` says, of the context's device, and lives as long as this.
  ///
  /// What is encoded into a command buffer or encoder is done when the host has committed it and waited.
  ///
  /// `fences` order memory that Metal does not track, on a queue or command buffer: this stream's encoders wait for the first
  /// `MTLFence`, which the host has updated, or for none, and update the second. They may be the same one.
  public convenience init(
    in context: Context, on native: UnsafeMutableRawPointer?, _ kind: Native, scratch: Buffer? = nil,
    fences: (wait: UnsafeMutableRawPointer?, update: UnsafeMutableRawPointer)? = nil
  ) throws(MarlinError) {
    try self.init(in: context, kind, native, scratch, fences?.wait, fences?.update)
  }

  private init(
    in context: Context, _ kind: Native, _ native: UnsafeMutableRawPointer?, _ scratch: Buffer?,
    _ wait: UnsafeMutableRawPointer? = nil, _ update: UnsafeMutableRawPointer? = nil
  ) throws(MarlinError) {
    var desc = marlin_stream_desc.sized()
    desc.kind = kind.rawValue
    desc.native = native
    desc.wait_fence = wait
    desc.update_fence = update
    if let scratch { desc.scratch = try scratch.matrix(of: UInt8.self, rows: 1, columns: scratch.byteCount).raw }
    self.context = context
    hostCommits = kind == .metalCommandBuffer || kind == .metalEncoder
    handle = try Handle(keeping: [context, scratch] as [(any Sendable)?], destroy: \.stream_destroy) { api, out, error in
      api.pointee.stream_create(context.handle.raw, &desc, out, error)
    }
  }

  /// What the work uses goes with the stream, and so the work has to be done first. What the host commits only the host can wait for.
  deinit {
    if !hostCommits { _ = try? Library.api().pointee.stream_wait(handle.raw, .max, nil) }
  }

  /// Gives one product to the stream and does not wait for it.
  public func submit(_ product: Product) throws(MarlinError) {
    try use(product.uses) { stream throws(MarlinError) in try product.submit(on: stream) }
  }

  /// Gives independent products to the stream in one submission. All are checked before any is done.
  public func submit(_ products: [Product]) throws(MarlinError) {
    try use(products.flatMap(\.uses)) { stream throws(MarlinError) in try Product.submit(products, on: stream) }
  }

  /// Decodes rows as ``Weights/unpack(firstRow:into:)`` does, in its turn.
  public func unpack(_ weights: Weights, firstRow: Int = 0, into out: MutableMatrixView) throws(MarlinError) {
    try use([weights] + [out.owner].compactMap { $0 }) { stream throws(MarlinError) in
      try weights.unpack(nil, firstRow, into: out, on: stream)
    }
  }

  /// Decodes the rows of these numbers, [T, 1] of `Int32`, in its turn. On a GPU the row of a bad number is NaN.
  public func unpack(_ weights: Weights, rows ids: MatrixView, into out: MutableMatrixView) throws(MarlinError) {
    try use([weights] + [ids.owner, out.owner].compactMap { $0 }) { stream throws(MarlinError) in
      try weights.unpack(ids, 0, into: out, on: stream)
    }
  }

  /// Compiles and reserves for these products with up to `maxRows` rows, or tokens of experts, so that they neither allocate nor
  /// compile later. A and C are not read.
  ///
  /// - Returns: how many bytes scratch of yours must have.
  @discardableResult public func prepare(_ products: [Product], maxRows: Int) throws(MarlinError) -> UInt64 {
    var bytes: UInt64 = 0
    try use([]) { stream throws(MarlinError) in bytes = try Product.prepare(products, maxRows: maxRows, on: stream) }
    return bytes
  }

  /// Submits what is recorded; does not wait.
  public func flush() throws(MarlinError) {
    try use([]) { stream throws(MarlinError) in
      try call(keeping: self) { api, error in api.pointee.stream_flush(stream, error) }
    }
  }

  /// Calls `done` once when the work given so far has ended, with ``Status/ok`` or the failure of the device: at once on a CPU, else
  /// on a thread of the driver. It must not call this package, nor let go of the last reference to something of it.
  public func notify(_ done: @escaping @Sendable (Status) -> Void) throws(MarlinError) {
    let waiting = Unmanaged.passRetained(Done(done))
    do throws(MarlinError) {
      try use([]) { stream throws(MarlinError) in
        try call(keeping: self) { api, error in
          api.pointee.stream_notify(
            stream, { user, status in Unmanaged<Done>.fromOpaque(user!).takeRetainedValue().done(Status(rawValue: status)) },
            waiting.toOpaque(), error)
        }
      }
    } catch {
      waiting.release()
      throw error
    }
  }

  /// Waits until the work given so far is done, without keeping a thread of Swift's pool. A task that is cancelled waits all the
  /// same: the work goes on and its memory is in use.
  public func wait() async throws(MarlinError) {
    let result = await withCheckedContinuation { continuation in
      DispatchQueue.global().async {
        continuation.resume(returning: Result { () throws(MarlinError) in _ = try self.wait(timeout: nil) })
      }
    }
    try result.get()
  }

  /// Keeps the thread until the work given so far is done. False when it was not in time; 0 polls, nil waits for ever.
  @discardableResult public func wait(timeout: Duration?) throws(MarlinError) -> Bool {
    try used.withLock { (used) throws(MarlinError) in
      do throws(MarlinError) {
        try call(keeping: self) { api, error in api.pointee.stream_wait(handle.raw, nanoseconds(timeout), error) }
      } catch  where error.status == .timeout {
        return false
      }
      used = [:]
      return true
    }
  }

  /// Calls with the stream while no other thread has it. What the work uses stays, even when only half of it was taken.
  private func use(
    _ objects: [any AnyObject & Sendable], _ body: (OpaquePointer) throws(MarlinError) -> Void
  ) throws(MarlinError) {
    defer { withExtendedLifetime(self) {} }
    try used.withLock { (used) throws(MarlinError) in
      for object in objects { used[ObjectIdentifier(object)] = object }
      try body(handle.raw)
    }
  }
}

private func nanoseconds(_ duration: Duration?) -> UInt64 {
  guard let (seconds, attoseconds) = duration?.components else { return .max }
  let nanoseconds = Int128(seconds) * 1_000_000_000 + Int128(attoseconds / 1_000_000_000)
  return UInt64(clamping: nanoseconds)
}
