#include "trace.h"

#include <algorithm>

#include "json.h"

namespace metal_marlin::tools {

void Trace::attach(marlin_context_desc& desc) {
  desc.user = this;
  desc.trace = [](void* user, const marlin_trace_event* event) {
    static_cast<Trace*>(user)->hear(*event);
  };
}

void Trace::hear(const marlin_trace_event& event) {
  const std::lock_guard lock(mutex_);
  if (steps_.size() == kMost) return;
  streams_.emplace(event.stream, streams_.size());
  steps_.push_back({event, event.kernel, event.step});
}

void Trace::write() {
  const std::lock_guard lock(mutex_);
  uint64_t start = UINT64_MAX;
  for (const Step& step : steps_) start = std::min(start, step.event.begin_ns);
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  file_.write("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
  for (const Step& step : steps_) {
    const marlin_trace_event& e = step.event;
    const Json event = {{"name", step.step},
                        {"cat", step.kernel},
                        {"ph", "X"},
                        {"ts", us(e.begin_ns - start)},
                        {"dur", us(e.end_ns - e.begin_ns)},
                        {"pid", 1},
                        {"tid", streams_.at(e.stream)},
                        {"args",
                         {{"kernel", step.kernel},
                          {"rows", e.rows},
                          {"n", e.n},
                          {"k", e.k},
                          {"device_ns", e.device_ns},
                          {"together", e.together}}}};
    file_.write(event.dump() + (&step == &steps_.back() ? "\n" : ",\n"));
  }
  file_.write("]}\n");
  file_.commit();
}

}  // namespace metal_marlin::tools
