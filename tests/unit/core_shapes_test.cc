#include "core/shapes.h"
#include "test.h"

#include "core/independent.h"
#include "core/plan.h"
#include "fails.h"
#include "unit/planned.h"

namespace metal_marlin {
namespace {

class FakeWeights final : public PackedWeights {
 public:
  FakeWeights(int64_t n, int64_t k) {
    meta_.n = n;
    meta_.k = k;
  }
  uint64_t bytes() const override { return 0; }
  PlanKey plan_key() const override { return {}; }
};

/// A sound problem of M = 3, N = 6, K = 5 to break in one place.
class Shapes : public testing::Test {
 protected:
  Shapes() {
    problem_.weights = &weights_;
    problem_.a = {a_, 3, 5, 5, MARLIN_F32};
    problem_.c = {c_, 3, 6, 8, MARLIN_F16};
    problem_.bias = {bias_, 1, 6, 6, MARLIN_BF16};
  }
  void expect(marlin_status code, const char* text) const { EXPECT_THAT(check_gemm(problem_), Fails(code, HasSubstr(text))); }
  FakeWeights weights_{6, 5};
  float a_[15];
  uint16_t c_[24], bias_[6];
  GemmProblem problem_;
};

TEST_F(Shapes, SoundProblemPasses) {
  EXPECT_TRUE(check_gemm(problem_).ok());
  problem_.bias = {};
  EXPECT_TRUE(check_gemm(problem_).ok());
}

TEST_F(Shapes, NamesWhatDoesNotFit) {
  problem_.a.cols = 4;
  expect(MARLIN_E_SHAPE, "a.cols is 4, expected k of the weights = 5");
  problem_.a = {a_, 2, 5, 5, MARLIN_F32};
  expect(MARLIN_E_SHAPE, "c.rows is 3, expected a.rows = 2");
  problem_.a.rows = 3;
  problem_.c.cols = 7;
  expect(MARLIN_E_SHAPE, "c.cols is 7, expected n of the weights = 6");
  problem_.c.cols = 6;
  problem_.bias.cols = 3;
  expect(MARLIN_E_SHAPE, "bias.cols is 3");
  problem_.bias = {bias_, 2, 6, 6, MARLIN_BF16};
  expect(MARLIN_E_SHAPE, "bias.rows is 2, expected 1");
}

TEST_F(Shapes, TwoInputEpiloguesHalveC) {
  problem_.epilogue = MARLIN_EPILOGUE_SWIGLU;
  expect(MARLIN_E_SHAPE, "c.cols is 6, expected n / 2 of the weights = 3");
  problem_.c.cols = 3;
  EXPECT_TRUE(check_gemm(problem_).ok());
  const FakeWeights odd(5, 5);
  problem_.weights = &odd;
  expect(MARLIN_E_SHAPE, "n of the weights is 5, expected even");
}

TEST_F(Shapes, RejectsUnknownChoices) {
  problem_.compute = 4;
  expect(MARLIN_E_ARGUMENT, "compute is 4");
  problem_.compute = -1;
  expect(MARLIN_E_ARGUMENT, "compute is -1");
  problem_.compute = MARLIN_COMPUTE_DEFAULT;
  problem_.activation_group = 64;
  expect(MARLIN_E_ARGUMENT, "activation_group is 64 and compute is 0");
  problem_.compute = MARLIN_COMPUTE_INT8;
  for (const int64_t group : {-1, 1, 4}) {
    problem_.activation_group = group;
    expect(MARLIN_E_ARGUMENT, "expected 0, 32, 64, 128, or K (5) and more");
  }
  for (const int64_t group : {32, 64, 128, 5, 6}) {
    problem_.activation_group = group;
    EXPECT_TRUE(check_gemm(problem_).ok()) << group;
  }
  problem_.epilogue = 8;
  expect(MARLIN_E_ARGUMENT, "epilogue is 8");
  problem_.epilogue = MARLIN_EPILOGUE_NONE;
  problem_.a.dtype = MARLIN_I8;
  expect(MARLIN_E_ARGUMENT, "a.dtype is 4");
  problem_.a.dtype = 0;
  expect(MARLIN_E_ARGUMENT, "a.dtype is 0");
  problem_.a.dtype = MARLIN_F32;
  problem_.weights = nullptr;
  expect(MARLIN_E_ARGUMENT, "weights is NULL");
}

TEST_F(Shapes, RejectsOverlapOfOneProblem) {
  problem_.a.data = c_;
  problem_.a.dtype = MARLIN_F16;
  expect(MARLIN_E_ARGUMENT, "c overlaps a");
  problem_.a = {a_, 3, 5, 5, MARLIN_F32};
  problem_.bias.data = c_ + 16;
  expect(MARLIN_E_ARGUMENT, "c overlaps bias");
  problem_.bias.data = c_ + 22;  // inside c's last row of stride 8, but past its 6 columns: not an element of c
  problem_.bias.cols = 2;
  EXPECT_FALSE(overlap(problem_.c, problem_.bias));
}

TEST_F(Shapes, SlicesOfOneBufferAreIndependent) {
  uint16_t qkv[3 * 18];
  std::vector<GemmProblem> problems(3, problem_);
  for (int i = 0; i < 3; ++i) problems[i].c = {qkv + 6 * i, 3, 6, 18, MARLIN_F16};
  EXPECT_TRUE(Independence().check(without_plans(problems)).ok());
  problems[2].c.data = qkv + 11;
  EXPECT_THAT(Independence().check(without_plans(problems)).message(), HasSubstr("c of product 1 overlaps c of product 2"));
  problems[2].c.data = qkv + 12;
  problems[0].a = {qkv + 17, 1, 1, 1, MARLIN_F16};
  EXPECT_THAT(Independence().check(without_plans(problems)).message(), HasSubstr("c of product 2 overlaps a of product 0"));
  problems[0].a = problem_.a;
  problems[0].bias.data = qkv + 6;
  EXPECT_THAT(Independence().check(without_plans(problems)).message(), HasSubstr("c of product 1 overlaps bias of product 0"));
}

TEST(Overlap, EqualsMarkingTheBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  static unsigned char memory[512];
  int found = 0;
  for (int round = 0; round < 20000; ++round) {
    MatrixView m[2];
    const int64_t stride = pick(1, 9);
    for (MatrixView& v : m) {
      v.dtype = pick(0, 1) != 0 ? MARLIN_F16 : MARLIN_F32;
      v.stride = v.dtype == MARLIN_F32 ? stride : 2 * stride;  // the same in bytes
      v.rows = pick(0, 4);
      v.cols = pick(0, v.stride);
      v.data = memory + 4 * pick(0, 40);
      if (v.rows == 1) v.stride = pick(v.cols, 20);
    }
    bool marked[512] = {}, expected = false;
    for (const MatrixView& v : m)
      for (int64_t r = 0; r < v.rows; ++r) {
        const int64_t size = static_cast<int64_t>(float_bytes(v.dtype));
        const int64_t begin = static_cast<unsigned char*>(v.data) - memory + r * v.stride * size;
        for (int64_t i = begin; i < begin + v.cols * size; ++i) {
          if (&v == &m[0])
            marked[i] = true;
          else
            expected |= marked[i];
        }
      }
    ASSERT_EQ(overlap(m[0], m[1]), expected) << "round " << round;
    ASSERT_EQ(overlap(m[1], m[0]), expected) << "round " << round;
    found += expected;
  }
  EXPECT_GT(found, 1000);
}

TEST(Overlap, UnequalStridesFallBackToRanges) {
  float memory[64];
  const MatrixView a{memory, 2, 2, 8, MARLIN_F32}, b{memory + 4, 2, 2, 6, MARLIN_F32};
  EXPECT_TRUE(overlap(a, b));
  EXPECT_FALSE(overlap(a, {memory + 10, 2, 2, 6, MARLIN_F32}));
}

TEST(ExplainedText, HasLinesOfUpTo255Bytes) {
  std::string text = "x";
  append(text, "%s", std::string(255, 'a').c_str());
  EXPECT_EQ(text, "x" + std::string(255, 'a'));
  append(text, "%s", std::string(256, 'b').c_str());
  EXPECT_EQ(text, "x" + std::string(255, 'a') + std::string(255, 'b'));
}

}  // namespace
}  // namespace metal_marlin
