// Work that kernels do, counted: every byte of weights once, whole cache lines, no threadgroup memory for weights, few
// barriers.
#include <algorithm>
#include <bit>
#include <iterator>
#include <string>
#include <vector>

#include "campaigns.h"
#include "counted.h"
#include "formats/format_table.h"

namespace shaders {
namespace {

/// The most that is accepted where a goal cannot be met; docs/decisions/0004-metal-kernels.md says why.
double accepted(const CountedProduct& product, const Counted& counted, const std::string& quantity) {
  const bool shares_a = counted.kernel.ends_with("_threadgroup");
  // Between two barriers no more than half of the 16 KB can be read while as much is written.
  if (shares_a && quantity == "barriers") return 32.0 * oracle::bytes_of(product.a_type) * 128 / (8 << 10);
  // A row of floats has a single byte of scales, so that a line has those of many rows.
  if (is_float(product.kind) && quantity == "scale lines") return shares_a ? 2 : 8;
  // The four simdgroups that share K each load the only record of a row.
  if (product.group == 0 && !shares_a && quantity == "scale lines") return 4;
  // Lanes of a row ask for the same scale, or factor of a super-block, in one load, whose lines are touched once.
  const bool two_level = metal_marlin::is_two_level(product.kind.scale_type);
  const bool narrow = metal_marlin::format_row(product.kind.format)->code_bits < 4;
  // One byte of Q2_K holds a scale and a minimum, so that there are half as many bytes to ask for.
  if (two_level && quantity == "+ scales") return narrow ? 1.34 : 1.3;
  if ((product.kind.sparse || narrow) && quantity == "+ scales") return 1.25;
  // Two of the four simdgroups that share K load the factors of a super-block. Beside those of IQ4_XS there are half as many
  // bytes of scales as in other formats.
  if (two_level && product.kind.format == MARLIN_FORMAT_IQ4 && quantity == "scale lines") return shares_a ? 1.05 : 1.4;
  if (two_level && !shares_a && quantity == "scale lines") return 1.2;
  return 0;
}

/// INT4 and INT8 have several sizes of groups. Of kinds, groups and M each two meet in the short form; a long
/// campaign has each three, which are three times as many kernels to compile.
std::vector<CountedProduct> cases_to_run() {
  std::vector<CountedProduct> cases = counted_cases();
  if (whole_campaigns()) return cases;
  std::erase_if(cases, [](const CountedProduct& c) {
    const auto of_name = [&](const Kind& kind) { return kind.name == std::string(c.kind.name); };
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), of_name) - std::begin(kKinds);
    const auto place = std::find(std::begin(kCountedM), std::end(kCountedM), c.m) - std::begin(kCountedM);
    const auto group = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(c.group)));
    const int64_t number = kind + group + place;
    if (c.kind.format == MARLIN_FORMAT_INT4 && !metal_marlin::is_two_level(c.kind.scale_type)) return number % 3 != 0;
    return c.kind.format == MARLIN_FORMAT_INT8 && number % 2 != 0;
  });
  return cases;
}

class Work : public testing::TestWithParam<CountedProduct> {};

TEST_P(Work, IsWhatTheLayoutPromises) {
  Counted counted;
  ASSERT_TRUE(count(GetParam(), counted));
  EXPECT_EQ(counted.counters.buffers.at(MARLIN_BUFFER_CODES).unique_bytes_read, counted.packed_code_bytes);
  for (const Quantity& quantity : counted.quantities) {
    if (quantity.met()) continue;
    EXPECT_LE(quantity.value, accepted(GetParam(), counted, quantity.name))
        << counted.kernel << ": " << quantity.name << " misses its goal of " << *quantity.goal;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Work, testing::ValuesIn(cases_to_run()), [](const auto& i) {
  const char* const a_type = i.param.a_type == MARLIN_F32 ? "_f32" : i.param.a_type == MARLIN_F16 ? "_f16" : "_bf16";
  return std::string(i.param.kind.name) + "_g" + std::to_string(i.param.group) + "_m" + std::to_string(i.param.m) + a_type;
});

class TensorWork : public testing::TestWithParam<CountedProduct> {};

TEST_P(TensorWork, DecodesEveryCodeOnce) {
  Counted counted;
  ASSERT_TRUE(count(GetParam(), counted));
  const metal_on_cpu::Counters& c = counted.counters;
  const auto& codes = c.buffers.at(MARLIN_BUFFER_CODES);
  const bool sparse = GetParam().kind.sparse;
  constexpr uint64_t m = 64, n = kCountedN, k = kCountedK, tiles = n / 64;
  // A thread wants one unit of the four that a lane's words of sparse codes hold.
  EXPECT_EQ(codes.bytes_read, counted.packed_code_bytes * (sparse ? 4 : 1));
  EXPECT_EQ(codes.simdgroup_lines, codes.unique_lines * (sparse ? 2 : 1));
  EXPECT_EQ(c.matrix_multiplies, 0u);
  EXPECT_EQ(c.tensor_multiply_adds, m * n * k);
  EXPECT_EQ(c.threadgroup_memory, 2u * 64 * 64 * 2 + 3 * 4 * 64 * 4);
  EXPECT_EQ(c.threadgroup_barriers, tiles * 2 * k / 64);
  const uint64_t steps = k / std::min<uint64_t>(static_cast<uint64_t>(GetParam().group), 64);
  const uint64_t zeros = GetParam().kind.zeros == ZeroKind::additive ? (n + m * tiles) * steps * 4 : 0;  // and sums of A
  EXPECT_EQ(c.threadgroup_bytes_written, m * k * 2 * tiles + n * k * 2 + n * steps * 4 + zeros);
}

class NaxWork : public testing::TestWithParam<CountedProduct> {};

/// Codes go from device memory to registers; threadgroup memory has sums alone, once.
TEST_P(NaxWork, HasNoBarrierAndNoMemoryForWeights) {
  Counted counted;
  ASSERT_TRUE(count(GetParam(), counted));
  const metal_on_cpu::Counters& c = counted.counters;
  const auto& codes = c.buffers.at(MARLIN_BUFFER_CODES);
  const auto m = static_cast<uint64_t>(GetParam().m), n = uint64_t{kCountedN}, k = uint64_t{kCountedK};
  constexpr uint64_t kSharers = 4;
  EXPECT_EQ(codes.bytes_read, counted.packed_code_bytes);
  EXPECT_EQ(codes.simdgroup_lines, 2 * codes.unique_lines) << "the lanes of a load take half of each line";
  EXPECT_EQ(c.matrix_multiplies, 0u);
  EXPECT_EQ(c.tensor_multiply_adds, m * n * k);
  EXPECT_EQ(c.threadgroup_memory, kSharers * m * 32 * 4);
  EXPECT_EQ(c.threadgroup_bytes_written, kSharers * m * n * 4);
  EXPECT_EQ(c.threadgroup_barriers, c.threadgroups);
}

constexpr const char *kNax16 = "m16_n32_nax", *kNax32 = "m32_n32_nax";
constexpr CountedProduct kNaxCases[] = {{kKinds[4], 32, 16, MARLIN_F16, kNax16},  {kKinds[4], 32, 32, MARLIN_F16, kNax32},
                                        {kKinds[0], 128, 16, MARLIN_F16, kNax16}, {kKinds[2], 64, 32, MARLIN_BF16, kNax32},
                                        {kKinds[5], 16, 32, MARLIN_BF16, kNax32}, {kKinds[20], 32, 32, MARLIN_F16, kNax32}};
INSTANTIATE_TEST_SUITE_P(Kernels, NaxWork, testing::ValuesIn(kNaxCases),
                         [](const auto& i) { return std::string(i.param.kind.name) + "_m" + std::to_string(i.param.m); });

constexpr const char* kTensor = "m64_n64_tensor";
constexpr CountedProduct kTensorCases[] = {{kKinds[4], 32, 64, MARLIN_F16, kTensor},
                                           {kKinds[0], 128, 64, MARLIN_F16, kTensor},
                                           {kKinds[2], 32, 64, MARLIN_BF16, kTensor},
                                           {kKinds[5], 16, 64, MARLIN_F16, kTensor},
                                           {kKinds[8], 64, 64, MARLIN_F16, kTensor}};
INSTANTIATE_TEST_SUITE_P(Kernels, TensorWork, testing::ValuesIn(kTensorCases),
                         [](const auto& i) { return std::string(i.param.kind.name); });

}  // namespace
}  // namespace shaders
