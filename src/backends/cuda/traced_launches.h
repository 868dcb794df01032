// The times of launches for a host's trace, from events around each. Nothing waits for them.
#pragma once

#include <vector>

#include "backends/cuda/driver.h"
#include "base/trace.h"

namespace metal_marlin::cuda {

/// Of one stream. The context is current in every call. If an event fails, its launch is not told.
class TracedLaunches {
 public:
  TracedLaunches(const Driver& driver, StreamTrace trace)
      : driver_(driver), trace_(std::move(trace)) {}
  ~TracedLaunches();
  TracedLaunches(const TracedLaunches&) = delete;
  TracedLaunches& operator=(const TracedLaunches&) = delete;

  explicit operator bool() const { return static_cast<bool>(trace_); }
  void before(StreamHandle stream);
  void after(StreamHandle stream, const TracedStep& what);
  /// Tells of the launches that are done.
  void tell();

 private:
  struct Launch {
    EventHandle begin, end;
    TracedStep what;
  };
  EventHandle record(StreamHandle stream) const;
  void destroy(EventHandle event) const;

  const Driver& driver_;
  const StreamTrace trace_;
  EventHandle first_ = nullptr, begin_ = nullptr;  // that times count from, and of this launch
  uint64_t first_ns_ = 0;
  std::vector<Launch> launches_;  // oldest first
};

}  // namespace metal_marlin::cuda
