// How much of some matrices has been read, told to the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// How much has been read of all sources that it watches.
struct Watch {
  int32_t (*progress)(void*, uint64_t, uint64_t);
  void* user;
  uint64_t total = 0;  ///< elements
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<uint64_t> done{0};

  /// MARLIN_E_CANCELLED when the host asks to stop.
  Status report() const;
};

/// Another source. It tells the host how much has been read, on the host's own thread, and stops
/// where the host says so. `watch` outlives it.
std::unique_ptr<WeightSource> make_watched(std::unique_ptr<WeightSource> source, Watch& watch);

}  // namespace metal_marlin
