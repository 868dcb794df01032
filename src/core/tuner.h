// The search for the fastest of some ways to compute one product: short, proof against noise, and
// open only to those whose results are right. It knows neither kernels nor devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "core/backend.h"
#include "core/profile.h"

namespace metal_marlin {

/// The clock of measurements. Tests have one of their own.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// Seconds since any moment.
  virtual double now() = 0;
  /// Runs `work` and returns its seconds: those that the work returns, if it knows, else those that
  /// passed. `kernel` is what runs.
  virtual Result<double> time(std::string_view kernel,
                              const std::function<Result<double>()>& work) = 0;
};
/// The steady clock of the system.
std::unique_ptr<Stopwatch> make_stopwatch();

/// The ways to compute one product. Number 0 is the usual one, which serves without a profile.
class Contest {
 public:
  virtual ~Contest() = default;
  virtual size_t size() const = 0;
  /// Computes the product once with candidate i, which also compiles it. False if its result is not
  /// that of candidate 0, or if it cannot run here.
  virtual Result<bool> admits(size_t i) = 0;
  /// Computes the product `runs` times, and returns the seconds of one time.
  virtual Result<double> seconds(size_t i, int runs) = 0;
};

struct Verdict {
  size_t winner = 0;
  double seconds = 0, usual_seconds = 0;  ///< of one time, medians
};

/// Holds a contest. Rounds run every candidate once, in an order that turns, so that what slows the
/// machine slows all. Slow candidates leave early. A candidate wins only if the median of its
/// times, each divided by the usual one's of the same round, is below 1 by 3 % and by five
/// standard errors, in two series of rounds; otherwise the usual one does. Nothing if `deadline`
/// (of the stopwatch) comes before there are rounds enough, or if the product would take longer
/// than is left.
Result<std::optional<Verdict>> hold(Contest& contest, Stopwatch& stopwatch, double deadline);

/// What a profile keeps of a verdict: the kernel that won, the usual one, and their times.
KernelChoice choice_of(const Verdict& verdict, std::string_view kernel, std::string_view usual);

/// Where tuning keeps what it finds, and how long it may take.
struct TuneTerms {
  Profile& profile;
  Stopwatch& stopwatch;
  double seconds;
  const Logger& logger;
};
/// Measures a class of products, with m rows of A (with routing: tokens). `alike` are problems of
/// the class, one or more, which differ in nothing but weights of one PlanKey: what is planned and
/// allocated for the first serves all. Nothing if the deadline comes first.
using MeasureClass = std::function<Result<std::optional<KernelChoice>>(
    std::span<const GemmProblem> alike, int64_t m, double deadline)>;
/// Measures the classes of these problems for M (with routing: T) up to max_m that the profile does
/// not have, the small M first, and saves the profile. Where memory is short, or the file cannot be
/// written, the logger is told.
Status tune(std::span<const GemmProblem> problems, int64_t max_m, const TuneTerms& terms,
            const MeasureClass& measure);

/// Whether two results of one product agree: `count` elements of `dtype`. The normalized mean
/// squared error and every single difference must be as small as roundings of sums in FP32 and of
/// the output are. A NaN agrees with a NaN.
bool results_agree(const std::byte* usual, const std::byte* other, int64_t count,
                   marlin_dtype dtype);

/// `count` elements in [-1, 1) as activations for measurements. Always the same.
void fill_activations(marlin_dtype dtype, std::byte* to, int64_t count);

}  // namespace metal_marlin
