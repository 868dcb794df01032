// Runs products: prepare activations, multiply panel by panel, finish. Every step is cut into tasks that share nothing, and
// what a task computes does not depend on how the work was cut.
#include "backends/cpu/gemm.h"

#include <algorithm>
#include <new>

#include "backends/cpu/epilogue.h"
#include "backends/cpu/kernels.h"

namespace metal_marlin::cpu {
namespace {

/// Rows whose sums of one panel are formed together: 48 KB of sums on the task's stack, and their activations stay in L2.
constexpr int64_t kRowsPerItem = 192;
/// Tasks a thread: enough to even out threads of different speed, few enough to keep a thread's reads in one long run.
constexpr int64_t kTasksPerThread = 8;
/// Dwords of activations below which handing the work to other threads costs more than it saves.
constexpr int64_t kPrepareAlone = 16384;
constexpr int64_t kFinishAlone = 16384;

/// One product while it runs. Lives in the scratch memory, so that running allocates nothing.
struct Job {
  const GemmPlan* plan;
  const GemmProblem* problem;
  const CpuWeights* weights;
  uint32_t* records;  ///< prepared activations, maybe another job's
  float* staged;      ///< sums for two-input epilogues
  bool prepares;      ///< false: records belong to an earlier job with the same A
  // The current block of rows:
  int64_t first_row, rows;
  ActivationLayout layout;
  int64_t tiles_per_item, row_items;

  int64_t items() const { return rows == 0 ? 0 : weights->layout.panels() * row_items; }
};

uint64_t aligned(uint64_t bytes) { return (bytes + Block::kAlign - 1) / Block::kAlign * Block::kAlign; }

bool same_preparation(const Job& a, const Job& b) {
  const MatrixView &x = a.problem->a, &y = b.problem->a;
  return x.data == y.data && x.rows == y.rows && x.cols == y.cols && x.stride == y.stride && x.dtype == y.dtype &&
         a.plan->m_block == b.plan->m_block &&
         activation_layout(*a.plan->row, *a.weights, a.plan->m_block) ==
             activation_layout(*b.plan->row, *b.weights, b.plan->m_block) &&
         a.weights->slot_to_k == b.weights->slot_to_k;
}

std::span<Job> make_jobs(std::span<const GemmPlan> plans, std::span<const GemmProblem> problems, std::span<std::byte> scratch) {
  auto* jobs = reinterpret_cast<Job*>(scratch.data());
  std::byte* free = scratch.data() + aligned(plans.size() * sizeof(Job));
  for (size_t i = 0; i < plans.size(); ++i) {
    Job& job = *new (&jobs[i]) Job{};
    job.plan = &plans[i];
    job.problem = &problems[i];
    job.weights = static_cast<const CpuWeights*>(problems[i].weights);
    job.staged = reinterpret_cast<float*>(free + aligned(plans[i].activation_bytes));
    Job* const twin =
        std::find_if(jobs, jobs + i, [&](const Job& other) { return other.prepares && same_preparation(job, other); });
    job.prepares = twin == jobs + i;
    job.records = job.prepares ? reinterpret_cast<uint32_t*>(free) : twin->records;
    free += aligned(plans[i].activation_bytes) + aligned(plans[i].output_bytes);
  }
  return {jobs, plans.size()};
}

/// Sets a job to its block of rows; with none left it has no work.
void start_block(Job& job, int64_t block, int64_t width) {
  const int64_t m = job.problem->a.rows;
  job.first_row = std::min(m, block * job.plan->m_block);
  job.rows = std::min(job.plan->m_block, m - job.first_row);
  if (job.rows == 0) return;
  job.layout = activation_layout(*job.plan->row, *job.weights, job.rows);
  // Few panels: cut rows finer, so that every thread gets some.
  const int64_t tiles = job.layout.tiles, most = std::max<int64_t>(1, kRowsPerItem / job.layout.tile_rows);
  const int64_t wanted = std::max(ceil_div(tiles, most), std::min(tiles, ceil_div(2 * width, job.weights->layout.panels())));
  job.tiles_per_item = ceil_div(tiles, wanted);
  job.row_items = ceil_div(tiles, job.tiles_per_item);
}

/// Runs each(job, first, last) over all the jobs' items, cut into `tasks` runs of equal length.
template <class Count, class Each>
void run_items(std::span<Job> jobs, TaskRunner& runner, bool alone, Count count, Each each) {
  int64_t total = 0;
  for (const Job& job : jobs) total += count(job);
  if (total == 0) return;
  const int64_t tasks = alone ? 1 : std::min<int64_t>(total, kTasksPerThread * runner.width());
  const auto task = [&](uint32_t index) {
    int64_t begin = total * index / tasks, end = total * (index + 1) / tasks;
    for (const Job& job : jobs) {
      const int64_t n = count(job);
      if (begin < n && end > 0) each(job, std::max<int64_t>(begin, 0), std::min(end, n));
      begin -= n;
      end -= n;
    }
  };
  if (tasks == 1)
    task(0);
  else
    runner.run(static_cast<uint32_t>(tasks), task);
}

void prepare(std::span<Job> jobs, TaskRunner& runner) {
  int64_t dwords = 0;
  for (const Job& job : jobs)
    if (job.prepares && job.rows != 0) dwords += static_cast<int64_t>(job.layout.bytes() / 4);
  run_items(
      jobs, runner, dwords <= kPrepareAlone,
      [](const Job& job) { return job.prepares && job.rows != 0 ? job.layout.tiles : int64_t{0}; },
      [](const Job& job, int64_t begin, int64_t end) {
        PrepareArgs args;
        args.a = &job.problem->a;
        args.first_row = job.first_row;
        args.rows = job.rows;
        args.slot_to_k = job.weights->slot_to_k.empty() ? nullptr : job.weights->slot_to_k.data();
        args.layout = job.layout;
        args.out = job.records;
        job.plan->row->steps.prepare(args, begin, end);
      });
}

/// Item i: panel i / row_items, rows of part i % row_items; neighbours share a panel.
void multiply_item(const Job& job, int64_t item, float* sums) {
  const PackedLayout& layout = job.weights->layout;
  const int64_t panel = item / job.row_items, tile = item % job.row_items * job.tiles_per_item;
  PanelArgs args;
  args.layout = &layout;
  args.code = code_kind(*job.weights);
  args.panel = reinterpret_cast<const uint8_t*>(job.weights->data.data()) + panel * layout.panel_bytes();
  args.activations = job.layout;
  args.records = job.records;
  args.tile_begin = tile;
  args.tile_end = std::min(tile + job.tiles_per_item, job.layout.tiles);
  args.sums = sums;
  job.plan->row->multiply(args);

  const int64_t first = tile * job.layout.tile_rows;
  const int64_t rows = std::min((args.tile_end - tile) * job.layout.tile_rows, job.rows - first);
  if (is_two_input(job.problem->epilogue)) {
    const int64_t stride = layout.panels() * kPanelColumns;
    stage_panel(*job.problem, panel, rows, sums, stride, job.staged + first * stride);
  } else {
    job.plan->row->steps.finish_panel(*job.problem, panel, job.first_row + first, rows, sums);
  }
}

void multiply(std::span<Job> jobs, TaskRunner& runner) {
  run_items(
      jobs, runner, false, [](const Job& job) { return job.items(); },
      [](const Job& job, int64_t begin, int64_t end) {
        alignas(64) float sums[kRowsPerItem * kPanelColumns];
        for (int64_t item = begin; item < end; ++item) multiply_item(job, item, sums);
      });
}

void finish_two_input(std::span<Job> jobs, TaskRunner& runner) {
  const auto rows = [](const Job& job) { return is_two_input(job.problem->epilogue) ? job.rows : int64_t{0}; };
  int64_t elements = 0;
  for (const Job& job : jobs) elements += rows(job) * job.weights->layout.n;
  run_items(jobs, runner, elements <= kFinishAlone, rows, [](const Job& job, int64_t begin, int64_t end) {
    const int64_t stride = job.weights->layout.panels() * kPanelColumns;
    for (int64_t row = begin; row < end; ++row)
      job.plan->row->steps.finish_pairs(*job.problem, job.first_row + row, job.staged + row * stride);
  });
}

}  // namespace

uint64_t scratch_bytes(std::span<const GemmPlan> plans, std::span<const GemmProblem>) {
  uint64_t bytes = aligned(plans.size() * sizeof(Job));
  for (const GemmPlan& plan : plans) bytes += aligned(plan.activation_bytes) + aligned(plan.output_bytes);
  return bytes;
}

void run_gemm(std::span<const GemmPlan> plans, std::span<const GemmProblem> problems, std::span<std::byte> scratch,
              TaskRunner& runner) {
  const std::span<Job> jobs = make_jobs(plans, problems, scratch);
  for (int64_t block = 0;; ++block) {
    bool any = false;
    for (Job& job : jobs) {
      start_block(job, block, runner.width());
      any = any || job.rows != 0;
    }
    if (!any) return;
    prepare(jobs, runner);
    multiply(jobs, runner);
    finish_two_input(jobs, runner);
  }
}

}  // namespace metal_marlin::cpu
