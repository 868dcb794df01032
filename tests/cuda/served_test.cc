// Every format of files loads on CUDA, and has kernels.
#include "context_on_fake_driver.h"
#include "formats/format_rows.h"
#include "test.h"

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

/// Every layer of tests/data that the CPU loads.
TEST_F(CudaServes, WhatTheCpuLoads) {
  const mm::context cpu(MARLIN_BACKEND_CPU);
  std::set<marlin_format> served;
  for (const auto& folder : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    if (!folder.is_directory()) continue;
    const mm::checkpoint file(folder.path().string());
    auto layer = mm::make<marlin_layer_info>();
    for (uint64_t i = 0; marlin_checkpoint_layer(file.get(), i, &layer, nullptr) == MARLIN_OK; ++i) {
      if (layer.status != MARLIN_OK) continue;
      auto load = mm::make<marlin_load_desc>();
      load.layers = &layer.name;
      load.layer_count = 1;
      mm::weights weights, on_cpu;
      auto err = mm::make<marlin_error>();
      const marlin_status status = marlin_weights_load(context.get(), file.get(), &load, weights.out(), &err);
      const std::string which = folder.path().string() + " " + layer.name + ": " + err.message;
      const bool divided = std::strstr(err.message, "MLX's global_scale") != nullptr;
      const marlin_status of_cpu = marlin_weights_load(cpu.get(), file.get(), &load, on_cpu.out(), nullptr);
      EXPECT_EQ(status, divided ? MARLIN_E_UNSUPPORTED : of_cpu) << which;
      if (status != MARLIN_OK) continue;
      EXPECT_EQ(unserved(weights), "") << which;
      served.insert(layer.format);
    }
  }
  for (const mm::FormatRow& row : mm::kFormatRows)
    EXPECT_TRUE(served.contains(row.format) || row.format == MARLIN_FORMAT_FP4 || row.format >= MARLIN_FORMAT_FLOAT32)
        << row.name;
}

/// The formats of no layer there.
TEST_F(CudaServes, WhatItPacks) {
  const std::vector<float> numbers(70 * 96, 0.5f);
  for (const marlin_format format : {MARLIN_FORMAT_FP4, MARLIN_FORMAT_FLOAT32, MARLIN_FORMAT_FLOAT16, MARLIN_FORMAT_BFLOAT16}) {
    auto desc = mm::make<marlin_pack_desc>();
    desc.format = format;
    desc.n = 70;
    desc.k = 96;
    desc.values = mm::matrix_view(numbers.data(), 70, 96);
    const marlin_pack_desc* const part = &desc;
    mm::weights weights;
    auto err = mm::make<marlin_error>();
    ASSERT_EQ(marlin_weights_pack(context.get(), &part, 1, 1, weights.out(), &err), MARLIN_OK) << err.message;
    EXPECT_EQ(unserved(weights), "") << format;
  }
}

}  // namespace
