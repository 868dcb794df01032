// Every input of tests/fuzz/kept, each of which once broke a promise, given to its target again; those of tests/fuzz/corpora;
// and a few thousand that this test makes, so that each target runs in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "fuzz/target.h"
#include "unit/checkpoint_files.h"

#define MARLIN_TARGET(name) void fuzz_##name(metal_marlin::fuzz::Bytes input);
#ifdef MARLIN_FUZZ_ARGUMENTS
#define MARLIN_TARGETS(X) X(safetensors) X(gguf) X(folder) X(pack) X(product) X(convert) X(arguments)
#else
#define MARLIN_TARGETS(X) X(safetensors) X(gguf) X(folder) X(pack) X(product) X(convert)
#endif
MARLIN_TARGETS(MARLIN_TARGET)

namespace metal_marlin::fuzz {
namespace {

struct Target {
  const char* name;
  void (*run)(Bytes);
};
constexpr Target kTargets[] = {
#define MARLIN_ROW(name) {#name, fuzz_##name},
    MARLIN_TARGETS(MARLIN_ROW)
#undef MARLIN_ROW
};

class Replay : public ::testing::TestWithParam<Target> {};

/// The bytes lie in a block of their size, so that AddressSanitizer sees a read beyond.
void run(const Target& target, const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  target.run(bytes);
}

TEST_P(Replay, KeptInputsAreHarmless) {
  const std::filesystem::path folder = std::filesystem::path(MARLIN_KEPT_INPUTS) / GetParam().name;
  run(GetParam(), "");
  if (!std::filesystem::exists(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::fprintf(stderr, "%s\n", entry.path().c_str());  // the last one is the culprit of a crash
    run(GetParam(), metal_marlin::testing::read_file(entry.path()));
  }
}

/// Those of the corpora that together reached the most, each behind its length (tests/fuzz/corpora.py).
TEST_P(Replay, CorporaAreHarmless) {
  const std::string path = std::string(MARLIN_CORPORA) + "/" + GetParam().name + ".inputs";
  const std::string all = metal_marlin::testing::read_file(path);
  int inputs = 0;
  for (size_t at = 0; at < all.size(); ++inputs) {
    uint32_t length = 0;
    ASSERT_LE(at + sizeof length, all.size());
    std::memcpy(&length, all.data() + at, sizeof length);
    at += sizeof length;
    ASSERT_LE(length, all.size() - at);
    SCOPED_TRACE(::testing::Message() << "input " << inputs << " of " << path);
    run(GetParam(), all.substr(at, length));
    at += length;
  }
  EXPECT_GT(inputs, 0);
}

TEST_P(Replay, MadeInputsAreHarmless) {
  const unsigned seed = std::random_device{}();
  std::fprintf(stderr, "seed %u\n", seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::string input(random() % 60, '\0');
    // Zeros are usual values; a few other bytes are the mistakes.
    for (char& byte : input)
      if (random() % 4 == 0) byte = static_cast<char>(random());
    run(GetParam(), input);
  }
}

INSTANTIATE_TEST_SUITE_P(Target, Replay, ::testing::ValuesIn(kTargets), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace metal_marlin::fuzz
