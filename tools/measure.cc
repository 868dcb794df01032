#include "measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <set>

#include "names.h"
#include "neighbors.h"
#include "router.h"
#include "words.h"

namespace metal_marlin::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kBatch = 50e-6;  // against the clock's own cost and resolution
constexpr double kLong = 5e-3;    // waking threads takes 50 us: nothing against this
constexpr int kFewest = 3;        // samples of anything that is not slower than the whole budget
constexpr int64_t kSampledColumns = 48;  // checked against float64
constexpr size_t kDraws = 32;            // of experts

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The nanoseconds that a device has worked so far for calls on the context of the weights, by its
/// own clock; 0 if it does not report them.
uint64_t device_clock(const marlin_gemm_desc& desc) {
  const std::string busy = explained(explain(desc), "busy_ns");
  return busy.empty() ? 0 : std::stoull(busy);
}

/// A function that is called repeatedly, and its times.
class Timed {
 public:
  explicit Timed(
      std::function<void()> call, std::function<uint64_t()> clock = [] { return uint64_t{0}; })
      : call_(std::move(call)), clock_(std::move(clock)) {
    const auto start = Clock::now();
    call_();
    first_ = since(start);
  }
  /// Takes one sample. A call that does not count precedes a short sample, because the threads may
  /// be asleep.
  void sample() {
    if (first_ < kLong) call_();
    const int64_t batch = std::clamp<int64_t>(static_cast<int64_t>(kBatch / first_) + 1, 1, 1000);
    const uint64_t busy = clock_();
    const auto start = Clock::now();
    for (int64_t i = 0; i < batch; ++i) call_();
    const double seconds = since(start);
    on_device_.push_back(static_cast<double>(clock_() - busy) * 1e-9 / static_cast<double>(batch));
    first_ = seconds / static_cast<double>(batch);
    samples_.push_back(first_);
    spent_ += seconds * (1 + 1 / static_cast<double>(batch));
  }
  bool has_enough(double budget) const {
    return samples_.size() >= (first_ > budget ? 1 : kFewest);
  }
  bool wants(double budget) const { return !has_enough(budget) || spent_ + 2 * first_ < budget; }
  double seconds() const { return median(samples_); }
  double device_seconds() const { return median(on_device_); }

 private:
  std::function<void()> call_;
  std::function<uint64_t()> clock_;
  double first_ = 0, spent_ = 0;
  std::vector<double> samples_, on_device_;
};

/// The operands of a job. In a mixture of experts, every call takes the same number of other
/// experts, so that they come from memory. Experts that were read lately are rarely among them,
/// because the weights are many times larger than the caches (rotation_bytes).
struct Prepared {
  HostMatrix a, c;
  std::vector<std::vector<int32_t>> draws;  ///< of experts; one, and that empty, for plain products
  int64_t distinct = 0;                     ///< experts of each draw
  size_t last_draw = 0;

  Prepared(const Job& job, const marlin_layer_info& info)
      : a(HostMatrix::random(job.m, info.k, job.dtype, static_cast<uint64_t>(job.m))),
        c(job.rows(), info.n, job.out_dtype),
        draws(job.top_k == 0 ? 1 : kDraws) {
    if (job.top_k == 0) return;
    Router router(info.experts, job.skew, static_cast<uint64_t>(job.m));
    const auto ids = router.draw(job.m, job.top_k);
    distinct = count_distinct(ids);
    for (auto& draw : draws) {
      const auto renamed = router.shuffled();
      for (const int32_t id : ids) draw.push_back(renamed[static_cast<size_t>(id)]);
    }
  }

  size_t next_draw() { return last_draw = (last_draw + 1) % draws.size(); }
  marlin_gemm_desc product_by(const marlin_weights* weights, const Job& job,
                              size_t draw = 0) const {
    marlin_gemm_desc desc = product(weights, a, c, job.m, job.compute);
    if (job.row_invariant) desc.flags |= MARLIN_GEMM_ROW_INVARIANT;
    if (job.top_k == 0) return desc;
    desc.c = c.view(job.rows());
    desc.expert_ids.data =
        const_cast<int32_t*>(draws[draw].data());  // the ABI has one matrix type; ids are only read
    desc.expert_ids.rows = job.m;
    desc.expert_ids.cols = job.top_k;
    desc.expert_ids.dtype = MARLIN_I32;
    return desc;
  }
};

/// Rows of W, with the rows of all experts one after another: a sample of each expert of the
/// product.
std::vector<RowRange> rows_to_check(const marlin_layer_info& info,
                                    const std::vector<int32_t>& experts) {
  std::vector<RowRange> sample = sampled_rows(info.n, kSampledColumns);
  if (experts.empty()) return sample;
  std::vector<RowRange> rows;
  for (const int32_t expert : std::set(experts.begin(), experts.end())) {
    for (const RowRange& range : sample)
      rows.push_back({expert * info.n + range.first, range.count});
  }
  return rows;
}

/// A job of these weights, of which nothing is known yet.
Measurement described(const Bench& bench, const marlin_layer_info& info, const Job& job) {
  Measurement made{};
  made.job = job;
  made.backend = backend_name(bench.device.backend);
  made.format = info.format;
  if (info.layout == MARLIN_LAYOUT_GGUF) made.type = block_type_of(info.format, info.flags);
  made.n = info.n;
  made.k = info.k;
  made.group = info.group_size;
  made.sparse = (info.flags & MARLIN_LAYER_SPARSE_2_4) != 0;
  made.threads = bench.limits->threads();
  made.experts = info.experts;
  return made;
}

/// The product of a job with its kernel and the verdict on a sample of its result; without times
/// and limits.
Measurement checked(const Bench& bench, const marlin_weights* weights, const Job& job,
                    const Prepared& p) {
  const marlin_layer_info info = info_of(weights);
  const marlin_gemm_desc desc = p.product_by(weights, job);
  multiply(desc);
  Product products[] = {{&p.a, &p.c, job.m, job.compute, p.draws[0]}};
  check_products(weights, products, rows_to_check(info, p.draws[0]), bench.limits->threads());
  Measurement made = described(bench, info, job);
  made.kernel = explained(explain(desc), "kernel");
  made.bytes =
      job.top_k == 0 ? info.bytes : info.bytes / info.experts * static_cast<uint64_t>(p.distinct);
  made.verdict = products[0].verdict;
  made.distinct_experts = p.distinct;
  return made;
}

/// The middle 80 % of some numbers over their median.
double spread_of(std::vector<double> samples) {
  if (samples.size() < 5) return 0;
  std::sort(samples.begin(), samples.end());
  const size_t tenth = samples.size() / 10;
  return (samples[samples.size() - 1 - tenth] - samples[tenth]) / median(samples);
}

}  // namespace

std::string limits_text(std::span<const Measurement> all) {
  std::vector<double> reads;
  std::map<std::string, std::vector<double>> peaks;
  for (const Measurement& m : all) {
    reads.push_back(m.read_rate);
    peaks[m.instruction].push_back(m.peak);
  }
  std::string text = fmt::format("reading memory {:.1f} GB/s", median(reads) / 1e9);
  if (!all.empty()) text += fmt::format(" ({})", all.front().reading);
  for (const auto& [instruction, samples] : peaks)
    text += fmt::format(", {} {:.0f} Gop/s", instruction, median(samples) / 1e9);
  return text;
}

std::string noise_text(std::span<const Measurement> all) {
  constexpr double kSpread = 0.15, kOthers = 0.25;  // below these, times of a race repeat well
  double spread = 0, others = 0;
  for (const Measurement& m : all) {
    spread = std::max(spread, m.limit_spread);
    others = std::max(others, m.other_processors);
  }
  std::string text;
  if (spread > kSpread) text = fmt::format("the limits varied by {:.0f} %", 100 * spread);
  if (others > kOthers)
    text += fmt::format("{}other processes had {:.1f} of {}", text.empty() ? "" : "; ", others,
                        counted(usable_threads(), "processor"));
  return text;
}

double time_calls(const std::function<void()>& call, double seconds) {
  Timed timed(call);
  while (timed.wants(seconds)) timed.sample();
  return timed.seconds();
}

namespace {

/// The jobs that the device serves, with their operands, and the others.
struct Sorted {
  std::vector<Prepared> operands;
  std::vector<Job> jobs;
  std::vector<Measurement> refused;
};
Sorted sorted(const Bench& bench, const marlin_weights* weights, std::span<const Job> wanted) {
  const marlin_layer_info shape = info_of(weights);
  Sorted all;
  for (const Job& job : wanted) {
    all.operands.emplace_back(job, shape);
    std::string why = why_not_served(all.operands.back().product_by(weights, job));
    if (why.empty()) {
      all.jobs.push_back(job);
      continue;
    }
    all.operands.pop_back();
    all.refused.push_back(described(bench, shape, job));
    all.refused.back().not_served = std::move(why);
  }
  return all;
}

/// Borrows everything.
Timed timed_product(const Bench& bench, Rotation& weights, Prepared& p, const Job& job) {
  const auto call = [&weights, &p, &job] {
    multiply(p.product_by(weights.next(), job, p.next_draw()));
  };
  if (bench.device.backend == MARLIN_BACKEND_CPU) return Timed(call);
  return Timed(call,
               [&weights, &p, &job] { return device_clock(p.product_by(weights.first(), job)); });
}

}  // namespace

std::vector<Measurement> measure(const Bench& bench, std::span<Rotation> rotations,
                                 std::span<const Job> wanted) {
  auto [operands, jobs, refused] = sorted(bench, rotations.front().first(), wanted);
  if (jobs.empty()) return refused;

  std::vector<Timed> timed;
  std::map<std::string, std::vector<double>> peaks;
  for (Rotation& weights : rotations) {
    for (size_t j = 0; j < jobs.size(); ++j) {
      timed.push_back(timed_product(bench, weights, operands[j], jobs[j]));
      peaks[instruction_for(bench.device.isa_or_arch, jobs[j].compute, jobs[j].dtype)];
    }
  }
  std::vector<double> reads;
  // Sampling the limits takes as long as many short products. Therefore the loop ends when the time
  // is over or when each job has had its share, but never before each job has a few samples.
  const double share = bench.seconds / static_cast<double>(timed.size());
  const Neighbors neighbors;
  const auto start = Clock::now();
  const auto unfinished = [&](const Timed& t) {
    return t.wants(share) && (!t.has_enough(share) || since(start) < bench.seconds);
  };
  while (std::any_of(timed.begin(), timed.end(), unfinished)) {
    reads.push_back(bench.limits->read_sample());
    for (auto& [name, samples] : peaks)
      samples.push_back(bench.limits->dot_sample(*find_dot_loop(name)));
    for (Timed& t : timed) {
      if (t.wants(share)) t.sample();
    }
  }

  const double read = median(reads), spread = spread_of(reads), others = neighbors.processors();
  std::vector<Measurement> out;
  for (size_t i = 0; i < timed.size(); ++i) {
    const size_t j = i % jobs.size();
    const std::string instruction =
        instruction_for(bench.device.isa_or_arch, jobs[j].compute, jobs[j].dtype);
    Measurement& made =
        out.emplace_back(checked(bench, rotations[i / jobs.size()].first(), jobs[j], operands[j]));
    made.seconds = timed[i].seconds();
    made.device_seconds = timed[i].device_seconds();
    made.read_rate = read;
    made.reading = bench.limits->reading();
    made.limit_spread = spread;
    made.other_processors = others;
    made.instruction = instruction;
    made.peak = median(peaks[instruction]);
    const Measurement& dense = out[j];  // the first rotation's
    if (made.sparse && !dense.sparse) made.dense_seconds = dense.seconds;
    if (made.job.row_invariant) made.usual_seconds = timed[i - 1].seconds();
  }
  std::move(refused.begin(), refused.end(), std::back_inserter(out));
  return out;
}

Json to_json(const Measurement& m) {
  Json json = {{"backend", m.backend},
               {"kernel", m.kernel},
               {"format", format_name(m.format)},
               {"compute", compute_name(m.job.compute)},
               {"M", m.job.m},
               {"N", m.n},
               {"K", m.k},
               {"group", m.group},
               {"threads", m.threads},
               {"seconds", m.seconds},
               {"gbytes_per_s", m.byte_rate() / 1e9},
               {"gflops", m.rate() / 1e9},
               {"limit", m.limit()},
               {"fraction_of_limit", m.fraction_of_limit()},
               {"nmse", m.verdict.nmse},
               {"dtype", dtype_name(m.job.dtype)},
               {"out_dtype", dtype_name(m.job.out_dtype)},
               {"weight_bytes", m.bytes},
               {"read_gbytes_per_s", m.read_rate / 1e9},
               {"read_kernel", m.reading},
               {"instruction", m.instruction},
               {"peak_gflops", m.peak / 1e9},
               {"sparse", m.sparse ? "2:4" : "none"},
               {"limit_spread", m.limit_spread},
               {"other_processors", m.other_processors}};
  if (!m.type.empty()) json["type"] = m.type;
  if (m.times != 0) {
    json["layer"] = m.layer;
    json["times_a_token"] = m.times;
  }
  if (m.device_seconds != 0) json["device_seconds"] = m.device_seconds;
  if (m.usual_seconds != 0) json["over_usual"] = m.seconds / m.usual_seconds;
  if (m.dense_seconds != 0) json["dense_over_sparse"] = m.dense_seconds / m.seconds;
  if (m.job.top_k != 0) {
    json["experts"] = m.experts;
    json["top_k"] = m.job.top_k;
    json["skew"] = m.job.skew;
    json["distinct_experts"] = m.distinct_experts;
  }
  return json;
}

}  // namespace metal_marlin::tools
