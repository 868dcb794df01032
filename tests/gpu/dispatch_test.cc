// What is recorded for a call: which kernels, with which constants, arguments and grids, and where the barriers are.
#include "backends/gpu/pack.h"
#include "recorded.h"
#include "test.h"

namespace {

using namespace device_test;
namespace gpu = metal_marlin::gpu;
using gpu::ActivationKind;
using gpu::KernelCodes;

constexpr const char* kCodes[] = {"fp4", "u4", "i8", "fp4_sparse", "u4_sparse", "planes", "lut4", "floats"};
constexpr KernelCodes kKinds[] = {KernelCodes::fp4,       KernelCodes::u4,     KernelCodes::i8,   KernelCodes::fp4_sparse,
                                  KernelCodes::u4_sparse, KernelCodes::planes, KernelCodes::lut4, KernelCodes::floats};
constexpr const char* kActivations[] = {"f32", "f16", "bf16", "i8"};
constexpr marlin_dtype kDtypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16, MARLIN_F32};

/// Function constants, with those that are left alone.
std::map<uint32_t, uint32_t> all(std::map<uint32_t, uint32_t> constants) {
  for (uint32_t i = 0; i < gpu::Variant::kConstants; ++i)
    constants.try_emplace(i, i == MARLIN_CONSTANT_BIAS_TYPE ? uint32_t{kFloatNone} : 0);
  return constants;
}

class EveryRow : public testing::TestWithParam<gpu::ProductKernel> {};

/// Forced, with more rows of A than a tile has.
TEST_P(EveryRow, IsDispatchedByItsContract) {
  const gpu::ProductKernel& kernel = GetParam();
  for (int codes = 0; codes < static_cast<int>(std::size(kKinds)); ++codes)
    for (int activation = 0; activation < static_cast<int>(std::size(kActivations)); ++activation) {
      const std::string name(kernel.name(kKinds[codes], static_cast<ActivationKind>(activation)));
      SCOPED_TRACE(name);
      const bool lut4 = kCodes[codes] == std::string("lut4"), floats = kCodes[codes] == std::string("floats");
      const int most = kernel.pattern.ends_with("_nax") ? 2 : (kernel.features & gpu::kTensor) != 0 ? 5 : 7;  // codes
      if (name.empty() && (codes > most || (most < 7 && activation % 3 == 0) || (floats && activation == 3))) continue;
      EXPECT_TRUE(name.find(std::string("_") + kCodes[codes] + "_" + kActivations[activation] + "_") != std::string::npos);
      World world({.probe = false}, {.kernel = name});
      world.device->change().tensor = true;
      const bool int8 = activation == 3;
      const int64_t n = 200, k = 416, m = kernel.rows + 1;  // K too short to be split, N for many threadgroups
      const mm::weights w = pack(world.context, n, k, codes);
      const Matrix a(world.context, m, k, kDtypes[activation]), c(world.context, m, n, MARLIN_F16);
      const mm::stream stream = stream_of(world);
      auto d = gemm_desc(w, a, c);
      d.epilogue = MARLIN_EPILOGUE_SILU;
      d.compute = int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
      const auto commands = recorded(world, stream, {d});
      ASSERT_EQ(outline(commands), int8 ? (Lines{"quantize_f32", "barrier", name}) : Lines{name});
      const Command& p = commands.back();
      EXPECT_EQ(p.groups, (dv::Size3{static_cast<uint32_t>((n + kernel.columns - 1) / kernel.columns), 2, 1}));
      EXPECT_EQ(p.threads, (dv::Size3{kernel.wide_threads != 0 ? kernel.wide_threads : kernel.threads, 1, 1}));
      const gpu::RowBlockLayout& layout = layout_of(w);
      const uint32_t form = floats ? kFormBf16 : kCodes[codes] == std::string("planes") ? kForm5Bits : kFormOwn;
      EXPECT_EQ(p.constants, all({{MARLIN_CONSTANT_SCALE_TYPE, floats ? kScaleE8m0 : kScaleF16},
                                  {MARLIN_CONSTANT_ZERO_KIND, lut4 ? kZeroCodebook : kZeroNone},
                                  {MARLIN_CONSTANT_GROUP_SHIFT, floats ? 7u : 5u},
                                  {MARLIN_CONSTANT_ROW_FACTOR, floats ? kRowFactorMultiply : kRowFactorNone},
                                  {MARLIN_CONSTANT_ALIGNED, 1},
                                  {MARLIN_CONSTANT_RAGGED, 0},
                                  {MARLIN_CONSTANT_OUTPUT_TYPE, kFloat16},
                                  {MARLIN_CONSTANT_BIAS_TYPE, kFloatNone},
                                  {MARLIN_CONSTANT_EPILOGUE, MARLIN_EPILOGUE_SILU},
                                  {MARLIN_CONSTANT_ACCUMULATE, 0},
                                  {MARLIN_CONSTANT_PARTIAL, 0},
                                  {MARLIN_CONSTANT_QUANTIZED, int8 ? 1 : 0},
                                  {MARLIN_CONSTANT_CODE_FORM, form}}));
      expect_bound(p, MARLIN_BUFFER_CODES, buffer_of(w), 0);
      expect_bound(p, MARLIN_BUFFER_SCALES, buffer_of(w), layout.scales_at);
      const auto args = value_of<ProductArgs>(p, MARLIN_BUFFER_ARGS);
      EXPECT_EQ(args.m, m);
      EXPECT_EQ(args.n, n);
      EXPECT_EQ(args.k, k);
      EXPECT_EQ(args.slots, layout.slots);
      EXPECT_EQ(args.quads, layout.quads);
      EXPECT_EQ(args.splits, 1);
      EXPECT_EQ(args.lda, k);
      EXPECT_EQ(args.ldc, n);
      // Codes, scales, A, C and the arguments; the scales of INT8 activations; a codebook, or the row factors of floats.
      EXPECT_EQ(p.arguments.size(), 5u + (int8 ? 1 : 0) + (lut4 || floats ? 1 : 0));
      if (lut4) expect_bound(p, MARLIN_BUFFER_ZEROS, buffer_of(w), layout.zeros_at);
      if (floats) expect_bound(p, MARLIN_BUFFER_ROWS, buffer_of(w), layout.factors_at);
      if (int8) {
        const Command& q = commands.front();
        EXPECT_EQ(q.groups, (dv::Size3{1, static_cast<uint32_t>(m), 1}));
        EXPECT_EQ(q.arguments.at(MARLIN_BUFFER_QUANTIZED).buffer, p.arguments.at(MARLIN_BUFFER_A).buffer);
        EXPECT_EQ(q.arguments.at(MARLIN_BUFFER_QUANT_SCALES).offset, p.arguments.at(MARLIN_BUFFER_A_SCALES).offset);
        const auto prepare = value_of<PrepareArgs>(q, MARLIN_BUFFER_PREPARE_ARGS);
        EXPECT_EQ(prepare.m, m);
        EXPECT_EQ(prepare.k, k);
        EXPECT_EQ(prepare.slots, layout.slots);
        EXPECT_EQ(prepare.lda, k);
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Kernels, EveryRow, testing::ValuesIn(gpu::simdgroup_policy().kernels), [](const auto& i) {
  std::string name(i.param.name(KernelCodes::u4, ActivationKind::f16));
  return name;
});

/// Of two rows of one range the first serves.
TEST(Choice, FollowsTheRangesOfM) {
  World world;
  const mm::weights w = pack(world.context, 8192, 64, 1);
  const mm::stream stream = stream_of(world);
  for (const gpu::ProductKernel& kernel : gpu::simdgroup_policy().kernels)
    for (const int64_t m : {kernel.m_min, kernel.m_max != 0 ? kernel.m_max : kernel.m_min + 500}) {
      if (kernel.rows == 8 && m < 7) continue;  // six rows serve
      const Matrix a(world.context, m, 64, MARLIN_F16), c(world.context, m, 8192, MARLIN_F16);
      const auto d = gemm_desc(w, a, c);
      // Tensor operations go before the other kernels of the same range, which do without.
      world.device->change().tensor = (kernel.features & gpu::kTensor) != 0;
      EXPECT_EQ(recorded(world, stream, {d}).back().kernel, kernel.name(KernelCodes::u4, ActivationKind::f16)) << "M = " << m;
    }
}

TEST(Choice, TensorOperationsTakeNoOtherActivations) {
  World world;
  world.device->change().tensor = true;
  const mm::weights w = pack(world.context, 64, 64, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 100, 64, MARLIN_F32), c(world.context, 100, 64, MARLIN_F32);
  auto d = gemm_desc(w, a, c);
  for (const auto compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    d.compute = compute;
    EXPECT_OK(marlin_gemm, stream.get(), &d);
    EXPECT_TRUE(world.record.take().back().kernel.ends_with("_m32_n128_threadgroup"));
  }
}

TEST(Choice, WithoutMatricesTheNearestOtherKernelServes) {
  World world;
  world.device->change().matrix = false;
  const mm::weights w = pack(world.context, 64, 64, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 100, 64, MARLIN_F16), c(world.context, 100, 64, MARLIN_F16);
  const auto d = gemm_desc(w, a, c);
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_EQ(world.record.take().back().kernel, "gemv_u4_f16_m6");
}

TEST(Choice, RefusesWhatTheDeviceDoesNotKnow) {
  World world;
  world.device->change().bfloat = false;
  const mm::weights w = pack(world.context, 64, 64, 1);
  const Matrix a(world.context, 1, 64, MARLIN_BF16), c(world.context, 1, 64, MARLIN_F16);
  auto d = gemm_desc(w, a, c);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "BF16", marlin_gemm, nullptr, &d);
  d.compute = MARLIN_COMPUTE_FP8;
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "compute 2", marlin_gemm, nullptr, &d);
}

TEST(Sequence, ActivationsOfActOrderAreGatheredOnceForAll) {
  World world;
  const mm::weights v = pack(world.context, 8192, 128, 1, true), w = pack(world.context, 8192, 128, 1, true);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 2, 128, MARLIN_F16), c1(world.context, 2, 8192, MARLIN_F16),
      c2(world.context, 2, 8192, MARLIN_F16);
  const auto d1 = gemm_desc(v, a, c1), d2 = gemm_desc(w, a, c2);
  const auto commands = recorded(world, stream, {d1, d2});
  EXPECT_EQ(outline(commands), (Lines{"gather_b2", "barrier", "gemv_u4_f16_m2", "gemv_u4_f16_m2"}));
  expect_bound(commands[0], MARLIN_BUFFER_SOURCE_SLOTS, buffer_of(v), layout_of(v).slot_to_k_at);
  EXPECT_EQ(commands[2].arguments.at(MARLIN_BUFFER_A).offset, commands[3].arguments.at(MARLIN_BUFFER_A).offset);
}

TEST(Sequence, DifferentActivationsArePreparedApart) {
  World world;
  const mm::weights w = pack(world.context, 8192, 128, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a1(world.context, 1, 128, MARLIN_F16), a2(world.context, 1, 128, MARLIN_F16);
  const Matrix c1(world.context, 1, 8192, MARLIN_F16), c2(world.context, 1, 8192, MARLIN_F16);
  auto d1 = gemm_desc(w, a1, c1), d2 = gemm_desc(w, a2, c2);
  d1.compute = d2.compute = MARLIN_COMPUTE_INT8;
  EXPECT_EQ(outline(recorded(world, stream, {d1, d2})),
            (Lines{"quantize_f16", "quantize_f16", "barrier", "gemv_u4_i8_m1", "gemv_u4_i8_m1"}));
}

TEST(Sequence, FewColumnsSplitK) {
  World world;
  const mm::weights w = pack(world.context, 64, 8192, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 9, 8192, MARLIN_F16), c(world.context, 9, 64, MARLIN_F32),
      bias(world.context, 1, 64, MARLIN_F32);
  auto d = gemm_desc(w, a, c);
  d.bias = bias.view;
  d.flags = MARLIN_GEMM_ACCUMULATE;
  const auto commands = recorded(world, stream, {d});
  ASSERT_EQ(outline(commands), (Lines{"regdecode_u4_f16_m16_n32_direct", "barrier", "finish"}));
  EXPECT_EQ(commands[0].groups, (dv::Size3{2, 1, 8}));
  EXPECT_EQ(commands[0].constants.at(MARLIN_CONSTANT_PARTIAL), 1u);
  EXPECT_EQ(commands[0].constants.at(MARLIN_CONSTANT_ACCUMULATE), 0u);
  EXPECT_EQ(commands[0].constants.at(MARLIN_CONSTANT_BIAS_TYPE), uint32_t{kFloatNone});
  EXPECT_FALSE(commands[0].arguments.contains(MARLIN_BUFFER_C));
  EXPECT_EQ(value_of<ProductArgs>(commands[0], MARLIN_BUFFER_ARGS).split_blocks, 8);
  const Command& finish = commands[2];
  EXPECT_EQ(value_of<ProductArgs>(finish, MARLIN_BUFFER_ARGS).splits, 8);
  EXPECT_EQ(finish.arguments.at(MARLIN_BUFFER_PARTIALS).buffer, commands[0].arguments.at(MARLIN_BUFFER_PARTIALS).buffer);
  EXPECT_TRUE(finish.arguments.contains(MARLIN_BUFFER_BIAS));
  EXPECT_EQ(finish.groups, (dv::Size3{1, 9, 1}));
  EXPECT_EQ(finish.constants, all({{MARLIN_CONSTANT_ROW_FACTOR, kRowFactorNone},
                                   {MARLIN_CONSTANT_OUTPUT_TYPE, kFloat32},
                                   {MARLIN_CONSTANT_BIAS_TYPE, kFloat32},
                                   {MARLIN_CONSTANT_EPILOGUE, 0},
                                   {MARLIN_CONSTANT_ACCUMULATE, 1},
                                   {MARLIN_CONSTANT_INTERLEAVED, 0}}));
}

/// Up to half of the threadgroups that few rows of A want, these have more simdgroups. The sums of all stay in one.
TEST(Sequence, FewColumnsOfFewRowsHaveMoreSimdgroups) {
  World world;
  for (const auto& [n, threads] : {std::pair<int64_t, uint32_t>{32, 256}, {2048, 256}, {2080, 128}, {4096, 128}})
    for (const int64_t m : {1, 4, 6}) {
      const mm::weights w = pack(world.context, n, 8192, 1);
      const mm::stream stream = stream_of(world);
      const Matrix a(world.context, m, 8192, MARLIN_F16), c(world.context, m, n, MARLIN_F32);
      const auto d = gemm_desc(w, a, c);
      world.record.take();
      EXPECT_OK(marlin_gemm, stream.get(), &d);
      const auto commands = world.record.take();
      ASSERT_EQ(outline(commands), Lines{"gemv_u4_f16_m" + std::to_string(m)});
      EXPECT_EQ(commands[0].threads, (dv::Size3{threads, 1, 1})) << n;
      EXPECT_EQ(commands[0].groups, (dv::Size3{static_cast<uint32_t>(n / 32), 1, 1}));
    }
}

/// Six rows of what takes more registers than they leave are eight rows by matrices, or rows in two passes where all rows
/// must add in one order.
TEST(Choice, TakesSixRowsWhereRegistersHoldThem) {
  World world;
  const mm::weights w = pack(world.context, 4096, 64, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 6, 64, MARLIN_F32), c(world.context, 6, 4096, MARLIN_F32);
  auto d = gemm_desc(w, a, c);
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_EQ(world.record.take().back().kernel, "gemv_u4_f32_m6");
  const mm::weights planes = pack(world.context, 4096, 64, 5);
  d.weights = planes.get();
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_EQ(world.record.take().back().kernel, "regdecode_planes_f32_m8_n32_direct");
  d.flags = MARLIN_GEMM_ROW_INVARIANT;
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_EQ(world.record.take().back().kernel, "gemv_planes_f32_m4");
}

TEST(Sequence, GateAndUpAreFinishedInBlocksOfRows) {
  World world;
  const int64_t n = 65536, m = 600;  // 256 rows of partial sums fit the budget
  const mm::weights w = pack(world.context, n, 32, 1, false, true);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, m, 32, MARLIN_F16), c(world.context, m, n / 2, MARLIN_F16);
  auto d = gemm_desc(w, a, c);
  d.epilogue = MARLIN_EPILOGUE_SWIGLU;
  const auto commands = recorded(world, stream, {d});
  const std::string product = "regdecode_u4_f16_m32_n128_threadgroup";
  ASSERT_EQ(outline(commands), (Lines{product, "barrier", "finish", "barrier", product, "barrier", "finish", "barrier", product,
                                      "barrier", "finish"}));
  EXPECT_EQ(commands[2].constants.at(MARLIN_CONSTANT_INTERLEAVED), 1u);
  EXPECT_EQ(commands[2].constants.at(MARLIN_CONSTANT_EPILOGUE), uint32_t{MARLIN_EPILOGUE_SWIGLU});
  EXPECT_EQ(commands[2].groups, (dv::Size3{128, 256, 1}));
  EXPECT_EQ(commands[4].arguments.at(MARLIN_BUFFER_A).offset, 256u * 32 * 2);
  EXPECT_EQ(commands[6].arguments.at(MARLIN_BUFFER_C).offset, 256u * (n / 2) * 2);
  EXPECT_EQ(value_of<ProductArgs>(commands[8], MARLIN_BUFFER_ARGS).m, 600 - 512);
}

TEST(Sequence, CallsOfAStreamAreOrderedByBarriers) {
  World world;
  const mm::weights w = pack(world.context, 8192, 64, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 1, 64, MARLIN_F16), c(world.context, 1, 8192, MARLIN_F16);
  const auto d = gemm_desc(w, a, c);
  world.record.take();
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_OK(marlin_stream_flush, stream.get());
  EXPECT_OK(marlin_gemm, stream.get(), &d);
  EXPECT_OK(marlin_stream_wait, stream.get(), uint64_t{1000});
  EXPECT_OK(marlin_gemm, stream.get(), &d);  // nothing runs any more
  const std::string name = "gemv_u4_f16_m1";
  EXPECT_EQ(outline(world.record.take()), (Lines{name, "barrier", name, "commit", "barrier", name, "commit", "wait", name}));
}

TEST(Sequence, OnAHostsEncoderWorkIsFencedOnBothSides) {
  World world;
  const mm::weights w = pack(world.context, 8192, 64, 1);
  const Matrix a(world.context, 1, 64, MARLIN_F16), c(world.context, 1, 8192, MARLIN_F16);
  const auto d = gemm_desc(w, a, c);
  const std::string name = "gemv_u4_f16_m1";
  {
    const mm::stream encoder = stream_of(world, MARLIN_NATIVE_METAL_ENCODER);
    EXPECT_EQ(outline(recorded(world, encoder, {d})), (Lines{"barrier", name, "barrier"}));
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "the host commits", marlin_stream_wait, encoder.get(), uint64_t{0});
    EXPECT_OK(marlin_gemm, encoder.get(), &d);  // that did not stick
  }
  const mm::stream buffer = stream_of(world, MARLIN_NATIVE_METAL_COMMAND_BUFFER);
  EXPECT_EQ(outline(recorded(world, buffer, {d})), (Lines{"barrier", name}));
}

TEST(Unpack, IsOneDispatch) {
  World world;
  const mm::weights w = pack(world.context, 100, 96, 1, true);
  const mm::stream stream = stream_of(world);
  const Matrix out(world.context, 7, 96, MARLIN_F16, 100), ids(world.context, 7, 1, MARLIN_I32, 3);
  world.record.take();
  EXPECT_OK(marlin_weights_unpack, stream.get(), w.get(), nullptr, int64_t{90}, &out.view);
  EXPECT_OK(marlin_weights_unpack, stream.get(), w.get(), &ids.view, int64_t{0}, &out.view);
  const auto commands = world.record.take();
  ASSERT_EQ(outline(commands), (Lines{"unpack_u4", "barrier", "unpack_u4"}));
  const auto args = value_of<UnpackArgs>(commands[0], MARLIN_BUFFER_UNPACK_ARGS);
  EXPECT_EQ(args.n, 100);
  EXPECT_EQ(args.k, 96);
  EXPECT_EQ(args.count, 7);
  EXPECT_EQ(args.first_row, 90);
  EXPECT_EQ(args.ld, 100);
  EXPECT_EQ(commands[0].groups, (dv::Size3{1, 7, 1}));
  EXPECT_EQ(commands[0].constants.at(MARLIN_CONSTANT_ROW_LIST), 0u);
  EXPECT_EQ(commands[2].constants.at(MARLIN_CONSTANT_ROW_LIST), 1u);
  EXPECT_EQ(value_of<UnpackArgs>(commands[2], MARLIN_BUFFER_UNPACK_ARGS).id_stride, 3);
  EXPECT_FALSE(commands[2].arguments.contains(MARLIN_BUFFER_ROWS));  // float16 scales have no records of rows
  expect_bound(commands[2], MARLIN_BUFFER_SLOT_TO_K, buffer_of(w), layout_of(w).slot_to_k_at);
  EXPECT_TRUE(commands[2].arguments.contains(MARLIN_BUFFER_ROW_LIST));
}

/// A row is packed as 32, for each expert.
TEST(Packing, ManyThinExpertsAreRefused) {
  const World world;
  const auto values = abi_test::numbers(32, 1);
  const auto part = abi_test::pack_desc(values, 1, 32);
  const auto status_of = [&](uint32_t experts) {
    const std::vector<const marlin_pack_desc*> parts(experts, &part);
    mm::weights packed;
    return abi_test::call(marlin_weights_pack, world.context.get(), parts.data(), experts, experts, packed.out());
  };
  EXPECT_EQ(status_of(1000).status, MARLIN_OK);
  const auto refused = status_of(70'000);
  EXPECT_EQ(refused.status, MARLIN_E_UNSUPPORTED);
  EXPECT_TRUE(abi_test::contains(refused.message, "expected up to 64 MiB and four times")) << refused.message;
}

}  // namespace
