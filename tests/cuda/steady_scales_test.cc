// Float32 scales over the driver of the tests: packing finds out whether tiles of wgmma may take them as units of sums.
#include "context_on_fake_driver.h"
#include "test.h"

namespace {

using namespace cuda_test;
namespace mm = metal_marlin;

class CudaSteadyScales : public CudaContext {
 protected:
  static constexpr int64_t kRows = 2048, kColumns = 2048, kDepth = 512, kGroups = kDepth / 32, kExperts = 2;

  /// Experts of codes of 0 in groups of 32, whose scales are no float16 numbers; the last scale of the last expert is `last`.
  mm::weights packed(float last, uint32_t experts = 1) {
    const std::vector<uint8_t> codes(kColumns * kDepth);
    std::vector<std::vector<float>> scales(experts, std::vector<float>(kColumns * kGroups, 0.1f));
    scales.back().back() = last;
    std::vector<marlin_pack_desc> parts;
    for (std::vector<float>& of_expert : scales) {
      auto& desc = parts.emplace_back(mm::make<marlin_pack_desc>());
      desc.format = MARLIN_FORMAT_INT8;
      desc.group_size = 32;
      desc.n = kColumns;
      desc.k = kDepth;
      desc.values = mm::matrix_view(codes.data(), kColumns, kDepth);
      desc.values.dtype = MARLIN_I8;
      desc.scales = {of_expert.data(), 0, kColumns, kGroups, 0, MARLIN_F32, MARLIN_MEM_HOST};
      desc.zeros = desc.scales;
      desc.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
    }
    return mm::pack(context, parts, experts);
  }
  /// The kernel of many rows; with ids, of routed ones.
  std::string kernel_of(const mm::weights& weights, const marlin_matrix& ids = {}) {
    auto desc = mm::make<marlin_gemm_desc>();
    desc.weights = weights.get();
    desc.a = {a.data(), 0, kRows, kDepth, 0, MARLIN_BF16, MARLIN_MEM_HOST};
    desc.c = {c.data(), 0, kRows, kColumns, 0, MARLIN_BF16, MARLIN_MEM_HOST};
    desc.expert_ids = ids;
    const std::string text = mm::explain(desc);
    return text.substr(0, text.find('\n'));
  }
  std::vector<uint16_t> a = std::vector<uint16_t>(kRows * kDepth), c = std::vector<uint16_t>(kRows * kColumns);
};

TEST_F(CudaSteadyScales, MayBeUnitsOfSums) { EXPECT_EQ(kernel_of(packed(0.3f)).rfind("kernel: wgmma_i8_bf16_", 0), 0u); }

TEST_F(CudaSteadyScales, AreNoneIfOneIsFarFromTheOthers) {
  for (const float last : {1e-20f, 1e20f}) EXPECT_EQ(kernel_of(packed(last)), "kernel: mma_i8_bf16_m32_n128") << last;
}

/// The experts of a stack have one kernel, so that one of them decides for all.
TEST_F(CudaSteadyScales, AreNoneIfAnExpertHasNone) {
  std::vector<int32_t> ids(kRows, 1);
  const auto kernel_of_experts = [&](float last) {
    return kernel_of(packed(last, kExperts), {ids.data(), 0, kRows, 1, 0, MARLIN_I32, MARLIN_MEM_HOST});
  };
  EXPECT_EQ(kernel_of_experts(0.3f).rfind("kernel: wgmma_i8_bf16_", 0), 0u) << kernel_of_experts(0.3f);
  EXPECT_EQ(kernel_of_experts(1e20f), "kernel: mma_i8_bf16_m32_n128");
}

}  // namespace
