#include "backends/cpu/jobs.h"

#include <algorithm>

#include "backends/cpu/epilogue.h"

namespace metal_marlin::cpu {
namespace {

/// The rows whose sums for one panel are formed together. Their sums take 48 KB of the task's
/// stack, and their activations stay in L2.
constexpr int64_t kRowsPerItem = 192;
/// With fewer dwords of activations, giving the work to other threads costs more than it saves.
constexpr int64_t kPrepareAlone = 16384;
/// Multiplying a few rows by a panel costs at least as much as reading the panel, which takes about
/// as long as multiplying this many rows.
constexpr int64_t kRowsOfReading = 8;

/// The least cost of a task, in rows and superblocks: about 0.5 MB of weights at one row. At its
/// beginning, a task waits for memory until its first prefetched lines arrive. The lines that the
/// previous task prefetched beyond its own end may be in the cache of another core.
constexpr int64_t kLeastCost = 1024;

constexpr auto equal_cost = [](const GemmJob&) { return int64_t{1}; };

/// Sets a job to its block of rows. A job without rows left has no work.
void start_block(GemmJob& job, int64_t block, int64_t width) {
  job.first_row = std::min(job.m, block * job.plan.m_block);
  job.rows = std::min(job.plan.m_block, job.m - job.first_row);
  if (job.rows == 0) return;
  job.layout = activation_layout(*job.plan.row, *job.weights, job.rows);
  // With few panels, cut rows into smaller parts, so that every thread gets some.
  const int64_t tiles = job.layout.tiles,
                most = std::max<int64_t>(1, kRowsPerItem / job.layout.tile_rows);
  const int64_t wanted = std::max(
      ceil_div(tiles, most), std::min(tiles, ceil_div(2 * width, job.weights->layout.panels())));
  job.tiles_per_item = ceil_div(tiles, wanted);
  job.row_items = ceil_div(tiles, job.tiles_per_item);
}

void prepare(std::span<GemmJob> jobs, const Executor& on) {
  int64_t dwords = 0;
  for (const GemmJob& job : jobs)
    if (job.prepares && job.rows != 0) dwords += static_cast<int64_t>(job.layout.bytes() / 4);
  run_items(
      jobs, on, "prepare A", dwords <= kPrepareAlone, 1,
      [](const GemmJob& job) {
        return job.prepares && job.rows != 0 ? job.layout.tiles : int64_t{0};
      },
      equal_cost,
      [](const GemmJob& job, int64_t begin, int64_t end) {
        PrepareArgs args;
        args.a = &job.problem.a;
        args.first_row = job.first_row;
        args.rows = job.rows;
        args.rows_of_a = job.rows_of_a;
        args.slot_to_k = job.weights->slot_to_k.empty() ? nullptr : job.weights->slot_to_k.data();
        args.layout = job.layout;
        args.group_blocks = std::max<int64_t>(job.problem.activation_group / kBlockSlots, 1);
        args.out = job.packed_a;
        job.plan.row->steps.prepare(args, begin, end);
      });
}

/// Narrows a panel's product to a part of K; the packed A blocks of one tile lie in the order of K.
void take_part(int64_t part, int64_t parts, PanelLayout& layout, PanelArgs& args) {
  const int64_t superblocks = layout.superblocks(), first = superblocks * part / parts,
                end = superblocks * (part + 1) / parts;
  ActivationLayout& act = args.activations;
  args.panel += first * layout.super_bytes();
  args.packed_a += first * kBlocksPerSuper * act.a_block_size();
  act.blocks_behind = act.blocks - end * kBlocksPerSuper;
  act.blocks = (end - first) * kBlocksPerSuper;
  layout.slots_before = first * kSuperSlots;
  layout.slots_after = (superblocks - end) * kSuperSlots;
  layout.slots = (end - first) * kSuperSlots;
  args.layout = &layout;
}

/// Stores the sums of a panel for some rows, from `first` on, to C or to the input of the second
/// step.
void finish_rows(const GemmJob& job, int64_t panel, int64_t first, int64_t rows, float* sums) {
  if (is_two_input(job.problem.epilogue)) {
    const int64_t stride = job.weights->layout.panels() * kPanelColumns;
    store_pair_sums(job.problem, panel, rows, sums, stride, job.pair_sums + first * stride);
  } else if (job.rows_of_c == nullptr) {
    job.plan.row->steps.finish_panel(job.problem, panel, job.first_row + first, rows, sums);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      job.plan.row->steps.finish_panel(job.problem, panel, job.rows_of_c[job.first_row + first + r],
                                       1, sums + r * kPanelColumns);
  }
}

/// The blocks at the end of K that hold whole groups of padding, whose scales are 0.
int idle_blocks(const PanelLayout& layout) {
  const int64_t slots = (layout.slots - layout.k) / layout.slot_group * layout.slot_group;
  return static_cast<int>(slots / kBlockSlots);
}

/// Item i is panel i / row_items and the rows of part i % row_items, so neighbors share a panel.
/// With parts of K, it is panel i / k_parts.
void multiply_item(const GemmJob& job, int64_t item, float* sums) {
  PanelLayout layout = job.weights->layout;
  const int64_t parts = job.plan.k_parts, part = item % parts;
  item /= parts;
  const int64_t panel = item / job.row_items, tile = item % job.row_items * job.tiles_per_item;
  PanelArgs args;
  args.layout = &layout;
  args.code = code_kind(*job.weights);
  args.panel =
      reinterpret_cast<const uint8_t*>(job.weights->data.data()) + panel * layout.panel_bytes();
  args.activations = job.layout;
  args.packed_a = job.packed_a;
  args.tile_begin = tile;
  args.tile_end = std::min(tile + job.tiles_per_item, job.layout.tiles);
  args.block_by_block = job.problem.row_invariant;
  if (job.weights->slot_to_k.empty() && part + 1 == parts) args.idle_blocks = idle_blocks(layout);
  args.sums = parts == 1 ? sums : job.part_sums(panel, part);
  if (parts > 1) take_part(part, parts, layout, args);
  job.plan.row->multiply(args);
  if (parts > 1) return;

  const int64_t first = tile * job.layout.tile_rows;
  finish_rows(job, panel, first,
              std::min((args.tile_end - tile) * job.layout.tile_rows, job.rows - first), sums);
}

/// Adds up the parts of K, always in the same order.
void combine_parts(std::span<GemmJob> jobs, const Executor& on) {
  run_items(
      jobs, on, "add parts of K", true, 1,
      [](const GemmJob& job) {
        return job.plan.k_parts > 1 && job.rows != 0 ? job.weights->layout.panels() : int64_t{0};
      },
      equal_cost,
      [](const GemmJob& job, int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel) {
          float* const sums = job.part_sums(panel, 0);
          for (int64_t part = 1; part < job.plan.k_parts; ++part) {
            const float* const more = job.part_sums(panel, part);
            for (int64_t i = 0; i < job.rows * kPanelColumns; ++i) sums[i] += more[i];
          }
          finish_rows(job, panel, 0, job.rows, sums);
        }
      });
}

void multiply(std::span<GemmJob> jobs, const Executor& on) {
  run_items(
      jobs, on, "multiply", false, kLeastCost, [](const GemmJob& job) { return job.items(); },
      [](const GemmJob& job) {
        return ceil_div(job.weights->layout.superblocks(), job.plan.k_parts) *
               (kRowsOfReading + std::min(job.rows, job.tiles_per_item * job.layout.tile_rows));
      },
      [](const GemmJob& job, int64_t begin, int64_t end) {
        alignas(64) float sums[kRowsPerItem * kPanelColumns];
        for (int64_t item = begin; item < end; ++item) multiply_item(job, item, sums);
      });
}

void finish_two_input(std::span<GemmJob> jobs, const Executor& on) {
  const auto rows = [](const GemmJob& job) {
    return is_two_input(job.problem.epilogue) ? job.rows : int64_t{0};
  };
  int64_t elements = 0;
  for (const GemmJob& job : jobs) elements += rows(job) * job.weights->layout.n;
  run_items(jobs, on, "finish", elements <= kFinishAlone, 1, rows, equal_cost,
            [](const GemmJob& job, int64_t begin, int64_t end) {
              const int64_t stride = job.weights->layout.panels() * kPanelColumns;
              for (int64_t row = begin; row < end; ++row)
                job.plan.row->steps.finish_pair_sums(job.problem, job.row_of_c(job.first_row + row),
                                                     job.pair_sums + row * stride);
            });
}

}  // namespace

void GemmJob::place(std::byte* memory) {
  if (prepares) packed_a = reinterpret_cast<uint32_t*>(memory);
  pair_sums = reinterpret_cast<float*>(memory + aligned(plan.activation_bytes));
  parts = reinterpret_cast<float*>(memory + aligned(plan.activation_bytes) +
                                   aligned(plan.output_bytes));
}

bool same_preparation(const GemmJob& a, const GemmJob& b) {
  if (a.problem.activation_group != b.problem.activation_group) return false;
  const MatrixView &x = a.problem.a, &y = b.problem.a;
  return x.data == y.data && x.rows == y.rows && x.cols == y.cols && x.stride == y.stride &&
         x.dtype == y.dtype && a.plan.m_block == b.plan.m_block &&
         activation_layout(*a.plan.row, *a.weights, a.plan.m_block) ==
             activation_layout(*b.plan.row, *b.weights, b.plan.m_block) &&
         a.weights->slot_to_k == b.weights->slot_to_k;
}

TracedStep traced(const GemmJob& job) {
  const PanelLayout& layout = job.weights->layout;
  return {"", job.plan.row->name, job.rows, layout.n, layout.k};
}

void run_jobs(std::span<GemmJob> jobs, const Executor& on) {
  for (int64_t block = 0;; ++block) {
    bool any = false;
    for (GemmJob& job : jobs) {
      start_block(job, block, on.runner.width());
      any = any || job.rows != 0;
    }
    if (!any) return;
    prepare(jobs, on);
    multiply(jobs, on);
    combine_parts(jobs, on);
    finish_two_input(jobs, on);
  }
}

}  // namespace metal_marlin::cpu
