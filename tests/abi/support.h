// What the tests of the ABI share. Public headers only: most of these programs link the shared library.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "metal_marlin/metal_marlin.hpp"

namespace abi_test {

namespace mm = metal_marlin;

/// What the contexts of these tests run on: the CPU, unless a folder that tests another backend compiles them for that.
#ifdef MARLIN_TEST_BACKEND
inline constexpr marlin_backend kBackend = MARLIN_TEST_BACKEND;
#else
inline constexpr marlin_backend kBackend = MARLIN_BACKEND_CPU;
#endif
inline constexpr bool kOnCpu = kBackend == MARLIN_BACKEND_CPU;

/// For products of the host's own memory. A GPU takes that only without a stream, since on one work goes on after the call.
inline marlin_stream* for_host_memory(const mm::stream& stream) { return kOnCpu ? stream.get() : nullptr; }

/// Numbers that look random and are the same everywhere, in [-1, 1).
inline std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(seed)) / 2147483648.0f;
  }
  return values;
}

/// A descriptor that quantizes floats [n, k] to `format`.
inline marlin_pack_desc pack_desc(const std::vector<float>& values, int64_t n, int64_t k,
                                  marlin_format format = MARLIN_FORMAT_INT4) {
  auto d = mm::make<marlin_pack_desc>();
  d.format = format;
  d.n = n;
  d.k = k;
  d.values = mm::matrix_view(values.data(), n, k);
  return d;
}

inline mm::weights quantized(const mm::context& context, int64_t n, int64_t k, uint32_t seed = 1,
                             marlin_format format = MARLIN_FORMAT_INT4) {
  const auto values = numbers(static_cast<size_t>(n * k), seed);
  return mm::pack(context, pack_desc(values, n, k, format));
}

/// INT4 weights of groups of 32, whose group index has runs of `run` columns that belong to a group drawn by chance: the
/// shorter the runs, the more padding.
inline mm::weights act_order(const mm::context& context, int64_t n, int64_t k, int64_t run, uint32_t seed) {
  const int64_t groups = k / 32;
  std::vector<uint8_t> codes(static_cast<size_t>(n * k / 2));
  std::vector<float> scales(static_cast<size_t>(n * groups));
  std::vector<int32_t> index(static_cast<size_t>(k));
  const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 8; };
  for (uint8_t& code : codes) code = static_cast<uint8_t>(next());
  for (float& scale : scales) scale = 0.5f + static_cast<float>(next() % 64) / 64;
  for (int64_t i = 0; i < k; ++i)
    index[static_cast<size_t>(i)] =
        i % run == 0 ? static_cast<int32_t>(next() % static_cast<uint32_t>(groups)) : index[static_cast<size_t>(i - 1)];
  auto d = mm::make<marlin_pack_desc>();
  d.format = MARLIN_FORMAT_INT4;
  d.group_size = 32;
  d.n = n;
  d.k = k;
  d.values = mm::matrix_view(codes.data(), n, k / 2);
  d.scales = mm::matrix_view(scales.data(), n, groups);
  d.group_index = mm::matrix_view(index.data(), 1, k);
  return mm::pack(context, d);
}

/// A product with memory of its own: a is [m, k], c [m, n], both float32, c full of 77.
struct Product {
  Product(const mm::weights& w, int64_t m, uint32_t seed = 2) {
    const marlin_layer_info info = mm::info(w);
    a = numbers(static_cast<size_t>(m * info.k), seed);
    c.assign(static_cast<size_t>(m * info.n), 77.0f);
    desc = mm::make<marlin_gemm_desc>();
    desc.weights = w.get();
    desc.a = mm::matrix_view(a.data(), m, info.k);
    desc.c = mm::matrix_view(c.data(), m, info.n);
  }
  Product(const Product&) = delete;

  /// Is c = a W^T, for W as unpack gives it, but for rounding?
  bool right() const {
    const int64_t m = desc.a.rows, k = desc.a.cols, n = desc.c.cols;
    std::vector<float> w(static_cast<size_t>(n * k));
    const marlin_matrix out = mm::matrix_view(w.data(), n, k);
    if (marlin_weights_unpack(nullptr, desc.weights, nullptr, 0, &out, nullptr) != MARLIN_OK) return false;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double term = double{a[static_cast<size_t>(i * k + l)]} * double{w[static_cast<size_t>(j * k + l)]};
          sum += term;
          size += std::abs(term);
        }
        if (!(std::abs(double{c[static_cast<size_t>(i * n + j)]} - sum) <= 1e-5 * size + 1e-30)) return false;
      }
    return true;
  }
  bool untouched() const {
    for (float v : c)
      if (v != 77.0f) return false;
    return true;
  }

  std::vector<float> a, c;
  marlin_gemm_desc desc;
};

/// A failed call: its status and message, for EXPECT_EQ and a look at the text.
struct Outcome {
  marlin_status status = MARLIN_OK;
  std::string message;
};

/// Calls a function of the C ABI with an error behind its arguments and checks that the two agree.
template <class... Parameters, class... Arguments>
Outcome call(marlin_status (*function)(Parameters...), Arguments... arguments) {
  auto err = mm::make<marlin_error>();
  const marlin_status status = function(arguments..., &err);
  if (status != err.status) return {MARLIN_E_INTERNAL, "the returned status is not the one in marlin_error"};
  if ((status == MARLIN_OK) != (err.message[0] == '\0')) return {MARLIN_E_INTERNAL, "a message without failure, or none"};
  return {status, err.message};
}

inline bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace abi_test

/// EXPECT_CALL-like: that a call fails with a status and a message that mentions `part`.
#define EXPECT_FAILS(expected, part, ...)                                                                \
  do {                                                                                                   \
    const ::abi_test::Outcome outcome_ = ::abi_test::call(__VA_ARGS__);                                  \
    EXPECT_STREQ(marlin_status_name(outcome_.status), marlin_status_name(expected)) << outcome_.message; \
    EXPECT_TRUE(::abi_test::contains(outcome_.message, part)) << "message: " << outcome_.message;        \
  } while (0)
#define EXPECT_OK(...)                                                  \
  do {                                                                  \
    const ::abi_test::Outcome outcome_ = ::abi_test::call(__VA_ARGS__); \
    EXPECT_EQ(outcome_.status, MARLIN_OK) << outcome_.message;          \
  } while (0)

namespace abi_test {

/// All that marlin_explain says of a product; "" and a failure of the test if the call fails.
inline std::string explained(const marlin_gemm_desc& desc) {
  std::string text(8192, '\0');
  EXPECT_OK(marlin_explain, &desc, text.data(), text.size(), nullptr);
  return text.c_str();
}

}  // namespace abi_test
