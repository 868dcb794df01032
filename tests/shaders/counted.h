// The work that a product kernel does, counted on the test-bed, each quantity beside its goal.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "kinds.h"

namespace shaders {

/// A product that is counted: N = kCountedN, K = kCountedK.
struct CountedProduct {
  Kind kind;
  int64_t group, m;
  marlin_dtype a_type = MARLIN_F16;
  const char* suffix = "";  ///< as that of problem::Case
};
void PrintTo(const CountedProduct& c, std::ostream* out);
inline constexpr int64_t kCountedN = 256, kCountedK = 1024;
inline constexpr int64_t kCountedM[] = {1, 2, 4, 8, 16, 32, 64, 128};
/// Every kind with groups that its files have, at each M; and the tiles that share A with other activations.
std::vector<CountedProduct> counted_cases();

enum class Goal : uint8_t { exactly, at_most };
/// A counted figure. Those of codes and scales are of one pass over the weights, so that they do not depend on M:
///   codes        bytes that threads ask for / packed bytes
///   + scales     bytes of codes and scales (of two levels: with their minima) asked for / bytes that are there
///   code lines   64-byte lines, counted once for each load of a simdgroup / lines that are there; scale lines likewise
///   A lines      the same of the activations, for 128 columns of C
///   barriers     of a threadgroup, for 128 columns of W
///   MMAs         8x8x8 simdgroup matrix products / (M N K / 512 of whole tiles)
///   memory       bytes of threadgroup memory
///   for W        bytes written there that are neither activations nor sums
struct Quantity {
  const char* name;
  double value;
  std::optional<double> goal;
  Goal kind;
  bool met() const { return !goal || (kind == Goal::exactly ? value == *goal : value <= *goal); }
};

struct Counted {
  std::string kernel;
  int64_t passes = 0;  ///< over the weights: tiles of rows
  uint64_t packed_code_bytes = 0;
  metal_on_cpu::Counters counters;
  std::vector<Quantity> quantities;
};
/// Packs, runs, checks against the oracle, counts.
testing::AssertionResult count(const CountedProduct& product, Counted& out);

}  // namespace shaders
