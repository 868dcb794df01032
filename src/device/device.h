// The interface of a GPU: memory, kernels, queues. It does not know weights, shapes or the choice
// of kernels; backends/gpu has all of these. Metal and CUDA implement the interface. Tests
// implement it with a mock whose every call can fail, and with a device that runs on the CPU.
//
// Errors are values: MARLIN_E_MEMORY (not enough memory), MARLIN_E_DEVICE (the device failed,
// native_code is its own code), MARLIN_E_NOT_FOUND (no kernel of that name), MARLIN_E_ARGUMENT (a
// native object that does not fit). A failure after submission is a *late error*: wait() and
// failure() return it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/trace.h"

namespace metal_marlin::device {

/// The properties of a device. Sizes are in bytes.
struct Capabilities {
  std::string name;          ///< "Apple M3 Max"
  std::string architecture;  ///< "apple9", "sm_90"
  uint64_t memory_bytes = 0;
  uint64_t working_set_bytes =
      0;  ///< memory that may be in use at once before the system slows down; 0: unknown
  uint64_t most_bytes = 0;  ///< memory that may be in use at once at all; 0: the device refuses it
  uint64_t max_buffer_bytes = 0;
  uint32_t max_threads = 1024;            ///< of a threadgroup
  uint32_t threadgroup_bytes = 32 << 10;  ///< of a threadgroup
  uint32_t simd_width = 32;
  uint32_t multiprocessors = 0;  ///< that run threadgroups at once; 0: unknown
  /// Estimated seconds of work that one submission should hold at most, because the system ends
  /// work that keeps the device for long, and draws no window meanwhile; 0: no limit.
  double submission_seconds = 0;
  uint32_t page_bytes =
      16 << 10;                ///< alignment of the address and the length of wrapped host memory
  bool unified_memory = true;  ///< the host reads and writes buffers at full speed
  bool matrix = false;         ///< 8x8 simdgroup matrices
  bool bfloat = false;         ///< bfloat16 in kernels
  bool tensor = false;         ///< cooperative tensor operations (Metal 4), wgmma (CUDA)
};

/// The place of memory. On devices with unified memory, all places are the same memory.
enum class Placement : uint8_t {
  shared,  ///< the host reaches it: host() is not null
  device,  ///< kernels reach it at full speed, and it is resident while it lives; host() is null
           ///< unless memory is unified
};

/// Device memory. Its owner may release it while recorded work still uses it, because streams keep
/// the buffers that they need.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t bytes() const = 0;
  /// The address for the host, or null if only the device reaches the memory.
  virtual std::byte* host() const = 0;
  /// The address for the device. Distinct memory of one device has distinct addresses.
  virtual uint64_t address() const = 0;
};
using BufferRef = std::shared_ptr<Buffer>;

/// A value that is compiled into a kernel: Metal's function constant `index`.
struct Constant {
  enum class Type : uint8_t { boolean, uint32 };
  uint32_t index = 0;
  Type type = Type::uint32;
  uint32_t bits = 0;
  bool operator==(const Constant&) const = default;
};

/// A compiled kernel. It is immutable, and any thread may use it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual uint32_t max_threads() const = 0;        ///< of a threadgroup
  virtual uint32_t simd_width() const = 0;         ///< threads of a simdgroup
  virtual uint32_t threadgroup_bytes() const = 0;  ///< that it declares itself
};
using KernelRef = std::shared_ptr<const Kernel>;

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Size3&) const = default;
};

/// The argument of a kernel at one binding: memory from an offset on, or bytes that are copied when
/// the dispatch is recorded.
struct Argument {
  static constexpr size_t kMaxInline = 4096;
  uint32_t index = 0;
  BufferRef buffer;  ///< null: `value`
  uint64_t offset = 0;
  std::span<const std::byte> value;
};

struct Dispatch {
  KernelRef kernel;
  std::span<const Argument> arguments;
  Size3 groups;       ///< threadgroups, each size 1 or more
  Size3 threads;      ///< of a threadgroup
  TracedStep what{};  ///< for the vendor's profiler and for the host's trace
};

/// An in-order queue of recorded work, for one thread at a time. Destroying it does not wait:
/// committed work continues, and its buffers live as long as it needs them. Other work is dropped.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Records a dispatch. Dispatches between two barriers may run at once.
  virtual Status dispatch(const Dispatch& dispatch) = 0;
  virtual Status copy(const BufferRef& from, uint64_t from_offset, const BufferRef& to,
                      uint64_t to_offset, uint64_t bytes) = 0;
  virtual Status fill(const BufferRef& to, uint64_t offset, uint64_t bytes, uint8_t value) = 0;
  /// Work that is recorded after the barrier sees the results of work that was recorded before it.
  virtual Status barrier() = 0;
  /// Submits the recorded work, if any, and does not wait. On a host's own command buffer or
  /// encoder it ends nothing; the host commits.
  virtual Status commit() = 0;
  /// commit(), amid the work of a call: what is recorded afterwards comes after it as after a
  /// barrier.
  virtual Status split() { return commit(); }
  /// Waits until all committed work is done. Returns MARLIN_E_TIMEOUT (0 polls, UINT64_MAX has no
  /// limit) or the late error. On a host's command buffer or encoder, returns MARLIN_E_ARGUMENT.
  virtual Status wait(uint64_t timeout_ns) = 0;
  /// Calls `done` once when all committed work has ended, with its status, also when this stream is
  /// gone. Where wait() is MARLIN_E_ARGUMENT, so is this. After an error, it is never called.
  virtual Status notify(void (*done)(void* user, marlin_status status), void* user) = 0;
  /// The first late error so far, which stays. Never blocks.
  virtual Status failure() const = 0;
  /// The seconds that the device was busy with the work of the last wait(); 0: unknown.
  virtual double busy_seconds() const = 0;
  /// The host keeps the work in a graph of its own, which may allocate what the work uses.
  virtual bool captured() const { return false; }
};

/// The native object of a stream.
struct StreamSource {
  marlin_native kind = MARLIN_NATIVE_NONE;  ///< NONE: a queue of its own
  void* native = nullptr;
  bool timed = false;  ///< busy_seconds() will be asked for; without it the stream may not know
  void* wait_fence = nullptr;  ///< of Metal, as marlin_stream_desc has them
  void* update_fence = nullptr;
  StreamTrace trace{};  ///< hears of each dispatch
};

/// One GPU. All members are safe to call from several threads at once.
class Device {
 public:
  virtual ~Device() = default;
  virtual const Capabilities& capabilities() const = 0;
  /// `bytes` > 0, uninitialized, aligned to 256. `label` is for the vendor's profiler.
  virtual Result<BufferRef> allocate(uint64_t bytes, Placement placement, const char* label) = 0;
  /// Wraps the host's memory without a copy. The memory must begin and end on
  /// capabilities().page_bytes, and it must outlive the work that uses it. It may overlap with what
  /// was wrapped before if kernels only read the overlap.
  virtual Result<BufferRef> wrap(void* host, uint64_t bytes, Placement placement) = 0;
  /// Wraps and retains the host's own object of this device (id<MTLBuffer>), or wraps the memory
  /// from an address of the device's on (CUdeviceptr). The bytes of such memory go to the end of
  /// its allocation; they are UINT64_MAX if the device cannot tell, and 0 if it knows of no memory
  /// there.
  virtual Result<BufferRef> wrap_native(void* native) = 0;
  /// Compiles a kernel or takes it from a cache. This may take seconds the first time. What a
  /// compiler refuses is MARLIN_E_UNSUPPORTED with its message, including file and line: other
  /// kernels may serve. Values of constants that the kernel does not have are ignored.
  virtual Result<KernelRef> kernel(std::string_view name, std::span<const Constant> constants) = 0;
  /// kernel() will be asked for this one: a device that compiles for long begins to, and returns at
  /// once. Errors are those of kernel().
  virtual void expect(std::string_view /*name*/, std::span<const Constant> /*constants*/) {}
  virtual Result<std::unique_ptr<Stream>> stream(const StreamSource& source) = 0;
};

}  // namespace metal_marlin::device
