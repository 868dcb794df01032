#include "core/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "formats/codecs.h"

namespace metal_marlin {
namespace {

/// A sample runs the product for about so long, so that clocks tell it apart from nothing.
constexpr double kSampleSeconds = 400e-6;
constexpr int kMostRuns = 64;
constexpr int kLeastRounds = 7, kMostRounds = 21;
/// From this round on, candidates leave whose fastest sample is slower than the median of the best
/// by this factor.
constexpr int kFirstCut = 2;
constexpr double kHopeless = 1.15;
/// The part of the usual time that a winner saves at least, and the standard errors.
constexpr double kLeastGain = 0.03, kStandardErrors = 5;
/// The standard error of a median of n normal numbers, in units of their median absolute deviation
/// over the square root of n: sqrt(pi / 2) * 1.4826.
constexpr double kErrorOfMedian = 1.858;

class SteadyStopwatch final : public Stopwatch {
 public:
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  Result<double> time(std::string_view, const std::function<Result<double>()>& work) override {
    const double begin = now();
    MARLIN_ASSIGN(const double known, work());
    return known > 0 ? known : now() - begin;
  }
};

/// Of a copy, which it reorders.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Entrant {
  size_t candidate = 0;
  std::vector<double> samples;  ///< one a round
};

/// The entrant's times over the usual one's, by rounds: their median, or 1 if it is not surely
/// below.
double ratio_to(const Entrant& usual, const Entrant& entrant) {
  std::vector<double> ratios, deviations;
  for (size_t i = 0; i < entrant.samples.size(); ++i)
    ratios.push_back(std::log(entrant.samples[i] / usual.samples[i]));
  const double middle = median(ratios);
  for (const double ratio : ratios) deviations.push_back(std::fabs(ratio - middle));
  const double error =
      kErrorOfMedian * median(deviations) / std::sqrt(static_cast<double>(ratios.size()));
  return middle < -std::max(kLeastGain, kStandardErrors * error) ? std::exp(middle) : 1;
}

/// Removes those that will not win. The usual one stays.
void cut(std::vector<Entrant>& entrants) {
  double best = INFINITY;
  for (const Entrant& entrant : entrants) best = std::min(best, median(entrant.samples));
  std::erase_if(entrants, [&](const Entrant& entrant) {
    return entrant.candidate != 0 &&
           *std::min_element(entrant.samples.begin(), entrant.samples.end()) > kHopeless * best;
  });
}

Result<double> sample(Contest& contest, size_t candidate, int runs) {
  MARLIN_ASSIGN(const double seconds, contest.seconds(candidate, runs));
  return std::max(seconds, 1e-9);  // of a clock that did not move
}

/// The candidates whose results are right, the usual one first.
Result<std::vector<Entrant>> admit(Contest& contest, Stopwatch& stopwatch, double deadline) {
  std::vector<Entrant> entrants = {{0, {}}};
  for (size_t i = 1; i < contest.size() && stopwatch.now() < deadline; ++i) {
    MARLIN_ASSIGN(const bool right, contest.admits(i));
    if (right) entrants.push_back({i, {}});
  }
  return entrants;
}

/// Samples in rounds, until one candidate is left or there are enough. False if the deadline came
/// first.
Result<bool> run_rounds(Contest& contest, int runs, Stopwatch& stopwatch, double deadline,
                        std::vector<Entrant>& entrants) {
  int round = 0;
  for (; round < kMostRounds && (round == 0 || entrants.size() > 1); ++round) {
    if (round > 0 && stopwatch.now() >= deadline) break;
    const auto count = entrants.size();
    for (size_t i = 0; i < count; ++i) {
      Entrant& entrant = entrants[(i + static_cast<size_t>(round)) % count];
      MARLIN_ASSIGN(const double seconds, sample(contest, entrant.candidate, runs));
      entrant.samples.push_back(seconds);
    }
    if (round >= kFirstCut) cut(entrants);
  }
  return entrants.size() == 1 || round >= kLeastRounds;
}

Verdict verdict_of(const std::vector<Entrant>& entrants) {
  const Entrant& usual = entrants.front();
  Verdict verdict;
  verdict.usual_seconds = verdict.seconds = median(usual.samples);
  for (const Entrant& entrant : entrants) {
    const double seconds = verdict.usual_seconds * ratio_to(usual, entrant);
    if (seconds >= verdict.seconds) continue;
    verdict.winner = entrant.candidate;
    verdict.seconds = seconds;
  }
  return verdict;
}

/// Products of more rows keep the usual kernel, because measuring them takes long.
constexpr int64_t kMostTunedRows = 4096;

/// Adds the weights of a problem to those that a contest uses in turn, if the plan of the first
/// serves them.
void add_weights(const GemmProblem& problem, std::vector<GemmProblem>& alike) {
  const GemmProblem& first = alike.empty() ? problem : alike.front();
  if (!(problem.weights->plan_key() == first.weights->plan_key())) return;
  GemmProblem added = first;
  added.weights = problem.weights;
  added.routing.stack = problem.routing.stack;
  alike.push_back(added);
}

/// Differences of two orders of FP32 sums and of the rounding of the output: of the mean square,
/// and of one element over the root mean square or itself.
struct Tolerance {
  double nmse, single;
};
Tolerance tolerance_of(marlin_dtype dtype) {
  if (dtype == MARLIN_F16) return {1e-6, 0x1p-7};
  if (dtype == MARLIN_BF16) return {5e-5, 0x1p-4};
  return {1e-9, 0x1p-10};
}

}  // namespace

std::unique_ptr<Stopwatch> make_stopwatch() { return std::make_unique<SteadyStopwatch>(); }

Result<std::optional<Verdict>> hold(Contest& contest, Stopwatch& stopwatch, double deadline) {
  MARLIN_ASSIGN(const bool served, contest.admits(0));
  if (!served) return std::optional<Verdict>();
  MARLIN_ASSIGN(const double once, sample(contest, 0, 1));
  const int runs =
      static_cast<int>(std::clamp(std::ceil(kSampleSeconds / once), 1.0, double{kMostRuns}));
  // Half of the candidates leave early.
  const double least = once * runs * kLeastRounds * static_cast<double>(contest.size()) / 2;
  if (contest.size() > 1 && stopwatch.now() + least > deadline) return std::optional<Verdict>();
  MARLIN_ASSIGN(std::vector<Entrant> entrants, admit(contest, stopwatch, deadline));
  MARLIN_ASSIGN(const bool enough, run_rounds(contest, runs, stopwatch, deadline, entrants));
  if (!enough) return std::optional<Verdict>();
  const Verdict verdict = verdict_of(entrants);
  if (verdict.winner == 0) return std::optional<Verdict>(verdict);
  // Of many candidates one may be lucky, but not twice.
  entrants = {{0, {}}, {verdict.winner, {}}};
  MARLIN_ASSIGN(const bool again, run_rounds(contest, runs, stopwatch, deadline, entrants));
  return again ? std::optional<Verdict>(verdict_of(entrants)) : std::optional<Verdict>();
}

Status tune(std::span<const GemmProblem> problems, int64_t max_m, const TuneTerms& terms,
            const MeasureClass& measure) {
  struct Class {
    int64_t m;
    std::vector<GemmProblem> alike;
  };
  std::map<std::pair<int64_t, ProductClass>, Class> classes;  // the small M first
  for (int64_t m = 1; m <= max_m && m <= kMostTunedRows; ++m) {
    const int64_t top = top_of_class(m);
    m = std::min(top, max_m);
    for (const GemmProblem& problem : problems) {
      const ProductClass products = class_of(problem, m);
      if (terms.profile.find(products) != nullptr) continue;
      Class& found = classes[{top, products}];
      found.m = m;
      add_weights(problem, found.alike);
    }
  }
  const double end = terms.stopwatch.now() + terms.seconds;
  size_t left = classes.size();
  for (const auto& [key, products] : classes) {
    // A class may take twice its share, and leaves the rest to others.
    const double now = terms.stopwatch.now();
    const double share = 2 * (end - now) / static_cast<double>(left--);
    if (now >= end) break;
    auto choice = measure(products.alike, products.m, std::min(end, now + share));
    if (choice.status().code() == MARLIN_E_MEMORY) {
      terms.logger(LogLevel::info, choice.status().message());
      continue;
    }
    MARLIN_RETURN_IF_ERROR(choice.status());
    const std::optional<KernelChoice>& made = choice.value();
    if (made) terms.profile.keep(key.second, *made);
  }
  if (const Status s = terms.profile.save(); !s.ok()) terms.logger(LogLevel::warning, s.message());
  return {};
}

bool results_agree(const std::byte* usual, const std::byte* other, int64_t count,
                   marlin_dtype dtype) {
  constexpr int64_t kPart = 4096;
  const size_t element = float_bytes(dtype);
  const Tolerance tolerance = tolerance_of(dtype);
  std::vector<float> want(kPart), got(kPart);
  double square = 0, error = 0;
  // Twice: the root mean square is known only after the first time.
  for (const bool judges : {false, true}) {
    const double rms = std::sqrt(square / static_cast<double>(std::max<int64_t>(count, 1)));
    for (int64_t first = 0; first < count; first += kPart) {
      const int64_t part = std::min(kPart, count - first);
      decode_floats(dtype, usual + static_cast<size_t>(first) * element, part, want.data());
      decode_floats(dtype, other + static_cast<size_t>(first) * element, part, got.data());
      for (int64_t i = 0; i < part; ++i) {
        const double x = want[static_cast<size_t>(i)], y = got[static_cast<size_t>(i)];
        if (!std::isfinite(x) || !std::isfinite(y)) {
          if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
        } else if (judges) {
          error += (y - x) * (y - x);
          if (std::fabs(y - x) > tolerance.single * std::max(rms, std::fabs(x))) return false;
        } else {
          square += x * x;
        }
      }
    }
  }
  return error <= tolerance.nmse * square;
}

KernelChoice choice_of(const Verdict& verdict, std::string_view kernel, std::string_view usual) {
  const auto ns = [](double seconds) {
    return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e9));
  };
  return {.kernel = std::string(kernel),
          .ns = ns(verdict.seconds),
          .usual = std::string(usual),
          .usual_ns = ns(verdict.usual_seconds)};
}

void fill_activations(marlin_dtype dtype, std::byte* to, int64_t count) {
  // The generator of Numerical Recipes. A prime number of values, repeated: rows differ.
  constexpr int64_t kPeriod = 65521;
  const int64_t made = std::min(count, kPeriod);
  std::vector<float> values(static_cast<size_t>(made));
  uint32_t state = 20240229;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * 0x1p-23f;
  }
  encode_floats(dtype, values.data(), made, to);
  const auto bytes = static_cast<size_t>(count) * float_bytes(dtype),
             period = static_cast<size_t>(made) * float_bytes(dtype);
  for (size_t at = period; at < bytes; at += period)
    std::memcpy(to + at, to, std::min(period, bytes - at));
}

}  // namespace metal_marlin
