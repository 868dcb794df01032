// What comes before the tiles of a product, over the driver of the tests: for weights with additive zeros, A is added up over
// groups, from where the tiles read it; other weights are expanded to where the tiles read them; A is quantized.
#include "abi/support.h"
#include "context_on_fake_driver.h"
#include "shaders/common/arguments.h"
#include "test.h"

namespace {

using namespace cuda_test;
namespace mm = metal_marlin;

class CudaSteps : public CudaContext {
 protected:
  static constexpr int64_t kRows = 21, kColumns = 64, kDepth = 352;  // 11 groups, of which two eights

  CudaSteps(const char* kernel, marlin_compute compute) : CudaContext(kernel), compute_(compute) {}

  /// Weights of 0.
  mm::weights packed(bool additive, uint32_t group = 32) {
    const std::vector<uint8_t> codes(kColumns * kDepth / 2);
    const int64_t groups = kDepth / group;
    const std::vector<uint16_t> scales(static_cast<size_t>(kColumns * groups), 0x3c00);
    auto desc = mm::make<marlin_pack_desc>();
    desc.format = MARLIN_FORMAT_INT4;
    desc.group_size = group;
    desc.n = kColumns;
    desc.k = kDepth;
    desc.values = mm::matrix_view(codes.data(), kColumns, kDepth / 2);
    desc.scales = {const_cast<uint16_t*>(scales.data()), 0, kColumns, groups, 0, MARLIN_F16, MARLIN_MEM_HOST};
    if (additive) {
      desc.zeros = desc.scales;
      desc.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
    }
    return mm::pack(context, desc);
  }
  /// The launches of a product whose rows of A are so many elements apart.
  std::vector<fake_cuda::Launch> launches_of(const mm::weights& weights, int64_t stride) {
    std::vector<uint16_t> a(static_cast<size_t>(kRows * stride) + 8);
    std::vector<float> c(kRows * kColumns);
    auto desc = mm::make<marlin_gemm_desc>();
    desc.weights = weights.get();
    void* from = a.data();
    size_t room = a.size() * 2;
    std::align(16, static_cast<size_t>(kRows * stride) * 2, from, room);
    desc.a = {from, 0, kRows, kDepth, stride, MARLIN_F16, MARLIN_MEM_CUDA};
    desc.c = {c.data(), 0, kRows, kColumns, 0, MARLIN_F32, MARLIN_MEM_CUDA};
    desc.compute = compute_;
    desc.activation_group = activation_group;
    driver->memory.push_back({.begin = reinterpret_cast<uintptr_t>(a.data()), .bytes = a.size() * 2, .allocated = true});
    driver->memory.push_back({.begin = reinterpret_cast<uintptr_t>(c.data()), .bytes = c.size() * 4, .allocated = true});
    driver->launches.clear();
    EXPECT_OK(marlin_gemm, nullptr, &desc);
    driver->memory.resize(driver->memory.size() - 2);  // with the arrays
    return driver->launches;
  }

  int64_t activation_group = 0;

 private:
  const marlin_compute compute_;
};
struct CudaGroupSums : CudaSteps {
  CudaGroupSums() : CudaSteps("mma_u4_f16_m16_n128", MARLIN_COMPUTE_DEFAULT) {}
};
struct CudaBytes : CudaSteps {
  CudaBytes() : CudaSteps("wgmma_u4_i8_m64_n256", MARLIN_COMPUTE_INT8) { activation_group = kDepth; }
};
struct CudaExpanded : CudaSteps {
  CudaExpanded() : CudaSteps("expand_u4_f16_m128_n256", MARLIN_COMPUTE_W16) {}
};

TEST_F(CudaGroupSums, ComeFirstAndGoToTheTiles) {
  const mm::weights weights = packed(true);
  const auto launches = launches_of(weights, kDepth);
  ASSERT_EQ(launches.size(), 2u);
  const fake_cuda::Launch &sums = launches[0], &tiles = launches[1];
  EXPECT_EQ(sums.parameters.buffers[MARLIN_BUFFER_SOURCE], tiles.parameters.buffers[MARLIN_BUFFER_A]);
  EXPECT_EQ(sums.parameters.buffers[MARLIN_BUFFER_GROUP_SUMS_OUT], tiles.parameters.buffers[MARLIN_BUFFER_GROUP_SUMS]);
  EXPECT_NE(sums.parameters.buffers[MARLIN_BUFFER_GROUP_SUMS_OUT], 0u);
  EXPECT_EQ(sums.parameters.constants[MARLIN_CONSTANT_GROUP_SHIFT], 5);
  EXPECT_EQ(sums.parameters.constants[MARLIN_CONSTANT_ALIGNED], 1);
  EXPECT_EQ(sums.grid[1], 24u);  // rows, up to a multiple of eight
  PrepareArgs args{};
  std::memcpy(&args, sums.parameters.arguments, sizeof args);
  EXPECT_EQ(args.m, kRows);
  EXPECT_EQ(args.k, kDepth);
  EXPECT_EQ(args.slots, 512);  // of 16 groups
  EXPECT_EQ(args.lda, kDepth);
  EXPECT_TRUE(sums.overlaps);
}

TEST_F(CudaGroupSums, TakeRowsThatAreNotAligned) {
  const mm::weights weights = packed(true);
  const auto launches = launches_of(weights, kDepth + 1);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].parameters.constants[MARLIN_CONSTANT_ALIGNED], 0);
}

TEST_F(CudaGroupSums, AreNotNeededWithoutAdditiveZeros) {
  const mm::weights weights = packed(false);
  EXPECT_EQ(launches_of(weights, kDepth).size(), 1u);
}

TEST_F(CudaExpanded, ComeFirstAndGoToTheTiles) {
  for (const bool additive : {false, true}) {
    const mm::weights weights = packed(additive);
    const auto launches = launches_of(weights, kDepth);
    ASSERT_EQ(launches.size(), 2u);
    const fake_cuda::Launch &expand = launches[0], &tiles = launches[1];
    EXPECT_TRUE(expand.kernel.starts_with("expand_u4_f16_n32")) << expand.kernel;
    EXPECT_EQ(tiles.kernel, "wgmma_f16_f16_m128_n256_s0z0g7");
    EXPECT_EQ(expand.parameters.constants[MARLIN_CONSTANT_GROUP_SHIFT], 5);
    EXPECT_EQ(expand.parameters.constants[MARLIN_CONSTANT_ZERO_KIND], additive ? kZeroF16 : kZeroNone);
    EXPECT_EQ(expand.grid[0], 1u);  // six chunks of 64 slots
    EXPECT_EQ(expand.grid[1], 2u);  // row blocks
    EXPECT_EQ(expand.parameters.buffers[MARLIN_BUFFER_EXPANDED], tiles.parameters.buffers[MARLIN_BUFFER_CODES]);
    EXPECT_NE(expand.parameters.buffers[MARLIN_BUFFER_EXPANDED], expand.parameters.buffers[MARLIN_BUFFER_CODES]);
    EXPECT_EQ(tiles.parameters.constants[MARLIN_CONSTANT_ZERO_KIND], kZeroNone);
    ProductArgs args{};
    std::memcpy(&args, tiles.parameters.arguments, sizeof args);
    EXPECT_EQ(args.expanded, 1);
    EXPECT_EQ(args.slots, 384);
  }
}

TEST_F(CudaBytes, AreQuantizedWithOneScalePerRow) {
  const mm::weights weights = packed(false, kDepth);
  const auto launches = launches_of(weights, kDepth);
  ASSERT_EQ(launches.size(), 2u);
  const fake_cuda::Launch &quantize = launches[0], &tiles = launches[1];
  EXPECT_EQ(quantize.kernel, "quantize_f16");
  EXPECT_EQ(quantize.grid[0], 1u) << "a block has a row";
  EXPECT_EQ(quantize.grid[1], kRows);
  EXPECT_EQ(quantize.parameters.constants[MARLIN_CONSTANT_ALIGNED], 1);
  PrepareArgs prepare{};
  std::memcpy(&prepare, quantize.parameters.arguments, sizeof prepare);
  EXPECT_EQ(prepare.group, 0);
  EXPECT_EQ(prepare.for_tiles, 1);
  EXPECT_EQ(tiles.kernel, "wgmma_u4_i8_m64_n256_s1z0g7");
  EXPECT_EQ(quantize.parameters.buffers[MARLIN_BUFFER_QUANTIZED], tiles.parameters.buffers[MARLIN_BUFFER_A]);
  EXPECT_EQ(quantize.parameters.buffers[MARLIN_BUFFER_QUANT_SCALES], tiles.parameters.buffers[MARLIN_BUFFER_A_SCALES]);
  ProductArgs args{};
  std::memcpy(&args, tiles.parameters.arguments, sizeof args);
  EXPECT_EQ(args.lda, 384) << "bytes";
  std::array<uint64_t, 4> map;  // columns and rows of A, then of a box
  std::memcpy(map.data(), tiles.parameters.tensor_map, sizeof map);
  EXPECT_EQ(map, (std::array<uint64_t, 4>{384, kRows, 128, 32}));
}

}  // namespace
