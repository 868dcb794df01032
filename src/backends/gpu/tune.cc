#include "backends/gpu/tune.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/gpu/choice.h"
#include "backends/gpu/gemm.h"
#include "core/shapes.h"

namespace metal_marlin::gpu {
namespace {

/// A kernel and how it runs.
struct Entry {
  const ProductKernel* kernel;
  KernelTweaks tweaks{};
};

/// Operands of a product in the device's memory, one after another in one buffer.
class Arena {
 public:
  /// A dense matrix of the view's shape and type.
  void add(MatrixView& view, Matrix& to) {
    if (view.cols == 0) return;  // there is none
    view.stride = view.cols;
    to.stride = view.cols;
    to.place.offset = bytes_;
    bytes_ += static_cast<uint64_t>(span_bytes(view)) + (-span_bytes(view) & 255);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

/// Ids of experts that spread over all of them; a token names none twice unless it must.
void fill_ids(const MatrixView& ids, int64_t experts, std::byte* to) {
  const int64_t step = std::max<int64_t>(experts / ids.cols, 1);
  for (int64_t t = 0; t < ids.rows; ++t)
    for (int64_t s = 0; s < ids.cols; ++s) {
      const auto id = static_cast<int32_t>((t * 29 + t * t % 13 + s * step) % experts);
      std::memcpy(to + 4 * (t * ids.cols + s), &id, sizeof id);
    }
}

/// Products of a mixture take sets of ids in turn: the experts of one set stay in caches, those of
/// all sets do not.
constexpr int64_t kIdSets = 16;

class GpuContest final : public Contest {
 public:
  GpuContest(const TuneBench& bench, std::span<const GemmProblem> alike, int64_t m)
      : bench_(bench), m_(m), problems_(alike.begin(), alike.end()) {}

  /// Makes the operands of all problems, which they share.
  Status prepare() {
    Arena arena;
    GemmProblem& first = problems_.front();
    const bool routed = first.routing.present(), row_a_token = rows_of_a(first) != 1;
    const int64_t rows = product_rows(first, m_);
    first.a.rows = routed && row_a_token ? m_ : rows;
    first.c.rows = routed && first.routing.scales.present() ? m_ : rows;
    first.bias = {};
    first.accumulate = false;
    if (routed) {
      first.routing.ids.rows = kIdSets * m_;
      first.routing.scales.rows = m_;
    }
    arena.add(first.a, operands_.a);
    arena.add(first.c, operands_.c);
    arena.add(first.routing.ids, operands_.ids);
    if (first.routing.scales.present()) arena.add(first.routing.scales, operands_.scales);
    const MatrixView ids = first.routing.ids;
    if (routed) first.routing.ids.rows = m_;
    for (GemmProblem& problem : problems_) {
      problem.a = first.a;
      problem.c = first.c;
      problem.bias = {};
      problem.accumulate = false;
      problem.routing.ids = first.routing.ids;
      problem.routing.scales = first.routing.scales;
    }
    MARLIN_RETURN_IF_ERROR(allocate(arena.bytes()));
    return fill(ids);
  }

  void enter(const Entry& entry) { entries_.push_back(entry); }
  const Entry& entry(size_t i) const { return entries_[i]; }
  void keep(size_t first, size_t second) {  // for another contest
    const std::vector<Entry> kept = {entries_[first], entries_[second]};
    entries_.assign(kept.begin(), kept.begin() + (first == second ? 1 : 2));
  }
  std::string_view name(size_t i) const {
    return entries_[i].kernel->name(weights_of(problems_.front()).layout.codes,
                                    activation_of(problems_.front()));
  }
  Result<GemmPlan> plan(const Entry& entry) const {
    return plan_with(*entry.kernel, problems_.front(), m_, bench_.rules.device,
                     bench_.rules.most_rows, entry.tweaks);
  }

  size_t size() const override { return entries_.size(); }

  Result<bool> admits(size_t i) override {
    MARLIN_ASSIGN(const bool sound, bench_.sound(*entries_[i].kernel, problems_.front()));
    if (!sound) return false;
    const auto plan = this->plan(entries_[i]);
    if (!plan.ok()) return false;
    // Whatever a kernel does not write stays NaN.
    std::memset(result(), 0xff, result_bytes());
    MARLIN_ASSIGN(auto stream, bench_.streams.take());
    MARLIN_RETURN_IF_ERROR(copy(*stream, host_, device_, operands_.c.place.offset));
    const Status ran = record(*stream, plan.value(), 0);
    if (ran.code() == MARLIN_E_NOT_FOUND || ran.code() == MARLIN_E_UNSUPPORTED) return false;
    MARLIN_RETURN_IF_ERROR(ran);
    MARLIN_RETURN_IF_ERROR(copy(*stream, device_, host_, operands_.c.place.offset));
    MARLIN_RETURN_IF_ERROR(stream->wait(UINT64_MAX));
    bench_.streams.put(std::move(stream));
    if (i == 0) {
      usual_.assign(result(), result() + result_bytes());
      return true;
    }
    const MatrixView& c = problems_.front().c;
    return results_agree(usual_.data(), result(), c.rows * c.cols, c.dtype);
  }

  Result<double> seconds(size_t i, int runs) override {
    MARLIN_ASSIGN(const GemmPlan plan, this->plan(entries_[i]));
    const auto work = [&]() -> Result<double> {
      MARLIN_ASSIGN(auto stream, bench_.streams.take());
      for (int run = 0; run < runs; ++run) MARLIN_RETURN_IF_ERROR(record(*stream, plan, turn_++));
      MARLIN_RETURN_IF_ERROR(stream->wait(UINT64_MAX));
      const double busy = stream->busy_seconds();
      bench_.streams.put(std::move(stream));
      return busy;
    };
    MARLIN_ASSIGN(const double all, bench_.stopwatch.time(name(i), work));
    return all / runs;
  }

 private:
  bool apart() const { return host_ != device_; }
  std::byte* result() const { return host_->host() + operands_.c.place.offset; }
  size_t result_bytes() const { return static_cast<size_t>(span_bytes(problems_.front().c)); }

  Status allocate(uint64_t bytes) {
    MARLIN_ASSIGN(host_, bench_.memory.allocate(bytes, device::Placement::shared, "tuning"));
    device_ = host_;
    if (!bench_.memory.unified()) {
      MARLIN_ASSIGN(device_, bench_.memory.allocate(bytes, device::Placement::device, "tuning"));
    }
    for (Matrix* const matrix : {&operands_.a, &operands_.c, &operands_.ids, &operands_.scales})
      if (matrix->stride != 0) matrix->place.buffer = device_;
    return {};
  }

  /// `ids` are those of all sets.
  Status fill(const MatrixView& ids) {
    const GemmProblem& first = problems_.front();
    const auto at = [&](const Matrix& matrix) { return host_->host() + matrix.place.offset; };
    std::memset(host_->host(), 0, host_->bytes());
    fill_activations(first.a.dtype, at(operands_.a), first.a.rows * first.a.cols);
    if (first.routing.present())
      fill_ids(ids, static_cast<int64_t>(first.routing.stack->size()), at(operands_.ids));
    if (operands_.scales.stride != 0)
      fill_activations(first.routing.scales.dtype, at(operands_.scales),
                       first.routing.scales.rows * first.routing.scales.cols);
    MARLIN_ASSIGN(auto stream, bench_.streams.take());
    MARLIN_RETURN_IF_ERROR(copy(*stream, host_, device_, 0));
    MARLIN_RETURN_IF_ERROR(stream->wait(UINT64_MAX));
    bench_.streams.put(std::move(stream));
    return {};
  }

  /// Copies everything from a place on, where there is anything to copy.
  Status copy(GpuStream& stream, const device::BufferRef& from, const device::BufferRef& to,
              uint64_t at) const {
    if (!apart()) return {};
    MARLIN_RETURN_IF_ERROR(stream.begin());
    MARLIN_RETURN_IF_ERROR(stream.copy(from, to, at, from->bytes() - at));
    return stream.end();
  }

  /// The weights and the set of ids of this turn.
  Status record(GpuStream& stream, const GemmPlan& plan, size_t turn) const {
    const GemmProblem& problem = problems_[turn % problems_.size()];
    ProductOperands operands = operands_;
    operands.ids.place.offset +=
        turn % kIdSets * static_cast<uint64_t>(span_bytes(problem.routing.ids));
    GemmCall call(bench_.kernels);
    MARLIN_RETURN_IF_ERROR(call.add(problem, plan, operands));
    return call.record(stream, bench_.memory);
  }

  const TuneBench& bench_;
  const int64_t m_;
  std::vector<GemmProblem> problems_;  // their weights differ
  std::vector<Entry> entries_;
  device::BufferRef host_, device_;  // the same where memory is unified
  ProductOperands operands_;
  std::vector<std::byte> usual_;
  size_t turn_ = 0;
};

/// Other parts of K and other teams of a kernel. Only those that make another plan.
std::vector<Entry> variants(const GpuContest& contest, const Entry& entry) {
  constexpr int64_t kSplits[] = {1, 2, 4, 8};
  std::vector<Entry> all;
  std::vector<std::pair<int64_t, uint8_t>> seen;
  const auto add = [&](const Entry& variant) {
    const auto plan = contest.plan(variant);
    if (!plan.ok()) return;
    const std::pair how(plan.value().splits, plan.value().team_shift);
    if (std::find(seen.begin(), seen.end(), how) != seen.end()) return;
    if (!seen.empty()) all.push_back(variant);  // the first is the entry itself
    seen.push_back(how);
  };
  add(entry);
  for (const int64_t splits : kSplits)
    if (!entry.kernel->shares_tiles) add({entry.kernel, {splits, 0}});
  for (int64_t shift = kLeastTeamShift; shift <= kMostTeamShift; ++shift)
    if (entry.kernel->has_ring()) add({entry.kernel, {0, shift}});
  return all;
}

KernelChoice choice_of(const GpuContest& contest, const Verdict& verdict) {
  KernelChoice choice =
      metal_marlin::choice_of(verdict, contest.name(verdict.winner), contest.name(0));
  const KernelTweaks& tweaks = contest.entry(verdict.winner).tweaks;
  choice.splits = tweaks.splits;
  choice.team = tweaks.team_shift;
  return choice;
}

}  // namespace

Result<std::optional<KernelChoice>> measure_class(const TuneBench& bench,
                                                  std::span<const GemmProblem> alike, int64_t m,
                                                  double deadline) {
  const GemmProblem& problem = alike.front();
  MARLIN_ASSIGN(const GemmPlan usual, plan_gemm(problem, m, bench.rules));
  GpuContest contest(bench, alike, m);
  MARLIN_RETURN_IF_ERROR(contest.prepare());
  contest.enter({usual.kernel});
  for (const ProductKernel* const kernel :
       measurable_kernels(problem, m, bench.rules, KernelHealth::Reader(bench.rules.health)))
    if (kernel != usual.kernel) contest.enter({kernel});
  MARLIN_ASSIGN(const std::optional<Verdict> kernels, hold(contest, bench.stopwatch, deadline));
  if (!kernels) return std::optional<KernelChoice>();
  const KernelChoice found = choice_of(contest, *kernels);
  contest.keep(0, kernels->winner);
  for (const Entry& entry : variants(contest, contest.entry(contest.size() - 1)))
    contest.enter(entry);
  const bool alone = contest.size() == 1 || (contest.size() == 2 && kernels->winner != 0);
  if (alone) return std::optional<KernelChoice>(found);
  MARLIN_ASSIGN(const std::optional<Verdict> tweaks, hold(contest, bench.stopwatch, deadline));
  if (!tweaks || tweaks->winner == 0) return std::optional<KernelChoice>(found);
  return std::optional<KernelChoice>(choice_of(contest, *tweaks));
}

}  // namespace metal_marlin::gpu
