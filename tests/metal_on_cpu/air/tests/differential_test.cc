// Apple's compiler and this project's front-end on the same kernels: outputs agree in every bit, and traffic, barriers and
// collectives in number, but for the differences that the families' tables explain.
//   METAL_ON_CPU_LONG=1   all kernels; else the first of each group
#include "differential.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "wheel.h"

namespace metal_on_cpu::differential {
namespace {

struct Tally {
  size_t kernels = 0, identical = 0, explained = 0;
};

// A line a group at the end of the program.
class Table : public ::testing::Environment {
 public:
  static std::map<std::string, Tally>& lines() {
    static std::map<std::string, Tally> all;
    return all;
  }
  void TearDown() override {
    Tally sum;
    for (const auto& [name, t] : lines()) {
      print(name, t);
      sum.kernels += t.kernels, sum.identical += t.identical, sum.explained += t.explained;
    }
    print("all", sum);
  }

 private:
  static void print(const std::string& name, const Tally& t) {
    std::printf("%-32s %4zu kernels, %4zu identical, %3zu explained\n", name.c_str(), t.kernels, t.identical, t.explained);
  }
};
[[maybe_unused]] const ::testing::Environment* const kTable = ::testing::AddGlobalTestEnvironment(new Table);

class Differential : public ::testing::TestWithParam<Group> {
 protected:
  void SetUp() override {
    if (!air::wheel().absent.empty()) GTEST_SKIP() << air::wheel().absent;
  }
};

// The differences of one case; those that the group knows are struck off and remembered as met.
void judge(const Group& group, const Case& c, const std::vector<Difference>& differences, std::vector<bool>& met) {
  bool unexplained = false;
  for (const Difference& d : differences) {
    bool known = false;
    for (size_t i = 0; i < group.known.size(); ++i) {
      const Known& k = group.known[i];
      if (fnmatch(k.kernels.c_str(), c.kernel.c_str(), 0) == 0 && fnmatch(k.what.c_str(), d.what.c_str(), 0) == 0)
        known = met[i] = true;
    }
    if (known) continue;
    unexplained = true;
    ADD_FAILURE() << c.kernel << ": " << d.what << ": by Apple's compiler and by ours " << d.text;
  }
  Tally& tally = Table::lines()[group.name];
  tally.identical += differences.empty();
  tally.explained += !differences.empty() && !unexplained;
}

TEST_P(Differential, BothCompilersAgree) {
  const Group& group = GetParam();
  const bool all = std::getenv("METAL_ON_CPU_LONG") != nullptr;
  const auto apple = wheel_library();
  ASSERT_TRUE(apple.ok()) << apple.message();
  std::vector<bool> met(group.known.size());
  std::vector<Case> rest(group.cases.begin(), all ? group.cases.end() : group.cases.begin() + 1);
  while (!rest.empty()) {
    // One image has one set of values of the function constants.
    const auto constants = rest.front().constants;
    const auto ours = source_library(group, rest);
    ASSERT_TRUE(ours.ok()) << ours.message();
    for (const Case& c : rest) {
      if (c.constants != constants) continue;
      ++Table::lines()[group.name].kernels;
      const auto differences = compare(c, apple.value(), ours.value());
      if (!differences) {
        ADD_FAILURE() << c.kernel << ": " << differences.message().substr(0, 1000);
        break;  // the others of the same source would say the same
      }
      judge(group, c, differences.value(), met);
    }
    std::erase_if(rest, [&](const Case& c) { return c.constants == constants; });
  }
  for (size_t i = 0; i < met.size() && all; ++i)
    EXPECT_TRUE(met[i]) << "the explained difference '" << group.known[i].what << "' of " << group.known[i].kernels
                        << " is gone";
}

INSTANTIATE_TEST_SUITE_P(Wheel, Differential, ::testing::ValuesIn(all_groups()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace metal_on_cpu::differential
