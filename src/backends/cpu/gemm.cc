#include "backends/cpu/gemm.h"

#include <algorithm>
#include <new>

#include "backends/cpu/jobs.h"

namespace metal_marlin::cpu {
namespace {

bool is_plain(const PlannedGemm& product) {
  return product.problem.a.rows != 0 && !product.problem.routing.present();
}
size_t plain_count(std::span<const PlannedGemm> products) {
  return static_cast<size_t>(std::count_if(products.begin(), products.end(), is_plain));
}

}  // namespace

uint64_t scratch_bytes(size_t products, uint64_t plan_bytes) {
  return aligned(products * sizeof(GemmJob)) + plan_bytes;
}

uint64_t scratch_bytes(std::span<const PlannedGemm> products) {
  uint64_t bytes = 0;
  for (const PlannedGemm& product : products)
    if (is_plain(product)) bytes += product.plan.as<GemmPlan>().bytes();
  return scratch_bytes(plain_count(products), bytes);
}

void run_gemm(std::span<const PlannedGemm> products, std::span<std::byte> scratch,
              const Executor& on) {
  auto* const jobs = reinterpret_cast<GemmJob*>(scratch.data());
  std::byte* free = scratch.data() + scratch_bytes(plain_count(products), 0);
  size_t count = 0;
  for (const PlannedGemm& product : products) {
    if (!is_plain(product)) continue;
    const auto& plan = product.plan.as<GemmPlan>();
    GemmJob* const end = &jobs[count++];
    GemmJob& job = *new (end) GemmJob{plan, product.problem,
                                      static_cast<const CpuWeights*>(product.problem.weights)};
    job.m = product.problem.a.rows;
    const GemmJob* const twin = std::find_if(jobs, end, [&](const GemmJob& other) {
      return other.prepares && same_preparation(job, other);
    });
    job.prepares = twin == end;
    if (!job.prepares) job.packed_a = twin->packed_a;
    job.place(free);
    free += plan.bytes();
  }
  run_jobs({jobs, count}, on);
}

}  // namespace metal_marlin::cpu
