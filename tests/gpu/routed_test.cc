// Mixtures of experts on the idle device: what is bound, what is prepared, and what is left as it is in other products.
#include "recorded.h"
#include "test.h"

namespace gpu_routed_tests {
namespace {

using namespace device_test;

constexpr int64_t kN = 64, kK = 64, kExperts = 4, kTopK = 2;

mm::weights experts_of(const World& world) {
  const auto values = abi_test::numbers(static_cast<size_t>(kN * kK), 3);
  const std::vector<marlin_pack_desc> parts(kExperts, abi_test::pack_desc(values, kN, kK));
  std::vector<const marlin_pack_desc*> pointers;
  for (const auto& part : parts) pointers.push_back(&part);
  mm::weights made;
  EXPECT_OK(marlin_weights_pack, world.context.get(), pointers.data(), uint32_t{kExperts}, uint32_t{kExperts}, made.out());
  return made;
}

/// `tokens` rows of A, each for two experts, and their weighted sums.
struct Sums {
  Sums(World& world, int64_t tokens, marlin_dtype a_type = MARLIN_F16)
      : w(experts_of(world)),
        a(world.context, tokens, kK, a_type),
        c(world.context, tokens, kN, MARLIN_F32),
        ids(world.context, tokens, kTopK, MARLIN_I32, 5),
        scales(world.context, tokens, kTopK, MARLIN_F16, 6) {
    desc = gemm_desc(w, a, c);
    desc.expert_ids = ids.view;
    desc.expert_scales = scales.view;
  }
  mm::weights w;
  Matrix a, c, ids, scales;
  marlin_gemm_desc desc;
};

/// The offsets at which commands bind this buffer as one of two arguments.
std::vector<uint64_t> offsets_of(const std::vector<Command>& commands, const Matrix& matrix, std::set<uint32_t> arguments) {
  const auto* buffer = static_cast<const gpu::GpuBuffer&>(*matrix.buffer.get()->memory).buffer().get();
  std::vector<uint64_t> offsets;
  for (const Command& command : commands)
    for (const auto& [index, bound] : command.arguments)
      if (bound.buffer == buffer && arguments.count(index) != 0) offsets.push_back(bound.offset);
  return offsets;
}

TEST(Routed, BlocksOfTokensHaveTheirIdsAndScales) {
  for (const bool sorts : {false, true}) {
    World world({.probe = false, .most_rows = sorts ? 128 : 8});
    const int64_t tokens = sorts ? 130 : 10, block = sorts ? 64 : 4;
    Sums sums(world, tokens);
    const mm::stream stream = stream_of(world);
    const auto commands = recorded(world, stream, {sums.desc});
    std::set<uint64_t> ids, scales;
    for (int64_t first = 0; first < tokens; first += block) {
      ids.insert(static_cast<uint64_t>(first) * 5 * 4);
      scales.insert(static_cast<uint64_t>(first) * 6 * 2);
    }
    const auto bound_ids = offsets_of(commands, sums.ids, {MARLIN_BUFFER_IDS, MARLIN_BUFFER_ROUTED_IDS});
    const auto bound_scales = offsets_of(commands, sums.scales, {MARLIN_BUFFER_ID_SCALES, MARLIN_BUFFER_ROUTED_SCALES});
    EXPECT_EQ(std::set<uint64_t>(bound_ids.begin(), bound_ids.end()), ids) << sorts;
    EXPECT_EQ(std::set<uint64_t>(bound_scales.begin(), bound_scales.end()), scales) << sorts;
  }
}

/// Addresses of experts are in registers, too, so that a kernel may serve the same product without experts alone.
TEST(Routed, KernelsAreThoseWhoseRegistersHoldExperts) {
  World world;
  const mm::stream stream = stream_of(world);
  for (const auto& [tokens, a_type, kernel] : {std::tuple{6, MARLIN_F16, "gemv_u4_f16_m6"},
                                               {6, MARLIN_F32, "regdecode_u4_f32_m8_n32_direct"},
                                               {100, MARLIN_F16, "regdecode_u4_f16_m32_n128_threadgroup"},
                                               {100, MARLIN_F32, "regdecode_u4_f32_m16_n32_direct"}}) {
    Sums sums(world, tokens, a_type);
    const auto commands = recorded(world, stream, {sums.desc});
    EXPECT_EQ(std::ranges::count(commands, kernel, &Command::kernel), 1) << kernel;
  }
}

/// Gate and up in matrices of their own, in one call.
TEST(Routed, RowsOfTheSameIdsAreSortedOnce) {
  World world;
  Sums one(world, 20), other(world, 20);
  const mm::stream stream = stream_of(world);
  const auto sorts = [&](const marlin_gemm_desc& second) {
    const marlin_gemm_desc* const both[] = {&one.desc, &second};
    world.record.take();
    EXPECT_OK(marlin_gemm_many, stream.get(), both, 2u);
    const auto commands = world.record.take();
    std::set<uint64_t> tables;
    for (const Command& command : commands)
      if (command.kernel.starts_with("regdecode")) tables.insert(command.arguments.at(MARLIN_BUFFER_ROUTES).offset);
    const auto times = std::ranges::count(commands, "route", &Command::kernel);
    EXPECT_EQ(static_cast<int64_t>(tables.size()), times);
    return times;
  };
  EXPECT_EQ(sorts(other.desc), 2);
  auto same = other.desc;
  same.expert_ids = one.desc.expert_ids;
  EXPECT_EQ(sorts(same), 2) << "the table has scales, too";
  same.expert_scales = one.desc.expert_scales;
  EXPECT_EQ(sorts(same), 1);
}

TEST(Routed, ABiasOfOneRowIsThatOfAllExperts) {
  World world;
  Sums sums(world, 3);
  const mm::stream stream = stream_of(world);
  const Matrix bias(world.context, kExperts, kN, MARLIN_F32, 80);
  for (const int64_t rows : {int64_t{1}, kExperts}) {
    marlin_gemm_desc d = sums.desc;
    const Matrix each(world.context, 3 * kTopK, kN, MARLIN_F32);
    d.expert_scales = {};
    d.c = each.view;
    d.bias = bias.view;
    d.bias.rows = rows;
    int64_t found = 0;
    for (const Command& command : recorded(world, stream, {d}))
      if (command.arguments.contains(MARLIN_BUFFER_BIAS)) {
        EXPECT_EQ(value_of<ProductArgs>(command, MARLIN_BUFFER_ARGS).bias_stride, rows == 1 ? 0 : 80);
        ++found;
      }
    EXPECT_EQ(found, 1);
  }
}

/// Operands of the host are copied where memory is not shared; what holds them is made before.
TEST(Routed, PreparingReservesTheHostsOperands) {
  for (const bool summed : {false, true}) {
    World world;
    world.device->change().unified_memory = false;
    const mm::weights w = experts_of(world);
    constexpr int64_t kTokens = 300;
    std::vector<float> a(kTokens * kK), c(kTokens * kTopK * kN), scales(kTokens * kTopK);
    std::vector<int32_t> ids(kTokens * kTopK);
    auto d = mm::make<marlin_gemm_desc>();
    d.weights = w.get();
    d.a = mm::matrix_view(a.data(), kTokens, kK);
    d.c = mm::matrix_view(c.data(), summed ? kTokens : kTokens * kTopK, kN);
    d.expert_ids = mm::matrix_view(ids.data(), kTokens, kTopK);
    if (summed) d.expert_scales = mm::matrix_view(scales.data(), kTokens, kTopK);
    const marlin_gemm_desc* const one[] = {&d};
    EXPECT_OK(marlin_prepare, nullptr, one, 1u, kTokens, nullptr);
    const int allocations = world.record.allocations, compilations = world.record.compilations;
    EXPECT_OK(marlin_gemm, nullptr, &d);
    EXPECT_EQ(world.record.allocations, allocations) << summed;
    EXPECT_EQ(world.record.compilations, compilations) << summed;
  }
}

TEST(Unrouted, ActivationsArePreparedRowByRow) {
  World world;
  const mm::weights w = pack(world.context, kN, kK, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 3, kK, MARLIN_F16), c(world.context, 3, kN, MARLIN_F32);
  auto d = gemm_desc(w, a, c);
  d.compute = MARLIN_COMPUTE_INT8;
  const auto commands = recorded(world, stream, {d});
  ASSERT_EQ(commands.front().kernel, "quantize_f16");
  for (const uint32_t constant : {MARLIN_CONSTANT_ROUTING, MARLIN_CONSTANT_ALIGNED, MARLIN_CONSTANT_SLOT_TO_K})
    EXPECT_EQ(commands.front().constants.at(constant), 0u) << constant;
}

/// Rows of gate and up take turns in the weights. A function of one input does not look.
TEST(Unrouted, InterleavedWeightsAreRowsLikeOthersToOneInput) {
  World world;
  const mm::weights interleaved = pack(world.context, kN, kK, 1, false, true), apart = pack(world.context, kN, kK, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 3, kK, MARLIN_F16), c(world.context, 3, kN, MARLIN_F32);
  const auto constant = [&](const mm::weights& w, marlin_epilogue epilogue) {
    auto d = gemm_desc(w, a, c);
    d.epilogue = epilogue;
    if (epilogue == MARLIN_EPILOGUE_SWIGLU) d.c.cols = kN / 2;
    return recorded(world, stream, {d}).back().constants.at(MARLIN_CONSTANT_INTERLEAVED);
  };
  EXPECT_EQ(constant(interleaved, MARLIN_EPILOGUE_SILU), 0u);
  EXPECT_EQ(constant(interleaved, MARLIN_EPILOGUE_SWIGLU), 1u);
  EXPECT_EQ(constant(apart, MARLIN_EPILOGUE_SWIGLU), 0u);
}

TEST(Unrouted, ExplainTellsOfActOrder) {
  World world;
  const Matrix a(world.context, 2, 128, MARLIN_F16), c(world.context, 2, kN, MARLIN_F32);
  for (const bool permuted : {false, true}) {
    const mm::weights w = pack(world.context, kN, 128, 1, permuted);
    EXPECT_EQ(abi_test::explained(gemm_desc(w, a, c)).find("\nact_order: ") != std::string::npos, permuted);
  }
}

TEST(Unrouted, NoRowsByIdAreNoWork) {
  World world;
  const mm::weights w = pack(world.context, kN, kK, 1);
  const Matrix out(world.context, 1, kK, MARLIN_F32), ids(world.context, 1, 1, MARLIN_I32);
  marlin_matrix no_out = out.view, no_ids = ids.view;
  no_out.rows = no_ids.rows = 0;
  world.record.take();
  EXPECT_OK(marlin_weights_unpack, nullptr, w.get(), &no_ids, int64_t{0}, &no_out);
  EXPECT_TRUE(world.record.take().empty());
}

/// A kernel runs if the device has just as many threads for it as its tile needs.
TEST(Unrouted, AKernelMayNeedAllThreads) {
  for (const uint32_t missing : {0u, 1u}) {
    World world;
    ON_CALL(*world.mock, kernel(testing::_, testing::_))
        .WillByDefault([&](std::string_view name, std::span<const dv::Constant> constants) {
          auto kernel = std::make_shared<IdleKernel>(name, constants);
          kernel->threads = gpu::simdgroup_policy().kernels.front().wide_threads - missing;
          return Result<dv::KernelRef>(dv::KernelRef(std::move(kernel)));
        });
    Product p(world, 1);
    if (missing == 0)
      EXPECT_OK(marlin_gemm, nullptr, &p.desc);
    else
      EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "threads", marlin_gemm, nullptr, &p.desc);
  }
}

}  // namespace
}  // namespace gpu_routed_tests
