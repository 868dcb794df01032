// The sampler, the parts of an answer, the choice of experts, attention and float16 against what their definitions say.
#include <numbers>

#include "examples/llm/answer_parts.h"
#include "examples/llm/attention.h"
#include "examples/llm/experts.h"
#include "examples/llm/half.h"
#include "examples/llm/sampler.h"
#include "test.h"

namespace llm {
namespace {

TEST(Sampler, WithoutTemperatureTakesTheFirstOfTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {nan, -1, 3, 2, 3, nan};
  EXPECT_EQ(Sampler(0, 0.9, 1).choose(logits), 2);
  EXPECT_EQ(Sampler(0.01, 1, 1).choose(std::vector<float>{nan, 1, nan}), 1);
  EXPECT_EQ(Sampler(1, 1, 1).choose(std::vector<float>{nan, nan}), 0);
}

TEST(Sampler, WhatWasSaidBecomesLessProbable) {
  const std::vector<float> logits = {1, 1.05f, -1, -1.05f};
  EXPECT_EQ(Sampler(0, 1, 1, 1.1).choose(logits), 1);
  const std::vector<Token> said = {1, 1, 1, -5, 99};
  EXPECT_EQ(Sampler(0, 1, 1, 1.1).choose(logits, said), 0) << "1.05 / 1.1 is below 1";
  EXPECT_EQ(Sampler(0, 1, 1, 1).choose(logits, said), 1) << "without a penalty";
  const std::vector<float> negative = {-1.05f, -1};
  EXPECT_EQ(Sampler(0, 1, 1, 1.1).choose(negative, std::vector<Token>{1}), 0) << "-1 becomes -1.1";
  std::vector<Token> long_ago(64, 0);
  long_ago.insert(long_ago.begin(), 1);
  EXPECT_EQ(Sampler(0, 1, 1, 1.1).choose(logits, long_ago), 1) << "the last 64 count";
}

TEST(Sampler, DrawsAsOftenAsTheSoftmaxSays) {
  const std::vector<float> logits = {0, 1, 2, -100};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    Sampler sampler(temperature, 1, 7);
    constexpr int kDraws = 20000;
    std::map<Token, int> drawn;
    for (int i = 0; i < kDraws; ++i) ++drawn[sampler.choose(logits)];
    double all = 0;
    for (const float logit : logits) all += std::exp(logit / temperature);
    for (Token t = 0; t < 4; ++t) {
      const double p = std::exp(logits[static_cast<size_t>(t)] / temperature) / all;
      EXPECT_NEAR(drawn[t] / double{kDraws}, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-12) << t << " at " << temperature;
    }
  }
}

TEST(Sampler, KeepsTheFewestThatHaveTheShare) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  const std::pair<double, std::vector<Token>> cases[] = {{0.3, {1}}, {0.5, {1, 3}}, {0.85, {1, 2, 3}}, {1, {0, 1, 2, 3}}};
  for (const auto& [top_p, kept] : cases) {
    Sampler sampler(1, top_p, 3);
    std::map<Token, int> drawn;
    for (int i = 0; i < 1000; ++i) ++drawn[sampler.choose(logits)];
    std::vector<Token> found;
    for (const auto& [token, times] : drawn) found.push_back(token);
    EXPECT_EQ(found, kept) << top_p;
  }
}

TEST(Sampler, ASeedGivesTheSameTokensEverywhere) {
  const std::vector<float> logits = {1, 1, 1, 1, 1, 1, 1, 1};  // 1/8 each: the three highest bits of a draw decide
  std::vector<Token> found;
  for (Sampler sampler(1, 1, 42); found.size() < 8;) found.push_back(sampler.choose(logits));
  EXPECT_EQ(found, (std::vector<Token>{6, 5, 6, 1, 7, 0, 4, 2}));
}

TEST(AnswerParts, AreThoughtsAndTheFinalChannel) {
  const std::map<std::string, Token> marks = {
      {"<start>", 0}, {"<end>", 1}, {"<message>", 2}, {"<channel>", 3}, {"<return>", 4}};
  std::string seen, kept;
  const auto hear = [&](AnswerParts parts, const std::vector<std::string>& tokens) {
    seen.clear(), kept.clear();
    for (const std::string& name : tokens) {
      const auto mark = marks.find(name);
      const bool control = mark != marks.end();
      if (control && !parts.goes_on_with(mark->second)) return name;
      seen += parts.shown(control ? mark->second : 9, control ? "" : name);
      if (!control && parts.in_final()) kept += name;
    }
    return std::string();
  };
  const AnswerParts harmony({.begin = 0, .end = 1, .content = 2, .channel = 3});
  EXPECT_EQ(hear(harmony, {"<channel>", "ana", "lysis", "<message>", "Hm", ".", "<end>", "<start>", "assistant", "<channel>",
                           "fin", "al", "<message>", "Yes", "!", "<return>", "more"}),
            "<return>");
  EXPECT_EQ(seen, "<think>Hm.</think>\nYes!");
  EXPECT_EQ(kept, "Yes!");
  hear(harmony, {"<channel>", "final", "<message>", "Yes", "<end>", "<start>", "assistant", "<channel>", "commentary",
                 "<message>", "So."});
  EXPECT_EQ(seen, "Yes<think>So.");
  EXPECT_EQ(kept, "Yes");
  EXPECT_EQ(hear(AnswerParts({0, 1, -1, -1}), {"Yes", "<end>", "more"}), "<end>") << "another form";
  EXPECT_EQ(seen + kept, "YesYes");
}

using Choice = std::pair<std::vector<int32_t>, std::vector<float>>;

Choice choice(const std::vector<float>& logits, size_t used) {
  Choice chosen{std::vector<int32_t>(used), std::vector<float>(used)};
  choose_experts(logits, chosen.first, chosen.second);
  return chosen;
}

TEST(Experts, AreTheLargestWithTheSharesOfASoftmax) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(1 + random() % 130);
    // Some are equal, and e to the power of some is no float.
    for (float& logit : logits) logit = static_cast<float>(random() % 100) * (i % 2 ? 10 : 0.125f) - 300;
    const size_t used = 1 + random() % logits.size();
    const auto [ids, shares] = choice(logits, used);
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
    order.resize(used);
    ASSERT_EQ(ids, order) << logits.size() << " experts";
    double sum = 0;
    for (const int32_t id : ids)
      sum += std::exp(double{logits[static_cast<size_t>(id)]} - double{logits[static_cast<size_t>(ids[0])]});
    for (size_t j = 0; j < used; ++j) {
      const double logit = double{logits[static_cast<size_t>(ids[j])]} - double{logits[static_cast<size_t>(ids[0])]};
      ASSERT_NEAR(shares[j], std::exp(logit) / sum, 1e-6);
    }
  }
}

TEST(Experts, OfLogitsThatAreNoNumbersAreExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(choice({nan, 1, nan, 2}, 2).first, (std::vector<int32_t>{3, 1})) << "not-a-number is less than any number";
  for (const float bad : {nan, infinity, -infinity}) {
    const auto [ids, shares] = choice({bad, bad, bad}, 2);
    EXPECT_EQ(ids, (std::vector<int32_t>{0, 1}));
    for (const float share : shares)
      EXPECT_TRUE(std::isnan(share)) << share << " of " << bad << " hides that the model computed nonsense";
  }
}

TEST(Float16, IsExact) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const uint32_t exponent = bits >> 10, fraction = bits & 0x3FF;
    const float value = exponent ? std::ldexp(1024.0f + static_cast<float>(fraction), static_cast<int>(exponent) - 25)
                                 : std::ldexp(static_cast<float>(fraction), -24);
    ASSERT_EQ(float16_to_float(static_cast<uint16_t>(bits)), value);
    ASSERT_EQ(float16_to_float(static_cast<uint16_t>(bits | 0x8000)), -value);
  }
}

// softmax(q K^T / sqrt(size)) V in float64.
std::vector<double> reference(const Heads& heads, const std::vector<float>& q, const std::vector<std::vector<float>>& keys,
                              const std::vector<std::vector<float>>& values, int64_t head, int64_t window, double sink) {
  const int64_t from = head / (heads.query / heads.key_value) * heads.size;
  std::vector<double> weights, out(static_cast<size_t>(heads.size));
  for (const auto& key : keys) {
    double dot = 0;
    for (int64_t d = 0; d < heads.size; ++d)
      dot += q[static_cast<size_t>(head * heads.size + d)] * double{key[static_cast<size_t>(from + d)]};
    const bool seen = std::ssize(keys) - std::ssize(weights) <= window;
    weights.push_back(seen ? std::exp(dot / std::sqrt(static_cast<double>(heads.size))) : 0);
  }
  const double all = std::accumulate(weights.begin(), weights.end(), sink);
  for (size_t p = 0; p < weights.size(); ++p) {
    for (int64_t d = 0; d < heads.size; ++d)
      out[static_cast<size_t>(d)] += weights[p] / all * double{values[p][static_cast<size_t>(from + d)]};
  }
  return out;
}

class Attention : public ::testing::TestWithParam<int64_t> {};

TEST_P(Attention, IsThatOfItsDefinition) {
  const int64_t window = GetParam();
  for (const Heads heads : {Heads{6, 2, 16}, Heads{3, 3, 64}, Heads{4, 1, 48}}) {
    std::mt19937 random(5);
    const auto draw = [&](int64_t n) {
      std::vector<float> x(static_cast<size_t>(n));
      for (float& element : x) element = static_cast<float>(random() % 2001) / 500.0f - 2;
      return x;
    };
    constexpr int64_t kPositions = 75;  // three blocks, the last not full
    KeyValueCache cache(heads, kPositions);
    Pool pool(3);
    std::vector<std::vector<float>> keys, values;
    const bool with_sinks = heads.query != 3;
    const std::vector<float> sinks = draw(heads.query);
    const int64_t q_size = heads.query * heads.size, stride = q_size + 5;
    for (const int64_t rows : {1, 40, 1, 33}) {  // blocks of rows behind those that are there
      const auto first = static_cast<int64_t>(keys.size());
      for (int64_t r = 0; r < rows; ++r) {
        keys.push_back(draw(heads.key_value * heads.size)), values.push_back(draw(heads.key_value * heads.size));
        cache.store(first + r, keys.back().data(), values.back().data());
      }
      const std::vector<float> q = draw(rows * stride);
      std::vector<float> out(static_cast<size_t>(rows * q_size));
      cache.attend(q.data(), stride, first, rows, window, with_sinks ? sinks.data() : nullptr, out.data(), pool);
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<float> row(q.begin() + r * stride, q.begin() + r * stride + q_size);
        const std::vector<std::vector<float>> k(keys.begin(), keys.begin() + first + r + 1),
            v(values.begin(), values.begin() + first + r + 1);
        for (int64_t head = 0; head < heads.query; ++head) {
          const std::vector<double> wanted =
              reference(heads, row, k, v, head, window, with_sinks ? std::exp(double{sinks[static_cast<size_t>(head)]}) : 0);
          for (int64_t d = 0; d < heads.size; ++d) {
            ASSERT_NEAR(out[static_cast<size_t>(r * q_size + head * heads.size + d)], wanted[static_cast<size_t>(d)], 1e-5)
                << "position " << first + r << ", head " << head;
          }
        }
      }
    }
  }
}

// Everything; less than a block of the cache, a block, and more.
INSTANTIATE_TEST_SUITE_P(Windows, Attention, ::testing::Values(75, 1, 7, 32, 33, 50));

TEST(Rotation, OfYarnBlends) {
  // In a context of 2 pi 32 positions the pair 0 turns 32 times, and the pair 2 of base 32^2 turns once.
  const int64_t context = 201;
  const double factor = 4, longer = 1 + 0.1 * std::log(factor);
  const Rotation rotation(10, 8, 1024, {.factor = factor, .yarn_context = context});
  const double first = 4 * std::log(context / (64 * std::numbers::pi)) / std::log(1024.0),
               last = 4 * std::log(context / (2 * std::numbers::pi)) / std::log(1024.0);
  std::vector<float> x = {1, 1, 1, 1, 0, 0, 0, 0};
  rotation.apply(x.data(), 1, 3, true);
  for (size_t i = 0; i < 4; ++i) {
    const double share = std::clamp((static_cast<double>(i) - std::max(first, 0.0)) / (last - std::max(first, 0.0)), 0.0, 1.0);
    const double angle = 3 * std::pow(1024, -static_cast<double>(i) / 4) * (1 - share + share / factor);
    EXPECT_NEAR(x[i], longer * std::cos(angle), 1e-6) << i;
    EXPECT_NEAR(x[i + 4], longer * std::sin(angle), 1e-6) << i;
    EXPECT_NEAR(share, i == 0 ? 0 : i == 1 ? 0.5 : 1, 0.01) << "pairs of all three kinds";
  }
}

TEST(Rotation, DividesPositions) {
  const Rotation whole(10, 4, 100), divided(10, 4, 100, {.factor = 2.5});
  std::vector<float> x = {1, 2, 3, 4}, y = x;
  whole.apply(x.data(), 1, 2, true);
  divided.apply(y.data(), 1, 5, true);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(x[i], y[i], 1e-6);
}

TEST(Rotation, TurnsPairsByTheAngleOfTheirPosition) {
  const Rotation rotation(10, 4, 100);
  for (const bool halves : {false, true}) {
    std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> before = x;
    rotation.apply(x.data(), 2, 7, halves);
    for (size_t head = 0; head < 2; ++head) {
      for (size_t i = 0; i < 2; ++i) {
        const size_t a = 4 * head + (halves ? i : 2 * i), b = 4 * head + (halves ? i + 2 : 2 * i + 1);
        const double angle = 7 * std::pow(100, -2.0 * static_cast<double>(i) / 4);
        EXPECT_NEAR(x[a], before[a] * std::cos(angle) - before[b] * std::sin(angle), 1e-5);
        EXPECT_NEAR(x[b], before[a] * std::sin(angle) + before[b] * std::cos(angle), 1e-5);
      }
    }
  }
}

TEST(Pool, RunsEveryTaskOnce) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    Pool pool(threads);
    for (uint32_t tasks : {0u, 1u, 2u, 100u}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> runs(tasks);
        pool.run(tasks, [&](uint32_t i) { ++runs[i]; });
        for (const auto& times : runs) ASSERT_EQ(times, 1);
      }
    }
  }
}

}  // namespace
}  // namespace llm
