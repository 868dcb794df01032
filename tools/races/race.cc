// For tools/races: measures the limits of the machine, and times calls of C functions, so that no
// time contains the interpreter's cost of a call. Calls and clocks are on the caller's thread.
#include <cstdio>
#include <ctime>

#include "../cpu_info.h"
#include "../machine_limits.h"
#include "../workload.h"

#define COMPARE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using metal_marlin::tools::Limits;

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Calls call(i) for i < count until a call returns a value other than 0, and returns this value.
/// `times` are the seconds of all calls: wall-clock time, and processor time of all threads of the
/// process.
template <class Call>
int timed(uint32_t count, double times[2], const Call& call) {
  int status = 0;
  const double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  for (uint32_t i = 0; i < count && status == 0; ++i) status = call(i);
  times[1] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  times[0] = seconds_of(CLOCK_MONOTONIC) - wall;
  return status;
}

}  // namespace

COMPARE_EXPORT Limits* compare_limits_create(unsigned threads) { return new Limits(threads); }
COMPARE_EXPORT void compare_limits_destroy(Limits* limits) { delete limits; }
COMPARE_EXPORT double compare_read_sample(Limits* limits) { return limits->read_sample(); }
/// Operations per second by this instruction; 0 if there is no such instruction.
COMPARE_EXPORT double compare_dot_sample(Limits* limits, const char* instruction) {
  const auto* loop = metal_marlin::tools::find_dot_loop(instruction);
  return loop ? limits->dot_sample(*loop) : 0;
}

/// The instruction with which a device of this ISA name multiplies.
COMPARE_EXPORT void compare_instruction(const char* isa, int32_t compute, int32_t dtype, char* name,
                                        size_t capacity) {
  std::snprintf(name, capacity, "%s",
                metal_marlin::tools::instruction_for(isa, compute, dtype).c_str());
}
COMPARE_EXPORT const char* compare_processor() {
  return metal_marlin::tools::cpu_info().model.c_str();
}
COMPARE_EXPORT uint64_t compare_rotation_bytes() { return metal_marlin::tools::rotation_bytes(); }

/// The message says why the status is not MARLIN_OK.
COMPARE_EXPORT marlin_status compare_time_products(const marlin_gemm_desc* const* descs,
                                                   uint32_t count, double times[2], char* message,
                                                   size_t capacity) {
  auto error = metal_marlin::make<marlin_error>();
  const marlin_status status =
      timed(count, times, [&](uint32_t i) { return marlin_gemm(nullptr, descs[i], &error); });
  std::snprintf(message, capacity, "%s", error.message);
  return status;
}
/// compute(backend, graphs[i]), as ggml_backend_graph_compute.
COMPARE_EXPORT int compare_time_graphs(int (*compute)(void*, void*), void* backend,
                                       void* const* graphs, uint32_t count, double times[2]) {
  return timed(count, times, [&](uint32_t i) { return compute(backend, graphs[i]); });
}
