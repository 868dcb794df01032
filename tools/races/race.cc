// For tools/races: the limits of the machine, and the clock around calls of C functions, so that an
// interpreter's cost of a call is in no time. Calls and clocks are on the caller's thread.
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

/// Calls call(i) for i < count until one gives what is not 0, which it returns. times: seconds of
/// all of them by the wall's clock, and of the processor time of the process, all threads together.
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
/// Operations a second by this instruction; 0 when there is none of the name.
COMPARE_EXPORT double compare_dot_sample(Limits* limits, const char* instruction) {
  const auto* loop = metal_marlin::tools::find_dot_loop(instruction);
  return loop ? limits->dot_sample(*loop) : 0;
}

/// The instruction that a device with this ISA name multiplies with.
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
