// Mixtures of experts: every slot against the oracle, and bit for bit against its expert's own product.
#include "campaigns.h"
#include "formats_under_test.h"
#include "guarded_stream.h"
#include "mixture.h"
#include "test.h"
#include "unit/under_sanitizer.h"

namespace {

using trial::Case;
using trial::kMixes;
using trial::Mix;
using trial::Mixture;
using trial::Pick;

class Experts : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = trial::without_threads(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static Case spec(marlin_compute compute, int64_t n, int64_t k) {
    return trial::case_of(trial::kKinds[GetParam()], compute, 1, n, k);
  }
  /// AddressSanitizer sees the same code for every kind of codes. In the short form each kind has a quarter of the cases
  /// there, another one than the kind before it.
  bool has_turn() {
#if defined(MARLIN_UNDER_ASAN)
    return whole_campaigns() || turn_++ % 4 == 0;
#else
    return true;
#endif
  }

 private:
  [[maybe_unused]] int turn_ = GetParam();
};

TEST_P(Experts, AreThoseOfFloat64) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    uint32_t seed = 1;
    for (const Mix& mix : kMixes) {
      if (!has_turn() && ++seed != 0) continue;
      Case c = spec(compute, seed % 3 == 0 ? 70 : 33, seed % 2 == 0 ? 150 : 33);
      c.threads = seed % 3 + 1;
      c.seed = ++seed;
      c.strides = static_cast<trial::Strides>(seed % 3);
      c.c_type = seed % 4 == 0 ? MARLIN_BF16 : MARLIN_F32;
      c.bias_type = seed % 5 == 0 ? 0 : MARLIN_F16;
      c.accumulate = seed % 4 == 2;
      Mixture m(c, mix);
      ASSERT_EQ(m.pack(c.threads), MARLIN_OK);
      ASSERT_TRUE(m.run()) << c.describe();
      EXPECT_TRUE(m.check()) << c.describe() << ", mix " << &mix - kMixes;
    }
  }
}

TEST_P(Experts, TakeEveryEpilogue) {
  for (marlin_epilogue epilogue = MARLIN_EPILOGUE_SILU; epilogue <= MARLIN_EPILOGUE_SITU; ++epilogue) {
    for (const marlin_dtype scales : {0, MARLIN_F32}) {
      Case c = spec(MARLIN_COMPUTE_DEFAULT, 74, 64);
      c.epilogue = epilogue;
      c.interleaved = epilogue == MARLIN_EPILOGUE_SWIGLU_OAI;
      c.bias_type = MARLIN_F32;
      c.seed = 3;
      Mixture m(c, {9, 4, 2, Pick::outside, false, scales});
      ASSERT_EQ(m.pack(1), MARLIN_OK);
      ASSERT_TRUE(m.run()) << c.describe();
      EXPECT_TRUE(m.check()) << c.describe();
    }
  }
}

/// A token's row is gathered, and with act-order its columns: NaN and infinity reach its own results, all of them, and no
/// other.
TEST_P(Experts, KeepNanAndInfinityInTheirRows) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
    for (const marlin_dtype a_type : {MARLIN_F32, MARLIN_BF16})
      for (const Mix& mix : {Mix{20, 40, 2, Pick::random, false, 0}, Mix{40, 3, 2, Pick::random, true, 0},
                             Mix{40, 3, 2, Pick::random, false, MARLIN_F32}}) {
        if (!has_turn()) continue;
        Case c = spec(compute, 70, 150);
        c.a_type = a_type;
        Mixture m(c, mix);
        m.put_special_values();
        ASSERT_EQ(m.pack(2), MARLIN_OK);
        ASSERT_TRUE(m.run());
        EXPECT_TRUE(m.check()) << c.describe() << ", " << mix.experts << " experts";
      }
}

TEST_P(Experts, GiveTheBitsOfTheExpertAlone) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SWIGLU}) {
      Case c = spec(compute, 130, 160);
      c.epilogue = epilogue;
      Mixture m(c, {30, 5, 3, Pick::random, false, 0});
      ASSERT_EQ(m.pack(2), MARLIN_OK);
      ASSERT_TRUE(m.run());
      EXPECT_TRUE(m.check_alone()) << c.describe();
    }
  }
}

TEST_P(Experts, ThreadsDoNotMatter) {
  for (const marlin_dtype scales : {0, MARLIN_F32}) {
    for (const int64_t tokens : {1, 20}) {
      if (!has_turn()) continue;
      Mixture m(spec(MARLIN_COMPUTE_INT8, 200, 150), {tokens, 9, 4, Pick::outside, scales != 0, scales});
      std::vector<uint8_t> expected;
      for (const uint32_t threads : {1, 2, 3, 16}) {
        ASSERT_EQ(m.pack(threads), MARLIN_OK);
        ASSERT_TRUE(m.run());
        if (expected.empty()) expected = m.result();
        EXPECT_EQ(m.result(), expected) << threads;
      }
    }
  }
}

TEST_P(Experts, RunInTheScratchThatPreparingAsksFor) {
  for (const int64_t tokens : {1, 3, 50}) {
    for (const marlin_dtype scales : {0, MARLIN_F32}) {
      Case c = spec(MARLIN_COMPUTE_INT8, 70, 130);
      Mixture m(c, {tokens, 6, 4, Pick::random, false, scales});
      ASSERT_EQ(m.pack(2), MARLIN_OK);
      for (const auto edge : {guarded::Edge::begin, guarded::Edge::end}) {
        const guarded::Stream stream(trial::context(2), m.desc(), tokens, edge);
        EXPECT_TRUE(m.run(stream.get()));
        EXPECT_TRUE(m.check());
      }
    }
  }
}

/// Each expert has its own order of columns.
TEST(ExpertsOfActOrder, AreThoseOfFloat64) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const trial::Order order : {trial::Order::shuffled, trial::Order::unequal}) {
      for (const int64_t tokens : {1, 12}) {
        for (const bool special : {false, true}) {
          Case c = trial::case_of(trial::kKinds[1], compute, 1, 70, 256);
          c.order = order;
          Mixture m(c, {tokens, 5, 3, Pick::random, false, MARLIN_F32});
          if (special) m.put_special_values();
          ASSERT_EQ(m.pack(2), MARLIN_OK);
          ASSERT_TRUE(m.run());
          EXPECT_TRUE(m.check()) << c.describe();
        }
      }
    }
  }
}

/// Experts whose slots differ: some have the order of the file and some groups of equal or of unequal lengths, drawn by chance.
TEST(ExpertsOfActOrder, MayDiffer) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  std::mt19937 random(20261128);
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    const trial::Kind& kind = trial::kKinds[below(trial::kKindCount)];
    if (kind.sparse) continue;
    Case c = trial::case_of(kind, seed % 2 == 0 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT, 1, 2 * (1 + below(70)),
                            kind.group * (1 + below(6)));
    trial::vary(c, seed);
    if (seed % 7 == 0) c.epilogue = MARLIN_EPILOGUE_SWIGLU;
    Mix mix{1 + below(20), 2 + below(5), 1 + below(3), Pick::random, seed % 3 == 0, seed % 4 == 0 ? MARLIN_F32 : 0};
    mix.orders_differ = true;
    Mixture m(c, mix);
    ASSERT_EQ(m.pack(2), MARLIN_OK) << c.describe();
    ASSERT_TRUE(m.run()) << c.describe();
    EXPECT_TRUE(m.check()) << c.describe() << ", " << mix.tokens << " tokens, " << mix.experts << " experts";
  }
}

/// More scratch than is meant for what runs at once: of one expert with very long rows, and of many with as many rows each.
TEST(ExpertsOfActOrder, MayFillTheirScratch) {
  if (const std::string why = trial::left_to_own_level(); !why.empty()) GTEST_SKIP() << why;
  std::vector<int32_t> by_turns(24 * 16);
  for (size_t i = 0; i < by_turns.size(); ++i) by_turns[i] = static_cast<int32_t>(i % 24);
  for (const bool many : {false, true}) {
    Case c = trial::case_of(trial::kKinds[5], MARLIN_COMPUTE_DEFAULT, 1, 2, many ? 16384 : 524288);
    c.a_type = MARLIN_F32;
    Mix mix{many ? 24 * 16 : 5, many ? 24 : 2, 1, Pick::last, false, 0};
    mix.orders_differ = true;
    Mixture m(c, mix, many ? std::span<const int32_t>(by_turns) : std::span<const int32_t>());
    ASSERT_EQ(m.pack(2), MARLIN_OK);
    ASSERT_TRUE(m.run());
    EXPECT_TRUE(m.check());
  }
}

/// More results than wait at a time; more activations than a wave holds, between two experts that have but one token's.
TEST(ExpertsOfManyTokens, GoInParts) {
#if defined(MARLIN_UNDER_TSAN)
  GTEST_SKIP() << "takes minutes under ThreadSanitizer, which sees fewer tokens";
#endif
  if (const std::string why = trial::left_to_own_level(); !why.empty()) GTEST_SKIP() << why;
  Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1, 4096, 32);
  c.a_type = MARLIN_F32;
  Mixture many(c, {2100, 3, 2, Pick::random, false, MARLIN_F32});
  ASSERT_EQ(many.pack(2), MARLIN_OK);
  ASSERT_TRUE(many.run());
  EXPECT_TRUE(many.check());
  c.n = 16;
  c.k = 4096;
  Mixture wide(c, {1400, 16, 2, Pick::ends, false, 0});
  ASSERT_EQ(wide.pack(2), MARLIN_OK);
  ASSERT_TRUE(wide.run());
  EXPECT_TRUE(wide.check());
}

INSTANTIATE_TEST_SUITE_P(Format, Experts, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

}  // namespace
