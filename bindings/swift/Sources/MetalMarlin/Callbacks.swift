internal import CMetalMarlin
import Dispatch

/// A step of work that is done: on the CPU of a product, on a GPU a launch.
public struct Step: Hashable, Sendable {
  /// As ``Product/explanation()`` names it.
  public let kernel: String
  /// "multiply", "prepare A", ...
  public let step: String
  /// When it began and ended, in nanoseconds of the host's monotonic clock.
  public let beginNanoseconds, endNanoseconds: UInt64
  /// What the device's own clock says that it took; 0: unknown, as on the CPU.
  public let deviceNanoseconds: UInt64
  /// So many steps have these times, which are those of all of them; 1: it is timed alone.
  public let together: Int
  /// The rows of the product that it works on, and its weights.
  public let rows, n, k: Int
  /// The same number for steps of one ``WorkStream``; nil: a call without one.
  public let stream: Int?

  init(_ event: marlin_trace_event) {
    kernel = text(event.kernel)
    step = text(event.step)
    (beginNanoseconds, endNanoseconds, deviceNanoseconds) = (event.begin_ns, event.end_ns, event.device_ns)
    together = Int(event.together)
    (rows, n, k) = (Int(event.rows), Int(event.n), Int(event.k))
    stream = event.stream.map { Int(bitPattern: $0) }
  }
}

/// A closure that the library calls once.
final class Done: Sendable {
  let done: @Sendable (Status) -> Void
  init(_ done: @escaping @Sendable (Status) -> Void) { self.done = done }
}

/// The host's memory for weights, buffers and scratch. Called by several threads at once.
public protocol Allocator: Sendable {
  /// Memory that nobody else uses until it comes back, or nil: ``Status/memory``. `alignment` is a power of two.
  func allocate(byteCount: Int, alignment: Int) -> UnsafeMutableRawPointer?
  /// Takes back what `allocate` gave for that size.
  func release(_ memory: UnsafeMutableRawPointer, byteCount: Int)
}

/// Tasks to be shared among the host's threads. Each runs once, whoever comes first, and all have run when the host's closure
/// has returned: what it leaves undone is done then, on the calling thread.
public final class Tasks: Sendable {
  /// How many there are.
  public let count: Int
  private let next = Locked(0)
  private let running = DispatchGroup()
  private let task: @Sendable (UInt32) -> Void

  fileprivate init(count: UInt32, task: @escaping @Sendable (UInt32) -> Void) {
    self.count = Int(count)
    self.task = task
  }

  /// Runs one task that nobody has begun. False when there is none.
  @discardableResult public func runOne() -> Bool {
    running.enter()
    defer { running.leave() }
    let index = next.withLock { (next) -> Int? in
      guard next < count else { return nil }
      defer { next += 1 }
      return next
    }
    guard let index else { return false }
    task(UInt32(index))
    return true
  }

  /// Runs tasks until none is left to begin. To be called by each thread that takes part.
  public func run() { while runOne() {} }

  fileprivate func finish() {
    run()
    running.wait()
  }
}

/// Closures of a host, at an address of their own. The library calls them with that address.
final class Callbacks: @unchecked Sendable {  // the closures for one thread are called on the calling thread only
  var log: (@Sendable (LogLevel, String) -> Void)?
  var trace: (@Sendable (Step) -> Void)?
  var parallelFor: (@Sendable (Tasks) -> Void)?
  var allocator: (any Allocator)?
  var loaded: ((UInt64, UInt64) -> Bool)?
  var progress: ((Conversion.Progress) -> Bool)?
  var layerDone: ((Conversion.Outcome) -> Void)?

  /// What the library is to hand back.
  var user: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  static func of(_ user: UnsafeMutableRawPointer?) -> Callbacks { Unmanaged.fromOpaque(user!).takeUnretainedValue() }

  typealias Log = @convention(c) (UnsafeMutableRawPointer?, Int32, UnsafePointer<CChar>?) -> Void
  var cLog: Log? {
    if log == nil { return nil }
    return { user, level, message in
      Callbacks.of(user).log?(LogLevel(rawValue: level), text(message))
    }
  }

  typealias Trace = @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<marlin_trace_event>?) -> Void
  var cTrace: Trace? {
    if trace == nil { return nil }
    return { user, event in
      if let event { Callbacks.of(user).trace?(Step(event.pointee)) }
    }
  }

  typealias Loaded = @convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Int32
  var cLoaded: Loaded? {
    if loaded == nil { return nil }
    return { user, done, total in Callbacks.of(user).loaded?(done, total) == false ? 1 : 0 }
  }

  typealias Task = @convention(c) (UnsafeMutableRawPointer?, UInt32) -> Void
  typealias ParallelFor = @convention(c) (UnsafeMutableRawPointer?, UInt32, Task?, UnsafeMutableRawPointer?) -> Void
  var cParallelFor: ParallelFor? {
    if parallelFor == nil { return nil }
    return { user, count, task, taskUser in
      // Safe: the library's tasks may run on any thread, and are over when this function returns.
      nonisolated(unsafe) let taskUser = taskUser
      let tasks = Tasks(count: count) { index in task?(taskUser, index) }
      Callbacks.of(user).parallelFor?(tasks)
      tasks.finish()
    }
  }

  typealias Allocate = @convention(c) (UnsafeMutableRawPointer?, Int, Int) -> UnsafeMutableRawPointer?
  var cAllocate: Allocate? {
    if allocator == nil { return nil }
    return { user, size, alignment in
      Callbacks.of(user).allocator?.allocate(byteCount: size, alignment: alignment)
    }
  }

  typealias Release = @convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?, Int) -> Void
  var cRelease: Release? {
    if allocator == nil { return nil }
    return { user, memory, size in
      if let memory { Callbacks.of(user).allocator?.release(memory, byteCount: size) }
    }
  }
}
