// That products of one call are independent: the same answer as comparing each operand with each, in less time.
#include "core/independent.h"
#include "test.h"

#include <time.h>

#include "core/shapes.h"
#include "unit/counting_new.h"
#include "unit/planned.h"

namespace metal_marlin {
namespace {

/// The rule, word by word.
std::string first_conflict(const std::vector<GemmProblem>& problems) {
  for (size_t i = 0; i < problems.size(); ++i)
    for (size_t j = 0; j < problems.size(); ++j) {
      if (i == j) continue;
      const char* name = j > i && overlap(problems[i].c, problems[j].c) ? "c" : nullptr;
      for (const Input& input : inputs_of(problems[j]))
        if (name == nullptr && overlap(problems[i].c, input.matrix)) name = input.name;
      if (name != nullptr)
        return "c of product " + std::to_string(i) + " overlaps " + name + " of product " + std::to_string(j) +
               "; products must be independent";
    }
  return "";
}

std::string found(const std::vector<GemmProblem>& problems) {
  Independence independence;
  const Status status = independence.check(without_plans(problems));
  return status.ok() ? "" : status.message();
}

/// Sets of products whose operands lie in a small memory, or side by side in the rows of one buffer.
class RandomProducts {
 public:
  explicit RandomProducts(unsigned seed) : random_(seed) {}

  std::vector<GemmProblem> some() {
    stride_ = pick(0, 1) == 0 ? pick(4, 24) : pick(100, 1000);
    words_ = pick(1, 20) * 1000;
    mixed_ = pick(0, 3) == 0 ? 15 : 1;
    std::vector<GemmProblem> problems;
    for (int64_t left = pick(2, 30); left > 0;) {
      GemmProblem p;
      p.c = matrix();
      p.a = pick(0, 3) == 0 && !problems.empty() ? problems[0].a : matrix();
      if (pick(0, 2) == 0) p.bias = matrix();
      if (pick(0, 4) == 0) p.routing.scales = matrix();
      if (pick(0, 4) == 0) p.routing.ids = with_type(matrix(), MARLIN_I32);
      bool apart = true;
      for (const Input& input : inputs_of(p)) apart = apart && !overlap(p.c, input.matrix);
      if (!apart) continue;  // check_gemm() refuses it
      problems.push_back(p);
      --left;
    }
    return problems;
  }

 private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  static MatrixView with_type(MatrixView m, marlin_dtype dtype) {
    m.dtype = dtype;
    return m;
  }
  MatrixView matrix() {
    MatrixView m;
    m.dtype = MARLIN_F32;
    m.stride = pick(0, 29) < mixed_ ? pick(1, 24) : stride_;
    m.rows = pick(0, 2) == 0 ? 1 : pick(0, 5);
    m.cols = pick(0, 9) == 0 ? pick(0, m.stride) : pick(1, 2);
    m.cols = std::min(m.cols, m.stride);
    m.data = memory_ + 4 * (pick(0, 1) == 0 ? pick(0, stride_) : pick(0, words_));
    return m;
  }

  std::mt19937 random_;
  int64_t stride_ = 0, words_ = 0, mixed_ = 1;
  alignas(4) unsigned char memory_[90000] = {};
};

TEST(Independence, FindsTheFirstConflictOfTheRule) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomProducts random(seed);
  int conflicts = 0, apart = 0, many_apart = 0;
  for (int round = 0; round < 10000; ++round) {
    const std::vector<GemmProblem> problems = random.some();
    const std::string expected = first_conflict(problems);
    ASSERT_EQ(found(problems), expected) << "round " << round << ", " << problems.size() << " products";
    (expected.empty() ? apart : conflicts) += 1;
    many_apart += expected.empty() && problems.size() > 8;
  }
  EXPECT_GT(conflicts, 1000);
  EXPECT_GT(apart, 500);
  EXPECT_GT(many_apart, 100);
}

/// Of this thread, so that other programs do not count.
double seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Comparing each of all of them with each takes minutes.
class ManyProducts : public testing::Test {
 protected:
  static constexpr int64_t kMany = 100000, kRows = 3;

  ManyProducts() : problems(kMany), memory(static_cast<size_t>(2 * kRows * kMany + kMany)) {
    for (GemmProblem& p : problems) p.a = {memory.data() + 2 * kRows * kMany, kRows, 4, 4, MARLIN_F32};
  }
  std::string timed() {
    const double begin = seconds_of_this_thread();
    const std::string what = found(problems);
    EXPECT_LT(seconds_of_this_thread() - begin, 10);
    return what;
  }
  std::vector<GemmProblem> problems;
  std::vector<float> memory;
};

TEST_F(ManyProducts, OneAfterTheOtherTakeLittleTime) {
  for (int64_t i = 0; i < kMany; ++i)
    problems[static_cast<size_t>(i)].c = {memory.data() + 2 * kRows * i, kRows, 2, 2, MARLIN_F32};
  EXPECT_EQ(timed(), "");
  problems[kMany - 2].c.stride = 3;
  EXPECT_EQ(timed(), "c of product 99998 overlaps c of product 99999; products must be independent");
}

TEST_F(ManyProducts, SideBySideTakeLittleTime) {
  const auto lay = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      problems[static_cast<size_t>(i)].c = {memory.data() + 2 * i, kRows, 2, 2 * count, MARLIN_F32};
  };
  lay(kMany);
  EXPECT_EQ(timed(), "");
  problems.resize(1000);  // a conflict is looked for pair by pair
  lay(1000);
  problems[998].c.cols = 3;
  EXPECT_EQ(timed(), "c of product 998 overlaps c of product 999; products must be independent");
}

TEST_F(ManyProducts, NeedNoMemoryThatWasNotReserved) {
  for (int64_t i = 0; i < kMany; ++i)
    problems[static_cast<size_t>(i)].c = {memory.data() + 2 * kRows * i, kRows, 2, 2, MARLIN_F32};
  Independence independence;
  independence.reserve(kMany);
  const std::vector<PlannedGemm> products = without_plans(problems);
  const int64_t before = counting_new::calls;
  EXPECT_TRUE(independence.check(products).ok());
  EXPECT_EQ(counting_new::calls, before);
}

}  // namespace
}  // namespace metal_marlin
