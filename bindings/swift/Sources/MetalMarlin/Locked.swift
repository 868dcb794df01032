// A value behind a lock, on systems that have no Synchronization yet: macOS 14 and iOS 17.
#if canImport(Darwin)
  import Darwin
#elseif canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Sendable, because nothing reaches the value but through the lock.
final class Locked<Value>: @unchecked Sendable {
  private var value: Value
  // A lock may not move, so it has memory of its own.
  private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)

  init(_ value: sending Value) {
    self.value = value
    lock.initialize(to: pthread_mutex_t())
    precondition(pthread_mutex_init(lock, nil) == 0)
  }

  deinit {
    pthread_mutex_destroy(lock)
    lock.deinitialize(count: 1)
    lock.deallocate()
  }

  func withLock<Result, Failure: Error>(_ body: (inout Value) throws(Failure) -> Result) throws(Failure) -> Result {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    return try body(&value)
  }
}
