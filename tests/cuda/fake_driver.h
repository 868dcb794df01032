// What a test asks of the fake driver (fake_driver.cc), which it loads as the library loads NVIDIA's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shaders/common/cuda_parameters.h"

namespace fake_cuda {

/// A launch as the driver got it.
struct Launch {
  std::string kernel;
  CudaParameters parameters{};
  unsigned grid[3] = {}, block[3] = {}, shared_bytes = 0;
  bool overlaps = false;
  void* stream = nullptr;
};

/// Memory that the driver knows of.
struct Memory {
  uintptr_t begin = 0;
  size_t bytes = 0;
  unsigned type = 2;       ///< 1: the host's, 2: the device's
  bool allocated = false;  ///< by cuMemAlloc
  bool pooled = false;     ///< by cuMemAllocAsync
  bool tells = true;       ///< its length
};

struct State {
  int version = 13000, devices = 1, major = 9, minor = 0, multiprocessors = 132;
  std::string failing;       ///< the function that fails next, once
  int error = 0;             ///< with this error
  int skip = 0;              ///< after so many calls
  bool pending = false;      ///< the streams' work is not done
  bool capturing = false;    ///< every stream is
  int late = 0;              ///< what queries and waits return
  void* current = nullptr;   ///< context
  std::vector<void*> below;  ///< those that were pushed aside
  int live_memory = 0, live_pinned = 0, live_registered = 0;
  int live_events = 0, live_streams = 0, live_modules = 0, live_contexts = 0;
  int wrong_context = 0;  ///< calls that need a context and found another current
  std::vector<Launch> launches;
  std::vector<std::string> calls;  ///< of functions, in order
  std::vector<Memory> memory;
  int compiled_for = 90;                         ///< the architecture of every kernel
  std::vector<std::function<void()>> callbacks;  ///< of streams whose work was not done
  float clock_ms = 0;                            ///< of the device: a launch takes 1 ms, a copy 2, a fill 100
};

/// Exported by the library under this name: the State.
using StateFunction = void* (*)();
inline constexpr const char* kStateFunction = "fake_cuda_state";
/// Contexts: that of the device, and one of the host's own.
inline constexpr uintptr_t kPrimary = 0xC0DE, kHosts = 0xFACE;

}  // namespace fake_cuda
