#include "backends/cpu/experts.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <new>

#include "backends/cpu/epilogue.h"
#include "backends/cpu/jobs.h"
#include "core/plan.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {
namespace {

/// What the jobs of one wave may need together: prepared activations stay inside a last-level
/// cache.
constexpr uint64_t kWaveBudget = 24 << 20;
/// Results that wait to be summed; more tokens than that go one part after another.
constexpr int64_t kResultsBudget = 64 << 20;

/// Some tokens while they run.
struct TokenChunk {
  const GemmProblem* problem;
  int64_t first_token, tokens, top_k, experts;
  // In scratch:
  GemmJob* jobs;       ///< one an expert that has rows
  int32_t* expert_of;  ///< [routed_rows]: as the ids say, `experts` where they are outside
  int32_t* rows_of_a;  ///< [routed_rows], sorted by expert
  int32_t* rows_of_c;  ///< the same of C, or of the results
  int32_t* first;      ///< [experts + 2]: where an expert's rows begin; the last are those without
  int32_t* lone_job;   ///< [tokens]: the last job that has this token alone
  float* results;      ///< [routed_rows][columns of C], where scales sum them
  std::byte* wave;

  int64_t routed_rows() const { return tokens * top_k; }
  bool sums() const { return problem->routing.scales.present(); }
  bool row_a_token() const { return problem->a.rows == problem->routing.ids.rows; }
};

/// Cuts scratch memory; with none it counts.
class Cutter {
 public:
  explicit Cutter(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(uint64_t count) {
    std::byte* const at = memory_ != nullptr ? memory_ + used_ : nullptr;
    used_ += aligned(count * sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* memory_;
  uint64_t used_ = 0;
};

uint64_t cut(const ExpertPlan& plan, std::byte* memory, TokenChunk& chunk) {
  Cutter cutter(memory);
  const auto routed_rows = static_cast<uint64_t>(plan.routed_rows),
             experts = static_cast<uint64_t>(plan.experts);
  chunk.jobs = cutter.take<GemmJob>(std::min(routed_rows, experts));
  chunk.expert_of = cutter.take<int32_t>(routed_rows);
  chunk.rows_of_a = cutter.take<int32_t>(routed_rows);
  chunk.rows_of_c = cutter.take<int32_t>(routed_rows);
  chunk.first = cutter.take<int32_t>(experts + 2);
  chunk.lone_job = cutter.take<int32_t>(static_cast<uint64_t>(plan.tokens));
  chunk.results = cutter.take<float>(plan.results_bytes / sizeof(float));
  chunk.wave = cutter.take<std::byte>(plan.wave_bytes);
  return cutter.used();
}

/// Counting sort. Ids are read once: whoever changes them meanwhile changes results, not where they
/// are written.
void sort_by_expert(const TokenChunk& chunk) {
  const MatrixView& ids = chunk.problem->routing.ids;
  std::fill_n(chunk.first, chunk.experts + 2, 0);
  for (int64_t t = 0; t < chunk.tokens; ++t) {
    const std::byte* const row =
        static_cast<const std::byte*>(ids.data) + (chunk.first_token + t) * ids.stride * 4;
    for (int64_t s = 0; s < chunk.top_k; ++s) {
      const auto id = load<int32_t>(row + 4 * s);
      const auto expert = static_cast<int32_t>(id >= 0 && id < chunk.experts ? id : chunk.experts);
      chunk.expert_of[t * chunk.top_k + s] = expert;
      ++chunk.first[expert + 1];
    }
  }
  // first[e + 1] counts e's routed rows; then it is where the next one of e goes, and at the end
  // where e + 1 begins.
  for (int64_t e = 1, before = 0; e <= chunk.experts + 1; ++e) {
    const int32_t count = chunk.first[e];
    chunk.first[e] = static_cast<int32_t>(before);
    before += count;
  }
  const int64_t base = chunk.first_token * chunk.top_k;
  for (int64_t routed_row = 0; routed_row < chunk.routed_rows(); ++routed_row) {
    const int32_t at = chunk.first[chunk.expert_of[routed_row] + 1]++;
    chunk.rows_of_a[at] = static_cast<int32_t>(
        chunk.row_a_token() ? chunk.first_token + routed_row / chunk.top_k : base + routed_row);
    chunk.rows_of_c[at] = static_cast<int32_t>(chunk.sums() ? routed_row : base + routed_row);
  }
}

Result<std::span<GemmJob>> make_jobs(const TokenChunk& chunk, const PlanRules& rules) {
  const ExpertStack& stack = *chunk.problem->routing.stack;
  size_t made = 0;
  for (int64_t e = 0; e < chunk.experts; ++e) {
    const int32_t first = chunk.first[e], m = chunk.first[e + 1] - first;
    if (m == 0) continue;
    GemmJob& job = *new (&chunk.jobs[made++]) GemmJob{};
    job.problem = problem_of(*chunk.problem, static_cast<size_t>(e));
    if (chunk.sums()) {
      const int64_t columns = chunk.problem->c.cols;
      job.problem.c = {chunk.results, chunk.routed_rows(), columns, columns, MARLIN_F32};
      job.problem.accumulate = false;
    }
    job.m = m;
    const GemmJob* const before = made > 1 ? &job - 1 : nullptr;
    if (stack.has_one_plan() && before != nullptr && before->m == m) {
      job.plan = before->plan;
    } else {
      MARLIN_ASSIGN(job.plan, plan_gemm(job.problem, job.m, rules));
    }
    job.weights = static_cast<const CpuWeights*>(job.problem.weights);
    job.rows_of_a = chunk.rows_of_a + first;
    job.rows_of_c = chunk.rows_of_c + first;
  }
  return std::span(chunk.jobs, made);
}

/// One token's activations are prepared once for all experts that have nothing but it, which is
/// what decoding is made of.
void share_lone_rows(const TokenChunk& chunk, std::span<GemmJob> jobs, size_t wave_begin,
                     size_t index) {
  GemmJob& job = jobs[index];
  if (job.m != 1 || !chunk.row_a_token()) return;
  int32_t& lone = chunk.lone_job[job.rows_of_a[0] - chunk.first_token];
  const auto before = static_cast<size_t>(lone);
  if (lone >= 0 && before >= wave_begin && same_preparation(job, jobs[before])) {
    job.prepares = false;
    job.packed_a = jobs[before].packed_a;
  } else {
    lone = static_cast<int32_t>(index);
  }
}

/// As many jobs at a time as their scratch allows, and at least one.
Status run_waves(const TokenChunk& chunk, std::span<GemmJob> jobs, uint64_t wave_bytes,
                 const Executor& on) {
  std::fill_n(chunk.lone_job, chunk.tokens, -1);
  for (size_t begin = 0, end = 0; begin < jobs.size(); begin = end) {
    for (uint64_t used = 0; end < jobs.size(); ++end) {
      const uint64_t bytes = jobs[end].plan.bytes();
      if (bytes > wave_bytes)
        return Status::error(MARLIN_E_INTERNAL,
                             "an expert's %" PRId64 " rows need %" PRIu64
                             " bytes of scratch, expected at most the %" PRIu64 " of the plan",
                             jobs[end].m, bytes, wave_bytes);
      if (bytes > wave_bytes - used) break;
      share_lone_rows(chunk, jobs, begin, end);
      jobs[end].place(chunk.wave + used);
      used += bytes;
    }
    run_jobs(jobs.subspan(begin, end - begin), on);
  }
  return {};
}

/// A token's results times their scales, added up in the order of its routed rows. (A function of
/// its own in the library too, so that the check for spilled sums knows it: here they are in memory
/// on purpose.)
[[gnu::noinline]] void sum_token(const TokenChunk& chunk, int64_t token) {
  const MatrixView &scales = chunk.problem->routing.scales, &c = chunk.problem->c;
  const int64_t row = chunk.first_token + token, first = token * chunk.top_k;
  const size_t element = float_bytes(scales.dtype);
  const std::byte* const from = static_cast<const std::byte*>(scales.data) +
                                static_cast<size_t>(row * scales.stride) * element;
  for (int64_t column = 0; column < c.cols; column += kPanelColumns) {
    const int64_t n = std::min<int64_t>(kPanelColumns, c.cols - column);
    float sum[kPanelColumns] = {};
    for (int64_t s = 0; s < chunk.top_k; ++s) {
      if (chunk.expert_of[first + s] == chunk.experts) continue;
      float scale;
      decode_floats(scales.dtype, from + static_cast<size_t>(s) * element, 1, &scale);
      const float* const result = chunk.results + (first + s) * c.cols + column;
      for (int64_t i = 0; i < n; ++i) sum[i] += scale * result[i];
    }
    store_row(*chunk.problem, row, column, n, sum);
  }
}

/// The result of a routed row without expert is 0.
void clear_routed_row(const TokenChunk& chunk, int64_t routed_row) {
  const MatrixView& c = chunk.problem->c;
  if (chunk.expert_of[routed_row] != chunk.experts || chunk.problem->accumulate) return;
  const size_t element = float_bytes(c.dtype);
  const int64_t row = chunk.first_token * chunk.top_k + routed_row;
  std::memset(static_cast<std::byte*>(c.data) + static_cast<size_t>(row * c.stride) * element, 0,
              static_cast<size_t>(c.cols) * element);
}

TracedStep traced(const TokenChunk& chunk) {
  return {"", "experts", chunk.routed_rows(), chunk.problem->c.cols, 0};
}

void finish(const TokenChunk& chunk, const Executor& on) {
  const int64_t without = chunk.routed_rows() - chunk.first[chunk.experts];
  if (!chunk.sums() && without == 0) return;
  const bool alone =
      (chunk.sums() ? chunk.routed_rows() : without) * chunk.problem->c.cols <= kFinishAlone;
  run_items(
      std::span(&chunk, 1), on, "sum experts", alone, 1,
      [](const TokenChunk& one) { return one.sums() ? one.tokens : one.routed_rows(); },
      [](const TokenChunk&) { return int64_t{1}; },
      [](const TokenChunk& one, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          one.sums() ? sum_token(one, i) : clear_routed_row(one, i);
      });
}

}  // namespace

GemmProblem problem_of(const GemmProblem& problem, size_t expert) {
  GemmProblem one = problem;
  one.weights = (*problem.routing.stack)[expert].get();
  one.routing = {};
  if (problem.bias.rows > 1) {
    const uint64_t offset =
        expert * static_cast<uint64_t>(problem.bias.stride) * float_bytes(problem.bias.dtype);
    one.bias.data = static_cast<std::byte*>(problem.bias.data) + offset;
    one.bias.rows = 1;
  }
  return one;
}

uint64_t ExpertPlan::bytes() const {
  TokenChunk counted;
  return cut(*this, nullptr, counted);
}

Result<ExpertPlan> plan_experts(const GemmProblem& problem, int64_t tokens,
                                const PlanRules& rules) {
  const ExpertStack& stack = *problem.routing.stack;
  const int64_t top_k = problem.routing.ids.cols;
  ExpertPlan plan;
  plan.experts = static_cast<int64_t>(stack.size());
  plan.tokens = std::max<int64_t>(tokens, 1);
  if (problem.routing.scales.present()) {
    const int64_t row_bytes = problem.c.cols * static_cast<int64_t>(sizeof(float));
    plan.tokens = std::clamp<int64_t>(kResultsBudget / row_bytes / top_k, 1, plan.tokens);
    plan.results_bytes = static_cast<uint64_t>(plan.tokens * top_k * row_bytes);
  }
  plan.routed_rows = plan.tokens * top_k;

  // Any one job must fit. What all of them need together depends on the ids; where this falls short
  // they run in more waves.
  constexpr int64_t kSome = 12;  // rows: these may be padded threefold
  for (size_t e = 0; e < (stack.has_one_plan() ? 1 : stack.size()); ++e) {
    const GemmProblem one = problem_of(problem, e);
    MARLIN_ASSIGN(const GemmPlan largest, largest_plan(one, plan.routed_rows, rules));
    MARLIN_ASSIGN(const GemmPlan lone, plan_gemm(one, 1, rules));
    MARLIN_ASSIGN(const GemmPlan some, plan_gemm(one, kSome, rules));
    const uint64_t a_row = std::max(lone.bytes(), 3 * some.bytes() / kSome);
    plan.wave_bytes =
        std::max({plan.wave_bytes, largest.bytes(),
                  std::min(kWaveBudget, static_cast<uint64_t>(plan.routed_rows) * a_row)});
  }
  return plan;
}

Status run_experts(const GemmProblem& problem, const ExpertPlan& plan, const PlanRules& rules,
                   std::span<std::byte> scratch, const Executor& on) {
  const int64_t tokens = problem.routing.ids.rows;
  TokenChunk chunk{};
  chunk.problem = &problem;
  chunk.top_k = problem.routing.ids.cols;
  chunk.experts = plan.experts;
  cut(plan, scratch.data(), chunk);
  for (; chunk.first_token < tokens; chunk.first_token += plan.tokens) {
    chunk.tokens = std::min(plan.tokens, tokens - chunk.first_token);
    sort_by_expert(chunk);
    MARLIN_ASSIGN(const std::span<GemmJob> jobs, make_jobs(chunk, rules));
    MARLIN_RETURN_IF_ERROR(run_waves(chunk, jobs, plan.wave_bytes, on));
    finish(chunk, on);
  }
  return {};
}

Result<std::string> explain_experts(const GemmProblem& problem, const ExpertPlan& experts,
                                    const PlanRules& rules) {
  const int64_t tokens = problem.routing.ids.rows;
  const int64_t share = ceil_div(experts.routed_rows, experts.experts);
  GemmProblem one = problem_of(problem, 0);
  one.a.rows = share;
  MARLIN_ASSIGN(GemmPlan plan, plan_gemm(one, share, rules));
  plan.activation_bytes = experts.bytes();
  plan.output_bytes = plan.part_bytes = 0;  // which are in that
  std::string text = explain_gemm(plan, one, rules);
  append(text, "experts: %" PRId64 ", %" PRId64 " a token\n", experts.experts,
         problem.routing.ids.cols);
  append(text, "rows_an_expert: %" PRId64 " when %" PRId64 " tokens are spread evenly\n", share,
         tokens);
  for (int64_t m = 1; m <= experts.routed_rows;) {
    MARLIN_ASSIGN(const GemmPlan rows, plan_gemm(one, m, rules));
    append(text, "kernel_from_%" PRId64 "_rows: %.*s\n", m, static_cast<int>(rows.row->name.size()),
           rows.row->name.data());
    int64_t next = INT64_MAX;  // where another kernel may be chosen
    for (const KernelRow& row : kernel_rows())
      for (const int64_t edge : {row.m_min, row.m_max + 1})
        if (edge > m) next = std::min(next, edge);
    m = next;
  }
  return text;
}

}  // namespace metal_marlin::cpu
