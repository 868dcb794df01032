// Weights to measure with, and the products that use them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "host_matrix.h"
#include "library.h"

namespace metal_marlin::tools {

enum class Zeros { none, integer, additive };

struct WeightShape {
  marlin_format format;
  int64_t n, k;
  uint32_t group = 0;  ///< 0: the format's own
  Zeros zeros = Zeros::none;
  bool sparse = false;  ///< 2:4
  int64_t experts = 1;
};

/// Quantized weights of random codes and scales: what a real matrix looks like to memory and to
/// kernels, made in no time.
class RandomWeights {
 public:
  RandomWeights(const WeightShape& shape, uint64_t seed);
  /// One more copy of them.
  Weights pack(marlin_context* context) const;

 private:
  /// Expert e is the n rows from row e on: no two are alike, and all of them are hardly larger than
  /// one.
  marlin_pack_desc part(int64_t expert) const;

  WeightShape shape_;
  std::vector<uint8_t> codes_, zeros_, kept_;
  std::vector<uint8_t> scales_;
  marlin_dtype scale_type_ = MARLIN_F16;
  float tensor_scale_ = 0.5f;
};

/// Copies of one matrix that together are larger than the caches, handed out in turn, so that every
/// product finds its weights in memory only, as a model with many layers would. (Reading 4 x 25 MB
/// in turn is not cold with a 32 MB cache: it runs half again as fast as memory.)
class Rotation {
 public:
  /// make() gives one copy; it is called until `bytes` are packed, at least once and at most `most`
  /// times.
  Rotation(const std::function<Weights()>& make, uint64_t bytes, size_t most);
  const marlin_weights* first() const { return copies_.front().get(); }
  const marlin_weights* next();

 private:
  std::vector<Weights> copies_;
  size_t at_ = 0;
};

/// No rotation needs more: small layers stay in the caches, which their speed then shows.
constexpr size_t kMostCopies = 2000;
/// How many bytes a rotation should have: over 400 MB and eight last-level caches, within half of
/// the free memory.
uint64_t rotation_bytes();

/// C = A W^T for the first m rows.
marlin_gemm_desc product(const marlin_weights* weights, const HostMatrix& a, const HostMatrix& c,
                         int64_t m, marlin_compute compute);
/// [tokens][top_k]: the experts of every token, all different, any choice as likely as any other.
std::vector<int32_t> random_ids(int64_t tokens, int64_t top_k, int64_t experts, Random& random);
/// Runs it on the weights' own context.
void multiply(const marlin_gemm_desc& desc);

}  // namespace metal_marlin::tools
