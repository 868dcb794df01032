// Times products and the limits of the machine in turn, so that other work on the machine slows
// both.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "json.h"
#include "machine_limits.h"
#include "reference.h"
#include "workload.h"

namespace metal_marlin::tools {

/// One product to time.
struct Job {
  int64_t m;  ///< rows of A
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  marlin_dtype dtype = MARLIN_BF16;     ///< of A
  marlin_dtype out_dtype = MARLIN_F32;  ///< of C
  int64_t top_k = 0;           ///< of a mixture of experts: how many multiply every row; 0: none is
  double skew = 0;             ///< how uneven experts are drawn (Router)
  bool row_invariant = false;  ///< with MARLIN_GEMM_ROW_INVARIANT, in turn with the job before,
                               ///< which is the same without

  int64_t rows() const { return top_k == 0 ? m : m * top_k; }  ///< of C
};

/// The result of a job. Bytes are the packed weights (codes and scales); operations are 2 N K for
/// each row of C.
struct Measurement {
  Job job;
  std::string backend, kernel;
  marlin_format format;
  std::string type;  ///< of GGUF's blocks, or ""
  int64_t n, k;
  uint32_t group;
  bool sparse;  ///< 2:4
  unsigned threads;
  uint64_t bytes;           ///< of the weights that one product reads
  double seconds;           ///< median of one product
  double read_rate;         ///< bytes per second, median of the same race
  std::string reading;      ///< how memory was read (Limits::reading)
  std::string instruction;  ///< by whose peak it is judged
  double peak;              ///< operations per second, likewise the median
  Verdict verdict;          ///< of a sample of the result
  double device_seconds =
      0;                     ///< of it on the device, by the device's clock; 0: the CPU, or unknown
  double dense_seconds = 0;  ///< of the same product by dense weights in the same race; 0: none
  double usual_seconds = 0;  ///< row-invariant: of the same product without that; else 0
  int64_t experts = 0, distinct_experts = 0;  ///< with top_k: of the weights, and in one product
  double limit_spread =
      0;  ///< of the samples of read_rate: the middle 80 % of them over the median
  double other_processors = 0;  ///< that other processes had during the race (Neighbors)
  std::string layer;            ///< of a file: the first of its kind
  uint64_t times = 0;           ///< that a token of the file's model takes such a product
  std::string not_served;       ///< why no kernel does it; then nothing was measured

  double operations() const {
    return 2.0 * static_cast<double>(job.rows()) * static_cast<double>(n) * static_cast<double>(k);
  }
  /// The time from which rates are computed.
  double working_seconds() const { return device_seconds != 0 ? device_seconds : seconds; }
  double byte_rate() const { return static_cast<double>(bytes) / working_seconds(); }
  double rate() const { return operations() / working_seconds(); }
  double fraction_of_read() const { return byte_rate() / read_rate; }
  double fraction_of_peak() const { return rate() / peak; }
  /// No product can be faster than max(reading its weights, multiplying at the peak). The longer of
  /// the two is the limit.
  bool read_bound() const { return fraction_of_read() >= fraction_of_peak(); }
  std::string limit() const { return read_bound() ? "read" : instruction; }
  double fraction_of_limit() const {
    return read_bound() ? fraction_of_read() : fraction_of_peak();
  }
};

/// One line of `bench --json`.
Json to_json(const Measurement& measurement);

/// "reading memory 80.1 GB/s (64-byte loads, 4 streams, ...), vdpbf16ps 1010 Gop/s, ...": medians
/// of the limits of these measurements.
std::string limits_text(std::span<const Measurement> all);

/// What disturbed these measurements, as a sentence; "" if little did.
std::string noise_text(std::span<const Measurement> all);

/// Where and how long to measure.
struct Bench {
  marlin_context* context;
  marlin_device_info device;
  Limits* limits;
  double seconds = 1;  ///< for all jobs of one call together; slow jobs may take longer
};

/// Times the jobs on the copies of each rotation, in turn with reading and with the instructions
/// that they use. Then checks each job against float64 on a sample of columns. Measurements come
/// rotation by rotation; those that no kernel serves come last. All rotations have one shape.
std::vector<Measurement> measure(const Bench& bench, std::span<Rotation> rotations,
                                 std::span<const Job> jobs);

/// The median seconds of call(), timed in batches of at least 50 us, for about `seconds`.
double time_calls(const std::function<void()>& call, double seconds);

}  // namespace metal_marlin::tools
