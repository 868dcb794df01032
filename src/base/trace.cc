#include "base/trace.h"

#include <chrono>
#ifdef __APPLE__
#include <time.h>
#endif

namespace metal_marlin {

uint64_t monotonic_ns() {
#ifdef __APPLE__
  return clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
#else
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
#endif
}

void StreamTrace::tell(const TracedStep& step, const TracedTimes& times) const {
  char kernel[96];  // names of GPU kernels are parts of longer texts
  const size_t length = step.kernel.copy(kernel, sizeof kernel - 1);
  kernel[length] = '\0';
  tracer->tell({.struct_size = sizeof(marlin_trace_event),
                .together = times.together,
                .kernel = kernel,
                .step = step.step,
                .begin_ns = times.begin_ns,
                .end_ns = times.end_ns,
                .device_ns = times.device_ns,
                .rows = step.rows,
                .n = step.n,
                .k = step.k,
                .stream = stream});
}

}  // namespace metal_marlin
