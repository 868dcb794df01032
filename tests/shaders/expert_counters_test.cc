// Work of products of experts, counted: each expert's weights once a tile of its rows, and nothing of the others.
#include <algorithm>
#include <string>

#include "counted_experts.h"

namespace shaders {
namespace {

constexpr int64_t kExperts = 32;

const Quantity& of(const CountedExperts& counted, const std::string& name) {
  return *std::find_if(counted.quantities.begin(), counted.quantities.end(), [&](const Quantity& q) { return q.name == name; });
}

/// The goals, and that exactly the codes of experts with tokens were read.
testing::AssertionResult meets_its_goals(const CountedExperts& counted) {
  for (const Quantity& q : counted.quantities)
    if (!q.met())
      return testing::AssertionFailure() << counted.kernel << ": " << q.name << " is " << q.value << ", its goal " << *q.goal;
  const auto& codes = counted.of(counted.kernel).buffers.at(MARLIN_BUFFER_CODES);
  const uint64_t of_experts = static_cast<uint64_t>(counted.distinct) * counted.code_bytes;
  if (codes.unique_bytes_read == of_experts) return testing::AssertionSuccess();
  return testing::AssertionFailure() << codes.unique_bytes_read << " bytes of codes were read, expected " << of_experts;
}

/// All numbers of tokens for one format, for the others those with the most different tiles.
std::vector<ExpertCase> drawn_cases() {
  std::vector<ExpertCase> all;
  for (const double skew : {0.0, 1.0}) {
    for (const int64_t tokens : {1, 4, 16, 64, 256})
      for (const int64_t top_k : {1, 4, 16}) all.push_back({"mxfp4", tokens, top_k, kExperts, skew});
    for (const char* const weights : {"nvfp4", "int4"})
      for (const int64_t tokens : {1, 16, 64}) all.push_back({weights, tokens, tokens == 64 ? 1 : 4, kExperts, skew});
  }
  return all;
}

class ExpertWork : public testing::TestWithParam<ExpertCase> {};

TEST_P(ExpertWork, IsThatOfEachExpertOnceATile) {
  CountedExperts counted;
  ASSERT_TRUE(count(GetParam(), counted));
  EXPECT_TRUE(meets_its_goals(counted));
  // As the tables of dense products have it: loads of four spans from the same row, or a row in threadgroup memory, of whole
  // lines.
  const double rows = of(counted, "rows").value, most = counted.kernel.ends_with("threadgroup") ? rows : 16 * rows;
  EXPECT_LE(of(counted, "A lines").value, most) << counted.kernel;
  if (counted.kernel.starts_with("gemv")) {
    EXPECT_EQ(of(counted, "A lines").value, 16) << counted.kernel;
  }
}

INSTANTIATE_TEST_SUITE_P(Drawn, ExpertWork, testing::ValuesIn(drawn_cases()), [](const auto& i) {
  return std::string(i.param.weights) + "_t" + std::to_string(i.param.tokens) + "_k" + std::to_string(i.param.top_k) +
         (i.param.skew != 0 ? "_zipf" : "_even");
});

/// However uneven the routes are: with a tile of eight rows, no expert of up to eight rows is read twice.
TEST(ExpertsOfUpToEightRows, AreReadOnce) {
  for (const auto& [weights, kernel] : {std::pair{"mxfp4", "regdecode_fp4_f16_m8_n32_direct"},
                                        {"nvfp4", "regdecode_fp4_f16_m8_n32_direct"},
                                        {"int4", "regdecode_u4_f16_m8_n32_direct"}})
    for (const auto& [top_k, skew] : {std::pair{1, 3.0}, {4, 0.0}, {4, 2.0}, {16, 1.0}}) {
      CountedExperts counted;
      ASSERT_TRUE(count({.weights = weights, .tokens = 8, .top_k = top_k, .experts = kExperts, .skew = skew, .kernel = kernel},
                        counted));
      EXPECT_TRUE(meets_its_goals(counted));
      EXPECT_EQ(counted.items, counted.distinct);
      EXPECT_LE(of(counted, "over experts").value, 1.10) << weights;
    }
}

TEST(ExpertsWithAllTokens, AreReadOnceATile) {
  for (const auto& [tokens, kernel, items] :
       {std::tuple{8, "regdecode_fp4_f16_m8_n32_direct", 1}, {9, "regdecode_fp4_f16_m8_n32_direct", 2}, {16, "", 0}}) {
    CountedExperts counted;
    ASSERT_TRUE(
        count({.weights = "mxfp4", .tokens = tokens, .top_k = 1, .experts = kExperts, .routes = Routes::last, .kernel = kernel},
              counted));
    EXPECT_TRUE(meets_its_goals(counted));
    EXPECT_EQ(counted.distinct, 1);
    if (items != 0) {
      EXPECT_EQ(counted.items, items);
    }
  }
}

TEST(IdsOutsideTheStack, CostNothing) {
  for (const int64_t tokens : {4, 64}) {
    CountedExperts counted;
    ASSERT_TRUE(
        count({.weights = "mxfp4", .tokens = tokens, .top_k = 4, .experts = kExperts, .routes = Routes::outside}, counted));
    EXPECT_LT(counted.rows, tokens * 4);
    EXPECT_TRUE(meets_its_goals(counted));
  }
  CountedExperts nobody;  // of three ids the first is outside
  ASSERT_TRUE(count({.weights = "mxfp4", .tokens = 1, .top_k = 1, .experts = kExperts, .routes = Routes::outside}, nobody));
  EXPECT_EQ(nobody.rows, 0);
  const auto& buffers = nobody.of(nobody.kernel).buffers;
  for (const int buffer : {MARLIN_BUFFER_CODES, MARLIN_BUFFER_SCALES, MARLIN_BUFFER_A})
    EXPECT_EQ(buffers.at(buffer).bytes_read, 0u) << buffer;
}

/// A row of A is quantized once for all of its experts. It is gathered once for each only where they have orders of columns of
/// their own.
TEST(ActivationsOfExperts, ArePreparedOnce) {
  for (const int64_t tokens : {4, 64}) {
    CountedExperts quantized, gathered, both;
    ASSERT_TRUE(count({.weights = "mxfp4", .tokens = tokens, .top_k = 4, .experts = kExperts, .int8 = true}, quantized));
    ASSERT_TRUE(count({.weights = "int4", .tokens = tokens, .top_k = 4, .experts = kExperts, .act_order = true}, gathered));
    ASSERT_TRUE(
        count({.weights = "int4", .tokens = tokens, .top_k = 4, .experts = kExperts, .int8 = true, .act_order = true}, both));
    for (const CountedExperts* counted : {&quantized, &gathered, &both}) EXPECT_TRUE(meets_its_goals(*counted));
    EXPECT_EQ(quantized.of("quantize").buffers.at(MARLIN_BUFFER_SOURCE).bytes_read,
              static_cast<uint64_t>(tokens * kExpertK * 2));
    EXPECT_EQ(gathered.of("gather").buffers.at(MARLIN_BUFFER_SOURCE).bytes_read,
              static_cast<uint64_t>(4 * tokens * kExpertK * 2));
  }
}

/// The scales of a tensor tile are read by two simdgroups, as they are in dense products; codes are read once.
TEST(ExpertsOnTensorOperations, AreDecodedOnceATile) {
  CountedExperts counted;
  ASSERT_TRUE(count({.weights = "mxfp4", .tokens = 256, .top_k = 4, .experts = kExperts, .tensor = true}, counted));
  EXPECT_TRUE(counted.kernel.ends_with("tensor"));
  for (const char* const name : {"codes", "code lines", "written", "sums", "prepared"})
    EXPECT_TRUE(of(counted, name).met()) << name;
}

/// Mistakes that change no result: only their work shows them.
struct Waste {
  const char *name, *file, *from, *to, *quantity;
  const char* kernel = "gemv_fp4_f16_m6";
};
void PrintTo(const Waste& waste, std::ostream* out) { *out << waste.name; }
constexpr Waste kWaste[] = {
    {"tiles_of_one_row", "route.metal", "#include \"epilogue.h\"", "#include \"epilogue.h\"\n#define tile_rows top_k", "codes",
     "regdecode_fp4_f16_m16_n32_direct"},
    {"weights_read_twice", "gemv.metal", "for (int b = walk.begin + sharer.x;",
     "for (ushort twice = 0; twice < 2; twice++)\n    for (int b = (sums.clear(), walk.begin + sharer.x);", "codes"},
    {"rows_stored_twice", "gemv.metal", "if (tile.has(m) && n < args.n)",
     "if (tile.has(m) && n < args.n) write_sum(0.0f, tile.of_c(m), n, group.z, factors, bias, c, partials, args);\n    "
     "if (tile.has(m) && n < args.n)",
     "written"},
    {"sums_of_others_read", "finish.metal", "if (expert < 0) continue;",
     "if (partials[long(row) * args.n + column] == 1e30f) v = 1.0f;\n    if (expert < 0) continue;", "sums"},
    {"missing_rows_multiplied", "regdecode.metal", "return routed && !rows.has(8 * m);", "return false;", "MMAs",
     "regdecode_fp4_f16_m32_n128_threadgroup"},
    {"missing_rows_added", "gemv.metal", "if (routed && !tile.has(ROWS / 2))", "if (false)", "FMAs"},
    {"missing_rows_multiplied_direct", "regdecode.metal", "return routed && !rows.has(8 * m);", "return false;", "MMAs",
     "regdecode_fp4_f16_m16_n32_direct"},
};

class PlantedWaste : public testing::TestWithParam<Waste> {};

TEST_P(PlantedWaste, IsCounted) {
  const Waste& waste = GetParam();
  ExpertCase c = {.weights = "mxfp4", .tokens = 16, .top_k = 1, .experts = kExperts, .kernel = waste.kernel};
  if (waste.quantity == std::string("sums")) c.routes = Routes::outside;
  CountedExperts without, with;
  ASSERT_TRUE(count(c, without));
  EXPECT_TRUE(meets_its_goals(without));
  c.changes = {{waste.file, waste.from, waste.to}};
  ASSERT_TRUE(count(c, with)) << "the result is right";
  EXPECT_FALSE(of(with, waste.quantity).met());
  EXPECT_FALSE(meets_its_goals(with));
}

INSTANTIATE_TEST_SUITE_P(Mistakes, PlantedWaste, testing::ValuesIn(kWaste),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace shaders
