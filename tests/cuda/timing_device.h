// A GPU as the race needs it: memory, graphs, and how long their replays take. What fails is an exception.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/driver.h"

namespace timing {

namespace cuda = metal_marlin::cuda;
using metal_marlin::cuda::DevicePtr;

/// A function of a library that dlopen() gave; null if it has none of this name.
template <class Function>
Function* find_function(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  Function* function = nullptr;
  std::memcpy(&function, &symbol, sizeof symbol);
  return function;
}

using GraphHandle = struct CudaGraphHandle*;
using ReadyGraphHandle = struct CudaReadyGraphHandle*;

// X(member, name of the symbol, parameters): functions of the driver that the library itself does not call.
#define TIMING_DRIVER_FUNCTIONS(X)                                                                    \
  X(begin_capture, "cuStreamBeginCapture_v2", (cuda::StreamHandle, int))                              \
  X(end_capture, "cuStreamEndCapture", (cuda::StreamHandle, GraphHandle*))                            \
  X(instantiate, "cuGraphInstantiateWithFlags", (ReadyGraphHandle*, GraphHandle, unsigned long long)) \
  X(launch_graph, "cuGraphLaunch", (ReadyGraphHandle, cuda::StreamHandle))                            \
  X(destroy_ready, "cuGraphExecDestroy", (ReadyGraphHandle))                                          \
  X(destroy_graph, "cuGraphDestroy", (GraphHandle))                                                   \
  X(upload, "cuMemcpyHtoDAsync_v2", (DevicePtr, const void*, size_t, cuda::StreamHandle))             \
  X(download, "cuMemcpyDtoHAsync_v2", (void*, DevicePtr, size_t, cuda::StreamHandle))                 \
  X(synchronize, "cuStreamSynchronize", (cuda::StreamHandle))                                         \
  X(elapsed, "cuEventElapsedTime", (float*, cuda::EventHandle, cuda::EventHandle))

struct MoreDriver {
#define TIMING_MEMBER(member, name, parameters) cuda::DriverError(*member) parameters = nullptr;
  TIMING_DRIVER_FUNCTIONS(TIMING_MEMBER)
#undef TIMING_MEMBER
};

/// The driver's first device. Its primary context is current on the thread that made this, and it has one stream.
class Device {
 public:
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  const std::string& driver_version() const { return driver_version_; }  ///< "CUDA 13.0"
  const cuda::Driver& driver() const { return context_->driver(); }
  const MoreDriver& more() const { return more_; }
  cuda::StreamHandle stream() const { return stream_; }

  /// Throws what the driver says about an error.
  void check(cuda::DriverError error, const char* what) const;
  /// Between the host and the device; done on return.
  void upload(DevicePtr to, const void* from, size_t bytes) const;
  void download(void* to, DevicePtr from, size_t bytes) const;
  /// On the stream.
  void copy(DevicePtr to, DevicePtr from, size_t bytes) const;
  void fill(DevicePtr to, uint8_t value, size_t bytes) const;
  void wait() const { check(more_.synchronize(stream_), "cuStreamSynchronize"); }

 private:
  const MoreDriver more_;
  const cuda::ContextRef context_;
  const cuda::Current current_;
  cuda::StreamHandle stream_ = nullptr;
  std::string name_, driver_version_;
};

class Memory {
 public:
  Memory(const Device& device, size_t bytes);
  ~Memory() { static_cast<void>(device_.driver().free(address_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  DevicePtr at(size_t offset = 0) const { return address_ + offset; }

 private:
  const Device& device_;
  DevicePtr address_ = 0;
};

/// What `record` puts on the device's stream, to be run any number of times.
class Graph {
 public:
  template <class Record>
  Graph(const Device& device, const Record& record) : device_(device) {
    begin();
    record();
    end();
  }
  ~Graph() { static_cast<void>(device_.more().destroy_ready(ready_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const { device_.check(device_.more().launch_graph(ready_, device_.stream()), "cuGraphLaunch"); }

 private:
  void begin() const;
  void end();

  const Device& device_;
  ReadyGraphHandle ready_ = nullptr;
};

/// After a run that counts for nothing: it loads kernels, which a graph that is being captured would not bear.
template <class Record>
Graph warm_graph(const Device& device, const Record& record) {
  record();
  device.wait();
  return Graph(device, record);
}

/// Microseconds of `rounds` replays of each graph: [graph][round]. In a round each graph has its turn. Replays follow one
/// another without a gap.
std::vector<std::vector<double>> replay_in_turn(const Device& device, std::span<const Graph* const> graphs, int rounds);

}  // namespace timing
