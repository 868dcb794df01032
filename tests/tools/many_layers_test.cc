// The command on files of very many layers: its steps grow with their number, not with its square.
#include "run_command.h"
#include "test.h"
#include "tools/joins.h"
#include "tools/output_file.h"
#include "tools/safetensors_writer.h"

namespace metal_marlin::tools {
namespace {

TEST(ManyLayers, AreJoinedWithAFewLooksAtEachName) {
  const JoinLists lists = join_lists({"q_proj+k_proj+v_proj", "gate_proj+up_proj"});
  for (const size_t blocks : {10, 400}) {
    std::vector<std::string> names;
    for (const char* role : {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
      for (size_t i = 0; i < blocks; ++i) names.push_back("model.layers." + std::to_string(i) + "." + role);
    size_t looks = 0, fits = 0;
    const auto name = [&](size_t i) {
      ++looks;
      return std::string_view(names[i]);
    };
    const auto fit = [&](const std::vector<size_t>&) { return ++fits != 0; };
    const auto groups = join(names.size(), name, lists, fit);
    ASSERT_EQ(groups.size(), 4 * blocks);
    EXPECT_EQ(groups[0], (std::vector<size_t>{0, blocks, 2 * blocks}));
    EXPECT_EQ(groups[blocks], (std::vector<size_t>{3 * blocks}));
    EXPECT_EQ(groups[2 * blocks], (std::vector<size_t>{4 * blocks, 5 * blocks}));
    EXPECT_LE(looks, 3 * names.size());
    EXPECT_LE(fits, names.size());
  }
}

/// The header of an output takes each tensor without a look for its name among those before: even a name that is there already
/// becomes a member of its own.
TEST(ManyLayers, AreWrittenWithoutALookAtTheNamesBefore) {
  const test::ScratchFolder scratch;
  OutputFile file(scratch.at("x"));
  SafetensorsWriter writer(file, {{"a", {1}}, {"b", {2}}, {"a", {3}}});
  const float values[6] = {};
  writer.write(values, 6);
  writer.commit();
  const std::string header = test::read_file(scratch.at("x")).substr(8);
  EXPECT_TRUE(header.starts_with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                 R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                                 R"("a":{"dtype":"F32","shape":[3],"data_offsets":[12,24]}})"))
      << header.substr(0, 200);
}

}  // namespace
}  // namespace metal_marlin::tools
