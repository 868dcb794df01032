// The command on a machine with a GPU, one of whose kernels computes wrongly.
#include "test.h"
#include "tools/json.h"
#include "tools/run_command.h"

namespace metal_marlin::test {
namespace {

TEST(Doctor, SaysWhichKernelsComputeRightHereAndWhichDoNot) {
  const Ran ran = run_command({"doctor"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("metal +test-bed"));
  EXPECT_THAT(ran.out, HasSubstr("kernels of metal test-bed"));
  EXPECT_THAT(ran.out, ContainsRegex("int4 +2 +gemv_u4_f16_m3 +gemv_u4_f16_m2"));
  EXPECT_THAT(ran.out, ContainsRegex("regdecode_u4_f16_m32_n32_nax +gemv_u4_f16_m2"));
  EXPECT_THAT(ran.out, ContainsRegex("regdecode_u4_f16_m32_n128_threadgroup is not used on this device: C\\[[0-9, ]+\\] is "));
  EXPECT_THAT(ran.out, HasSubstr("regdecode_u4_f16_m16_n32_direct is not used on this device: no kernel"));
  EXPECT_THAT(run_command({"doctor", "--no-measure"}).out, Not(HasSubstr("kernels of")));
}

TEST(Explain, SaysWhatServesInsteadOfARefusedKernel) {
  const Ran ran = run_command({"explain", "--backend", "metal", "--dtype", "f16", "-m", "1,20"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("M: 1\nkernel: gemv_u4_f16_m1\n"));
  EXPECT_THAT(ran.out, HasSubstr("M: 20\nkernel: gemv_u4_f16_m2\n"));
  EXPECT_THAT(ran.out, HasSubstr("instead_of: regdecode_u4_f16_m32_n32_nax\n"));
  EXPECT_THAT(run_command({"explain", "--backend", "cpu"}).out, Not(HasSubstr("kernel: gemv_u4")));
}

/// The records that a command printed, one a line, all of the Metal backend.
std::vector<tools::Json> records_of(const Ran& ran) {
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  std::vector<tools::Json> records;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) records.push_back(tools::Json::parse(line));
  for (const auto& record : records) EXPECT_EQ(record.at("backend"), "metal");
  return records;
}

TEST(Bench, TakesRatesFromTheClockOfTheDevice) {
  const Ran ran = run_command({"bench", "--backend", "metal", "--dtype", "f16", "--compute", "default", "--format", "int4",
                               "-n", "64", "-k", "96", "-m", "1,20", "--seconds", "0.01", "--json"});
  const auto records = records_of(ran);
  EXPECT_EQ(records.size(), 2u);
  for (const auto& record : records) {
    const double on_device = record.at("device_seconds").number();
    EXPECT_GT(on_device, 0);
    EXPECT_LT(on_device, record.at("seconds").number()) << "a part of the call";
    EXPECT_NEAR(record.at("gbytes_per_s").number(), record.at("weight_bytes").number() / on_device * 1e-9, 1e-6);
  }
}

TEST(Bench, TakesExpertsToTheDevice) {
  const Ran ran = run_command({"bench", "--backend", "metal", "--dtype",   "f16",  "--compute", "default", "--format",
                               "mxfp4", "-n",        "64",    "-k",        "96",   "-m",        "1,20",    "--experts",
                               "6",     "--top-k",   "2",     "--seconds", "0.01", "--json"});
  const auto records = records_of(ran);
  EXPECT_EQ(records.size(), 2u);
  for (const auto& record : records) {
    EXPECT_EQ(record.at("distinct_experts"), record.at("M") == 1 ? 2 : 6) << record;
    EXPECT_LT(record.at("nmse").number(), 1e-11) << record;
    EXPECT_GT(record.at("device_seconds").number(), 0);
  }
}

TEST(Doctor, SaysTheSameInJson) {
  const Ran ran = run_command({"doctor", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const auto checks = tools::Json::parse(ran.out).at("kernel_checks").at(0);
  EXPECT_EQ(checks.at("device"), "test-bed");
  EXPECT_EQ(checks.at("failure"), "");
  EXPECT_THAT(checks.at("messages").dump(), HasSubstr("regdecode_u4_f16_m32_n128_threadgroup is not used on this device: C["));
  for (const auto& kernel : checks.at("kernels").items())
    EXPECT_THAT(kernel.at("pipeline").dump(), ContainsRegex("up to [0-9]+ threads in simdgroups of 32")) << kernel;
  int refused = 0;
  for (const auto& kernel : checks.at("kernels").items()) refused += kernel.at("refused") == "regdecode_u4_f16_m32_n32_nax";
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace metal_marlin::test
