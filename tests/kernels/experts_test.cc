// Mixtures of experts: every slot against the oracle, and bit for bit against its expert's own product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "formats_under_test.h"
#include "special_values.h"
#include "unit/under_sanitizer.h"

namespace {

using trial::Case;
using trial::Matrix;
using trial::Trial;

enum class Pick : uint8_t {
  random,
  last,      ///< all the last one
  repeated,  ///< a token's all the same
  outside,   ///< some are none
  ends       ///< only the first token has the first and the last
};

struct Mix {
  int64_t tokens, experts, top_k;
  Pick pick;
  bool row_a_slot;           ///< A has a row for every slot, as the down projection does
  marlin_dtype scales_type;  ///< 0: no sum
};

/// Experts of one shape, what they multiply, and what must come out.
class Mixture {
 public:
  Mixture(const Case& spec, const Mix& mix) : mix_(mix), like_(with_rows(spec, mix)) {
    std::mt19937 random(spec.seed);
    for (int64_t e = 0; e < mix.experts; ++e) {
      Case one = like_.spec;
      one.m = 1;
      one.seed = spec.seed + static_cast<uint32_t>(7919 * e);
      experts_.push_back(std::make_unique<Trial>(one));
    }
    if (mix.tokens == 0) return;
    ids_ = Matrix(mix.tokens, mix.top_k, MARLIN_I32, spec.strides);
    if (mix.scales_type != 0) scales_ = Matrix(mix.tokens, mix.top_k, mix.scales_type, spec.strides);
    for (int64_t slot = 0; slot < slots(); ++slot) {
      const int32_t expert = pick(slot, random);
      std::memcpy(ids_.bytes(slot / mix.top_k) + slot % mix.top_k * 4, &expert, sizeof expert);
      chosen_.push_back(expert >= 0 && expert < mix.experts ? expert : -1);
      // What a slot without expert would be scaled by is not looked at.
      if (mix.scales_type != 0)
        scales_.set(slot / mix.top_k, slot % mix.top_k, chosen_.back() < 0 ? NAN : 0.1 + 0.01 * static_cast<double>(slot % 37));
    }
    if (spec.bias_type == 0) return;
    bias_ = Matrix(spec.seed % 2 == 0 ? 1 : mix.experts, spec.n, spec.bias_type, spec.strides);
    for (int64_t e = 0; e < bias_.view().rows; ++e)
      for (int64_t n = 0; n < spec.n; ++n) bias_.set(e, n, 0.1 * static_cast<double>((e * 31 + n) % 17 - 8));
  }
  ~Mixture() { marlin_weights_destroy(weights_); }
  Mixture(const Mixture&) = delete;

  marlin_status pack(uint32_t threads) {
    std::vector<marlin_pack_desc> descs;
    for (const auto& expert : experts_)
      for (const marlin_pack_desc& part : expert->parts()) descs.push_back(part);
    std::vector<const marlin_pack_desc*> pointers;
    for (const marlin_pack_desc& d : descs) pointers.push_back(&d);
    marlin_weights_destroy(weights_);
    return marlin_weights_pack(trial::context(threads), pointers.data(), static_cast<uint32_t>(pointers.size()),
                               static_cast<uint32_t>(mix_.experts), &weights_, nullptr);
  }

  /// NaN, infinity, -0 and subnormals in the first rows of A.
  void poison() { trial::poison_activations(like_); }

  marlin_gemm_desc desc() const {
    marlin_gemm_desc d = like_.gemm_desc();
    d.weights = weights_;
    d.bias = bias_.view();
    d.expert_ids = ids_.view();
    d.expert_scales = scales_.view();
    if (mix_.tokens == 0) d.expert_ids = {nullptr, 0, 0, mix_.top_k, 0, MARLIN_I32, MARLIN_MEM_HOST};
    d.a.rows = mix_.row_a_slot ? slots() : mix_.tokens;
    d.c.rows = sums() ? mix_.tokens : slots();
    return d;
  }

  testing::AssertionResult run(marlin_stream* stream = nullptr) {
    for (int64_t r = 0; r < like_.spec.m; ++r)
      for (int64_t n = 0; n < columns(); ++n)
        like_.c.set(r, n, like_.spec.accumulate ? like_.c_before[static_cast<size_t>(r * columns() + n)] : NAN);
    const marlin_gemm_desc d = desc();
    marlin_error err{};
    err.struct_size = sizeof err;
    if (marlin_gemm(stream, &d, &err) == MARLIN_OK) return testing::AssertionSuccess();
    return testing::AssertionFailure() << err.message;
  }

  /// Every element of C against the oracle.
  testing::AssertionResult check() {
    expect_slots();
    oracle::Product out = like_.product();
    for (int64_t r = 0; r < (sums() ? mix_.tokens : slots()); ++r) {
      for (int64_t n = 0; n < columns(); ++n) {
        std::vector<double> scales;
        std::vector<oracle::Element> parts;
        for (int64_t s = sums() ? r * mix_.top_k : r; s < (sums() ? (r + 1) * mix_.top_k : r + 1); ++s) {
          if (chosen_[static_cast<size_t>(s)] < 0) continue;
          scales.push_back(sums() ? scales_.get(r, s % mix_.top_k) : 1);
          parts.push_back(expected_[static_cast<size_t>(s)][static_cast<size_t>(n)]);
        }
        const auto want = oracle::weighted_sum(out, scales, parts, static_cast<size_t>(r * columns() + n));
        const double got = like_.c.get(r, n);
        if (!want.accepts(got) || (parts.empty() && !out.c.empty() && got != out.c[static_cast<size_t>(r * columns() + n)]))
          return testing::AssertionFailure()
                 << "C[" << r << ", " << n << "] is " << got << ", expected " << want.value << " +- " << want.bound;
      }
    }
    if (!like_.c.gaps_untouched()) return testing::AssertionFailure() << "wrote between the rows of C";
    return testing::AssertionSuccess();
  }

  /// Slots of experts that have one row or many: the bits of a product of the expert alone, over the same rows.
  testing::AssertionResult check_alone() {
    for (int64_t e = 0; e < mix_.experts; ++e) {
      const std::vector<int64_t> slots = slots_of(e);
      if (slots.empty()) continue;
      Case spec = like_.spec;
      spec.m = static_cast<int64_t>(slots.size());
      spec.seed = experts_[static_cast<size_t>(e)]->spec.seed;
      Trial alone(spec);
      for (size_t i = 0; i < slots.size(); ++i)
        for (int64_t k = 0; k < spec.k; ++k) alone.a.set(static_cast<int64_t>(i), k, like_.a.get(row_of_a(slots[i]), k));
      if (const auto ok = alone.pack(); !ok) return ok;
      if (const auto ok = alone.run(); !ok) return ok;
      for (size_t i = 0; i < slots.size(); ++i)
        if (std::memcmp(alone.c.bytes(static_cast<int64_t>(i)), like_.c.bytes(slots[i]), alone.c.raw().size() / slots.size()) !=
            0)
          return testing::AssertionFailure() << "slot " << slots[i] << " is not what expert " << e << " alone gives";
    }
    return testing::AssertionSuccess();
  }

  std::vector<uint8_t> result() const { return like_.c.raw(); }

 private:
  static Case with_rows(Case spec, const Mix& mix) {
    spec.m = std::max<int64_t>(1, mix.tokens * mix.top_k);
    spec.bias_type = 0;
    spec.zero_type = MARLIN_F16;  // one for all experts
    return spec;
  }
  int64_t slots() const { return mix_.tokens * mix_.top_k; }
  int64_t columns() const { return like_.spec.columns(); }
  bool sums() const { return mix_.scales_type != 0; }
  int64_t row_of_a(int64_t slot) const { return mix_.row_a_slot ? slot : slot / mix_.top_k; }

  int32_t pick(int64_t slot, std::mt19937& random) const {
    const auto experts = static_cast<uint32_t>(mix_.experts);
    if (mix_.pick == Pick::last) return static_cast<int32_t>(experts - 1);
    if (mix_.pick == Pick::repeated) return static_cast<int32_t>(slot / mix_.top_k * 5 % mix_.experts);
    if (mix_.pick == Pick::ends) {
      if (slot < mix_.top_k) return slot == 0 ? 0 : static_cast<int32_t>(experts - 1);
      return static_cast<int32_t>(1 + random() % (experts - 2));
    }
    constexpr int32_t kNowhere[] = {-1, INT32_MIN, INT32_MAX};
    if (mix_.pick == Pick::outside && random() % 3 != 0)
      return random() % 2 != 0 ? kNowhere[slot % 3] : static_cast<int32_t>(experts);
    return static_cast<int32_t>(random() % experts);
  }

  std::vector<int64_t> slots_of(int64_t expert) const {
    std::vector<int64_t> found;
    for (int64_t s = 0; s < slots(); ++s)
      if (chosen_[static_cast<size_t>(s)] == expert) found.push_back(s);
    return found;
  }

  /// Each slot's row of float32, before it is scaled.
  void expect_slots() {
    expected_.assign(static_cast<size_t>(slots()), {});
    for (int64_t e = 0; e < mix_.experts; ++e) {
      Trial& expert = *experts_[static_cast<size_t>(e)];
      const std::vector<int64_t> slots = slots_of(e);
      if (like_.spec.compute == MARLIN_COMPUTE_INT8 && like_.spec.order != trial::Order::plain && !slots.empty()) {
        ASSERT_TRUE(expert.pack());
        expert.expected.slot_group = std::stoi(expert.explained("slot_group"));
      }
      oracle::Product p = like_.product();
      p.weights = &expert.expected;
      p.m = static_cast<int64_t>(slots.size());
      p.c.clear();
      p.c_dtype = MARLIN_F32;
      std::vector<double> a;
      for (const int64_t s : slots)
        a.insert(a.end(), p.a.begin() + row_of_a(s) * p.weights->k, p.a.begin() + (row_of_a(s) + 1) * p.weights->k);
      p.a = std::move(a);
      for (int64_t n = 0; bias_.view().data != nullptr && n < p.weights->n; ++n)
        p.bias.push_back(bias_.get(bias_.view().rows == 1 ? 0 : e, n));
      const auto all = oracle::multiply(p);
      for (size_t i = 0; i < slots.size(); ++i) {
        const auto row = all.begin() + static_cast<std::ptrdiff_t>(i) * columns();
        expected_[static_cast<size_t>(slots[i])].assign(row, row + columns());
      }
    }
  }

  const Mix mix_;
  Trial like_;  ///< its A and C are those of the product
  std::vector<std::unique_ptr<Trial>> experts_;
  Matrix ids_, scales_, bias_;
  std::vector<int64_t> chosen_;  ///< a slot's expert, or -1
  std::vector<std::vector<oracle::Element>> expected_;
  marlin_weights* weights_ = nullptr;
};

class Experts : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = trial::without_threads(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static Case spec(marlin_compute compute, int64_t n, int64_t k) {
    return trial::case_of(trial::kKinds[GetParam()], compute, 1, n, k);
  }
};

constexpr Mix kMixes[] = {
    {1, 1, 1, Pick::random, false, 0},           {1, 5, 4, Pick::random, false, 0},
    {1, 128, 4, Pick::random, true, MARLIN_F32}, {2, 8, 8, Pick::repeated, false, 0},
    {5, 7, 2, Pick::outside, false, 0},          {5, 3, 4, Pick::outside, true, MARLIN_BF16},
    {64, 128, 4, Pick::random, false, 0},        {64, 4, 3, Pick::random, true, MARLIN_F16},
    {257, 6, 1, Pick::last, false, MARLIN_F32},  {257, 3, 2, Pick::random, false, 0},
    {1, 4, 2, Pick::outside, false, MARLIN_F32}, {0, 3, 2, Pick::random, false, 0},
};

TEST_P(Experts, AreThoseOfFloat64) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    uint32_t seed = 1;
    for (const Mix& mix : kMixes) {
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
  for (marlin_epilogue epilogue = MARLIN_EPILOGUE_SILU; epilogue <= MARLIN_EPILOGUE_SWIGLU_OAI; ++epilogue) {
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
        Case c = spec(compute, 70, 150);
        c.a_type = a_type;
        Mixture m(c, mix);
        m.poison();
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
      const marlin_gemm_desc d = m.desc();
      const marlin_gemm_desc* const descs[] = {&d};
      uint64_t bytes = 0;
      ASSERT_EQ(marlin_prepare(nullptr, descs, 1, tokens, &bytes, nullptr), MARLIN_OK);
      for (const auto edge : {guarded::Edge::begin, guarded::Edge::end}) {
        const guarded::Memory scratch(bytes, edge);
        marlin_stream_desc with{};
        with.struct_size = sizeof with;
        with.scratch = {scratch.data(), 0, 1, static_cast<int64_t>(bytes), 0, MARLIN_U8, MARLIN_MEM_HOST};
        marlin_stream* stream = nullptr;
        ASSERT_EQ(marlin_stream_create(trial::context(2), &with, &stream, nullptr), MARLIN_OK);
        EXPECT_TRUE(m.run(stream));
        EXPECT_TRUE(m.check());
        marlin_stream_destroy(stream);
      }
    }
  }
}

/// Each expert has its own order of columns.
TEST(ExpertsOfActOrder, AreThoseOfFloat64) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const trial::Order order : {trial::Order::permuted, trial::Order::unequal}) {
      for (const int64_t tokens : {1, 12}) {
        for (const bool poisoned : {false, true}) {
          Case c = trial::case_of(trial::kKinds[1], compute, 1, 70, 256);
          c.order = order;
          Mixture m(c, {tokens, 5, 3, Pick::random, false, MARLIN_F32});
          if (poisoned) m.poison();
          ASSERT_EQ(m.pack(2), MARLIN_OK);
          ASSERT_TRUE(m.run());
          EXPECT_TRUE(m.check()) << c.describe();
        }
      }
    }
  }
}

/// More results than wait at a time; more activations than a wave holds, between two experts that have but one token's.
TEST(ExpertsOfManyTokens, GoInParts) {
#if defined(MARLIN_UNDER_TSAN)
  GTEST_SKIP() << "takes minutes under ThreadSanitizer, which sees fewer tokens";
#endif
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
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
