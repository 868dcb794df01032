// Work that kernels do, counted: every byte of weights once, whole cache lines, no threadgroup memory for weights, few
// barriers. `metal-marlin bench --metal-counters` prints what is counted here.
#include <string>

#include "counted.h"

namespace shaders {
namespace {

/// The most that is accepted where a goal cannot be met; docs/decisions/0004-metal-kernels.md says why.
double accepted(const Case& product, const Counted& counted, const std::string& quantity) {
  const bool wide = counted.kernel.starts_with("gemm_m64"), staged = wide || counted.kernel.starts_with("gemm_m32");
  // Between two barriers no more than half of the 16 KB can be read while as much is written.
  if (staged && quantity == "barriers") return (wide ? 64.0 : 32.0) * oracle::bytes_of(product.a_type) * 128 / (8 << 10);
  // The four simdgroups that share K each load the only record of a row.
  if (product.group == 0 && !staged && quantity == "scale lines") return 4;
  // Lanes of a row ask for the same scale in one load, whose lines are touched once.
  if (product.kind.sparse && quantity == "+ scales") return 1.25;
  return 0;
}

class Work : public testing::TestWithParam<Case> {};

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

INSTANTIATE_TEST_SUITE_P(Kernels, Work, testing::ValuesIn(counted_cases()), [](const auto& i) {
  const char* const a_type = i.param.a_type == MARLIN_F32 ? "_f32" : i.param.a_type == MARLIN_F16 ? "_f16" : "_bf16";
  return std::string(i.param.kind.name) + "_g" + std::to_string(i.param.group) + "_m" + std::to_string(i.param.m) + a_type;
});

}  // namespace
}  // namespace shaders
