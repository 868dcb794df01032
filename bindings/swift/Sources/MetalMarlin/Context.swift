internal import CMetalMarlin

/// A device with its kernels, caches and threads. Everything that is made in it keeps it alive.
///
/// Any number of threads may use it at once.
public final class Context: Sendable {
  let handle: Handle

  /// The first usable device with a thread for each processor, unless you say otherwise. Starts no thread before the first work.
  ///
  /// The closures and the allocator run on threads that are inside a call or on the library's own, maybe several at once. They
  /// must not call this package, nor let go of the last reference to something of it.
  ///
  /// - Parameters:
  ///   - backend: what computes.
  ///   - device: which of the backend's devices: ``Device/index``.
  ///   - threads: CPU threads to use; 0: as many as the process may run on.
  ///   - nativeDevice: a `CUcontext` or `MTLDevice` of the host, which lives as long as the context.
  ///   - allocator: the host's memory instead of the system's.
  ///   - log: hears what the library has to say; it never prints.
  ///   - parallelFor: runs tasks on the host's threads instead of the library's.
  ///   - trace: hears of each step of a product when it is done; on Metal also threads of the driver tell.
  public init(
    backend: Backend = .auto, device: Int32 = 0, threads: Int = 0, nativeDevice: UnsafeMutableRawPointer? = nil,
    allocator: (any Allocator)? = nil, log: (@Sendable (LogLevel, String) -> Void)? = nil,
    parallelFor: (@Sendable (Tasks) -> Void)? = nil, trace: (@Sendable (Step) -> Void)? = nil
  ) throws(MarlinError) {
    let callbacks = Callbacks()
    callbacks.log = log
    callbacks.trace = trace
    callbacks.parallelFor = parallelFor
    callbacks.allocator = allocator
    var desc = marlin_context_desc.sized()
    desc.backend = backend.rawValue
    desc.device_index = device
    desc.threads = try count(threads, "threads")
    desc.native_device = nativeDevice
    desc.log = callbacks.cLog
    desc.trace = callbacks.cTrace
    desc.parallel_for = callbacks.cParallelFor
    desc.alloc = callbacks.cAllocate
    desc.release = callbacks.cRelease
    desc.user = callbacks.user
    handle = try Handle(keeping: callbacks, destroy: \.context_destroy) { api, out, error in
      api.pointee.context_create(&desc, out, error)
    }
  }
}

/// A device, usable or not.
public struct Device: Hashable, Sendable {
  public let backend: Backend
  /// For ``Context/init(backend:device:threads:nativeDevice:allocator:log:parallelFor:trace:)``.
  public let index: Int32
  public let name: String
  /// Such as "avx512-vnni-bf16", "sm_90a", "apple9".
  public let architecture: String
  public let memoryBytes: UInt64
  /// Why it cannot be used; nil when it can.
  public let whyNot: String?
  /// The CPU: as many as a ``Context`` has that asks for none in particular; 0 for other devices.
  public let threads: Int

  /// All devices, in the order of ``Backend/auto``.
  public static func all() throws(MarlinError) -> [Device] {
    try list(keeping: ()) { api, index, error in
      var info = marlin_device_info.sized()
      let status = api.pointee.device_get(UInt32(index), &info, error)
      return (status, Device(info))
    }
  }

  private init(_ info: marlin_device_info) {
    backend = Backend(rawValue: info.backend)
    index = info.index
    name = text(info.name)
    architecture = text(info.isa_or_arch)
    memoryBytes = info.memory_bytes
    let why = text(info.why_not)
    whyNot = why.isEmpty ? nil : why
    threads = Int(info.threads)
  }
}
