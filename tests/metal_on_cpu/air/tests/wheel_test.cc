// All kernels of the wheel convert and pass the verifier: in the short form every fiftieth, with METAL_ON_CPU_LONG=1 each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "../src/convert.h"
#include "wheel.h"

namespace metal_on_cpu::air {
namespace {

constexpr size_t kFunctions = 17248;

TEST(Wheel, EveryKernelConverts) {
  if (!wheel().absent.empty()) GTEST_SKIP() << wheel().absent;
  const auto opened = Metallib::open(wheel().metallib);
  ASSERT_TRUE(std::holds_alternative<Metallib>(opened)) << std::get<ReadError>(opened).text();
  const auto& library = std::get<Metallib>(opened);
  ASSERT_EQ(library.functions().size(), kFunctions);
  ConvertOptions options;
  options.absent_constants_are_zero = true;
  const size_t step = std::getenv("METAL_ON_CPU_LONG") ? 1 : 50;
  for (size_t i = 0; i < library.functions().size(); i += step) {
    const Function& f = library.functions()[i];
    options.checked = i / step % 2;
    options.contraction = {i / step % 3 != 0, i / step % 4 == 0, i / step % 5 == 0};
    options.flush_to_zero = i / step % 7 == 0;
    const auto module = library.module(f);
    ASSERT_TRUE(std::holds_alternative<Bytes>(module)) << std::get<ReadError>(module).text();
    const auto ir = air_to_ir(std::get<Bytes>(module), options);
    EXPECT_TRUE(ir.ok()) << f.name << ": " << ir.message();
    if (ir.ok()) {
      EXPECT_EQ(ir.value().find("addrspace("), std::string::npos) << f.name;
      EXPECT_EQ(ir.value().find("@air.atomic"), std::string::npos) << f.name;
    }
  }
}

TEST(Wheel, NamesTheConstantWithoutAValue) {
  if (!wheel().absent.empty()) GTEST_SKIP() << wheel().absent;
  const auto opened = Metallib::open(wheel().metallib);
  const auto module = std::get<Metallib>(opened).module("rope_single_float16");
  ASSERT_TRUE(std::holds_alternative<Bytes>(module));
  ConvertOptions options;
  options.constants[1] = true;
  options.named_constants["hs_transpose"] = false;
  const auto ir = air_to_ir(std::get<Bytes>(module), options);
  ASSERT_FALSE(ir.ok());
  EXPECT_THAT(ir.message(), ::testing::HasSubstr("function constant 'traditional' (2) of type bool has no value"));
  options.constants[2] = 1.5;
  EXPECT_THAT(air_to_ir(std::get<Bytes>(module), options).message(), ::testing::HasSubstr("the value given is of another"));
  options.constants[2] = false;
  EXPECT_EQ(air_to_ir(std::get<Bytes>(module), options).message(), "");
}

}  // namespace
}  // namespace metal_on_cpu::air
