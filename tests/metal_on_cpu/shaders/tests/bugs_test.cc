// Planted bugs: every kernel of tests/shaders/bugs has one, and exactly the findings that its comments announce, on their
// lines.
#include <cctype>

#include "support.h"

namespace metal_on_cpu {
namespace {

using MarkedLine = std::pair<std::string, uint32_t>;  // kind, line

struct Planted {
  std::string file, kernel;
  std::set<MarkedLine> expected;
  uint32_t threads = 64;
};

// Reads "kernel void name(", "// BUG kind... [in=name]" and "// RUN threads=n".
std::vector<Planted> planted_in(const std::string& file) {
  std::vector<Planted> all;
  std::vector<std::pair<std::string, MarkedLine>> elsewhere;
  std::ifstream in(shader_path("bugs/" + file));
  uint32_t number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    if (line.starts_with("kernel void ")) all.push_back({file, line.substr(12, line.find('(') - 12), {}});
    if (const size_t at = line.find("// RUN threads="); at != std::string::npos)
      all.back().threads = static_cast<uint32_t>(std::stoul(line.substr(at + 15)));
    const size_t at = line.find("// BUG ");
    if (at == std::string::npos) continue;
    std::istringstream words(line.substr(at + 7));
    std::vector<std::string> kinds;
    std::string where;
    for (std::string word; words >> word;) word.starts_with("in=") ? void(where = word.substr(3)) : kinds.push_back(word);
    for (const std::string& kind : kinds) {
      if (where.empty())
        all.back().expected.insert({kind, number});
      else
        elsewhere.push_back({where, {kind, number}});
    }
  }
  for (const auto& [kernel, place] : elsewhere) {
    for (Planted& p : all) {
      if (p.kernel == kernel) p.expected.insert(place);
    }
  }
  return all;
}

std::vector<Planted> all_planted() {
  std::vector<Planted> all;
  for (const char* file : {"memory.metal", "order.metal", "lanes.metal", "variables.metal", "tensor.metal"}) {
    for (Planted& p : planted_in(file)) all.push_back(std::move(p));
  }
  return all;
}

void PrintTo(const Planted& p, std::ostream* out) { *out << p.kernel; }

// Two threadgroups of 64 threads; 128 values a buffer; 3 is all zero, 4 is an output.
Result<Report> run_planted(const Planted& p) {
  const auto& library = library_of("bugs/" + p.file);
  std::vector<float> x(128, 1), y(128), z(128), fresh(128);
  std::vector<int> zero(128);
  return library.kernel(p.kernel)
      .dispatch()
      .buffer(0, std::as_const(x))
      .buffer(1, y)
      .buffer(2, z)
      .buffer(3, std::as_const(zero))
      .output(4, fresh)
      .groups(2)
      .threads(p.threads)
      .step_budget(100000)
      .check()
      .run();
}

class PlantedBug : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedBug, IsFoundOnItsLine) {
  const Planted& p = GetParam();
  ASSERT_FALSE(p.expected.empty());
  auto report = must(run_planted(p));
  std::set<MarkedLine> found;
  for (const Finding& f : report.findings) {
    found.insert({f.kind, f.line});
    EXPECT_TRUE(f.file.ends_with(p.file)) << f.text();
    EXPECT_EQ(f.kernel, p.kernel) << f.text();
  }
  EXPECT_EQ(found, p.expected) << report.text();
}

INSTANTIATE_TEST_SUITE_P(Bugs, PlantedBug, ::testing::ValuesIn(all_planted()),
                         [](const auto& test) { return test.param.kernel; });

TEST(Findings, SayWhoAndWhere) {
  const auto& library = library_of("bugs/memory.metal");
  std::vector<float> x(128), y(128);
  auto report = must(
      library.kernel("read_past_end").dispatch().buffer(0, std::as_const(x)).buffer(1, y).groups(2).threads(64).check().run());
  ASSERT_EQ(report.findings.size(), 1u) << report.text();
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.buffer, 0);
  EXPECT_EQ(f.offset, 512);
  EXPECT_EQ(f.threadgroup.x, 1u);
  EXPECT_EQ(f.thread.x, 63u);
  EXPECT_FALSE(report.complete);
}

TEST(Findings, OfFastModeAreCrashesOnly) {
  const auto& library = library_of("bugs/memory.metal");
  std::vector<float> y(128);
  std::vector<int> zero(128);
  for (const auto& [kernel, kind] : {std::pair("null_read", "null-pointer"), std::pair("divide_by_zero", "division-by-zero")}) {
    auto report = must(library.kernel(kernel).dispatch().buffer(1, y).buffer(3, zero).groups(2).threads(64).run());
    ASSERT_EQ(report.findings.size(), 1u) << report.text();
    EXPECT_EQ(report.findings[0].kind, kind);
  }
}

}  // namespace
}  // namespace metal_on_cpu
