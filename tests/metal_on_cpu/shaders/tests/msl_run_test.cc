// The command msl-run: results, findings, and what it says when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "compiler/process.h"
#include "support.h"

namespace metal_on_cpu {
namespace {

using ::testing::HasSubstr;

ProcessResult msl_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), METAL_ON_CPU_RUN);
  return run_process(arguments);
}
const std::string kBugs = shader_path("bugs/memory.metal"), kRight = shader_path("correct/linear.metal");

TEST(MslRun, RunsCountsAndWritesResults) {
  const std::string out = ::testing::TempDir() + "/msl-run.out";
  const ProcessResult r =
      msl_run({kRight, "--kernel", "axpy_float", "--groups", "2", "--threads", "32", "--buffer", "random:256", "--buffer",
               "256", "--buffer", "float:2", "--out", "1=" + out, "--count", "--seed", "4"});
  EXPECT_EQ(r.exit_code, 0) << r.output << r.errors;
  EXPECT_THAT(r.output, HasSubstr("threads                                64"));
  EXPECT_EQ(std::ifstream(out, std::ios::ate).tellg(), 256);
}

TEST(MslRun, FindingsAreExitStatusOne) {
  const ProcessResult r = msl_run({kBugs, "--kernel", "read_past_end", "--groups", "2", "--threads", "64", "--buffer", "512",
                                   "--buffer", "512", "--check"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.output,
              HasSubstr("memory.metal:6: out-of-bounds-read: reads 4 bytes at byte 512 of buffer(0), which has 512 bytes"));
  const ProcessResult json = msl_run({kBugs, "--kernel", "read_past_end", "--grid", "128", "--threads", "64", "--buffer", "512",
                                      "--buffer", "512", "--check", "--json"});
  EXPECT_THAT(json.output, HasSubstr("\"kind\":\"out-of-bounds-read\""));
}

TEST(MslRun, RepeatsAndEndsWhatDoesNotEnd) {
  const ProcessResult r =
      msl_run({kRight, "--kernel", "gemm_matrix_float", "--groups", "1,1", "--threads", "128", "--buffer", "random:4096",
               "--buffer", "random:4096", "--buffer", "4096", "--buffer", "int:32,32,32", "--repeat", "3"});
  EXPECT_EQ(r.exit_code, 0) << r.output << r.errors;
  EXPECT_THAT(r.output, HasSubstr("CPU time of 3 runs: least 0."));
  const std::string endless = ::testing::TempDir() + "/endless.metal";
  std::ofstream(endless) << "kernel void k(device int* y [[buffer(0)]]) {\n  while (y[0] == 0) {}\n}\n";
  const ProcessResult ended =
      msl_run({endless, "--kernel", "k", "--groups", "1", "--threads", "1", "--buffer", "4", "--time-limit", "0.05"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("time-limit: the dispatch has run for 0.05 s"));
}

/// Word for word, in the project's folder.
TEST(MslRun, TheExampleOfItsHelpWorks) {
  const std::string help = msl_run({"--help"}).output;
  const size_t example = help.find("\n  msl-run tests/");
  ASSERT_NE(example, std::string::npos) << help;
  std::string command = help.substr(example + 3);
  command.replace(0, std::string("msl-run").size(), METAL_ON_CPU_RUN);
  const ProcessResult r = run_process({"sh", "-c", "cd '" + shader_path("../..") + "' && " + command});
  EXPECT_EQ(r.exit_code, 0) << r.output << r.errors;
  EXPECT_THAT(r.output, HasSubstr("threads                                64"));
}

TEST(MslRun, ListsKernels) { EXPECT_THAT(msl_run({kRight, "--list"}).output, HasSubstr("gemm_matrix_half\n")); }

TEST(MslRun, SaysWhatIsWrong) {
  const auto say = [](std::vector<std::string> arguments, int code, const char* text) {
    const ProcessResult r = msl_run(std::move(arguments));
    EXPECT_EQ(r.exit_code, code) << r.errors;
    EXPECT_THAT(r.errors, HasSubstr(text));
  };
  say({}, 2, "usage:");
  say({kRight}, 2, "--kernel, --threads and --groups or --grid are needed");
  say({kRight, "--kernel", "gemv", "--groups", "x", "--threads", "1"}, 2, "--groups x");
  say({"absent.metal", "--kernel", "a", "--groups", "1", "--threads", "1"}, 1, "absent.metal: cannot be read");
  say({kRight, "--kernel", "absent", "--groups", "1", "--threads", "1"}, 1, "there is no such kernel; there are: axpy_float");
  say({kRight, "--kernel", "rope", "--groups", "1", "--threads", "1", "--buffer", "64"}, 1,
      "no buffer is given for 'position' [[buffer(1)]]");
  say({kRight, "--kernel", "rope", "--groups", "0", "--threads", "1", "--buffer", "64", "--buffer", "4"}, 1,
      "the grid is empty");
  const std::string bad = ::testing::TempDir() + "/bad.metal";
  std::ofstream(bad) << "#include <metal_stdlib>\nkernel void k(device float* y [[buffer(0)]]) {\n  y[0] = nothing;\n}\n";
  say({bad, "--kernel", "k", "--groups", "1", "--threads", "1", "--buffer", "4"}, 1,
      "bad.metal:3: error: use of undeclared identifier 'nothing'");
}

}  // namespace
}  // namespace metal_on_cpu
