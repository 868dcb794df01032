#include "backends/cuda/traced_launches.h"

#include <utility>

namespace metal_marlin::cuda {
namespace {

/// A stream that is never waited for tells of launches when it has as many.
constexpr size_t kManyLaunches = 1024;

uint64_t nanoseconds(float ms) { return static_cast<uint64_t>(double{ms} * 1e6); }

}  // namespace

TracedLaunches::~TracedLaunches() {
  for (const Launch& launch : launches_) {
    destroy(launch.begin);
    destroy(launch.end);
  }
  destroy(begin_);
  destroy(first_);
}

void TracedLaunches::before(StreamHandle stream) {
  destroy(std::exchange(begin_, nullptr));  // of a launch that failed
  if (launches_.size() >= kManyLaunches) tell();
  // Elapsed times are float32 numbers, which are exact near the event that they count from.
  if (launches_.empty()) {
    destroy(first_);
    first_ns_ = monotonic_ns();
    first_ = record(stream);
  }
  if (first_ != nullptr) begin_ = record(stream);
}

void TracedLaunches::after(StreamHandle stream, const TracedStep& what) {
  const EventHandle begin = std::exchange(begin_, nullptr);
  if (begin == nullptr) return;
  if (const EventHandle end = record(stream); end != nullptr)
    launches_.push_back({begin, end, what});
  else
    destroy(begin);
}

void TracedLaunches::tell() {
  auto launch = launches_.begin();
  for (; launch != launches_.end() && driver_.query_event(launch->end) == kSuccess; ++launch) {
    float from = 0, length = 0;
    if (driver_.elapsed_ms(&from, first_, launch->begin) == kSuccess &&
        driver_.elapsed_ms(&length, launch->begin, launch->end) == kSuccess) {
      TracedTimes times{.begin_ns = first_ns_ + nanoseconds(from),
                        .device_ns = nanoseconds(length)};
      times.end_ns = times.begin_ns + times.device_ns;
      trace_.tell(launch->what, times);
    }
    destroy(launch->begin);
    destroy(launch->end);
  }
  launches_.erase(launches_.begin(), launch);
}

EventHandle TracedLaunches::record(StreamHandle stream) const {
  EventHandle made = nullptr;
  if (driver_.create_event(&made, kTiming) != kSuccess) return nullptr;
  if (driver_.record_event(made, stream) == kSuccess) return made;
  destroy(made);
  return nullptr;
}

void TracedLaunches::destroy(EventHandle event) const {
  if (event != nullptr) static_cast<void>(driver_.destroy_event(event));
}

}  // namespace metal_marlin::cuda
