#include "backends/cpu/gemm.h"

#include <algorithm>
#include <new>

#include "backends/cpu/jobs.h"

namespace metal_marlin::cpu {

uint64_t scratch_bytes(std::span<const GemmPlan> plans) {
  uint64_t bytes = aligned(plans.size() * sizeof(GemmJob));
  for (const GemmPlan& plan : plans) bytes += plan.bytes();
  return bytes;
}

void run_gemm(std::span<const GemmPlan> plans, std::span<const GemmProblem> problems,
              std::span<std::byte> scratch, TaskRunner& runner) {
  auto* const jobs = reinterpret_cast<GemmJob*>(scratch.data());
  std::byte* free = scratch.data() + aligned(plans.size() * sizeof(GemmJob));
  for (size_t i = 0; i < plans.size(); ++i) {
    GemmJob& job = *new (&jobs[i]) GemmJob{plans[i], problems[i],
                                           static_cast<const CpuWeights*>(problems[i].weights)};
    job.m = problems[i].a.rows;
    const GemmJob* const twin = std::find_if(jobs, jobs + i, [&](const GemmJob& other) {
      return other.prepares && same_preparation(job, other);
    });
    job.prepares = twin == jobs + i;
    if (!job.prepares) job.packed_a = twin->packed_a;
    job.place(free);
    free += plans[i].bytes();
  }
  run_jobs({jobs, plans.size()}, runner);
}

}  // namespace metal_marlin::cpu
