// The command on every folder of tests/data: what it lists, what it unpacks, what it verifies. METAL_MARLIN_DATA names another
// folder with an index.json, whose folders are tested instead.
#include <sys/resource.h>
#include <cctype>

#include "run_command.h"
#include "safetensors.h"
#include "test.h"
#include "tools/json.h"

namespace metal_marlin::test {
namespace {

using tools::Json;

std::string of_index(const std::string& name) {
  const char* const other = std::getenv("METAL_MARLIN_DATA");
  return other == nullptr ? data(name) : std::string(other) + "/" + name;
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  const Json index = Json::parse(read_file(of_index("index.json")));  // members() borrows
  for (const auto& [name, about] : index.members()) names.push_back(name);
  return names;
}

using Tensors = std::map<std::string, FloatTensor>;

/// The known values of a folder, with experts that are stored one by one ("M.experts.E.L") as the stack that the library
/// makes of them ("M.experts.L").
Tensors known_values(const std::string& folder) {
  const Tensors all = read_safetensors(of_index(folder + "/decoded.safetensors"));
  Tensors values;
  std::map<std::string, std::map<int, const FloatTensor*>> stacks;
  const std::string experts = ".experts.";
  for (const auto& [name, tensor] : all) {
    const size_t number = name.find(experts) == std::string::npos ? 0 : name.find(experts) + experts.size();
    const size_t end = name.find('.', number);
    if (number != 0 && std::isdigit(static_cast<unsigned char>(name[number])) != 0)
      stacks[name.substr(0, number - 1) + name.substr(end)][std::stoi(name.substr(number))] = &tensor;
    else
      values[name] = tensor;
  }
  for (const auto& [name, of_number] : stacks) {  // a map of numbers: expert 10 follows expert 9
    FloatTensor& stack = values[name];
    stack = *of_number.at(0);
    stack.shape.insert(stack.shape.begin(), static_cast<int64_t>(of_number.size()));
    stack.bytes.clear();
    for (const auto& [number, tensor] : of_number) stack.bytes += tensor->bytes;
  }
  return values;
}

class Checkpoints : public testing::TestWithParam<std::string> {
 protected:
  static bool floats() {
    return GetParam().starts_with("float-") || GetParam() == "gguf-floats" || GetParam() == "ct-sparse-24-bitmask";
  }
  /// Types that the library does not read, between layers that it reads.
  static bool has_foreign_types() { return GetParam() == "gguf-foreign-types"; }
};

TEST_P(Checkpoints, InspectListsWhatTheIndexSays) {
  const Ran ran = run_command({"inspect", "--json", of_index(GetParam())});
  ASSERT_EQ(ran.exit_code, has_foreign_types() ? 1 : 0) << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());
  const Json listed = Json::parse(ran.out);
  const Tensors expected = known_values(GetParam());
  for (const auto& [name, values] : expected) {
    const auto& shape = values.shape;
    const Json* found = nullptr;
    for (const Json& layer : listed.at("layers").items()) {
      if (layer.at("name") == name) found = &layer;
    }
    ASSERT_TRUE(found) << name << " is missing in " << ran.out;
    EXPECT_TRUE(found->at("loads").boolean()) << found->dump();
    EXPECT_EQ(found->at("why_not"), "");
    const bool sparse = GetParam().find("-24-") != std::string::npos;
    EXPECT_EQ(found->at("flags").dump().find("2:4") != std::string::npos, sparse) << found->dump();
    EXPECT_EQ(found->at("experts"), shape.size() == 3 ? shape[0] : 1);
    EXPECT_EQ(found->at("n"), shape.at(shape.size() - 2));
    EXPECT_EQ(found->at("k"), shape.at(shape.size() - 1));
    EXPECT_TRUE(!floats() || found->at("format") == "float") << found->dump();
  }
  EXPECT_EQ(listed.at("totals").at("layers"), listed.at("layers").size());
}

TEST_P(Checkpoints, UnpackGivesTheTrueValuesBitForBit) {
  const ScratchFolder scratch;
  const Ran ran = run_command({"unpack", of_index(GetParam()), "-o", scratch.at("values.safetensors")});
  ASSERT_EQ(ran.exit_code, has_foreign_types() ? 1 : 0) << ran.err;
  EXPECT_EQ(ran.err.find("left out") != std::string::npos, has_foreign_types()) << ran.err;
  EXPECT_EQ(scratch.entries(), 1u);
  const auto got = read_safetensors(scratch.at("values.safetensors"));
  const auto want = known_values(GetParam());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).shape, tensor.shape) << name;
    EXPECT_TRUE(got.at(name).bytes == tensor.bytes) << name << " differs";
  }
  // What has no known values are floats.
  const Json listed = Json::parse(run_command({"inspect", "--json", of_index(GetParam())}).out);
  for (const Json& layer : listed.at("layers").items())
    EXPECT_TRUE(!layer.at("loads").boolean() || layer.at("format") == "float" || want.contains(layer.at("name").text()))
        << layer.dump();
}

TEST_P(Checkpoints, VerifyIsGreen) {
  const ScratchFolder scratch;
  const Ran ran = run_command({"verify", of_index(GetParam())});
  EXPECT_EQ(ran.exit_code, has_foreign_types() ? 1 : 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr(" 0 wrong"));
  // Experts that are stored one by one have no known values under the name of their stack.
  const bool one_by_one =
      known_values(GetParam()).size() != read_safetensors(of_index(GetParam() + "/decoded.safetensors")).size();
  if (!one_by_one) {
    EXPECT_THAT(ran.out, HasSubstr(floats() ? "-> nvfp4" : "equal"));
  }
  EXPECT_THAT(ran.err, IsEmpty());  // no bar where there is no terminal
}

INSTANTIATE_TEST_SUITE_P(Data, Checkpoints, testing::ValuesIn(folders()), [](const auto& about) {
  std::string name = about.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Inspect, ShowsASplitModelAsOneCheckpoint) {
  const Json expected = Json::parse(read_file(data("index.json"))).at("gguf-split").at("layers");
  for (const char* path : {"gguf-split", "gguf-split/model-00001-of-00003.gguf"}) {
    const Ran ran = run_command({"inspect", "--json", data(path)});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const Json listed = Json::parse(ran.out);
    ASSERT_EQ(listed.at("layers").size(), expected.size());
    for (const Json& layer : listed.at("layers").items())
      EXPECT_TRUE(expected.contains(layer.at("name").text())) << layer.dump();
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
  const std::string many = empty_layers(100'000);
  write_file(scratch.at("many.gguf"), many);
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--json"}}) {
    const auto inspect = [&](const char* file) {
      std::vector<std::string> arguments = {"inspect", scratch.at(file)};
      arguments.insert(arguments.end(), flags.begin(), flags.end());
      const Ran ran = run_command(arguments);
      EXPECT_EQ(ran.exit_code, 1) << ran.err;  // none has an element, so that none loads
      return ran.out;
    };
    inspect("few.gguf");
    const int64_t before = most_memory();
    const std::string out = inspect("many.gguf");
    EXPECT_THAT(out, HasSubstr("l99999"));
    EXPECT_TRUE(flags.empty() || Json::for_each_key(out, [](const std::string&) {}));
    // Four times the header to open it, and the header itself, whose pages are mapped.
    EXPECT_LE(most_memory() - before, static_cast<int64_t>(5 * many.size() + (size_t{4} << 20)));
  }
}

}  // namespace
}  // namespace metal_marlin::test
