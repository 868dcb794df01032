// The functions of NVIDIA's driver that this backend calls, found at run time, so that a library
// with this backend loads on machines without a driver. The declarations follow the driver's
// documented ABI; no header of CUDA is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"

namespace metal_marlin::cuda {

using DriverError = int;  // CUresult
using DriverDevice = int;
using DevicePtr = unsigned long long;
using ContextHandle = struct CudaContextHandle*;
using StreamHandle = struct CudaStreamHandle*;
using EventHandle = struct CudaEventHandle*;
using ModuleHandle = struct CudaModuleHandle*;
using FunctionHandle = struct CudaFunctionHandle*;

inline constexpr DriverError kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotFound = 500,
                             kNotReady = 600, kNotSupported = 801;
// Of cuDeviceGetAttribute, cuFuncGetAttribute and cuPointerGetAttributes.
inline constexpr int kMultiprocessors = 16, kComputeMajor = 75, kComputeMinor = 76;
inline constexpr int kMostThreads = 0, kSharedBytes = 1, kMostDynamicBytes = 8;
inline constexpr int kPtxVersion = 5;  // 10 major + minor of the architecture it was compiled for
inline constexpr int kMemoryType = 2, kMadeByAllocate = 10, kPool = 17;
inline constexpr int kRangeBegin = 11, kRangeBytes = 12;
inline constexpr unsigned kPortableAndMapped = 1 | 2;  // of pinned memory
inline constexpr unsigned kNonBlocking = 1;            // of streams
inline constexpr unsigned kTiming = 0, kNoTiming = 2;  // of events

/// CUlaunchAttribute, for which the value is an int.
struct LaunchAttribute {
  int id;
  int unused = 0;
  int value;
  char rest[60] = {};
};
static_assert(sizeof(LaunchAttribute) == 72);
/// The kernel may start before the stream's kernels before it have ended.
inline constexpr int kOverlapsPrevious = 6;
/// CUlaunchConfig
struct LaunchConfig {
  unsigned grid[3], threads[3], shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
// Of cuTensorMapEncodeTiled.
inline constexpr int kElementsOf8Bits = 0, kElementsOf16Bits = 1;
inline constexpr int kSwizzle128 = 3, kPromoteTo256 = 3;

// X(member, name of the symbol, parameters)
#define MARLIN_CUDA_FUNCTIONS(X)                                                       \
  X(init, "cuInit", (unsigned))                                                        \
  X(driver_version, "cuDriverGetVersion", (int*))                                      \
  X(error_name, "cuGetErrorName", (DriverError, const char**))                         \
  X(error_text, "cuGetErrorString", (DriverError, const char**))                       \
  X(device_count, "cuDeviceGetCount", (int*))                                          \
  X(device_get, "cuDeviceGet", (DriverDevice*, int))                                   \
  X(device_name, "cuDeviceGetName", (char*, int, DriverDevice))                        \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t*, DriverDevice))                     \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, DriverDevice))               \
  X(retain, "cuDevicePrimaryCtxRetain", (ContextHandle*, DriverDevice))                \
  X(release, "cuDevicePrimaryCtxRelease_v2", (DriverDevice))                           \
  X(context_device, "cuCtxGetDevice", (DriverDevice*))                                 \
  X(push, "cuCtxPushCurrent_v2", (ContextHandle))                                      \
  X(pop, "cuCtxPopCurrent_v2", (ContextHandle*))                                       \
  X(allocate, "cuMemAlloc_v2", (DevicePtr*, size_t))                                   \
  X(free, "cuMemFree_v2", (DevicePtr))                                                 \
  X(allocate_pinned, "cuMemHostAlloc", (void**, size_t, unsigned))                     \
  X(free_pinned, "cuMemFreeHost", (void*))                                             \
  X(pin, "cuMemHostRegister_v2", (void*, size_t, unsigned))                            \
  X(unpin, "cuMemHostUnregister", (void*))                                             \
  X(pinned_address, "cuMemHostGetDevicePointer_v2", (DevicePtr*, void*, unsigned))     \
  X(pointer_attributes, "cuPointerGetAttributes", (unsigned, int*, void**, DevicePtr)) \
  X(load_module, "cuModuleLoadData", (ModuleHandle*, const void*))                     \
  X(unload_module, "cuModuleUnload", (ModuleHandle))                                   \
  X(function, "cuModuleGetFunction", (FunctionHandle*, ModuleHandle, const char*))     \
  X(function_attribute, "cuFuncGetAttribute", (int*, int, FunctionHandle))             \
  X(set_function_attribute, "cuFuncSetAttribute", (FunctionHandle, int, int))          \
  X(launch, "cuLaunchKernelEx", (const LaunchConfig*, FunctionHandle, void**, void**)) \
  X(encode_tensor_map, "cuTensorMapEncodeTiled",                                       \
    (void*, int, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*,   \
     const uint32_t*, int, int, int, int))                                             \
  X(create_stream, "cuStreamCreate", (StreamHandle*, unsigned))                        \
  X(destroy_stream, "cuStreamDestroy_v2", (StreamHandle))                              \
  X(stream_context, "cuStreamGetCtx", (StreamHandle, ContextHandle*))                  \
  X(is_capturing, "cuStreamIsCapturing", (StreamHandle, int*))                         \
  X(query_stream, "cuStreamQuery", (StreamHandle))                                     \
  X(add_callback, "cuStreamAddCallback",                                               \
    (StreamHandle, void (*)(StreamHandle, DriverError, void*), void*, unsigned))       \
  X(copy, "cuMemcpyAsync", (DevicePtr, DevicePtr, size_t, StreamHandle))               \
  X(fill, "cuMemsetD8Async", (DevicePtr, unsigned char, size_t, StreamHandle))         \
  X(create_event, "cuEventCreate", (EventHandle*, unsigned))                           \
  X(destroy_event, "cuEventDestroy_v2", (EventHandle))                                 \
  X(record_event, "cuEventRecord", (EventHandle, StreamHandle))                        \
  X(query_event, "cuEventQuery", (EventHandle))                                        \
  X(wait_for_event, "cuEventSynchronize", (EventHandle))                               \
  X(elapsed_ms, "cuEventElapsedTime", (float*, EventHandle, EventHandle))

struct Driver {
#define MARLIN_CUDA_MEMBER(member, name, parameters) DriverError(*member) parameters = nullptr;
  MARLIN_CUDA_FUNCTIONS(MARLIN_CUDA_MEMBER)
#undef MARLIN_CUDA_MEMBER

  /// Ok, or "WHAT: CUDA_ERROR_NAME (number): description" with the number as native code. Out of
  /// memory is MARLIN_E_MEMORY; all other errors are MARLIN_E_DEVICE.
  Status check(DriverError error, const char* what) const;
};

/// Opens the driver and initializes it. MARLIN_E_NO_DEVICE with the reason if there is none. The
/// library stays open: a driver may have threads of its own.
Result<Driver> load_driver(const char* library);

/// A device's primary context, which CUDA's runtime uses, too, retained while this lives; or a
/// context of the host, which must outlive it.
class Context {
 public:
  static Result<std::shared_ptr<Context>> retain(const Driver& driver, DriverDevice device);
  static std::shared_ptr<Context> of_host(const Driver& driver, ContextHandle handle) {
    return std::shared_ptr<Context>(new Context(driver, 0, handle, false));
  }
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  const Driver& driver() const { return driver_; }
  ContextHandle handle() const { return handle_; }

 private:
  Context(const Driver& driver, DriverDevice device, ContextHandle handle, bool primary)
      : driver_(driver), device_(device), handle_(handle), primary_(primary) {}
  const Driver driver_;
  const DriverDevice device_;
  const ContextHandle handle_;
  const bool primary_;
};
using ContextRef = std::shared_ptr<Context>;

/// Makes a context current for calls of the driver, and then again the one that was.
class Current {
 public:
  explicit Current(const Context& context)
      : context_(context), pushed_(context.driver().push(context.handle())) {}
  ~Current() {
    ContextHandle popped = nullptr;
    if (pushed_ == kSuccess) static_cast<void>(context_.driver().pop(&popped));
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Status status() const { return context_.driver().check(pushed_, "cuCtxPushCurrent"); }

 private:
  const Context& context_;
  const DriverError pushed_;
};

}  // namespace metal_marlin::cuda
