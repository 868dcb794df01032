// The command msl-run: results, findings, and what it says when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  const ProcessResult r = msl_run({kRight, "axpy_float", "--grid", "64", "--group", "32", "--buffer", "random:256", "--buffer",
                                   "256", "--buffer", "float:2", "--out", "1=" + out, "--count", "--seed", "4"});
  EXPECT_EQ(r.exit_code, 0) << r.output << r.errors;
  EXPECT_THAT(r.output, HasSubstr("threads                                64"));
  EXPECT_EQ(std::ifstream(out, std::ios::ate).tellg(), 256);
}

/// A kernel that copies the bytes of buffer 0 to buffer 1, so that both are printed.
std::string copied(const std::string& spec, const std::string& to, int bytes) {
  const std::string copy = ::testing::TempDir() + "/copy.metal";
  std::ofstream(copy) << "kernel void copy(device const uchar* x [[buffer(0)]], device uchar* y [[buffer(1)]],\n"
                         "                 uint i [[thread_position_in_grid]]) { y[i] = x[i]; }\n";
  const ProcessResult r =
      msl_run({copy, "copy", "--grid", std::to_string(bytes), "--group", "1", "--buffer", spec, "--buffer", to, "--check"});
  EXPECT_EQ(r.exit_code, 0) << r.output << r.errors;
  return r.output;
}

TEST(MslRun, PrintsTheValuesOfTypedBuffers) {
  // Of each type the least and the greatest number; the shader's bytes come back as the same values.
  const std::pair<const char*, int> values[] = {{"float: -3.4028235e+38 0.1 1e-45", 12},
                                                {"int: -2147483648 2147483647", 8},
                                                {"uint: 0 4294967295", 8},
                                                {"short: -32768 32767", 4},
                                                {"ushort: 0 65535", 4},
                                                {"char: -128 127", 2},
                                                {"uchar: 0 255", 2},
                                                {"long: -9223372036854775808 9223372036854775807", 16},
                                                {"ulong: 0 18446744073709551615", 16},
                                                {"half: -65504 1.5 5.9604645e-08 inf", 8},
                                                {"bfloat: -3.3895314e+38 1.5 9.1835e-41 inf", 8}};
  for (const auto& [text, bytes] : values) {
    std::string spec = text;
    const std::string type = spec.substr(0, spec.find(':'));
    spec.erase(spec.find(' '), 1);
    std::replace(spec.begin(), spec.end(), ' ', ',');
    const std::string zeros = type + ":zeros(" + std::to_string(std::count(spec.begin(), spec.end(), ',') + 1) + ")";
    EXPECT_THAT(copied(spec, zeros, bytes), HasSubstr("buffer 0 " + std::string(text) + "\nbuffer 1 " + text + "\n"));
  }
}

TEST(MslRun, RoundsToNarrowTypesAsHardwareDoes) {
  // Each value and the bits of the nearest half and bfloat, of two the even.
  EXPECT_THAT(copied("half:1,-0,2049,2051,65519,65520,1e-8,2.98e-8,2.99e-8,6.1e-5,nan", "ushort:zeros(11)", 22),
              HasSubstr("buffer 1 ushort: 15360 32768 26624 26626 31743 31744 0 0 1 1023 32256\n"));
  EXPECT_THAT(copied("bfloat:1,1.00390625,1.01171875,3.4e38,1e-45,1.1754944e-38", "ushort:zeros(6)", 12),
              HasSubstr("buffer 1 ushort: 16256 16256 16258 32640 0 128\n"));
}

TEST(MslRun, OfLongBuffersPrintsTheFirstValues) {
  const std::string said = copied("uchar:zeros(65)", "uchar:zeros(65)", 65);
  EXPECT_THAT(said, HasSubstr("0 0 ... (65 values)\n"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '0') >= 128, true);
}

TEST(MslRun, FindingsAreExitStatusOne) {
  const ProcessResult r =
      msl_run({kBugs, "read_past_end", "--grid", "128", "--group", "64", "--buffer", "512", "--buffer", "512", "--check"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.output,
              HasSubstr("memory.metal:6: out-of-bounds-read: reads 4 bytes at byte 512 of buffer(0), which has 512 bytes"));
  const ProcessResult json = msl_run(
      {kBugs, "read_past_end", "--grid", "128", "--group", "64", "--buffer", "512", "--buffer", "512", "--check", "--json"});
  EXPECT_THAT(json.output, HasSubstr("\"kind\":\"out-of-bounds-read\""));
}

TEST(MslRun, RepeatsAndEndsWhatDoesNotEnd) {
  const ProcessResult r = msl_run({kRight, "gemm_matrix_float", "--grid", "128,1", "--group", "128", "--buffer", "random:4096",
                                   "--buffer", "random:4096", "--buffer", "4096", "--buffer", "int:32,32,32", "--repeat", "3"});
  EXPECT_EQ(r.exit_code, 0) << r.output << r.errors;
  EXPECT_THAT(r.output, HasSubstr("CPU time of 3 runs: least 0."));
  const std::string endless = ::testing::TempDir() + "/endless.metal";
  std::ofstream(endless) << "kernel void k(device int* y [[buffer(0)]]) {\n  while (y[0] == 0) {}\n}\n";
  const ProcessResult ended = msl_run({endless, "k", "--grid", "1", "--group", "1", "--buffer", "4", "--time-limit", "0.05"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("time-limit: the dispatch has run for 0.05 s"));
}

/// A shader of these lines, in a file of that name.
std::string shader(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(MslRun, BindsOneMemoryToSeveralBuffersAndFromAByteOn) {
  const std::string add =
      shader("add.metal",
             "kernel void add(device int* x [[buffer(0)]], device int* y [[buffer(1)]],\n"
             "  device int* z [[buffer(2)]], uint i [[thread_position_in_grid]]) { y[i] = x[i] + z[i]; }\n");
  const std::vector<std::string> words = {add,           "add",      "--grid", "2",        "--group",   "2",        "--buffer",
                                          "int:1,2,3,4", "--buffer", "@0+8",   "--buffer", "int:5,6,7", "--offset", "2=4"};
  for (const char* check : {"--json", "--check"}) {
    std::vector<std::string> all = words;
    all.emplace_back(check);
    EXPECT_EQ(msl_run(all).exit_code, 0);
  }
  EXPECT_THAT(msl_run(words).output, HasSubstr("buffer 0 int: 1 2 7 9\nbuffer 2 int: 5 6 7\n"));
}

TEST(MslRun, ChecksReadOnlyBuffersAndSaysThatResultsAreMissing) {
  const std::string put = shader("put.metal",
                                 "kernel void put(device int* x [[buffer(0)]], device int* y [[buffer(1)]],\n"
                                 "  uint i [[thread_position_in_grid]]) { y[i] = 1; if (i == 2) x[0] = 1; }\n");
  const ProcessResult r = msl_run(
      {put, "put", "--grid", "4", "--group", "2", "--buffer", "4", "--buffer", "int:zeros(4)", "--read-only", "0", "--check"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.output, HasSubstr("write-to-constant: writes to buffer(0), which is read-only here"));
  EXPECT_THAT(r.output, HasSubstr("incomplete: threadgroups ended at a finding, and their results are missing\n"));
}

TEST(MslRun, EndsAfterSoManySteps) {
  const std::string endless =
      shader("steps.metal", "kernel void k(device int* y [[buffer(0)]]) {\n  while (y[0] == 0) {}\n}\n");
  const ProcessResult r = msl_run({endless, "k", "--grid", "1", "--group", "1", "--buffer", "4", "--check", "--steps", "500"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.output, HasSubstr("step-budget: a thread has executed 500 basic blocks"));
}

TEST(MslRun, LivesThroughWritesOutOfBounds) {
  const std::string stray = shader(
      "stray.metal", "kernel void k(device int* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n  y[i] = i;\n}\n");
  for (const char* bytes : {"1024", "64"}) {
    const ProcessResult r = msl_run({stray, "k", "--grid", "65536", "--group", "1024", "--buffer", bytes});
    EXPECT_EQ(r.exit_code, 1) << r.errors;
    EXPECT_THAT(r.output, HasSubstr("stray.metal:2: out-of-bounds-write: writes"));
  }
}

/// Word for word, in the project's folder.
TEST(MslRun, TheExampleOfItsHelpWorks) {
  const std::string help = msl_run({"--help"}).output;
  const size_t example = help.find("\n  msl-run shaders/tests/");
  ASSERT_NE(example, std::string::npos) << help;
  std::string command = help.substr(example + 3);
  command.replace(0, std::string("msl-run").size(), METAL_ON_CPU_RUN);
  const ProcessResult r = run_process({"sh", "-c", "cd '" + shader_path("../../..") + "' && " + command});
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
  say({kRight}, 2, "a kernel, --grid and --group are needed");
  say({kRight, "gemv", "--grid", "x", "--group", "1"}, 2, "--grid x");
  say({"absent.metal", "a", "--grid", "1", "--group", "1"}, 1, "absent.metal: cannot be read");
  say({kRight, "absent", "--grid", "1", "--group", "1"}, 1, "there is no such kernel; there are: axpy_float");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "64"}, 1, "no buffer is given for 'position' [[buffer(1)]]");
  say({kRight, "rope", "--grid", "0", "--group", "1", "--buffer", "64", "--buffer", "4"}, 1, "the grid is empty");
  say({kRight, "rope", "third"}, 2, "third: more than a file and a kernel");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "half:1,x"}, 2,
      "half:1,x: expected values of half or zeros(N), found 'x'");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "uchar:256"}, 2,
      "uchar:256: expected values of uchar or zeros(N), found '256'");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "int:"}, 2, "found none");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "int:zeros(9999999999)"}, 2, "more than 2^32 - 1 values");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "absent.bin"}, 2,
      "absent.bin: expected TYPE:V[,V...], TYPE:zeros(N), random:BYTES, a number of bytes or a file");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "40000000000"}, 2,
      "--buffer 40000000000: expected at most 8589934591 bytes, found 40000000000");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "@3"}, 2, "--buffer @3: there is no buffer 3 in front of it");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "4", "--buffer", "@0+8"}, 2, "buffer 0 has only 4 bytes");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--buffer", "4", "--offset", "0=5"}, 2,
      "--offset 0=5: buffer 0 has only");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--steps", "0"}, 2, "--steps 0");
  say({kRight, "rope", "--grid", "1", "--group", "1", "--constant", "absent=1"}, 2,
      "--constant absent=1: the shader has no such constant; it has: ");
  const std::string open = ::testing::TempDir() + "/open.metal", self = ::testing::TempDir() + "/self.metal";
  std::ofstream(open) << "kernel void k(device float* y [[buffer(0)]]) {\n  y[0] = 1;\n";
  say({open, "k", "--grid", "1", "--group", "1", "--buffer", "4"}, 1, "open.metal:2: error: expected '}'");
  std::ofstream(self) << "static int f(int n) {\n  return n < 2 ? 1 : n * f(n - 1);\n}\n"
                         "kernel void k(device int* y [[buffer(0)]]) { y[0] = f(y[0]); }\n";
  say({self, "k", "--grid", "1", "--group", "1", "--buffer", "4"}, 1, "self.metal:1: error: 'f(int)' calls itself");
  const std::string bad = ::testing::TempDir() + "/bad.metal";
  std::ofstream(bad) << "#include <metal_stdlib>\nkernel void k(device float* y [[buffer(0)]]) {\n  y[0] = nothing;\n}\n";
  say({bad, "k", "--grid", "1", "--group", "1", "--buffer", "4"}, 1,
      "bad.metal:3: error: use of undeclared identifier 'nothing'");
}

}  // namespace
}  // namespace metal_on_cpu
