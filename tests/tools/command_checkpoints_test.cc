// The command on every folder of tests/data: what it lists, what it unpacks, what it verifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <set>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_command.h"
#include "safetensors.h"

namespace metal_marlin::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> folders() {
  std::vector<std::string> names;
  const json index = json::parse(read_file(data("index.json")));  // items() borrows
  for (const auto& [name, about] : index.items()) names.push_back(name);
  return names;
}

class Checkpoints : public testing::TestWithParam<std::string> {
 protected:
  static bool floats() { return GetParam().starts_with("float-") || GetParam() == "ct-sparse-24-bitmask"; }
};

TEST_P(Checkpoints, InspectListsWhatTheIndexSays) {
  const Ran ran = run_command({"inspect", "--json", data(GetParam())});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());
  const json listed = json::parse(ran.out);
  const json expected = json::parse(read_file(data("index.json"))).at(GetParam()).at("layers");
  for (const auto& [name, shape] : expected.items()) {
    const json* found = nullptr;
    for (const json& layer : listed.at("layers")) {
      if (layer.at("name") == name) found = &layer;
    }
    ASSERT_TRUE(found) << name << " is missing in " << ran.out;
    EXPECT_TRUE(found->at("loads")) << found->dump();
    EXPECT_EQ(found->at("why_not"), "");
    const bool sparse = GetParam().find("-24-") != std::string::npos;
    EXPECT_EQ(found->at("flags").dump().find("2:4") != std::string::npos, sparse) << found->dump();
    const bool stack = shape.size() == 3;
    EXPECT_EQ(found->at("experts"), stack ? shape.at(0) : json(1));
    EXPECT_EQ(found->at("n"), shape.at(shape.size() - 2));
    EXPECT_EQ(found->at("k"), shape.at(shape.size() - 1));
    EXPECT_EQ(found->at("format") == "float", floats()) << found->dump();
  }
  EXPECT_EQ(listed.at("totals").at("layers"), listed.at("layers").size());
}

TEST_P(Checkpoints, UnpackGivesTheTrueValuesBitForBit) {
  const ScratchFolder scratch;
  const Ran ran = run_command({"unpack", data(GetParam()), "-o", scratch.at("values.safetensors")});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(scratch.entries(), 1u);
  const auto got = read_safetensors(scratch.at("values.safetensors"));
  const auto want = read_safetensors(data(GetParam() + "/decoded.safetensors"));
  // A tensor of floats without known values.
  const std::set<std::string> with_floats = {"gguf-mixed", "qwen3moe-gptq-experts", "mxfp4-gpt-oss-original",
                                             "mlx-mixed-modes"};
  const size_t floats_beside = with_floats.count(GetParam());
  ASSERT_EQ(got.size(), want.size() + floats_beside);
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).shape, tensor.shape) << name;
    EXPECT_TRUE(got.at(name) == tensor) << name << " differs";
  }
}

TEST_P(Checkpoints, VerifyIsGreen) {
  const Ran ran = run_command({"verify", data(GetParam())});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr(" 0 wrong"));
  EXPECT_THAT(ran.out, HasSubstr(floats() ? "-> nvfp4" : "equal"));
  EXPECT_THAT(ran.err, IsEmpty());  // no bar where there is no terminal
}

INSTANTIATE_TEST_SUITE_P(Data, Checkpoints, testing::ValuesIn(folders()), [](const auto& about) {
  std::string name = about.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Inspect, ShowsASplitModelAsOneCheckpoint) {
  const json expected = json::parse(read_file(data("index.json"))).at("gguf-split").at("layers");
  for (const char* path : {"gguf-split", "gguf-split/model-00001-of-00003.gguf"}) {
    const Ran ran = run_command({"inspect", "--json", data(path)});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const json listed = json::parse(ran.out);
    ASSERT_EQ(listed.at("layers").size(), expected.size());
    for (const json& layer : listed.at("layers")) EXPECT_TRUE(expected.contains(layer.at("name"))) << layer.dump();
  }
  const Ran later = run_command({"inspect", data("gguf-split/model-00003-of-00003.gguf")});
  EXPECT_NE(later.exit_code, 0);
  EXPECT_THAT(later.err, HasSubstr("open its first part, 'model-00001-of-00003.gguf'"));
}

/// A GGUF file of layers without elements: a few bytes each.
std::string empty_layers(uint64_t count) {
  std::string out;
  const auto append = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  append(uint32_t{0x46554747});
  append(uint32_t{3});
  append(count);
  append(uint64_t{0});
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = "l" + std::to_string(i);
    append(uint64_t{name.size()});
    out += name;
    append(uint32_t{2});
    append(int64_t{0});
    append(int64_t{0});
    append(int32_t{2});
    append(uint64_t{0});
  }
  return out + std::string(32 - out.size() % 32, '\0');
}

/// The most memory that a process has had of those that have ended, in bytes.
int64_t most_memory() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(Inspect, KeepsNoLayerInMemory) {
#ifdef MARLIN_COMMAND_SANITIZED
  GTEST_SKIP() << "sanitizers keep memory that is freed";
#endif
  const ScratchFolder scratch;
  write_file(scratch.at("few.gguf"), empty_layers(2));
  const std::string many = empty_layers(200'000);
  write_file(scratch.at("many.gguf"), many);
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--json"}}) {
    const auto inspect = [&](const char* file) {
      std::vector<std::string> arguments = {"inspect", scratch.at(file)};
      arguments.insert(arguments.end(), flags.begin(), flags.end());
      const Ran ran = run_command(arguments);
      EXPECT_EQ(ran.exit_code, 0) << ran.err;
      return ran.out;
    };
    inspect("few.gguf");
    const int64_t before = most_memory();
    const std::string out = inspect("many.gguf");
    EXPECT_THAT(out, HasSubstr("l199999"));
    EXPECT_TRUE(flags.empty() || json::accept(out));
    // Four times the header to open it, and the header itself, whose pages are mapped.
    EXPECT_LE(most_memory() - before, static_cast<int64_t>(5 * many.size() + (size_t{4} << 20)));
  }
}

}  // namespace
}  // namespace metal_marlin::test
