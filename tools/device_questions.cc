#include "device_questions.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "workload.h"

namespace metal_marlin::tools {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kN = 128, kK = 256;
constexpr int64_t kRows[] = {1, 16, 32, 64};  // few rows, and each tile of simdgroup matrices

/// INT4 weights, which every device has, and their values.
class KnownWeights {
 public:
  explicit KnownWeights(marlin_context* context)
      : packed_(RandomWeights({MARLIN_INT4, kN, kK}, 1).pack(context)),
        values_(static_cast<size_t>(kN * kK)) {
    unpack_rows(packed_.get(), 0, kN, kK, values_.data());
  }
  const marlin_weights* get() const { return packed_.get(); }
  float at(int64_t n, int64_t k) const { return values_[static_cast<size_t>(n * kK + k)]; }
  /// The row of the largest weight of a column that is less than 1 in size.
  int64_t row_of_large(int64_t k) const {
    int64_t best = 0;
    float size = 0;
    for (int64_t n = 0; n < kN; ++n)
      if (const float w = std::fabs(at(n, k)); w > size && w < 1) best = n, size = w;
    return best;
  }

 private:
  Weights packed_;
  std::vector<float> values_;
};

/// The column whose activation is not 0 in a row of A.
int64_t hot(int64_t row) { return (37 * row + 5) % kK; }

struct OneHot {
  OneHot(const KnownWeights& weights, int64_t m, marlin_dtype type, float value)
      : a(m, kK, type), c(m, kN, MARLIN_F32) {
    for (int64_t row = 0; row < m; ++row) a.set(row, hot(row), value);
    const marlin_gemm_desc desc = product(weights.get(), a, c, m, MARLIN_COMPUTE_DEFAULT);
    try {
      kernel = explained(explain(desc), "kernel");
      multiply(desc);
    } catch (const Failure&) {
      kernel.clear();  // the device has no kernel that computes right
    }
  }
  HostMatrix a, c;
  std::string kernel;  ///< "": none serves
};

/// A subnormal number that a weight multiplies, or one whose product with the weight is subnormal.
struct Subnormal {
  const char* of;
  marlin_dtype type;
  float activation;
};
constexpr Subnormal kSubnormals[] = {{"activations", MARLIN_F16, 0x1p-20f},
                                     {"activations", MARLIN_F32, 0x1p-130f},
                                     {"results", MARLIN_F32, 0x1p-126f}};

std::string answer(const KnownWeights& weights, const OneHot& ran, const Subnormal& asked) {
  if (ran.kernel.empty()) return "not served";
  const int64_t n = weights.row_of_large(hot(0));
  const double expected = double{asked.activation} * double{weights.at(n, hot(0))};
  const double found = double{ran.c.at(0, n)};
  if (found == 0) return "flushed";
  return std::fabs(found - expected) <= 0x1p-20 * std::fabs(expected) + 0x1p-149 ? "kept" : "wrong";
}

ordered_json fragments(const KnownWeights& weights, int64_t m) {
  const OneHot ran(weights, m, MARLIN_F16, 1.0f);
  int64_t wrong = 0;
  std::string first;
  for (int64_t row = 0; row < m && !ran.kernel.empty(); ++row)
    for (int64_t n = 0; n < kN; ++n) {
      const float found = ran.c.at(row, n), expected = weights.at(n, hot(row));
      if (found == expected) continue;
      if (wrong++ == 0)
        first = fmt::format("C[{}, {}] is {}, expected {}: the weight of column {}", row, n, found,
                            expected, hot(row));
    }
  return {{"kernel", ran.kernel}, {"M", m}, {"wrong", wrong}, {"first", first}};
}

}  // namespace

ordered_json device_questions(marlin_context* context) {
  const KnownWeights weights(context);
  ordered_json answers = {{"subnormals", ordered_json::array()},
                          {"fragments", ordered_json::array()}};
  for (const int64_t m : kRows) {
    for (const Subnormal& asked : kSubnormals) {
      const OneHot ran(weights, m, asked.type, asked.activation);
      answers["subnormals"].push_back({{"kernel", ran.kernel},
                                       {"M", m},
                                       {"of", asked.of},
                                       {"dtype", asked.type == MARLIN_F16 ? "f16" : "f32"},
                                       {"answer", answer(weights, ran, asked)}});
    }
    answers["fragments"].push_back(fragments(weights, m));
  }
  return answers;
}

}  // namespace metal_marlin::tools
