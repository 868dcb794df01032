// Closures and an allocator that the library calls.
import Foundation
import MetalMarlin
import Synchronization
import Testing

private func check(_ weights: Weights) throws {
  let info = try weights.info()
  let x = numbers(4 * info.k, seed: 1)
  var y = [Float](repeating: 0, count: 4 * info.n)
  try weights.multiply(x.span, rows: 4, into: y.mutableSpan)
  expectProduct(y, x, try values(weights), k: info.k)
}

/// The system's memory, counted.
private final class Counted: Allocator {
  let blocks = Mutex<[UInt: Int]>([:])
  let isEmpty = Atomic(false)

  func allocate(byteCount: Int, alignment: Int) -> UnsafeMutableRawPointer? {
    if isEmpty.load(ordering: .relaxed) { return nil }
    let memory = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: alignment)
    blocks.withLock { $0[UInt(bitPattern: memory)] = byteCount }
    return memory
  }

  func release(_ memory: UnsafeMutableRawPointer, byteCount: Int) {
    let known = blocks.withLock { $0.removeValue(forKey: UInt(bitPattern: memory)) }
    #expect(known == byteCount)
    memory.deallocate()
  }
}

@Suite struct CallbackTests {
  @Test func theHostsThreads() throws {
    let seen = Atomic(0)
    let several = try Context(
      backend: .cpu, threads: 4,
      parallelFor: { tasks in
        seen.add(tasks.count, ordering: .relaxed)
        DispatchQueue.concurrentPerform(iterations: 3) { _ in tasks.run() }
        #expect(!tasks.runOne())
      })
    try check(quantized(.mxfp4, n: 300, k: 512, in: several))
    #expect(seen.load(ordering: .relaxed) > 0)
  }

  @Test func whatTheHostLeavesUndoneIsMadeUpFor() throws {
    try check(quantized(.mxfp4, n: 300, k: 512, in: Context(backend: .cpu, threads: 4, parallelFor: { _ in })))
    // Others still work when the closure returns, and keep the tasks for longer than they are any.
    let kept = Mutex<[Tasks]>([])
    let context = try Context(
      backend: .cpu, threads: 4,
      parallelFor: { tasks in
        kept.withLock { $0.append(tasks) }
        for _ in 0..<2 { DispatchQueue.global().async { tasks.run() } }
      })
    try check(quantized(.mxfp4, n: 300, k: 512, in: context))
    #expect(kept.withLock { $0.allSatisfy { !$0.runOne() } })
  }

  @Test func theHostsMemory() throws {
    let memory = Counted()
    try {
      var weights: Weights?
      try {
        let context = try Context(backend: .cpu, threads: 2, allocator: memory)
        weights = try quantized(.int8, n: 64, k: 64, in: context)
        #expect(memory.blocks.withLock { !$0.isEmpty })
        memory.isEmpty.store(true, ordering: .relaxed)
        expectFailure(.memory, "") { () throws(MarlinError) in try Buffer(byteCount: 100, in: context) }
        memory.isEmpty.store(false, ordering: .relaxed)
      }()
      try check(weights!)  // which keep the context
    }()
    #expect(memory.blocks.withLock { $0.isEmpty })
  }

  @Test func aTraceHearsOfEachStep() throws {
    let steps = Mutex<[Step]>([])
    let context = try Context(backend: .cpu, threads: 1, trace: { step in steps.withLock { $0.append(step) } })
    try check(quantized(.mxfp4, n: 32, k: 64, in: context))
    let found = steps.withLock { $0 }
    #expect(found.contains { $0.step == "multiply" && ($0.n, $0.k) == (32, 64) && $0.beginNanoseconds <= $0.endNanoseconds })
    #expect(found.allSatisfy { $0.together == 1 && $0.deviceNanoseconds == 0 && $0.stream == nil })
  }

  @Test func theEndOfWorkIsToldOnce() throws {
    let ended = Mutex<[Status]>([])
    try WorkStream(in: Context(backend: .cpu)).notify { status in ended.withLock { $0.append(status) } }
    #expect(ended.withLock { $0 } == [.ok])
  }

  @Test func theLoggerHearsWarnings() async throws {
    // In a process of its own, because the environment is everybody's.
    await #expect(processExitsWith: .success) {
      setenv("METAL_MARLIN_ISA", "no-such-isa", 1)
      let heard = Mutex<[(LogLevel, String)]>([])
      _ = try Context(backend: .cpu, log: { level, text in heard.withLock { $0.append((level, text)) } })
      let lines = heard.withLock { $0 }
      exit(lines.count == 1 && lines[0].0 == .warning && lines[0].1.contains("no-such-isa") ? 0 : 1)
    }
  }
}
