// Weights that load on CUDA have kernels: what no kernel multiplies by is refused when it is loaded.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "context_on_fake_driver.h"

namespace {

using namespace cuda_test;
namespace mm = metal_marlin;

using CudaServes = CudaContext;

/// Which products of the weights have no kernel.
std::string unserved(const mm::weights& weights) {
  auto info = mm::make<marlin_layer_info>();
  EXPECT_EQ(marlin_weights_info(weights.get(), &info, nullptr), MARLIN_OK);
  std::vector<float> a(static_cast<size_t>(64 * info.k)), c(static_cast<size_t>(64 * info.n));
  std::vector<int32_t> ids(64);
  std::string without;
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16})
    for (const int64_t m : {1, 64}) {
      auto desc = mm::make<marlin_gemm_desc>();
      desc.weights = weights.get();
      desc.a = {a.data(), 0, m, info.k, 0, dtype, MARLIN_MEM_HOST};
      desc.c = {c.data(), 0, m, info.n, 0, MARLIN_F32, MARLIN_MEM_HOST};
      if (info.experts > 1) desc.expert_ids = {ids.data(), 0, m, 1, 0, MARLIN_I32, MARLIN_MEM_HOST};
      const std::string text = mm::explain(desc);
      if (!text.starts_with("kernel: ") || text.starts_with("kernel: \n")) without += text;
    }
  return without;
}

/// Every layer of tests/data, as it is or quantized on the way.
TEST_F(CudaServes, WhatItLoads) {
  std::set<marlin_format> served, refused;
  for (const auto& folder : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    if (!folder.is_directory()) continue;
    const mm::checkpoint file(folder.path().string());
    auto layer = mm::make<marlin_layer_info>();
    for (uint64_t i = 0; marlin_checkpoint_layer(file.get(), i, &layer, nullptr) == MARLIN_OK; ++i) {
      if (layer.status != MARLIN_OK) continue;
      auto load = mm::make<marlin_load_desc>();
      load.layers = &layer.name;
      load.layer_count = 1;
      mm::weights weights;
      auto err = mm::make<marlin_error>();
      const marlin_status status = marlin_weights_load(context.get(), file.get(), &load, weights.out(), &err);
      const std::string which = folder.path().string() + " " + layer.name + ": " + err.message;
      if (status == MARLIN_OK) {
        EXPECT_EQ(unserved(weights), "") << which;
        served.insert(layer.format);
      } else {
        EXPECT_EQ(status, MARLIN_E_UNSUPPORTED) << which;
        refused.insert(layer.format);
      }
    }
  }
  for (const marlin_format format : {MARLIN_UINT8, MARLIN_FP8, MARLIN_NF4, MARLIN_CODEBOOK4}) {
    EXPECT_TRUE(refused.contains(format)) << format;
    EXPECT_FALSE(served.contains(format)) << format;
  }
  for (const marlin_format format : {MARLIN_INT2, MARLIN_INT4, MARLIN_INT6, MARLIN_IQ4, MARLIN_NVFP4})
    EXPECT_TRUE(served.contains(format)) << format;
}

}  // namespace
