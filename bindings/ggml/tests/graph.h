// Small graphs of ggml, run on the plugin and on ggml's CPU backend, and what they should give.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace ggml_test {

using Bytes = std::vector<std::byte>;
template <auto free_it>
struct Freed {
  void operator()(auto* p) const { free_it(p); }
};
using Context = std::unique_ptr<ggml_context, Freed<ggml_free>>;
using Buffer = std::unique_ptr<ggml_backend_buffer, Freed<ggml_backend_buffer_free>>;
using Backend = std::unique_ptr<ggml_backend, Freed<ggml_backend_free>>;
using Scheduler = std::unique_ptr<ggml_backend_sched, Freed<ggml_backend_sched_free>>;

/// The types that the plugin multiplies by.
inline constexpr ggml_type kTypes[] = {
    GGML_TYPE_Q4_0,   GGML_TYPE_Q4_1,   GGML_TYPE_Q5_0,  GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
    GGML_TYPE_Q2_K,   GGML_TYPE_Q3_K,   GGML_TYPE_Q4_K,  GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
    GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_NVFP4};
/// A multiple of 64 columns in blocks of 64, or as many blocks of this type if they are longer.
inline int64_t columns(ggml_type type, int64_t k) {
  return k / 64 * std::max<int64_t>(64, ggml_blck_size(type));
}

/// Loads the plugin once; the test fails when it cannot be.
ggml_backend_dev_t plugin_device();
/// Computes as the plugin does for who chooses nothing.
Backend plugin_backend();
/// With activations as they are.
Backend exact_backend();
/// ggml_backend_metal_marlin_set_compute, as a program finds it.
bool set_compute(ggml_backend_t backend, const char* name);
Backend cpu_backend();
/// For tensors without memory.
Context new_context();

/// A tensor that a graph starts from.
struct Input {
  ggml_type type;
  std::array<int64_t, 4> ne;
  Bytes bytes;
};
/// Of numbers in [-1, 1), quantized by ggml where the type is so; the same for the same seed.
Input random_input(ggml_type type, std::array<int64_t, 4> ne, unsigned seed);
Input integers(std::array<int64_t, 4> ne, const std::vector<int32_t>& values);

struct Graph {
  std::vector<Input> inputs;
  std::function<ggml_tensor*(ggml_context*, std::span<ggml_tensor* const>)> build;
};
/// ggml_mul_mat of these.
Graph product_of(Input weights, Input activations);

/// A graph in a backend's memory, its inputs filled.
class Placed {
 public:
  Placed(const Graph& graph, ggml_backend_t backend,
         ggml_backend_buffer_usage usage = GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  ggml_status compute();
  std::vector<float> result() const;
  ggml_tensor* input(size_t i) const { return inputs_[i]; }
  ggml_tensor* output() const { return output_; }

 private:
  ggml_backend_t backend_;
  Context context_;
  std::vector<ggml_tensor*> inputs_;
  ggml_tensor* output_;
  ggml_cgraph* graph_;
  Buffer buffer_;
};

std::vector<float> run(const Graph& graph, ggml_backend_t backend);
/// Sum of (x - y)^2.
template <typename Y>
double squared_distance(const std::vector<float>& x, const std::vector<Y>& y) {
  return std::transform_reduce(x.begin(), x.end(), y.begin(), 0.0, std::plus<>(),
                               [](double a, double b) { return (a - b) * (a - b); });
}

/// The float64 product of a MUL_MAT or MUL_MAT_ID with ggml's own decoding of the weights, and how
/// far FP32 sums may be off.
struct Expected {
  std::vector<double> value, bound;
  double power = 0;  // sum of (w a)^2 over all terms of all elements: what a rounding error is
                     // measured against
};
Expected expected(const Graph& product);

/// Runs it on the plugin with both computes: every element of the exact one within its bound, and
/// all of INT8, and ggml's CPU backend where it takes the product, near the float64 product.
void check_product(const Graph& product, bool cpu_takes_it = true);

/// Kilobytes of the mapping that begins at `address`, as the process has them.
/// Linux alone tells.
int64_t resident_kilobytes(const void* address);

/// What ggml logged while this lives.
class Log {
 public:
  Log();
  ~Log();
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace ggml_test
