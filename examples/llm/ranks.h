// The processes that share a model, called ranks: what each of them holds, and how their results
// become one. Columns of q, k, v, gate and up, and rows of attention out and down, are split
// (Shoeybi et al., "Megatron-LM", 2019), so each layer needs two sums over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "architecture.h"

namespace llm {

/// How ranks exchange data. The calls are collective: every rank makes the same ones, in the same
/// order. What fails is std::runtime_error on every rank, and names the rank that is at fault.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t count() const = 0;
  /// values become the sums over all ranks, the same bits on each.
  virtual void sum(std::span<float> values) = 0;
  /// `all` becomes the parts of all ranks, one behind the other. Their sizes may differ.
  virtual void gather(std::span<const float> part, std::span<float> all) = 0;
  /// The bytes become those of rank 0.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  /// std::runtime_error on every rank if one gives an error, which is not "".
  virtual void agree(const std::string& error) = 0;
};

struct Portion {
  int64_t first = 0, count = 0;
};
/// Portion `rank` of `size` elements, which are cut at multiples of `unit`.
Portion part_of(int64_t size, int64_t unit, int64_t rank, int64_t ranks);
/// The same, cut at multiples of the largest of 256, 128, 64, 32 that gives every rank something,
/// or of `least` if none does. `metal-marlin pack --ranks` cuts so, too. No rank without elements:
/// std::runtime_error, which calls them `what`.
Portion even_part(int64_t size, int64_t least, int64_t rank, int64_t ranks, const char* what);

/// What a rank holds of each layer. Heads of keys and values are whole: more ranks than there are
/// such heads share one among several.
struct Share {
  Portion queries, keys;          // heads
  Portion feed_forward, experts;  // of mixtures the experts are split, else the MLP
};
/// ranks == nullptr: all. std::runtime_error if the model cannot be split so.
Share share_of(const HyperParameters& hyper, const Ranks* ranks);

}  // namespace llm
