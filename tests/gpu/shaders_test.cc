// The C ABI on the real Metal shaders, run on the CPU with every access checked: the probe of kernels, what it does about one
// that miscomputes, streams, and unpacking.
#include "campaigns.h"
#include "gpu.h"
#include "kernels/formats_under_test.h"
#include "test.h"

namespace {

using namespace device_test;

/// One product of each kind of codes by each kernel, after the probe has passed it. In the short form a kind that shares its
/// kernels with others has one of the three products.
class Kinds : public testing::TestWithParam<int> {};
TEST_P(Kinds, PassTheProbe) {
  Gpu gpu;
  const trial::Kind& kind = trial::kKinds[GetParam()];
  const bool all = whole_campaigns() || trial::stands_for_its_kernel(kind);
  const int one = GetParam() % 3;
  if (all || one == 0) EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_DEFAULT, 1, 70, 200)));
  if (all || one == 1) EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_DEFAULT, 40, 70, 200)));
  if (all || one == 2) EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_INT8, 12, 70, 200)));
  for (const std::string& line : gpu.log.lines) ADD_FAILURE() << line;
}
INSTANTIATE_TEST_SUITE_P(Codes, Kinds, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

/// The same of K-quants, which are held in the bits that their files have.
class KQuants : public testing::TestWithParam<marlin_format> {};
TEST_P(KQuants, PassTheProbe) {
  Gpu gpu;
  const marlin_format format = GetParam();
  EXPECT_TRUE(trial::holds(trial::k_quant_case(format, MARLIN_COMPUTE_DEFAULT, 1, 70, 512)));
  EXPECT_TRUE(trial::holds(trial::k_quant_case(format, MARLIN_COMPUTE_DEFAULT, 40, 70, 256)));
  trial::Trial t(trial::k_quant_case(format, MARLIN_COMPUTE_INT8, 12, 70, 512));
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_TRUE(t.check_unpack());
  for (const std::string& line : gpu.log.lines) ADD_FAILURE() << line;
}
INSTANTIATE_TEST_SUITE_P(Bits, KQuants,
                         testing::Values(MARLIN_FORMAT_INT2, MARLIN_FORMAT_INT3, MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT5,
                                         MARLIN_FORMAT_INT6),
                         [](const auto& info) { return "q" + std::to_string(oracle::code_bits(info.param)) + "_k"; });

/// Mistakes in what K-quants and codebooks add to the decoders.
TEST(APlantedMistake, InADecoderIsFoundByTheProbe) {
  const trial::Kind* nf4 = trial::kKinds;
  while (nf4->format != MARLIN_FORMAT_NF4) ++nf4;
  const auto k_quant = [](marlin_format format) { return trial::k_quant_case(format, MARLIN_COMPUTE_DEFAULT, 1, 70, 256); };
  const trial::Case codebook = trial::case_of(*nf4, MARLIN_COMPUTE_DEFAULT, 1, 70, 200);
  const struct {
    TestbedOptions::Change change;
    trial::Case of;
    std::string kernel;
  } mistakes[] = {{{"decode.h", "plane << 4 & mask", "plane << 3 & mask"}, k_quant(MARLIN_FORMAT_INT6), "gemv_planes_bf16_m1"},
                  {{"scales.h", "factors[i / 2]", "factors[i % 2]"}, k_quant(MARLIN_FORMAT_INT4), "gemv_u4_bf16_m1"},
                  {{"scales.h", "zero_pair), zero_factors, -1.0f", "zero_pair), zero_factors, 1.0f"},
                   k_quant(MARLIN_FORMAT_INT4),
                   "gemv_u4_bf16_m1"},
                  {{"decode.h", "16 + 4 * t", "12 + 4 * t"}, codebook, "gemv_lut4_bf16_m1"},
                  {{"scales.h", "[lane % 16]", "[lane % 8]"}, codebook, "gemv_lut4_bf16_m1"}};
  for (const auto& mistake : mistakes) {
    SCOPED_TRACE(mistake.change.to);
    const Gpu gpu(std::make_shared<TestbedDevice>(TestbedOptions{.changes = {mistake.change}}), {}, {.kernel = mistake.kernel});
    trial::Trial t(mistake.of);
    ASSERT_TRUE(t.pack());
    ASSERT_TRUE(t.run());
    EXPECT_FALSE(t.check());
    ASSERT_EQ(gpu.log.lines.size(), 1u);
    EXPECT_NE(gpu.log.lines[0].find("kernel " + mistake.kernel + " is not used on this device: C["), std::string::npos)
        << gpu.log.lines[0];
  }
}

/// Floats are packed as they are: every value comes back, subnormals too, and the probe passes their kernels.
TEST(FloatsAsTheyAre, PassTheProbe) {
  const Gpu gpu;
  constexpr int64_t kN = 70, kK = 200;
  for (const auto& [dtype, format] : {std::pair{MARLIN_F32, MARLIN_FORMAT_FLOAT32},
                                      {MARLIN_F16, MARLIN_FORMAT_FLOAT16},
                                      {MARLIN_BF16, MARLIN_FORMAT_BFLOAT16}}) {
    SCOPED_TRACE(format);
    std::vector<float> numbers = abi_test::numbers(kN * kK, 5);
    numbers[3] = 0x1p-130f, numbers[7] = -0.0f;
    std::vector<uint8_t> bytes(static_cast<size_t>(kN * kK * oracle::bytes_of(dtype)));
    for (int64_t i = 0; i < kN * kK; ++i) {
      float& number = numbers[static_cast<size_t>(i)];
      oracle::write(dtype, bytes.data(), i, static_cast<double>(number));
      number = static_cast<float>(oracle::read(dtype, bytes.data(), i));
    }
    auto d = mm::make<marlin_pack_desc>();
    d.format = format;
    d.n = kN;
    d.k = kK;
    d.values = {bytes.data(), 0, kN, kK, 0, dtype, MARLIN_MEM_HOST};
    const mm::weights w = mm::pack(gpu.context, d);
    std::vector<float> back(numbers.size());
    const marlin_matrix out = mm::matrix_view(back.data(), kN, kK);
    ASSERT_EQ(marlin_weights_unpack(nullptr, w.get(), nullptr, 0, &out, nullptr), MARLIN_OK);
    EXPECT_EQ(std::memcmp(back.data(), numbers.data(), numbers.size() * sizeof(float)), 0);
    for (const int64_t m : {1, 20}) {
      const abi_test::Product product(w, m);
      ASSERT_EQ(marlin_gemm(nullptr, &product.desc, nullptr), MARLIN_OK);
      EXPECT_TRUE(product.right()) << m;
    }
  }
  for (const std::string& line : gpu.log.lines) ADD_FAILURE() << line;
}

trial::Case small_product(int64_t m) { return trial::case_of(trial::kKinds[0], MARLIN_COMPUTE_DEFAULT, m, 70, 200); }

/// A kernel that computes wrongly on this device: found before it serves, named in the log and by explain, replaced.
TEST(APlantedMistake, IsFoundByTheProbeAndTheNextKernelServes) {
  Gpu gpu({.changes = {{"gemv.metal", "sum += shared[s][m][lane]", "sum += float(half(shared[s][m][lane]))"}}});
  trial::Trial t(small_product(1));
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_EQ(t.explained("kernel").find("regdecode_u4_bf16_m8"), 0u) << t.explain();
  EXPECT_NE(t.explained("unusable_here").find("gemv_u4_bf16_m1"), std::string::npos) << t.explain();
  EXPECT_EQ(t.explained("probe"), "agrees with the CPU on this device");
  ASSERT_FALSE(gpu.log.lines.empty());
  EXPECT_NE(gpu.log.lines[0].find("gemv_u4_bf16_m1 is not used on this device"), std::string::npos) << gpu.log.lines[0];
}

TEST(APlantedMistake, InMatrixKernelsLeavesTheOthers) {
  Gpu gpu({.changes = {{"regdecode.metal", "w[t][i].thread_elements()[0] = value[t].x",
                        "w[t][i].thread_elements()[0] = value[t].y"}},
           .tensor = false});
  trial::Trial t(small_product(20));
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_EQ(t.explained("kernel"), "gemv_u4_bf16_m6");
}

TEST(APlantedMistake, OfSyntaxIsLoggedInTheCompilersWordsAndTheNextKernelServes) {
  Gpu gpu({.changes = {{"gemv.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);", "threadgroup_barrier(;"}}});
  trial::Trial t(small_product(1));
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_EQ(t.explained("kernel").find("regdecode_u4_bf16_m8"), 0u) << t.explain();
  ASSERT_FALSE(gpu.log.lines.empty());
  EXPECT_NE(gpu.log.lines[0].find("/metal/gemv.metal:"), std::string::npos) << gpu.log.lines[0];
}

class TensorOperations : public testing::Test {
 protected:
  /// Two products of m rows on this device: which kernel served them, rightly.
  static std::string served_by(const Gpu&, int64_t m = 40) {
    for (int i = 0; i < 2; ++i) {
      trial::Trial t(small_product(m + i));
      EXPECT_TRUE(t.pack() && t.run() && t.check());
      if (i == 1) return t.explained("kernel");
    }
    return {};
  }
  static constexpr const char* kTensor = "regdecode_u4_bf16_m64_n64_tensor";
  static constexpr const char* kThreadgroupTile = "regdecode_u4_bf16_m32_n128_threadgroup";
};

TEST_F(TensorOperations, ServeWhereTheDeviceHasThem) {
  const Gpu gpu;
  EXPECT_EQ(served_by(gpu), kTensor);
  EXPECT_TRUE(gpu.log.lines.empty()) << gpu.log.lines[0];
}

/// Operands in registers, whose places are in no contract: elsewhere, the kernels behind those serve.
TEST_F(TensorOperations, OnRegistersServeWhereFragmentsAreAsPublished) {
  for (const auto& [m, kernel, behind] : {std::tuple{12, "regdecode_u4_bf16_m16_n32_nax", "regdecode_u4_bf16_m16_n32_direct"},
                                          {20, "regdecode_u4_bf16_m32_n32_nax", kThreadgroupTile}}) {
    const Gpu published;
    EXPECT_EQ(served_by(published, m), kernel);
    EXPECT_TRUE(published.log.lines.empty()) << published.log.lines[0];
    for (const uint64_t seed : {0, 1, 2}) {  // more elements a lane, and as many
      const Gpu hidden({.seed = seed, .changes = {}, .fragments = false});
      EXPECT_EQ(served_by(hidden, m), behind) << seed;
      ASSERT_EQ(hidden.log.lines.size(), 1u);
      EXPECT_NE(hidden.log.lines[0].find(std::string("kernel ") + kernel + " is not used on this device: "), std::string::npos)
          << hidden.log.lines[0];
    }
  }
}

TEST_F(TensorOperations, AreNotTriedWhereItDoesNot) {
  const Gpu gpu({.changes = {{"regdecode_tensor.metal", "kernel void", "no such kernel"}}, .tensor = false});
  EXPECT_EQ(served_by(gpu), kThreadgroupTile);
  EXPECT_TRUE(gpu.log.lines.empty()) << gpu.log.lines[0];
}

/// A compiler, or a device, that makes of them what it should not: one line in the log, and the next kernel serves.
TEST_F(TensorOperations, ThatAreRefusedAreLoggedOnceAndReplaced) {
  const TestbedOptions::Change changes[] = {{"regdecode_tensor.metal", "op.run(a_slice", "op.walk(a_slice"},
                                            {"regdecode_tensor.metal", "fma(product[i] *", "fma(float(half(product[i])) *"},
                                            {"regdecode_tensor.metal", "stage.scale[step][at[0]]", "stage.scale[step][at[1]]"}};
  for (const auto& change : changes) {
    SCOPED_TRACE(change.to);
    const Gpu gpu({.changes = {change}});
    EXPECT_EQ(served_by(gpu), kThreadgroupTile);
    ASSERT_EQ(gpu.log.lines.size(), 1u);
    EXPECT_NE(gpu.log.lines[0].find(std::string("kernel ") + kTensor + " is not used on this device: "), std::string::npos)
        << gpu.log.lines[0];
  }
}

/// A device that fails amid a probe says nothing of the kernel: the caller gets the error, and the next call probes anew.
class ProbeFaults : public testing::TestWithParam<Fault> {};

TEST_P(ProbeFaults, ReachTheCallerAndLeaveTheKernelUnknown) {
  const Fault fault = GetParam();
  const char* const expected = fault == Fault::memory    ? "MARLIN_E_MEMORY"
                               : fault == Fault::timeout ? "MARLIN_E_TIMEOUT"
                                                         : "MARLIN_E_DEVICE";
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}});
  FaultPlan faults;
  std::set<std::string> struck;
  for (int n = 1; n == 1 || faults.calls >= n - 1; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    ASSERT_LT(n, 100) << "never ends";
    faults.disarm();
    const Gpu gpu(std::make_shared<testing::NiceMock<MockDevice>>(device, faults), {.probe = true});
    trial::Trial t(small_product(1));
    ASSERT_TRUE(t.pack());
    faults.arm(fault, n);
    const testing::AssertionResult ran = t.run();
    // Memory is asked for again when kept scratch was freed.
    const bool again = fault == Fault::memory && faults.where == "allocate" && ran;
    EXPECT_EQ(static_cast<bool>(ran), !faults.struck || again) << ran.message();
    const FaultPlan done = std::exchange(faults, {});
    if (done.struck) {
      struck.insert(done.where);
      if (!again)
        EXPECT_NE(std::string(ran.message()).find(expected), std::string::npos) << done.where << ": " << ran.message();
    }
    if (!done.lost) {
      EXPECT_TRUE(t.run()) << "after a failure in " << done.where;
      EXPECT_TRUE(t.check());
      EXPECT_EQ(t.explained("kernel"), "gemv_u4_bf16_m1");
      EXPECT_EQ(t.explained("probe"), "agrees with the CPU on this device");
    }
    EXPECT_TRUE(gpu.log.lines.empty()) << gpu.log.lines[0];
    faults = done;
  }
  for (const char* call : {"allocate", "kernel", "stream", "dispatch", "commit", "wait"}) {
    const bool happens = fault == Fault::timeout ? std::string(call) == "wait" : true;
    const bool of_stream = std::string(call) != "allocate" && std::string(call) != "kernel" && std::string(call) != "stream";
    EXPECT_EQ(struck.contains(call), happens && (of_stream || fault != Fault::late)) << call;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProbeFaults,
                         testing::Values(Fault::error, Fault::memory, Fault::lost, Fault::late, Fault::timeout),
                         [](const auto& info) { return std::string(kFaultNames[static_cast<int>(info.param)]); });

/// A row with exponents at both ends cannot be shifted into the kernels' range: the matrix gets float32 scales.
TEST(Exponents, ThatFitNoByteBecomeFloats) {
  const Gpu gpu({}, false);
  trial::Trial t(trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 2, 40, 96));
  ASSERT_EQ(t.spec.scale_type, trial::ScaleType::e8m0);
  t.source.all().scales[5 * 3] = 0;
  t.source.all().scales[5 * 3 + 2] = 245;
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_TRUE(t.check_unpack());
}

/// Without a stream and on one, the same bits; a second call on the stream sees what the first wrote.
TEST(Streams, GiveTheBitsOfCallsWithoutOne) {
  Gpu gpu({.seed = 7, .changes = {}}, false);
  trial::Case c = trial::case_of(trial::kKinds[0], MARLIN_COMPUTE_INT8, 3, 96, 96);
  c.order = trial::Order::shuffled;
  c.group = 32;
  c.c_type = MARLIN_BF16;
  c.epilogue = MARLIN_EPILOGUE_SWIGLU;
  trial::Trial t(c);
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  const auto expected = t.c.raw();

  mm::buffer a(gpu.context, 3 * 96 * 2), out(gpu.context, 3 * 48 * 2);
  std::memcpy(marlin_buffer_host(a.get()), t.a.raw().data(), 3 * 96 * 2);
  const mm::stream stream(gpu.context);
  marlin_gemm_desc d = t.gemm_desc();
  d.a = {a.get(), 0, 3, 96, 0, MARLIN_BF16, MARLIN_MEM_BUFFER};
  d.c = {out.get(), 0, 3, 48, 0, MARLIN_BF16, MARLIN_MEM_BUFFER};
  const marlin_gemm_desc* const descs[] = {&d};
  EXPECT_OK(marlin_gemm_many, stream.get(), descs, 1u);
  EXPECT_OK(marlin_gemm_many, stream.get(), descs, 1u);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  EXPECT_EQ(std::memcmp(marlin_buffer_host(out.get()), expected.data(), expected.size()), 0);
}

/// Where memory is not unified, kernels never see what the host sees, and copies come in time: seeds change the order of all
/// that no barrier separates.
TEST(Staging, OfADeviceWithMemoryOfItsOwnGivesTheSameResults) {
  trial::Case c = trial::case_of(trial::kKinds[0], MARLIN_COMPUTE_DEFAULT, 3, 70, 200);
  c.bias_type = MARLIN_F32;
  c.accumulate = c.together = true;
  c.strides = trial::Strides::odd;
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.changes = {}, .unified = false});
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    device->set_seed(seed);
    const Gpu gpu(device, {.probe = false});
    EXPECT_TRUE(trial::holds(c)) << "seed " << seed;
  }
}

/// On a stream nobody reads listed ids before the device does: a row of a bad one is NaN, the others are what they should be.
TEST(Unpack, RowsOfBadIdsAreNaN) {
  Gpu gpu({}, false);
  const mm::weights w = abi_test::quantized(gpu.context, 40, 64);
  const mm::stream stream(gpu.context);
  mm::buffer ids(gpu.context, 4 * 4), out(gpu.context, 4 * 64 * 4);
  const int32_t list[] = {39, 40, -1, 0};
  std::memcpy(marlin_buffer_host(ids.get()), list, sizeof list);
  const marlin_matrix rows = {ids.get(), 0, 4, 1, 0, MARLIN_I32, MARLIN_MEM_BUFFER};
  const marlin_matrix to = {out.get(), 0, 4, 64, 0, MARLIN_F32, MARLIN_MEM_BUFFER};
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "row id 40", marlin_weights_unpack, nullptr, w.get(), &rows, int64_t{0}, &to);
  EXPECT_OK(marlin_weights_unpack, stream.get(), w.get(), &rows, int64_t{0}, &to);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  std::vector<float> all(40 * 64);
  const marlin_matrix host = mm::matrix_view(all.data(), 40, 64);
  EXPECT_OK(marlin_weights_unpack, nullptr, w.get(), nullptr, int64_t{0}, &host);
  const auto* got = static_cast<const float*>(marlin_buffer_host(out.get()));
  for (int k = 0; k < 64; ++k) {
    EXPECT_EQ(got[k], all[39 * 64 + k]);
    EXPECT_TRUE(std::isnan(got[64 + k]) && std::isnan(got[128 + k])) << k;
    EXPECT_EQ(got[192 + k], all[k]);
  }
}

}  // namespace
