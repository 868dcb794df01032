// The work of products of experts, counted on the test-bed: of every kernel that one call of the C ABI dispatches.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "counted.h"
#include "gpu/testbed_device.h"

namespace shaders {

/// Who has the tokens: experts as tools/router.h draws them, the last one all of them, or of those drawn every third none.
enum class Routes : uint8_t { drawn, last, outside };

/// A product that is counted: N = kExpertN, K = kExpertK, 16-bit activations.
struct ExpertCase {
  const char* weights;  ///< "mxfp4", of the kinds of tests/kernels/formats_under_test.h
  int64_t tokens, top_k, experts;
  double skew = 0;
  Routes routes = Routes::drawn;
  bool int8 = false, act_order = false, tensor = false;
  std::string kernel = {};  ///< the only one; empty: the library chooses
  std::vector<device_test::TestbedOptions::Change> changes = {};
};
void PrintTo(const ExpertCase& c, std::ostream* out);
inline constexpr int64_t kExpertN = 128, kExpertK = 512;

/// Quantities, whose goals do not depend on the number of tokens. An item is a tile of rows of one expert.
///   codes         bytes of codes asked for / bytes of codes of an item's expert, of all items
///   + scales      the same of codes and scales together
///   over experts  bytes of codes and scales asked for / those of each expert that has tokens, once
///   code lines    64-byte lines, counted once for each load of a simdgroup / lines of an item's expert; scale lines likewise
///   A lines       the same of activations / lines of the routed rows, for 128 columns of C
///   rows          rows that are multiplied / routed rows
///   MMAs          8x8x8 simdgroup matrix products / (rows that are multiplied N K / 512)
///   FMAs          multiply-adds of float32 outside of these / (rows that are multiplied N K)
///   prepared      bytes of activations that quantize or gather writes / those of each row once; 0: nobody prepares
///   ids           bytes of ids that route asks for / bytes of ids; without goal where the product sorts
///   written       bytes of partial sums that the product writes / those of each routed row once
///   sums          bytes of partial sums that finish asks for / the same
///   route         lines that the loads and stores of route touch / those of the loads of codes and scales; finish likewise
struct CountedExperts {
  std::string kernel;
  int64_t rows = 0;      ///< routed rows whose expert exists
  int64_t distinct = 0;  ///< experts that have one
  int64_t items = 0;
  int64_t multiplied = 0;  ///< rows of tiles that a kernel multiplies, which has more than `rows` where tiles are not full
  uint64_t code_bytes = 0, packed_bytes = 0;  ///< of an expert
  std::vector<std::pair<std::string, metal_on_cpu::Counters>> dispatches;
  std::vector<Quantity> quantities;
  /// Of the only dispatch whose kernel's name begins so; nothing counted if there is none, and a failure if there are several.
  metal_on_cpu::Counters of(const std::string& prefix) const;
};
/// Packs, runs, checks against the oracle, counts.
testing::AssertionResult count(const ExpertCase& product, CountedExperts& out);

}  // namespace shaders
