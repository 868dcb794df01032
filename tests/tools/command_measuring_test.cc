// The commands that measure: their records, tables and drawings. What they say about speed is not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "run_command.h"

namespace metal_marlin::test {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::vector<json> records_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<json> records;
  for (std::string line; std::getline(in, line);) records.push_back(json::parse(line));
  return records;
}

TEST(Bench, RecordsHaveEveryField) {
  const ScratchFolder scratch;
  const std::string svg = scratch.at("roofline.svg");
  const Ran ran = run_command({"bench", "-n", "96", "-k", "160", "-m", "1,3", "--seconds", "0.002", "--json", "--svg", svg});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());
  const auto records = records_of(ran.out);
  EXPECT_EQ(records.size(), 5u * 2 * 2);  // formats, computes, M
  for (const json& record : records) {
    for (const char* field : {"backend", "kernel", "format", "compute", "limit"}) {
      EXPECT_TRUE(record.at(field).is_string()) << field << record;
      EXPECT_NE(record.at(field), "") << field << record;
    }
    for (const char* field : {"M", "N", "K", "group", "threads", "seconds", "gbytes_per_s", "gflops", "fraction_of_limit"}) {
      EXPECT_GT(record.at(field).get<double>(), 0) << field << record;
    }
    EXPECT_EQ(record.at("N"), 96);
    EXPECT_EQ(record.at("K"), 160);
    EXPECT_LT(record.at("nmse").get<double>(), record.at("compute") == "int8" ? 5e-4 : 1e-11) << record;
    const double flops = 2.0 * record.at("M").get<double>() * 96 * 160 / record.at("seconds").get<double>();
    EXPECT_NEAR(record.at("gflops").get<double>(), flops / 1e9, 1e-6 * flops);
  }
  const std::string drawing = read_file(svg);
  EXPECT_THAT(drawing, StartsWith("<svg "));
  EXPECT_THAT(drawing, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(drawing, HasSubstr("reading memory"));
  EXPECT_THAT(drawing, HasSubstr("mxfp4"));
  EXPECT_THAT(drawing, Not(AnyOf(HasSubstr("nan"), HasSubstr("inf\""))));
}

TEST(Bench, RacesSparseWeightsAgainstDenseOnes) {
  const Ran ran =
      run_command({"bench", "-n", "96", "-k", "164", "-m", "2", "--sparse", "both", "--seconds", "0.002", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const auto records = records_of(ran.out);
  EXPECT_EQ(records.size(), (4u * 2 + 1) * 2);  // formats of 4 bits, dense and sparse, and INT8; computes
  for (const json& record : records) {
    const bool sparse = record.at("sparse") == "2:4";
    EXPECT_EQ(record.contains("dense_over_sparse"), sparse) << record;
    if (sparse) {
      EXPECT_GT(record.at("dense_over_sparse").get<double>(), 0) << record;
    }
    EXPECT_LT(record.at("nmse").get<double>(), record.at("compute") == "int8" ? 5e-4 : 1e-11) << record;
  }
  for (size_t i = 0; i + 2 < records.size(); ++i) {
    if (records[i].at("format") != records[i + 2].at("format") || records[i].at("sparse") == records[i + 2].at("sparse"))
      continue;
    EXPECT_LT(records[i + 2].at("weight_bytes").get<double>(), records[i].at("weight_bytes").get<double>()) << records[i];
  }
  const Ran table = run_command({"bench", "-n", "64", "-k", "64", "-m", "1", "--format", "fp4", "--sparse", "both", "--seconds",
                                 "0.002", "--compute", "default"});
  EXPECT_THAT(table.out, HasSubstr("fp4 2:4"));
  EXPECT_THAT(table.out, HasSubstr("over dense"));
}

TEST(Explain, SaysThatWeightsAreSparse) {
  const Ran ran = run_command({"explain", "--format", "mxfp4", "--sparse", "2:4", "-m", "1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("weights: 2:4 sparse"));
  EXPECT_THAT(ran.out, HasSubstr("weight_bytes: "));
  EXPECT_NE(run_command({"explain", "--sparse", "2:3"}).exit_code, 0);
}

TEST(Bench, ALayerOfAFileAndATable) {
  const Ran ran = run_command({"bench", "--file", data("gguf-mixed"), "--layer", "blk.9.ffn_up_exps.weight", "--expert", "2",
                               "-m", "2", "--seconds", "0.002", "--compute", "default", "--dtype", "f16"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("64 x 128 (N x K)"));
  EXPECT_THAT(ran.out, HasSubstr("of limit"));
}

TEST(Quickstart, RunsTheMainJob) {
  const ScratchFolder scratch;
  const std::string svg = scratch.at("roofline.svg");
  const Ran ran = run_command({"quickstart", MARLIN_TEST_DATA, "-n", "320", "-k", "256", "--svg", svg});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("all right"));
  EXPECT_THAT(ran.out, HasSubstr("gptq-v1-sym-g128"));
  EXPECT_THAT(ran.out, Not(HasSubstr("Not supported yet")));
  EXPECT_THAT(ran.out, HasSubstr(svg));
  EXPECT_THAT(read_file(svg), StartsWith("<svg "));
}

}  // namespace
}  // namespace metal_marlin::test
