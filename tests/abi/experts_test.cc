// Mixtures of experts through the C ABI: what may be given, what is refused and where, and that hosts' threads serve. The
// numbers are those of tests/kernels/experts_test.cc.
#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

constexpr int64_t kTokens = 3, kTopK = 2, kExperts = 4, kN = 10, kK = 64;

mm::weights stack(const mm::context& context) {
  const auto values = numbers(kExperts * kN * kK, 1);
  std::vector<marlin_pack_desc> parts;
  for (int64_t e = 0; e < kExperts; ++e) {
    parts.push_back(pack_desc(values, kN, kK));
    parts.back().values = mm::matrix_view(values.data() + e * kN * kK, kN, kK);
  }
  return mm::pack(context, parts, kExperts);
}

class Experts : public testing::Test {
 protected:
  Experts() {
    desc = mm::make<marlin_gemm_desc>();
    desc.weights = weights.get();
    desc.a = mm::matrix_view(a.data(), kTokens, kK);
    desc.c = mm::matrix_view(c.data(), kTokens * kTopK, kN);
    desc.expert_ids = mm::matrix_view(ids.data(), kTokens, kTopK);
  }
  /// Runs the product and compares each slot with its expert's rows as unpack gives them.
  void expect_right() {
    std::fill(c.begin(), c.end(), 77.0f);
    EXPECT_OK(marlin_gemm, nullptr, &desc);
    for (int64_t slot = 0; slot < kTokens * kTopK; ++slot) {
      std::vector<float> w(kN * kK);
      mm::unpack(weights, mm::matrix_view(w.data(), kN, kK), ids[static_cast<size_t>(slot)] * kN);
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k)
          sum += double{a[static_cast<size_t>(slot / kTopK * kK + k)]} * double{w[static_cast<size_t>(n * kK + k)]};
        EXPECT_NEAR(c[static_cast<size_t>(slot * kN + n)], sum, 1e-5) << "slot " << slot << ", column " << n;
      }
    }
  }
  void fails(marlin_status status, const char* mentioned, void (*change)(marlin_gemm_desc&)) {
    marlin_gemm_desc changed = desc;
    change(changed);
    std::fill(c.begin(), c.end(), 77.0f);
    EXPECT_FAILS(status, mentioned, marlin_gemm, nullptr, &changed);
    EXPECT_TRUE(std::all_of(c.begin(), c.end(), [](float x) { return x == 77.0f; })) << mentioned;
  }

  const mm::context context{MARLIN_BACKEND_CPU};
  const mm::weights weights = stack(context);
  std::vector<float> a = numbers(kTokens * kTopK * kK, 2), c = std::vector<float>(kTokens * kTopK * kN);
  std::vector<int32_t> ids = {2, 0, 2, 2, 3, 1};
  marlin_gemm_desc desc;
};

TEST_F(Experts, AreOfOneHandle) {
  EXPECT_EQ(mm::info(weights).experts, uint32_t{kExperts});
  EXPECT_EQ(mm::info(weights).n, kN);
  expect_right();
}

TEST_F(Experts, UnpackGoesOnFromOneToTheNext) {
  std::vector<float> all(kExperts * kN * kK), some(2 * kN * kK);
  mm::unpack(weights, mm::matrix_view(all.data(), kExperts * kN, kK));
  mm::unpack(weights, mm::matrix_view(some.data(), 2 * kN, kK), kN + 3);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + (kN + 3) * kK));
  const marlin_matrix out = mm::matrix_view(some.data(), 2 * kN, kK), rows = mm::matrix_view(ids.data(), 1, 1);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "outside [0, 40)", marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{21}, &out);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "row_ids of 4 experts", marlin_weights_unpack, nullptr, weights.get(), &rows, int64_t{0},
               &out);
}

TEST_F(Experts, OperandsMustFitEachOther) {
  fails(MARLIN_E_ARGUMENT, "expert_ids are absent, but the weights are 4 experts", [](auto& g) { g.expert_ids = {}; });
  fails(MARLIN_E_ARGUMENT, "expert_ids.data is NULL", [](auto& g) { g.expert_ids.data = nullptr; });
  fails(MARLIN_E_ARGUMENT, "a.dtype is 0, expected 1..12 (floats: F32 is 1, F16 is 2, BF16 is 3)",
        [](auto& g) { g.a.dtype = 0; });
  fails(MARLIN_E_ARGUMENT, "expert_ids.dtype is 6, expected I32", [](auto& g) { g.expert_ids.dtype = MARLIN_U32; });
  fails(MARLIN_E_SHAPE, "expert_ids is [3, 0]", [](auto& g) { g.expert_ids.cols = 0; });
  fails(MARLIN_E_SHAPE, "expert_ids is [2147483648, 1]", [](auto& g) { g.expert_ids.rows = 1ll << 31, g.expert_ids.cols = 1; });
  fails(MARLIN_E_SHAPE, "expert_ids.row_stride is 1", [](auto& g) { g.expert_ids.row_stride = 1; });
  fails(MARLIN_E_ARGUMENT, "multiple", [](auto& g) { g.expert_ids.offset_bytes = 2; });
  fails(MARLIN_E_SHAPE, "a.rows is 4, expected a row a token = 3 or one for each of its experts = 6",
        [](auto& g) { g.a.rows = 4; });
  fails(MARLIN_E_SHAPE, "c.rows is 3, expected rows times cols of expert_ids = 6", [](auto& g) { g.c.rows = 3; });
  fails(MARLIN_E_SHAPE, "bias.rows is 2, expected 1 or one for each expert", [](auto& g) {
    g.bias = g.a;
    g.bias.rows = 2;
    g.bias.cols = kN;
  });
  desc.expert_scales = desc.a;
  desc.expert_scales.cols = kTopK;
  desc.c.rows = kTokens;
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  fails(MARLIN_E_SHAPE, "c.rows is 6, expected expert_ids.rows", [](auto& g) { g.c.rows = 6; });
  fails(MARLIN_E_SHAPE, "expert_scales.cols is 1", [](auto& g) { g.expert_scales.cols = 1; });
  fails(MARLIN_E_SHAPE, "expert_scales.rows is 2", [](auto& g) { g.expert_scales.rows = 2; });
  fails(MARLIN_E_ARGUMENT, "expert_scales.dtype", [](auto& g) { g.expert_scales.dtype = MARLIN_I32; });
}

TEST_F(Experts, ResultsLieApartFromIdsAndScales) {
  fails(MARLIN_E_ARGUMENT, "c overlaps expert_ids", [](auto& g) {
    g.expert_ids.data = static_cast<float*>(g.c.data) + 4;
    g.expert_ids.row_stride = 7;
  });
  desc.c.rows = kTokens;
  fails(MARLIN_E_ARGUMENT, "c overlaps expert_scales", [](auto& g) {
    g.expert_scales = g.c;
    g.expert_scales.cols = kTopK;
  });
  // Of products in one submission, too.
  desc.c.rows = kTokens * kTopK;
  marlin_gemm_desc second = desc;
  std::vector<int32_t> more(kTokens * kTopK * kN, 1);
  second.c.data = more.data();
  desc.expert_ids.data = more.data() + 5;
  const marlin_gemm_desc* const both[] = {&desc, &second};
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c of product 1 overlaps expert_ids of product 0", marlin_gemm_many, nullptr, both, 2u);
}

TEST_F(Experts, NoTokensAreNoWork) {
  desc.a = mm::matrix_view(a.data(), 0, kK);
  desc.c = mm::matrix_view(c.data(), 0, kN);
  desc.expert_ids = mm::matrix_view(static_cast<int32_t*>(nullptr), 0, kTopK);
  std::fill(c.begin(), c.end(), 77.0f);
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  EXPECT_EQ(c[0], 77.0f);
}

TEST_F(Experts, OneExpertMayBeChosenFrom) {
  const mm::weights one = quantized(context, kN, kK);
  desc.weights = one.get();
  ids = {0, 1, -1, 0, 0, 0};
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  EXPECT_NE(c[0], 0.0f);
  EXPECT_TRUE(std::all_of(c.begin() + kN, c.begin() + 3 * kN, [](float x) { return x == 0; }));
}

TEST_F(Experts, TheHostsThreadsServe) {
  auto host = mm::make<marlin_context_desc>();
  host.backend = MARLIN_BACKEND_CPU;
  host.threads = 5;
  host.parallel_for = [](void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
    for (uint32_t i = tasks; i-- > 0;) task(user, i);
  };
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  const std::vector<float> expected = c;
  const mm::context serial(host);
  const mm::weights same = stack(serial);
  desc.weights = same.get();
  expect_right();
  EXPECT_EQ(c, expected);
}

TEST_F(Experts, ExplainAndPrepareReadNoIds) {
  desc.expert_ids.data = desc.a.data = desc.c.data = nullptr;
  const std::string text = mm::explain(desc);
  EXPECT_TRUE(contains(text, "experts: 4, 2 a token\n")) << text;
  EXPECT_TRUE(contains(text, "rows_an_expert: 2 when 3 tokens")) << text;
  EXPECT_TRUE(contains(text, "kernel_from_1_rows: ")) << text;
  const marlin_gemm_desc* const descs[] = {&desc};
  uint64_t few = 0, many = 0;
  EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{1}, &few);
  EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{100}, &many);
  EXPECT_LT(few, many);
  EXPECT_FAILS(MARLIN_E_SHAPE, "2147483647 tokens", marlin_prepare, nullptr, descs, 1u, int64_t{INT32_MAX}, &many);
}

TEST_F(Experts, ExplainTellsTheScratchThatPrepareReserves) {
  constexpr int64_t kLongK = 1600;  // multiplied in parts, whose sums are in the scratch of each expert
  const mm::weights one = quantized(context, kN, kLongK);
  desc.weights = one.get();
  desc.a = mm::matrix_view(static_cast<float*>(nullptr), 1, kLongK);
  desc.c = mm::matrix_view(static_cast<float*>(nullptr), kTopK, kN);
  desc.expert_ids = mm::matrix_view(ids.data(), 1, kTopK);
  const marlin_gemm_desc* const descs[] = {&desc};
  uint64_t bytes = 0;
  EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{1}, &bytes);
  const std::string text = mm::explain(desc);
  EXPECT_TRUE(contains(text, "k_parts: 2\n")) << text;
  const std::string scratch = "scratch_bytes: " + std::to_string(bytes - 63) + "\n";  // less what aligns it
  EXPECT_TRUE(contains(text, scratch.c_str())) << text;
}

TEST_F(Experts, MustBeAlike) {
  const auto values = numbers(2 * 12 * 64, 3);
  const auto fails_to_pack = [&](const char* mentioned, auto change) {
    std::vector<marlin_pack_desc> parts(2, pack_desc(values, 12, 64));
    change(parts[1]);
    const marlin_pack_desc* const pointers[] = {&parts[0], &parts[1]};
    mm::weights none;
    EXPECT_FAILS(MARLIN_E_SHAPE, mentioned, marlin_weights_pack, context.get(), pointers, 2u, 2u, none.out());
  };
  fails_to_pack("expert 1: n: expected 12 as in expert 0, found 6", [](auto& p) { p.n = p.values.rows = 6; });
  fails_to_pack("expert 1: k: expected 64", [](auto& p) { p.k = p.values.cols = 32; });
  fails_to_pack("expert 1: format", [](auto& p) { p.format = MARLIN_FORMAT_FP4; });
  fails_to_pack("expert 1: group_size", [](auto& p) { p.group_size = 16; });
}

}  // namespace
}  // namespace abi_test
