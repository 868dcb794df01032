// ggml's products with weights of a PackedBuffer: MUL_MAT and MUL_MAT_ID.
#pragma once

#include <metal_marlin/metal_marlin.hpp>

#include <span>
#include <vector>

#include "packed_buffer.h"

namespace marlin_ggml {

/// Whether Products computes it. Weights have to lie in a buffer of this type, or nowhere yet.
bool is_product(const ggml_tensor& node, ggml_backend_buffer_type_t buffers);

/// ggml's CPU backend rounds the activations of all of kBlockTypes to 8 bits, so that who chooses
/// nothing loses no accuracy.
inline constexpr marlin_compute kUsualCompute = MARLIN_COMPUTE_INT8;

/// Whether two products share their activations, so that one call may compute both.
bool share_activations(const ggml_tensor& first, const ggml_tensor& second);

/// Computes nodes, one thread at a time. Keeps the memory that it once needed.
class Products {
 public:
  explicit Products(marlin_stream* stream) : stream_(stream) {}
  /// `node` and `others` are products with elements, and each of the others shares its activations.
  /// What fails is logged. May throw std::bad_alloc.
  ggml_status compute(const ggml_tensor& node, std::span<const ggml_tensor> others);
  void set_compute(marlin_compute compute) { compute_ = compute; }

 private:
  /// `count` rows of F32, `stride` elements apart.
  struct Rows {
    float* data;
    int64_t count, columns, stride;
  };

  ggml_status multiply(const ggml_tensor& c);
  ggml_status multiply_experts(const ggml_tensor& c);
  ggml_status add(const ggml_tensor& weights, int64_t i2, int64_t i3, const Rows& a, const Rows& c);
  ggml_status add_piece(const ggml_tensor& weights, const Matrix& piece, const Rows& a,
                        const Rows& c);
  ggml_status run(const ggml_tensor& node);

  marlin_stream* stream_;
  marlin_compute compute_ = kUsualCompute;
  std::vector<marlin_gemm_desc> products_;
  std::vector<Weights> weights_;  // of products_
  std::vector<float> gathered_, results_;
};

}  // namespace marlin_ggml
