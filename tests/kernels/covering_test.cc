// Products over a 3-way covering array of everything a caller can choose, each element against its own float64 bound.
#include "covering.h"
#include "campaigns.h"
#include "formats_under_test.h"
#include "product_factors.h"
#include "test.h"
#include "trial.h"
#include "unit/under_sanitizer.h"

namespace {

using covering::Row;
using trial::allowed;
using trial::Case;
using trial::case_of;
using trial::kFormatNames;
using trial::kFormats;

const std::vector<int>& levels() { return trial::factor_levels(); }

/// Repeats have other shapes and numbers. An instruction set that is asked for by its name gets half of them, and a
/// sanitizer one in the short form: for it, numbers are alike.
uint32_t repeats() {
  const bool named = std::getenv("METAL_MARLIN_ISA") != nullptr;
#if defined(MARLIN_UNDER_ASAN) || defined(MARLIN_UNDER_TSAN)
  if (!whole_campaigns()) return 1;
#endif
  return (named ? 1 : 2) * (whole_campaigns() ? 3 : 1);
}

/// The array, repeated.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> out;
    for (uint32_t repeat = 0; repeat < repeats(); ++repeat) {
      for (const Row& r : covering::three_way(levels(), allowed, 20240601 + repeat)) {
        out.push_back(case_of(r, static_cast<uint32_t>(out.size()) + 1));
      }
    }
    return out;
  }();
  return all;
}

TEST(CoveringArray, MissesNothing) {
  const auto rows = covering::three_way({3, 2, 4, 2}, [](const Row& r) { return r[0] != 1 || r[2] != 3; }, 1);
  EXPECT_EQ(covering::missing({3, 2, 4, 2}, [](const Row& r) { return r[0] != 1 || r[2] != 3; }, rows), 0);
  EXPECT_LT(rows.size(), 48u);
  EXPECT_EQ(covering::missing(levels(), allowed, covering::three_way(levels(), allowed, 20240601)), 0);
  EXPECT_GT(cases().size(), 380u * repeats());
}

TEST(CoveringArray, HasEveryPair) {
  const std::vector<int> levels = {3, 2, 4, 2, 5};
  const auto is_allowed = [](const Row& r) { return r[0] != 1 || r[2] != 3; };
  const auto rows = covering::two_way(levels, is_allowed, 1);
  std::set<std::tuple<size_t, int, size_t, int>> pairs;
  for (const Row& row : rows) {
    EXPECT_TRUE(is_allowed(row));
    for (size_t a = 0; a < row.size(); ++a)
      for (size_t b = a + 1; b < row.size(); ++b) pairs.emplace(a, row[a], b, row[b]);
  }
  EXPECT_EQ(pairs.size(), 6u + 12 + 6 + 15 + 8 + 4 + 10 + 8 + 20 + 10 - 1);  // all but the one that is not allowed
  EXPECT_LT(rows.size(), 30u);
}

class Products : public testing::TestWithParam<int> {};

TEST_P(Products, StayWithinTheirBounds) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  int count = 0;
  double worst = 0;
  for (const Case& c : cases()) {
    const trial::Format& f = kFormats[GetParam()];
    if (c.format != f.format || c.zeros != f.zeros || c.k_quant() != f.k_quant) continue;
    ASSERT_TRUE(trial::holds(c, &worst));
    ++count;
  }
  std::printf("%s: %d products on %s, 0 outside their bounds, nearest %.3f of it\n", kFormatNames[GetParam()], count,
              trial::isa().c_str(), worst);
  RecordProperty("cases", count);
}

INSTANTIATE_TEST_SUITE_P(Format, Products, testing::Range(0, trial::kFormatCount),
                         [](const auto& info) { return kFormatNames[info.param]; });

/// Shapes that are worked through in several blocks of rows: activations of K = 8200 fill the scratch long before M = 300, and
/// so do the sums of 9000 gate and up columns before M = 1000.
TEST(LargeProducts, StayWithinTheirBounds) {
  if (const std::string why = trial::left_to_own_level(); !why.empty()) GTEST_SKIP() << why;
  for (const trial::Kind& kind : trial::kKinds) {
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
      // Half of the pairs, each kind and each compute often enough.
      if ((&kind - trial::kKinds + (compute == MARLIN_COMPUTE_INT8)) % 2 != 0) continue;
      Case c = trial::case_of(kind, compute, 300, 66, 8200);
      c.a_type = compute == MARLIN_COMPUTE_INT8 ? MARLIN_BF16 : MARLIN_F32;
      c.threads = 2;
      ASSERT_TRUE(trial::holds(c));
    }
  }
  Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1000, 9000, 17);
  c.epilogue = MARLIN_EPILOGUE_SWIGLU;
  c.c_type = MARLIN_F16;
  c.threads = 2;
  EXPECT_TRUE(trial::holds(c));
}

/// Any combination, for as long as METAL_MARLIN_SOAK_SECONDS says; METAL_MARLIN_SOAK_SEED repeats a run.
TEST(RandomProducts, StayWithinTheirBounds) {
  const Soak soak;
  if (!soak.asked()) GTEST_SKIP() << "METAL_MARLIN_SOAK_SECONDS is not set";
  std::mt19937 random(Soak::seed());
  int count = 0;
  while (soak.goes_on(count, 0)) {
    Row r(levels().size());
    for (size_t f = 0; f < r.size(); ++f) r[f] = static_cast<int>(random() % static_cast<uint32_t>(levels()[f]));
    if (!allowed(r)) continue;
    ASSERT_TRUE(trial::holds(case_of(r, static_cast<uint32_t>(random()))));
    ++count;
  }
  std::printf("%d products, 0 outside their bounds\n", count);
  RecordProperty("cases", count);
}

}  // namespace
