// Runs products: prepares activations, multiplies panel by panel, and finishes. Every step is cut
// into tasks that share nothing. The results do not depend on how the work is cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backends/cpu/kernels.h"
#include "backends/cpu/plan.h"
#include "base/bits.h"
#include "core/tasks.h"

namespace metal_marlin::cpu {

/// One product, or the part of one expert in a product. It lives in the scratch memory, so that
/// running allocates nothing.
struct GemmJob {
  GemmPlan plan = {};
  GemmProblem problem = {};
  const CpuWeights* weights = nullptr;
  int64_t m = 0;
  const int32_t* rows_of_a = nullptr;  ///< [m], or null: row i is row i of A
  const int32_t* rows_of_c = nullptr;  ///< [m], or null
  uint32_t* packed_a = nullptr;        ///< prepared activations, maybe another job's
  float* pair_sums = nullptr;          ///< sums for two-input epilogues
  float* parts = nullptr;  ///< sums of parts of K: [panel][part][row of the tile][kPanelColumns]
  bool prepares =
      true;  ///< false: packed A blocks belong to an earlier job with the same rows of the same A
  // The current block of rows:
  int64_t first_row = 0, rows = 0;
  ActivationLayout layout = {};
  int64_t tiles_per_item = 0, row_items = 0;

  int64_t items() const {
    return rows == 0 ? 0 : weights->layout.panels() * row_items * plan.k_parts;
  }
  /// The sums of part `part` of a panel.
  float* part_sums(int64_t panel, int64_t part) const {
    return parts + (panel * plan.k_parts + part) * layout.tile_rows * kPanelColumns;
  }
  /// Gives it the plan's bytes() of scratch.
  void place(std::byte* memory);
  int64_t row_of_c(int64_t row) const { return rows_of_c != nullptr ? rows_of_c[row] : row; }
};

/// Whether the same rows would be prepared to the same packed A blocks.
bool same_preparation(const GemmJob& a, const GemmJob& b);

/// What runs the steps of a call, and who hears of them.
struct Executor {
  TaskRunner& runner;
  StreamTrace trace;
  Executor(TaskRunner& on, StreamTrace to = {}) : runner(on), trace(std::move(to)) {}
};
/// What a host hears of a step of a job.
TracedStep traced(const GemmJob& job);

/// Runs jobs after place().
void run_jobs(std::span<GemmJob> jobs, const Executor& on);

/// With fewer elements, finishing runs on one thread.
inline constexpr int64_t kFinishAlone = 16384;

/// Tells the host of a step of the jobs that took part in it.
template <class J, class Count>
void tell(const StreamTrace& trace, const char* step, uint64_t begin_ns, std::span<J> jobs,
          Count count) {
  const auto took_part = [&](const J& job) { return count(job) != 0; };
  const TracedTimes times{begin_ns, monotonic_ns(), 0,
                          static_cast<uint32_t>(std::ranges::count_if(jobs, took_part))};
  for (const J& job : jobs) {
    if (!took_part(job)) continue;
    TracedStep told = traced(job);
    told.step = step;
    trace.tell(told, times);
  }
}

/// Runs each(job, first, last) over the items of all jobs, cut into runs of about equal cost;
/// cost(job) is the cost of one item. A run costs at least `least`, unless a thread would then have
/// no run. With `alone`, one thread runs everything. The host hears of it as `step`.
template <class J, class Count, class Cost, class Each>
void run_items(std::span<J> jobs, const Executor& on, const char* step, bool alone, int64_t least,
               Count count, Cost cost, Each each) {
  // Tasks per thread: enough for threads of different speed, and few enough that a thread reads
  // long runs of memory.
  constexpr int64_t kTasksPerThread = 8;
  int64_t items = 0, total = 0;
  for (const J& job : jobs) {
    items += count(job);
    total += count(job) * cost(job);
  }
  if (items == 0) return;
  const uint64_t begin_ns = on.trace ? monotonic_ns() : 0;
  const int64_t width = on.runner.width();
  // Every thread gets the same number of tasks. Otherwise all threads but one wait for the last
  // task.
  const int64_t wanted = std::clamp(total / least, width, kTasksPerThread * width) / width * width;
  const int64_t tasks = alone ? 1 : std::min(items, wanted);
  const auto task = [&](uint32_t index) {
    // An item belongs to the task whose part of the total cost contains its beginning.
    int64_t begin = total * index / tasks, end = total * (index + 1) / tasks;
    for (const J& job : jobs) {
      const int64_t n = count(job), one = cost(job);
      const int64_t first = ceil_div(std::max<int64_t>(begin, 0), one),
                    last = std::min(ceil_div(std::max<int64_t>(end, 0), one), n);
      if (first < last) each(job, first, last);
      begin -= n * one;
      end -= n * one;
    }
  };
  if (tasks == 1)
    task(0);
  else
    on.runner.run(static_cast<uint32_t>(tasks), task);
  if (on.trace) tell(on.trace, step, begin_ns, jobs, count);
}

}  // namespace metal_marlin::cpu
