// Attention of one layer: the keys and values of all positions so far, and what new positions draw
// from them. Heads come in groups that share keys and values (grouped-query attention).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "pool.h"

namespace llm {

struct Heads {
  int64_t query, key_value,
      size;  // query heads, heads of keys and values, elements of one head (a multiple of 16)
};

/// Of positions: they are divided by `factor`, and for each pair by one of `factors` as well, if
/// there are any (Llama 3.1). With a yarn_context, as YaRN (Peng et al., 2023)
/// does it: a model that was trained on so many positions turns pairs that turn often in them as
/// before, divides the positions of pairs that turn rarely, and blends both in between; and queries
/// and keys become larger.
struct Scaling {
  static constexpr double kFastTurns = 32, kSlowTurns = 1;
  double factor = 1;
  int64_t yarn_context = 0;
  std::vector<float> factors = {};
};

/// Cosines and sines of rotary position embedding: angle(position, i) = position / base^(2 i /
/// size) for i < size / 2.
class Rotation {
 public:
  Rotation(int64_t positions, int64_t head_size, double base, const Scaling& scaling = {});
  /// Turns each head of x in place: pairs of neighbors (2i, 2i + 1), or of halves (i, i + size /
  /// 2).
  void apply(float* x, int64_t heads, int64_t position, bool halves) const;

 private:
  int64_t half_;
  std::vector<float> cosines_, sines_;
};

/// Keys and values of one layer, in blocks of 32 positions: keys [size][32], so that one element of
/// a query meets 32 keys at once; values [32][size].
class KeyValueCache {
 public:
  static constexpr int64_t kBlock = 32, kLanes = 16;
  KeyValueCache(const Heads& heads, int64_t positions);
  void store(int64_t position, const float* keys, const float* values);

  /// out[row] = softmax(q[row] K^T / sqrt(size)) V over the last `window` of the positions [0,
  /// first + row], for all query heads. Rows of q are q_stride floats apart, those of out are
  /// heads.query * heads.size long. sinks: a score for each query head, which takes its share and
  /// has no value; nullptr: none.
  void attend(const float* q, int64_t q_stride, int64_t first, int64_t rows, int64_t window,
              const float* sinks, float* out, Pool& pool) const;

 private:
  struct Free {
    void operator()(float* floats) const { std::free(floats); }
  };
  using Floats = std::unique_ptr<float[], Free>;
  const float* block(const Floats& of, int64_t head, int64_t index) const {
    return of.get() + (head * blocks_ + index) * heads_.size * kBlock;
  }
  Heads heads_;
  int64_t blocks_;
  Floats keys_, values_;
};

}  // namespace llm
