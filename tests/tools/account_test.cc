// What the command says of what it does not read: it accounts for every byte of a file, does the rest, and exits with 1.
#include "model_files.h"
#include "run_command.h"
#include "safetensors.h"
#include "test.h"
#include "tools/json.h"

namespace metal_marlin::test {
namespace {

using tools::Json;

/// A .safetensors file of zeros, or of the bytes that a tensor names.
class Model {
 public:
  void add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape, size_t element,
           std::string values = {}) {
    size_t bytes = element;
    for (const int64_t dim : shape) bytes *= static_cast<size_t>(dim);
    values.resize(bytes);
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes}}};
    data_ += values;
  }
  void write(const std::string& path) const { write_file(path, model_files::safetensors(header_.dump(), data_)); }
  size_t bytes() const { return data_.size(); }
  size_t tensors() const { return header_.size(); }

 private:
  Json header_ = Json::Members{};
  std::string data_;
};

constexpr const char* kConfig = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32,
                                    "desc_act": true, "sym": true, "checkpoint_format": "gptq"}})";

/// Adds a layer of GPTQ. If one k has a group beyond the last, its headers are right and it does not load.
void add_gptq(Model& model, const std::string& name, int32_t group_of_7 = 0) {
  constexpr int64_t kN = 32, kK = 64, kGroups = 2;
  std::string index, scales;
  for (int64_t k = 0; k < kK; ++k) {
    const int32_t group = k == 7 ? group_of_7 : static_cast<int32_t>(k / 32);
    index.append(reinterpret_cast<const char*>(&group), sizeof group);
  }
  for (int64_t i = 0; i < kGroups * kN; ++i) scales += std::string("\x00\x2c", 2);
  model.add(name + ".qweight", "I32", {kK / 8, kN}, 4, std::string(kK / 8 * kN * 4, '\x35'));
  model.add(name + ".qzeros", "I32", {kGroups, kN / 8}, 4, std::string(kGroups * kN / 8 * 4, '\x77'));
  model.add(name + ".scales", "F16", {kGroups, kN}, 2, scales);
  model.add(name + ".g_idx", "I32", {kK}, 4, index);
}

void expect_sums(const Json& said) {
  const Json& account = said.at("account");
  uint64_t read = 0, not_read = 0;
  for (const Json& layer : said.at("layers").items())
    (layer.at("loads").boolean() ? read : not_read) += static_cast<uint64_t>(layer.at("bytes").integer());
  EXPECT_EQ(account.at("read"), read);
  EXPECT_EQ(account.at("not_read"), not_read);
  EXPECT_EQ(account.at("all_tensors"), read + not_read + static_cast<uint64_t>(account.at("plain_tensors").integer()));
}

/// A user of the command can answer what a file leaves open.
TEST(ReadAs, AnswersWhatAFileLeavesOpen) {
  const ScratchFolder scratch;
  Model model;
  model.add("m.experts.odd", "F32", {2, 2, 2}, 4, std::string(32, '\1'));
  model.write(scratch.at("m.safetensors"));
  const Ran open = run_command({"inspect", scratch.at("m.safetensors")});
  EXPECT_EQ(open.exit_code, 1);
  EXPECT_THAT(open.out, HasSubstr("2 outputs x 2 inputs or the reverse"));
  for (const char* answer : {"outputs-first", "inputs-first"})
    EXPECT_EQ(run_command({"--read-as", answer, "inspect", scratch.at("m.safetensors")}).exit_code, 0) << answer;
  const Ran wrong = run_command({"inspect", scratch.at("m.safetensors"), "--read-as", "pink"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--read-as: 'pink' is none of {gptq-v1"));
}

TEST(Account, HasEveryByteOfTheTestData) {
  for (const auto& folder : std::filesystem::directory_iterator(data(""))) {
    if (!folder.is_directory()) continue;
    const Json said = Json::parse(run_command({"inspect", "--json", folder.path().string()}).out);
    expect_sums(said);
    EXPECT_GT(said.at("account").at("tensors").number(), 0);
    for (const Json& layer : said.at("layers").items())
      EXPECT_EQ(layer.at("type").is_string(), layer.at("layout") == "gguf") << folder.path() << layer;
  }
}

TEST(Account, IsASentence) {
  const ScratchFolder scratch;
  Model model;
  model.add("a.weight", "BF16", {8, 32}, 2);
  model.add("b.weight", "I8", {48, 32}, 1);
  model.add("norm.weight", "F32", {16}, 4);
  model.write(scratch.at("model.safetensors"));
  const Ran some = run_command({"inspect", scratch.at("model.safetensors")});
  EXPECT_EQ(some.exit_code, 1);
  const Json said = Json::parse(run_command({"inspect", "--json", scratch.at("model.safetensors")}).out);
  expect_sums(said);
  EXPECT_EQ(said.at("account").at("all_tensors"), model.bytes());
  EXPECT_EQ(said.at("account").at("tensors"), model.tensors());
  EXPECT_THAT(some.out, HasSubstr("\n1 layer is read; 1 matrix with 72.7 % of the bytes is not read\n"));
  EXPECT_THAT(some.out, ContainsRegex("3 tensors +2.1 kB +100.0 %"));
  Model none;
  none.add("norm.weight", "F32", {16}, 4);
  none.add("bias", "F32", {16}, 4);
  none.write(scratch.at("model.safetensors"));
  write_file(scratch.at("config.json"), R"({"quantization_config": {"quant_method": "exl9"}})");
  const Ran nothing = run_command({"inspect", scratch.at("model.safetensors")});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.out, AllOf(HasSubstr("no layer: none of the 2 tensors is a matrix"), HasSubstr("quant_method 'exl9'")));
}

TEST(Account, NamesTheTypesOfAGguf) {
  const Json layers = Json::parse(run_command({"inspect", "--json", data("gguf-llama-q4km")}).out).at("layers");
  std::vector<std::string> types;
  for (const Json& layer : layers.items()) types.push_back(layer.at("type").text());
  EXPECT_EQ(types, (std::vector<std::string>{"Q6_K", "Q4_K", "Q5_0", "Q4_K", "Q6_K", "Q8_0", "Q4_K", "Q4_K"}));
}

/// Layers whose headers are right may be wrong inside.
TEST(Unpack, WritesWhatLoads) {
  const ScratchFolder scratch;
  const std::string path = scratch.at("model.safetensors"), out = scratch.at("out.safetensors");
  write_file(scratch.at("config.json"), kConfig);
  for (unsigned bad = 0; bad < 16; ++bad) {  // a bit for each layer
    Model model;
    for (unsigned i = 0; i < 4; ++i) add_gptq(model, "layer" + std::to_string(i), (bad >> i & 1) != 0 ? 99 : 0);
    model.write(path);
    const Ran ran = run_command({"unpack", path, "-o", out, "--force"});
    EXPECT_EQ(ran.exit_code, bad == 0 ? 0 : bad == 15 ? 3 : 1) << ran.err;
    for (unsigned i = 0; i < 4; ++i) {
      const std::string name = "layer" + std::to_string(i);
      EXPECT_EQ(ran.err.find("left out '" + name + "'") != std::string::npos, (bad >> i & 1) != 0) << ran.err;
      EXPECT_EQ(bad != 15 && read_safetensors(out).contains(name), (bad >> i & 1) == 0);
    }
  }
}

TEST(Quantize, SaysWhatItLeft) {
  const ScratchFolder scratch;
  Model model;
  model.add("model.embed_tokens.weight", "BF16", {32, 64}, 2);
  model.add("model.layers.0.mlp.down_proj.weight", "BF16", {32, 64}, 2, std::string(size_t{32 * 64 * 2}, '\x3c'));
  model.add("model.layers.0.mlp.gate.weight", "BF16", {32, 64}, 2);
  model.write(scratch.at("model.safetensors"));
  const Ran ran = run_command({"quantize", scratch.at("model.safetensors"), scratch.at("out"), "--format", "INT4"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("1 layer quantized, 4.1 kB -> "));
  EXPECT_THAT(ran.out, HasSubstr("left as they are: 2 matrices with 66.7 % of the bytes, the first model.embed_tokens"));
  const Json config = Json::parse(read_file(scratch.at("out/config.json"))).at("quantization_config");
  EXPECT_EQ(config.at("ignore"), (Json{"model.embed_tokens", "model.layers.0.mlp.gate"}));
}

/// Codes that nobody reads cannot be described beside new ones.
TEST(Quantize, RefusesCodesThatItDoesNotRead) {
  const ScratchFolder scratch;
  Model model;
  model.add("a.weight", "BF16", {32, 64}, 2);
  model.add("b.weight", "I8", {64, 64}, 1);
  model.write(scratch.at("model.safetensors"));
  const Ran ran = run_command({"quantize", scratch.at("model.safetensors"), scratch.at("out"), "--format", "int4"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("layer 'b': is not read by this version; beside newly quantized layers"));
}

}  // namespace
}  // namespace metal_marlin::test
