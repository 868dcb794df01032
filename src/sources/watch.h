// Reports to the host how much of some matrices has been read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The progress of reading all sources that it watches.
struct Watch {
  int32_t (*progress)(void*, uint64_t, uint64_t);
  void* user;
  uint64_t total = 0;  ///< elements
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<uint64_t> done{0};

  /// MARLIN_E_CANCELLED if the host asks to stop.
  Status report() const;
};

/// Wraps a source so that it reports its progress to the host, on the host's own thread, and stops
/// if the host asks for it. `watch` must outlive it.
std::unique_ptr<WeightSource> make_watched(std::unique_ptr<WeightSource> source, Watch& watch);

}  // namespace metal_marlin
