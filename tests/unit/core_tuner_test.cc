// The search for the fastest kernel, with a clock that the test sets: what it finds, what it ignores, what it never picks.
#include "core/tuner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/codecs.h"

namespace metal_marlin {
namespace {

class PlantedClock final : public Stopwatch {
 public:
  double now() override { return now_; }
  Result<double> time(std::string_view, const std::function<Result<double>()>& work) override {
    const Result<double> seconds = work();
    if (seconds.ok()) now_ += seconds.value();
    return seconds;
  }

 private:
  double now_ = 1000;
};

/// How a machine disturbs measurements.
struct Noise {
  double deviation = 0;  ///< of the logarithm of a time
  double outliers = 0;   ///< the part of the samples that take ten times as long
  double drift = 0;      ///< of the logarithm, per sample: a processor that gets hot
};

class PlantedContest final : public Contest {
 public:
  PlantedContest(PlantedClock& clock, std::vector<double> seconds, Noise noise = {}, uint32_t seed = 1)
      : timed(seconds.size()), clock_(clock), seconds_(std::move(seconds)), noise_(noise), random_(seed) {}

  size_t size() const override { return seconds_.size(); }
  Result<bool> admits(size_t i) override {
    if (failing == i) return Status::error(MARLIN_E_DEVICE, "planted");
    return wrong != i;
  }
  Result<double> seconds(size_t i, int runs) override {
    ++timed[i];
    double one = seconds_[i] * std::exp(noise_.deviation * normal_(random_) + noise_.drift * count_++);
    if (uniform_(random_) < noise_.outliers) one *= 10;
    MARLIN_ASSIGN(const double all, clock_.time("", [&]() -> Result<double> { return one * runs; }));
    return all / runs;
  }

  static constexpr size_t kNone = 99;
  size_t wrong = kNone, failing = kNone;
  std::vector<int> timed;  ///< samples of each candidate

 private:
  PlantedClock& clock_;
  const std::vector<double> seconds_;
  const Noise noise_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  int count_ = 0;
};

constexpr double kLong = 1e9;  // seconds: no deadline

Verdict verdict_of(PlantedContest& contest, PlantedClock& clock) {
  const auto held = hold(contest, clock, kLong);
  EXPECT_TRUE(held.ok()) << held.status().message();
  EXPECT_TRUE(held.ok() && held.value().has_value());
  return held.ok() && held.value() ? *held.value() : Verdict{PlantedContest::kNone, 0, 0};
}

TEST(Search, FindsThePlantedBestThroughNoise) {
  for (const Noise noise : {Noise{}, Noise{0.02, 0, 0}, Noise{0.02, 0.1, 0}, Noise{0.01, 0.05, 0.01}})
    for (uint32_t seed = 1; seed <= 100; ++seed) {
      PlantedClock clock;
      PlantedContest contest(clock, {100e-6, 130e-6, 80e-6, 99e-6, 300e-6, 90e-6}, noise, seed);
      const Verdict verdict = verdict_of(contest, clock);
      EXPECT_EQ(verdict.winner, 2u) << "seed " << seed;
      EXPECT_NEAR(verdict.seconds / verdict.usual_seconds, 0.8, 2 * noise.deviation + noise.drift + 0.001) << "seed " << seed;
    }
}

TEST(Search, IgnoresNoise) {
  for (const Noise noise : {Noise{0.01, 0, 0}, Noise{0.2, 0, 0}, Noise{0.05, 0.2, 0}, Noise{0.5, 0.1, 0}, Noise{0.02, 0, 0.01}})
    for (uint32_t seed = 1; seed <= 200; ++seed) {
      PlantedClock clock;
      PlantedContest contest(clock, std::vector<double>(6, 50e-6), noise, seed);
      EXPECT_EQ(verdict_of(contest, clock).winner, 0u) << "deviation " << noise.deviation << ", seed " << seed;
    }
}

TEST(Search, KeepsTheUsualOneUnlessAnotherSavesThreePercent) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    PlantedClock clock;
    PlantedContest close(clock, {100e-6, 98e-6}, {0.002, 0, 0}, seed), enough(clock, {100e-6, 96e-6}, {0.002, 0, 0}, seed);
    EXPECT_EQ(verdict_of(close, clock).winner, 0u);
    EXPECT_EQ(verdict_of(enough, clock).winner, 1u);
  }
}

TEST(Search, NeverPicksAWrongKernelAndDoesNotTimeIt) {
  PlantedClock clock;
  PlantedContest contest(clock, {100e-6, 10e-6, 90e-6});
  contest.wrong = 1;
  EXPECT_EQ(verdict_of(contest, clock).winner, 2u);
  EXPECT_EQ(contest.timed[1], 0);
}

TEST(Search, LeavesSlowOnesEarly) {
  PlantedClock clock;
  PlantedContest contest(clock, {100e-6, 500e-6, 400e-6, 90e-6}, {0.01, 0.05, 0});
  EXPECT_EQ(verdict_of(contest, clock).winner, 3u);
  EXPECT_LE(contest.timed[1], 4);
  EXPECT_LE(contest.timed[2], 4);
  EXPECT_GE(contest.timed[3], 40) << "it must win twice";
  PlantedContest hopeless(clock, {10e-6, 500e-6});
  EXPECT_EQ(verdict_of(hopeless, clock).winner, 0u);
  EXPECT_LE(hopeless.timed[0], 5) << "nobody is left to measure";
}

TEST(Search, ReportsAFailureOfTheDevice) {
  PlantedClock clock;
  PlantedContest contest(clock, {100e-6, 10e-6});
  contest.failing = 1;
  EXPECT_EQ(hold(contest, clock, kLong).status().code(), MARLIN_E_DEVICE);
  PlantedContest refused(clock, {100e-6, 10e-6});
  refused.wrong = 0;
  const auto held = hold(refused, clock, kLong);
  EXPECT_TRUE(held.ok() && !held.value()) << "the usual kernel does not serve";
}

TEST(Search, EndsInTime) {
  for (const double seconds : {0.0, 1e-3, 3e-3, 0.2}) {
    PlantedClock clock;
    PlantedContest contest(clock, {100e-6, 90e-6, 95e-6, 80e-6});
    const double begin = clock.now();
    const auto held = hold(contest, clock, begin + seconds);
    ASSERT_TRUE(held.ok());
    EXPECT_LE(clock.now(), begin + seconds + 4 * 500e-6) << "one round more";
    EXPECT_EQ(held.value().has_value(), seconds > 0.01) << seconds << ": too few samples say nothing";
  }
  PlantedClock clock;  // a product that takes longer than there is time
  PlantedContest slow(clock, {10, 5});
  const auto held = hold(slow, clock, clock.now() + 30);
  EXPECT_TRUE(held.ok() && !held.value());
  EXPECT_LE(slow.timed[0] + slow.timed[1], 1);
}

std::vector<std::byte> encoded(marlin_dtype dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * float_bytes(dtype));
  encode_floats(dtype, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}
bool agree(marlin_dtype dtype, const std::vector<float>& a, const std::vector<float>& b) {
  return results_agree(encoded(dtype, a).data(), encoded(dtype, b).data(), static_cast<int64_t>(a.size()), dtype);
}

TEST(Agreement, AllowsRoundingsAndNothingElse) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> usual(10000);
  for (float& x : usual) x = normal(random);
  const struct {
    marlin_dtype dtype;
    float rounding;
  } kTypes[] = {{MARLIN_F32, 0x1p-20f}, {MARLIN_F16, 0x1p-11f}, {MARLIN_BF16, 0x1p-8f}};
  for (const auto& [dtype, rounding] : kTypes) {
    EXPECT_TRUE(agree(dtype, usual, usual));
    std::vector<float> rounded = usual, one = usual, scaled = usual, empty(usual.size(), 0.0f);
    for (size_t i = 0; i < rounded.size(); ++i) rounded[i] *= 1 + (i % 2 != 0 ? rounding : -rounding);
    EXPECT_TRUE(agree(dtype, usual, rounded)) << dtype;
    one[777] += 0.5f;
    EXPECT_FALSE(agree(dtype, usual, one)) << dtype << ": one wrong element of many";
    for (float& x : scaled) x *= 1.02f;
    EXPECT_FALSE(agree(dtype, usual, scaled)) << dtype;
    EXPECT_FALSE(agree(dtype, usual, empty)) << dtype;
    EXPECT_FALSE(agree(dtype, empty, usual)) << dtype;
    EXPECT_TRUE(agree(dtype, empty, empty)) << dtype;
    std::vector<float> nan = usual, infinite = usual;
    nan[5] = std::numeric_limits<float>::quiet_NaN();
    infinite[5] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(agree(dtype, nan, nan));
    EXPECT_TRUE(agree(dtype, infinite, infinite));
    EXPECT_FALSE(agree(dtype, usual, nan));
    EXPECT_FALSE(agree(dtype, nan, usual));
    EXPECT_FALSE(agree(dtype, infinite, usual));
    EXPECT_FALSE(agree(dtype, nan, infinite));
  }
}

TEST(Activations, AreTheSameEachTimeAndFillEveryElement) {
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
    constexpr int64_t kCount = 150001;
    std::vector<std::byte> once(kCount * float_bytes(dtype) + 1, std::byte{0x5a}), again = once;
    fill_activations(dtype, once.data(), kCount);
    fill_activations(dtype, again.data(), kCount);
    EXPECT_EQ(once, again);
    EXPECT_EQ(once.back(), std::byte{0x5a});
    std::vector<float> values(kCount);
    decode_floats(dtype, once.data(), kCount, values.data());
    double square = 0;
    for (const float x : values) {
      ASSERT_LE(std::fabs(x), 1);
      square += double{x} * x;
    }
    EXPECT_NEAR(square / kCount, 1.0 / 3, 0.01);
  }
}

}  // namespace
}  // namespace metal_marlin
