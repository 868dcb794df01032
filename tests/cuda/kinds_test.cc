// Products of every kind of weights that may be rounded, and of floats, on an NVIDIA GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "floats.h"
#include "kernels/formats_under_test.h"
#include "kernels/gpu_kernel_name.h"
#include "kernels/special_values.h"
#include "products.h"

namespace {

using namespace cuda_test;

/// Weights of every kind, by every kernel that may round them, also with NaN, infinity, -0 and subnormals.
TEST_F(Products, OfRoundedWeightsOfEveryKindAreRight) {
  double nearest = 0;
  std::map<std::string, int> products;
  int number = 0;
  for (const auto& kernel : mm::cuda::policy().kernels) {
    if (!kernel.rounds) continue;
    for (const trial::Kind& kind : trial::kKinds)
      for (const auto& [type, special] :
           {std::pair(MARLIN_F16, false), {MARLIN_BF16, false}, {MARLIN_F16, true}, {MARLIN_BF16, true}}) {
        const int64_t m = kernel.has_ring() ? 1 + number % 8 : kernel.rows + number % 3 * 60 - 10;
        trial::Case c = trial::case_of(kind, MARLIN_COMPUTE_W16, m, 70 + number % 5 * 32, 448 + number % 4 * 37);
        c.a_type = c.c_type = type;
        c.seed = static_cast<uint32_t>(++number);
        const std::string name = trial::kernel_name(kernel, c);
        if (name.empty()) continue;
        trial::use_context(gpu_->context(name, mm::gpu::kMostRows));
        trial::Trial t(c);
        if (special) {
          trial::put_special_scales(t);
          trial::put_special_activations(t);
        }
        const auto packed = t.pack();
        if (packed && !is_served(t.gemm_desc())) continue;  // other forms, and UINT8 that is packed as INT8
        const auto ran = packed ? t.run() : packed, right = ran ? t.check() : ran;
        EXPECT_TRUE(right) << c.describe() << " by " << name;
        nearest = std::max(nearest, t.worst);
        ++products[name];
      }
  }
  for (const auto& [name, count] : products) std::printf("%s: %d products\n", name.c_str(), count);
  for (const char* const type : {"f16", "bf16"}) {
    EXPECT_GT(products[std::string("ring_w16_lut4_") + type + "_m8"], 0);
    EXPECT_GT(products[std::string("wgmma_w16_lut4_") + type + "_m128_n256"], 0);
    for (const char* const codes : {"u4", "i8", "e4m3", "u8", "lut4"})
      EXPECT_GT(products[std::string("expand_") + codes + "_" + type + "_m256_n256"], 0) << codes;
  }
  std::printf("nearest %.3f of its bound\n", nearest);
}

/// Weights that are floats, by activations of each type. An infinite weight leaves the other rows of W as they are.
TEST_F(Products, OfFloatsAreRight) {
  constexpr marlin_dtype kTypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
  constexpr marlin_format kFloatFormats[] = {MARLIN_FORMAT_FLOAT32, MARLIN_FORMAT_FLOAT16, MARLIN_FORMAT_BFLOAT16};
  constexpr uint16_t kInfinities[] = {0, 0x7C00, 0x7F80};
  std::mt19937 random(7);
  double nearest = 0;
  marlin_context* const context = gpu_->context("", mm::gpu::kMostRows);
  for (int of_w = 0; of_w < 3; ++of_w)
    for (const marlin_dtype a_type : kTypes)
      for (const int64_t m : {1, 3, 8, 9, 17, 40, 70, 130, 260}) {
        const int64_t n = m % 2 == 0 ? 70 : 300, k = m % 3 == 0 ? 1000 : 448;
        Floats w(kTypes[of_w], n * k, random), a(a_type, m * k, random);
        constexpr int64_t kInfiniteRow = 33;
        const bool infinite = m == 3 && of_w > 0;
        if (infinite) std::memcpy(&w.bytes[static_cast<size_t>(2 * (kInfiniteRow * k + 5))], &kInfinities[of_w], 2);
        auto pack = mm::make<marlin_pack_desc>();
        pack.format = kFloatFormats[of_w];
        pack.n = n;
        pack.k = k;
        pack.values = w.view(kTypes[of_w], n, k);
        const marlin_pack_desc* const part = &pack;
        mm::weights weights;
        ASSERT_EQ(marlin_weights_pack(context, &part, 1, 1, weights.out(), nullptr), MARLIN_OK);
        std::vector<float> c(static_cast<size_t>(m * n)), unpacked(static_cast<size_t>(n * k));
        auto product = mm::make<marlin_gemm_desc>();
        product.weights = weights.get();
        product.a = a.view(a_type, m, k);
        product.c = mm::matrix_view(c.data(), m, n);
        ASSERT_EQ(marlin_gemm(nullptr, &product, nullptr), MARLIN_OK);
        for (int64_t i = 0; i < m * n; ++i) {
          if (infinite && i % n == kInfiniteRow) {
            EXPECT_FALSE(std::isfinite(c[static_cast<size_t>(i)]));
            continue;
          }
          double sum = 0, magnitude = 0;
          for (int64_t j = 0; j < k; ++j) {
            const double one = a.numbers[static_cast<size_t>(i / n * k + j)] * w.numbers[static_cast<size_t>(i % n * k + j)];
            sum += one;
            magnitude += std::fabs(one);
          }
          const double bound = 0x1p-24 * static_cast<double>(k + 4) * magnitude;
          const double off = std::fabs(c[static_cast<size_t>(i)] - sum);
          nearest = std::max(nearest, off / bound);
          ASSERT_LE(off, bound) << mm::explain(product) << i << ", M = " << m;
        }
      }
  std::printf("nearest %.3f of its bound\n", nearest);
}

}  // namespace
