#include "backends/cpu/tune.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "core/shapes.h"

namespace metal_marlin::cpu {
namespace {

class CpuContest final : public Contest {
 public:
  CpuContest(const TuneBench& bench, std::span<const GemmProblem> alike, int64_t m)
      : bench_(bench), problems_(alike.begin(), alike.end()) {
    for (GemmProblem& problem : problems_) {
      for (MatrixView* const view : {&problem.a, &problem.c}) {
        view->rows = m;
        view->stride = view->cols;
      }
      problem.bias = {};
      problem.accumulate = false;
    }
  }

  /// The usual kernel first.
  void enter(std::string_view kernel) { kernels_.push_back(kernel); }
  std::string_view name(size_t i) const { return kernels_[i]; }

  /// Makes the operands of all problems, which they share.
  Status prepare() {
    const MatrixView &a = problems_.front().a, &c = problems_.front().c;
    MARLIN_ASSIGN(a_, Block::allocate(bench_.allocator, static_cast<uint64_t>(span_bytes(a))));
    MARLIN_ASSIGN(c_, Block::allocate(bench_.allocator, static_cast<uint64_t>(span_bytes(c))));
    fill_activations(a.dtype, a_.data(), a.rows * a.cols);
    for (GemmProblem& problem : problems_) {
      problem.a.data = a_.data();
      problem.c.data = c_.data();
    }
    return {};
  }

  size_t size() const override { return kernels_.size(); }

  Result<bool> admits(size_t i) override {
    std::memset(c_.data(), 0xff, c_.size());  // whatever a kernel does not write stays NaN
    if (!run(i, 1).ok()) return false;
    if (i == 0) {
      usual_.assign(c_.data(), c_.data() + c_.size());
      return true;
    }
    const MatrixView& c = problems_.front().c;
    return results_agree(usual_.data(), c_.data(), c.rows * c.cols, c.dtype);
  }

  Result<double> seconds(size_t i, int runs) override {
    MARLIN_ASSIGN(const double all,
                  bench_.stopwatch.time(kernels_[i], [&] { return run(i, runs); }));
    return all / runs;
  }

 private:
  /// Returns 0: the time is not known here.
  Result<double> run(size_t i, int runs) {
    const GemmProblem& first = problems_.front();
    MARLIN_ASSIGN(const GemmPlan plan,
                  plan_gemm(first, first.a.rows, {bench_.features, kernels_[i]}));
    const uint64_t bytes = scratch_bytes(1, plan.bytes());
    if (scratch_.size() < bytes) {
      MARLIN_ASSIGN(scratch_, Block::allocate(bench_.allocator, bytes));
    }
    for (int run = 0; run < runs; ++run) {
      const PlannedGemm product{problems_[turn_++ % problems_.size()], Plan(plan)};
      run_gemm({&product, 1}, {scratch_.data(), scratch_.size()}, bench_.runner);
    }
    return 0.0;
  }

  const TuneBench& bench_;
  std::vector<GemmProblem> problems_;  // their weights differ
  std::vector<std::string_view> kernels_;
  Block a_, c_, scratch_;
  std::vector<std::byte> usual_;
  size_t turn_ = 0;
};

}  // namespace

Result<std::optional<KernelChoice>> measure_class(const TuneBench& bench,
                                                  std::span<const GemmProblem> alike, int64_t m,
                                                  double deadline) {
  const GemmProblem& problem = alike.front();
  MARLIN_ASSIGN(const GemmPlan usual, plan_gemm(problem, m, {bench.features}));
  CpuContest contest(bench, alike, m);
  contest.enter(usual.row->name);
  if (usual.row->features != 0)  // the portable kernels have no rivals but themselves
    for (const std::string_view kernel : measurable_kernels(problem, bench.features))
      if (kernel != usual.row->name) contest.enter(kernel);
  MARLIN_RETURN_IF_ERROR(contest.prepare());
  MARLIN_ASSIGN(const std::optional<Verdict> verdict, hold(contest, bench.stopwatch, deadline));
  if (!verdict) return std::optional<KernelChoice>();
  return std::optional<KernelChoice>(
      choice_of(*verdict, contest.name(verdict->winner), usual.row->name));
}

}  // namespace metal_marlin::cpu
