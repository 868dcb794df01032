// What a host's marlin_context_desc::trace hears.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin {

/// By the clock of marlin_trace_event. On a Mac it is the clock of Metal, which stands still while
/// the machine sleeps.
uint64_t monotonic_ns();

/// The host's callback. Streams share it with drivers, which may report work when the context is
/// gone: from close() on, nothing reaches the host.
class Tracer {
 public:
  using Callback = void (*)(void* user, const marlin_trace_event* event);
  Tracer(Callback trace, void* user) : trace_(trace), user_(user) {}

  void tell(const marlin_trace_event& event) {
    const std::shared_lock lock(mutex_);
    if (trace_ != nullptr) trace_(user_, &event);
  }
  /// Waits for callbacks that run.
  void close() {
    const std::unique_lock lock(mutex_);
    trace_ = nullptr;
  }

 private:
  std::shared_mutex mutex_;
  Callback trace_;
  void* const user_;
};

/// A step of a product. Its texts have static storage.
struct TracedStep {
  const char* step = "";
  std::string_view kernel{};
  int64_t rows = 0, n = 0, k = 0;
};

/// When it ran, by the host's clock.
struct TracedTimes {
  uint64_t begin_ns = 0, end_ns = 0, device_ns = 0;
  uint32_t together = 1;
};

/// The steps of one stream, or of calls without one; `tracer` null: nobody listens.
struct StreamTrace {
  std::shared_ptr<Tracer> tracer{};
  const marlin_stream* stream = nullptr;

  explicit operator bool() const { return tracer != nullptr; }
  void tell(const TracedStep& step, const TracedTimes& times) const;
};

}  // namespace metal_marlin
