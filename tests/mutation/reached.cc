// Linked into every test program of ./dev mutate: writes, for each test, its milliseconds and the planted edits that it reached
// to the file METAL_MARLIN_REACHED_BY_TEST. Without this variable it does nothing.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "switch.h"

namespace {

class ReachedByTest final : public testing::EmptyTestEventListener {
 public:
  explicit ReachedByTest(const char* path) : file_(std::fopen(path, "a")) {}

  // What the set-up of a suite reaches, each test of the suite reaches.
  void OnTestSuiteStart(const testing::TestSuite&) override { of_suite_ = taken(); }
  void OnTestStart(const testing::TestInfo&) override {
    const std::vector<unsigned char> more = taken();
    for (size_t i = 0; i < more.size(); ++i) of_suite_[i] |= more[i];
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!file_) return;
    const char* outcome = test.result()->Passed() ? "passed" : "failed";
    std::fprintf(file_, "%s.%s\t%s\t%lld\t", test.test_suite_name(), test.name(), outcome,
                 static_cast<long long>(test.result()->elapsed_time()));
    const std::vector<unsigned char> own = taken();
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] | of_suite_[i]) std::fprintf(file_, "%zu ", i);
    }
    std::fprintf(file_, "\n");
    std::fflush(file_);
  }

 private:
  // The marks since the last call.
  static std::vector<unsigned char> taken() {
    const marlin_mutation::Reached& reached = marlin_mutation::reached;
    std::vector<unsigned char> marks(reached.marks, reached.marks + reached.count);
    if (reached.marks) std::memset(reached.marks, 0, marks.size());
    return marks;
  }

  std::FILE* file_;
  std::vector<unsigned char> of_suite_;
};

const bool listening = [] {
  const char* path = std::getenv("METAL_MARLIN_REACHED_BY_TEST");
  if (path) testing::UnitTest::GetInstance()->listeners().Append(new ReachedByTest(path));
  return path != nullptr;
}();

}  // namespace
