// The commands that measure: their records and tables. What they say about speed is not tested.
#include <unistd.h>

#include <set>

#include "run_command.h"
#include "test.h"
#include "tools/json.h"

namespace metal_marlin::test {
namespace {

using tools::Json;

std::vector<Json> records_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<Json> records;
  for (std::string line; std::getline(in, line);) records.push_back(Json::parse(line));
  return records;
}

TEST(Bench, RecordsHaveEveryField) {
  const Ran ran = run_command({"bench", "-n", "96", "-k", "160", "-m", "1,3", "--seconds", "0.002", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());
  const auto records = records_of(ran.out);
  EXPECT_EQ(records.size(), 5u * 2 * 2);  // formats, computes, M
  for (const Json& record : records) {
    for (const char* field : {"backend", "kernel", "format", "compute", "limit"}) {
      EXPECT_TRUE(record.at(field).is_string()) << field << record;
      EXPECT_NE(record.at(field), "") << field << record;
    }
    for (const char* field : {"M", "N", "K", "group", "threads", "seconds", "gbytes_per_s", "gflops", "fraction_of_limit"}) {
      EXPECT_GT(record.at(field).number(), 0) << field << record;
    }
    EXPECT_EQ(record.at("N"), 96);
    EXPECT_EQ(record.at("K"), 160);
    EXPECT_LT(record.at("nmse").number(), record.at("compute") == "int8" ? 5e-4 : 1e-11) << record;
    const double flops = 2.0 * record.at("M").number() * 96 * 160 / record.at("seconds").number();
    EXPECT_NEAR(record.at("gflops").number(), flops / 1e9, 1e-6 * flops);
  }
}

TEST(Bench, WritesATraceOfTheSteps) {
  const ScratchFolder scratch;
  const std::string path = scratch.at("steps.json");
  const std::vector<std::string> arguments = {"bench",    "-n",   "96",        "-k",    "160",    "-m",      "3",
                                              "--format", "int4", "--seconds", "0.002", "--json", "--trace", path};
  const Ran ran = run_command(arguments);
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const std::string kernel = records_of(ran.out).front().at("kernel").text();
  const Json trace = Json::parse(read_file(path));
  ASSERT_TRUE(trace.at("traceEvents").is_array());
  std::set<std::string> steps, kernels;
  for (const Json& event : trace.at("traceEvents").items()) {
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_EQ(event.at("pid"), 1);
    EXPECT_EQ(event.at("tid"), 0);
    EXPECT_GE(event.at("ts").number(), 0);
    EXPECT_GE(event.at("dur").number(), 0);
    EXPECT_EQ(event.at("args").at("n"), 96);
    EXPECT_EQ(event.at("args").at("k"), 160);
    steps.insert(event.at("name").text());
    kernels.insert(event.at("args").at("kernel").text());
  }
  EXPECT_TRUE(steps.contains("multiply")) << trace;
  EXPECT_TRUE(kernels.contains(kernel)) << kernel;
  EXPECT_EQ(run_command(arguments).exit_code, 3) << "the file is there";
}

TEST(Bench, RacesSparseWeightsAgainstDenseOnes) {
  const Ran ran =
      run_command({"bench", "-n", "96", "-k", "164", "-m", "2", "--sparse", "both", "--seconds", "0.002", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const auto records = records_of(ran.out);
  EXPECT_EQ(records.size(), (4u * 2 + 1) * 2);  // formats of 4 bits, dense and sparse, and INT8; computes
  for (const Json& record : records) {
    const bool sparse = record.at("sparse") == "2:4";
    EXPECT_EQ(record.contains("dense_over_sparse"), sparse) << record;
    if (sparse) {
      EXPECT_GT(record.at("dense_over_sparse").number(), 0) << record;
    }
    EXPECT_LT(record.at("nmse").number(), record.at("compute") == "int8" ? 5e-4 : 1e-11) << record;
  }
  for (size_t i = 0; i + 2 < records.size(); ++i) {
    if (records[i].at("format") != records[i + 2].at("format") || records[i].at("sparse") == records[i + 2].at("sparse"))
      continue;
    EXPECT_LT(records[i + 2].at("weight_bytes").number(), records[i].at("weight_bytes").number()) << records[i];
  }
  const Ran table = run_command({"bench", "-n", "64", "-k", "64", "-m", "1", "--format", "fp4", "--sparse", "both", "--seconds",
                                 "0.002", "--compute", "default"});
  EXPECT_THAT(table.out, HasSubstr("fp4 2:4"));
  EXPECT_THAT(table.out, HasSubstr("over dense"));
}

TEST(Bench, RacesRowInvariantProductsAgainstUsualOnes) {
  const Ran ran = run_command(
      {"bench", "-n", "96", "-k", "160", "-m", "1,70", "--format", "nvfp4", "--row-invariant", "--seconds", "0.002", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const auto records = records_of(ran.out);
  ASSERT_EQ(records.size(), 8u);  // computes, M, with the flag and without
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].contains("over_usual"), i % 2 == 1) << records[i];
    if (i % 2 == 0) continue;
    EXPECT_EQ(records[i].at("M"), records[i - 1].at("M"));
    const double times = records[i].at("seconds").number() / records[i - 1].at("seconds").number();
    EXPECT_NEAR(records[i].at("over_usual").number(), times, 1e-6 * times);
  }
  const Ran table = run_command({"bench", "-n", "64", "-k", "64", "-m", "1", "--format", "fp4", "--row-invariant", "--seconds",
                                 "0.002", "--compute", "default"});
  EXPECT_THAT(table.out, HasSubstr("over usual"));
}

TEST(Bench, MultipliesByMixturesOfExperts) {
  const std::vector<std::string> experts = {"bench", "-n", "40", "-k", "64", "--experts", "6", "--seconds", "0.002"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = experts;
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  };
  const Ran ran = with({"--top-k", "2", "-m", "1,50", "--dtype", "f32,bf16", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  const auto records = records_of(ran.out);
  EXPECT_EQ(records.size(), 5u * 2 * 2 * 2);  // formats, computes, types, tokens
  for (const Json& record : records) {
    const int64_t tokens = record.at("M").integer(), distinct = record.at("distinct_experts").integer();
    EXPECT_EQ(record.at("experts"), 6);
    EXPECT_EQ(record.at("top_k"), 2);
    EXPECT_EQ(distinct, tokens == 1 ? 2 : 6) << "the experts of a token differ, and 100 slots leave none of 6 out" << record;
    EXPECT_LT(record.at("nmse").number(), record.at("compute") == "int8" ? 5e-4 : 1e-11) << record;
    const double seconds = record.at("seconds").number(),
                 one = record.at("weight_bytes").number() / static_cast<double>(distinct);
    EXPECT_EQ(one, records.at(0).at("format") == record.at("format") ? records.at(0).at("weight_bytes").number() / 2 : one);
    EXPECT_NEAR(record.at("gbytes_per_s").number() * seconds, static_cast<double>(distinct) * one / 1e9, 1e-12);
    EXPECT_NEAR(record.at("gflops").number() * seconds, 2.0 * 2 * static_cast<double>(tokens) * 40 * 64 / 1e9, 1e-12);
  }
  EXPECT_THAT(with({"--format", "mxfp4", "-m", "1"}).out, HasSubstr("mxfp4, 1 of 6 experts"));
  const auto skewed = records_of(with({"--format", "mxfp4", "-m", "50", "--skew", "8", "--json"}).out);
  ASSERT_EQ(skewed.size(), 2u);  // computes
  EXPECT_EQ(skewed[0].at("skew"), 8);
  EXPECT_LT(skewed[0].at("distinct_experts").number(), 6) << "the sixth has one of 1.7 million tokens";
  EXPECT_EQ(run_command({"bench", "--skew", "1"}).exit_code, 2) << "of what experts?";
  EXPECT_THAT(with({"--top-k", "7"}).err, HasSubstr("--top-k 7: expected at most the 6 of --experts"));
  EXPECT_EQ(with({"--top-k", "7"}).exit_code, 2);
  EXPECT_EQ(run_command({"bench", "--top-k", "2"}).exit_code, 2) << "of what experts?";
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

TEST(Bench, AllLayersOfAFileAndWhatATokenTakes) {
  const std::vector<std::string> command = {"bench",     "--file", data("gguf-llama-q4km"), "-m", "1", "--seconds", "0.001",
                                            "--compute", "default"};
  const Ran ran = run_command(command);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("1 row of bf16 activations through all 8 products, default compute"));
  EXPECT_THAT(ran.out, HasSubstr(" tokens a second\n"));
  std::vector<std::string> with = command;
  with.push_back("--json");
  std::map<std::string, int> times;
  for (const Json& record : records_of(run_command(with).out))
    times[record.at("type").text() + " " + record.at("N").dump()] += static_cast<int>(record.at("times_a_token").integer());
  EXPECT_EQ(times, (std::map<std::string, int>{
                       {"Q4_K 16", 1}, {"Q4_K 32", 3}, {"Q5_0 256", 1}, {"Q6_K 16", 1}, {"Q6_K 32", 1}, {"Q8_0 256", 1}}));
}

TEST(Bench, EveryFormatAndTypeOfBlocks) {
  const std::string types =
      "INT2,int3,int4,int5,int6,uint8,iq4,fp4,mxfp4,nvfp4,fp8,nf4,codebook4,int8,float32,float16,bfloat16,"
      "Q2_K,Q3_K,Q4_0,Q4_1,Q4_K,Q5_0,Q5_1,Q5_K,Q6_K,Q8_0,IQ4_NL,IQ4_XS";
  const Ran ran = run_command({"bench", "--format", types, "-n", "32", "-k", "256", "-m", "1", "--seconds", "0.001", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(records_of(ran.out).size(), 2u * 29);
  const Ran explained = run_command({"explain", "--format", "Q6_K", "-k", "256"});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_EQ(run_command({"explain", "--format", "q6_k", "-k", "96"}).exit_code, 2);
}

TEST(Bench, AFullDiskForStandardOutputExitsWith3) {
  if (std::ofstream full("/dev/full"); !(full << 'x') || (full << std::flush)) GTEST_SKIP() << "skipped: no /dev/full here";
  for (const char* how : {"--json", "--compute=int8"}) {
    const Ran ran = run_command({"bench", "-n", "96", "-k", "160", "--format", "int4", "-m", "1", "--seconds", "0.002", how},
                                {.out = "/dev/full"});
    EXPECT_EQ(ran.exit_code, 3) << how;
    EXPECT_THAT(ran.err, StartsWith("metal-marlin: ")) << how;
  }
}

TEST(Doctor, SaysInJsonAllButNames) {
  const Ran ran = run_command({"doctor", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const Json all = Json::parse(ran.out);
  EXPECT_NE(all.at("build").at("version"), "");
  EXPECT_NE(all.at("build").at("compiler"), "");
  EXPECT_NE(all.at("machine").at("processor"), "");
  EXPECT_GE(all.at("machine").at("threads").number(), 1);
  EXPECT_GE(all.at("devices").size(), 3u) << "those that are absent say why";
  int usable = 0;
  for (const Json& device : all.at("devices").items()) usable += device.at("why_not") == "";
  EXPECT_GE(usable, 1);
  EXPECT_EQ(all.at("kernel_checks").size(), static_cast<size_t>(usable - 1)) << "of GPUs";
  EXPECT_GT(all.at("limits").at("read_gbytes_per_s").number(), 0);
  EXPECT_GE(all.at("limits").at("gops").size(), 1u);
  for (const auto& [instruction, peak] : all.at("limits").at("gops").members()) EXPECT_GT(peak.number(), 0) << instruction;
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host), 0);
  if (std::string(host).size() > 4) {  // shorter ones are parts of words
    EXPECT_THAT(ran.out, Not(HasSubstr(host)));
  }
  const Json described = Json::parse(run_command({"doctor", "--json", "--no-measure"}).out);
  EXPECT_EQ(described.at("devices"), all.at("devices"));
  EXPECT_FALSE(described.contains("limits"));
}

TEST(Quickstart, RunsTheMainJob) {
  const Ran ran = run_command({"quickstart", MARLIN_TEST_DATA});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("all right"));
  EXPECT_THAT(ran.out, HasSubstr("gptq-v1-sym-g128"));
  EXPECT_THAT(ran.out, Not(HasSubstr("Not supported yet")));
}

TEST(Quickstart, AFolderWithNothingToMultiplyByExitsWith3) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.at("models/not-a-model"));
  for (const std::string& folder : {scratch.at("models/not-a-model"), scratch.at("models")}) {
    const Ran ran = run_command({"quickstart", folder});
    EXPECT_EQ(ran.exit_code, 3) << ran.out;
    EXPECT_THAT(ran.err, StartsWith("metal-marlin: " + folder + ": "));
    EXPECT_THAT(ran.out, Not(HasSubstr("all right")));
  }
}

}  // namespace
}  // namespace metal_marlin::test
