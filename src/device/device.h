// A GPU as its programming interface shows it: memory, kernels, queues. Nothing of this library's
// is in it: no weights, no shapes, no choice of kernels; backends/gpu has all of that. Metal and
// CUDA implement it, and tests do: with a mock whose every call can fail, and with a device that
// runs on the CPU.
//
// Errors are values: MARLIN_E_MEMORY (no memory for it), MARLIN_E_DEVICE (the device failed,
// native_code is its own code), MARLIN_E_NOT_FOUND (no kernel of that name), MARLIN_E_ARGUMENT (a
// native object that does not fit). A failure after submission is a *late error*: it comes out of
// wait() and failure().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace metal_marlin::device {

/// What a device is and how much of it there is. Sizes in bytes.
struct Capabilities {
  std::string name;          ///< "Apple M3 Max"
  std::string architecture;  ///< "apple9", "sm_90"
  uint64_t memory_bytes = 0;
  uint64_t working_set_bytes =
      0;  ///< what may be in use at once before the system slows down; 0: unknown
  uint64_t max_buffer_bytes = 0;
  uint32_t max_threads = 1024;            ///< of a threadgroup
  uint32_t threadgroup_bytes = 32 << 10;  ///< of a threadgroup
  uint32_t simd_width = 32;
  uint32_t page_bytes =
      16 << 10;  ///< what host memory that is wrapped must be aligned to, its length too
  bool unified_memory = true;  ///< the host reads and writes buffers at their own speed
  bool matrix = false;         ///< 8x8 simdgroup matrices
  bool bfloat = false;         ///< bfloat16 in kernels
  bool tensor = false;         ///< cooperative tensor operations (Metal 4)
};

/// Where memory lies. On devices of unified memory it is all the same memory.
enum class Placement : uint8_t {
  shared,  ///< the host reaches it: host() is not null
  device,  ///< at the kernels' full speed, and resident while it lives; host() is null unless
           ///< memory is unified
};

/// Device memory. Whoever gave it away may let go of it while recorded work still uses it: streams
/// keep what they need.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual uint64_t bytes() const = 0;
  /// The host's view, or null when only the device reaches it.
  virtual std::byte* host() const = 0;
  /// Where the device sees it: distinct for distinct memory of one device.
  virtual uint64_t address() const = 0;
};
using BufferRef = std::shared_ptr<Buffer>;

/// A value that is compiled into a kernel: Metal's function constant `index`.
struct Constant {
  enum class Type : uint8_t { boolean, int32, uint32 };
  uint32_t index = 0;
  Type type = Type::uint32;
  uint32_t bits = 0;
  bool operator==(const Constant&) const = default;
};

/// A compiled kernel. Immutable; any thread.
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

/// What a kernel sees at one binding: memory from an offset on, or bytes that are copied when the
/// dispatch is recorded.
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
  Size3 groups;                 ///< threadgroups, each size 1 or more
  Size3 threads;                ///< of a threadgroup
  const char* label = nullptr;  ///< for the vendor's profiler; lives as long as the call
};

/// An in-order queue of recorded work. One thread at a time. Destroying it does not wait; work that
/// was committed goes on, work that was not is dropped, and what it uses is kept as long as it
/// needs.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Records. Dispatches between two barriers may run at once.
  virtual Status dispatch(const Dispatch& dispatch) = 0;
  virtual Status copy(const BufferRef& from, uint64_t from_offset, const BufferRef& to,
                      uint64_t to_offset, uint64_t bytes) = 0;
  virtual Status fill(const BufferRef& to, uint64_t offset, uint64_t bytes, uint8_t value) = 0;
  /// What is recorded after it sees what was recorded before.
  virtual Status barrier() = 0;
  /// Submits what is recorded, if anything; does not wait. On a host's own command buffer or
  /// encoder: ends nothing, the host commits.
  virtual Status commit() = 0;
  /// Until all that was committed is done. MARLIN_E_TIMEOUT (0 polls, UINT64_MAX never ends), or
  /// the late error. On a host's command buffer or encoder: MARLIN_E_ARGUMENT.
  virtual Status wait(uint64_t timeout_ns) = 0;
  /// The first late error so far, which stays; never blocks.
  virtual Status failure() const = 0;
  /// Seconds that the device was busy with what wait() last waited for; 0: unknown.
  virtual double busy_seconds() const = 0;
};

/// What a stream is made from.
struct StreamSource {
  marlin_native kind = MARLIN_NATIVE_NONE;  ///< NONE: a queue of its own
  void* native = nullptr;
};

/// One GPU. All members are safe to call from several threads at once.
class Device {
 public:
  virtual ~Device() = default;
  virtual const Capabilities& capabilities() const = 0;
  /// `bytes` > 0, uninitialized, aligned to 256. `label` is for the vendor's profiler.
  virtual Result<BufferRef> allocate(uint64_t bytes, Placement placement, const char* label) = 0;
  /// The host's memory without a copy; begins and ends on capabilities().page_bytes. It must
  /// outlive the work that uses it.
  virtual Result<BufferRef> wrap(void* host, uint64_t bytes) = 0;
  /// The host's own object of this device (id<MTLBuffer>, CUdeviceptr), retained.
  virtual Result<BufferRef> wrap_native(void* native) = 0;
  /// Compiles, or takes from a cache. May take seconds the first time. What the compiler refuses is
  /// MARLIN_E_DEVICE with its message, file and line included. Values of constants that the kernel
  /// does not have are ignored.
  virtual Result<KernelRef> kernel(std::string_view name, std::span<const Constant> constants) = 0;
  virtual Result<std::unique_ptr<Stream>> stream(const StreamSource& source) = 0;
};

}  // namespace metal_marlin::device
