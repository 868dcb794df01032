// Weights for measurements, and the products that use them.
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
  const char* block = nullptr;  ///< a type of GGUF's blocks; then group and zeros are its own
};

/// Quantized weights of random codes and scales. To memory and to kernels they look like a real
/// matrix, and they are made quickly.
class RandomWeights {
 public:
  RandomWeights(const WeightShape& shape, uint64_t seed);
  /// Packs one more copy of the weights.
  Weights pack(marlin_context* context) const;

 private:
  /// Expert e is the n rows from row e on. No two experts are equal, and all together are hardly
  /// larger than one.
  marlin_pack_desc part(int64_t expert) const;

  WeightShape shape_;
  std::vector<uint8_t> codes_, zeros_, kept_;
  std::vector<uint8_t> scales_;
  std::vector<float> codebook_;
  marlin_dtype scale_type_ = MARLIN_F16;
  float tensor_scale_ = 0.5f;
};

/// Copies of one matrix that together are larger than the caches. They are used in turn, so that
/// every product reads its weights from memory, as in a model with many layers. (Reading 4 x 25 MB
/// in turn is not cold with a cache of 32 MB: it is 1.5 times as fast as memory.)
class Rotation {
 public:
  /// make() returns one copy. It is called until `bytes` are packed, at least once and at most
  /// `most` times.
  Rotation(const std::function<Weights()>& make, uint64_t bytes, size_t most);
  const marlin_weights* first() const { return copies_.front().get(); }
  const marlin_weights* next();

 private:
  std::vector<Weights> copies_;
  size_t at_ = 0;
};

/// No rotation has more copies. Smaller layers stay in the caches, and their speed then shows it.
constexpr size_t kMostCopies = 2000;
/// The bytes that a rotation should have: more than 400 MB and eight last-level caches, but at most
/// half of the free memory.
uint64_t rotation_bytes();

/// C = A W^T for the first m rows.
marlin_gemm_desc product(const marlin_weights* weights, const HostMatrix& a, const HostMatrix& c,
                         int64_t m, marlin_compute compute);
/// Runs the product on the context of its weights.
void multiply(const marlin_gemm_desc& desc);

}  // namespace metal_marlin::tools
