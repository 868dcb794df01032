// A file is refused only for its weights: what has nothing to do with them costs nothing, and one tensor that is not read costs
// that tensor alone.
#include "base/bits.h"
#include "checkpoint_files.h"
#include "checkpoints/json.h"
#include "checkpoints/value_table.h"
#include "convert_files.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

std::string nul_bytes(size_t count) { return std::string(count, '\0'); }

// --- JSON as Python writes it -------------------------------------------------------------------------------------------

/// Each event as one word, without its place.
std::string events_of(const std::string& text, bool as_python = true) {
  std::string words;
  const Status status = walk_json({text, "f.json", 0, 1 << 20, 16, as_python}, [&](const JsonEvent& e) {
    words += std::to_string(static_cast<int>(e.kind)) + "/" + std::to_string(e.depth) + "/" + std::string(e.text) + "/" +
             std::to_string(e.number) + " ";
    return Status();
  });
  return status.ok() ? words : "error";
}

TEST(PythonJson, NumbersBeyondTheGrammar) {
  struct Case {
    const char* text;
    double value;
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const Case& c : std::initializer_list<Case>{{"Infinity", inf},
                                                   {"-Infinity", -inf},
                                                   {"NaN", std::nan("")},
                                                   {"1e309", inf},
                                                   {"-1.5E+400", -inf},
                                                   {"2e308", inf},
                                                   {"123456789e99999999999999999999", inf},
                                                   {"1.7976931348623157e308", 1.7976931348623157e308},
                                                   {"0e999", 0},
                                                   {"1e-999", 0},
                                                   {"0.00001e312", 1e307}}) {
    for (const char* around : {"%s", "[0, %s]", "[%s,1]", "{\"NaN, -Infinity\\\"\": %s\n}"}) {
      char text[128];
      std::snprintf(text, sizeof text, around, c.text);
      double found = -1;
      size_t begin = 0;
      const Status status = walk_json({text, "f.json", 0, 1000, 4, true}, [&](const JsonEvent& e) {
        if (e.kind == JsonEvent::Kind::real) found = e.number, begin = e.text.find(c.text);
        return Status();
      });
      ASSERT_TRUE(status.ok()) << text << status.message();
      EXPECT_TRUE(found == c.value || (std::isnan(found) && std::isnan(c.value))) << text << found;
    }
  }
  const std::string many(400, '7');
  EXPECT_THAT(events_of("[" + many + "]"), HasSubstr("/" + many + "/inf"));
  for (const char* text : {"NaN5", "5NaN", "-NaN", "NaNNaN", "[Infinity0]", "Inf", "nan", "+Infinity", "--Infinity", "1e309e",
                           "01e309", "[1.e309]", "{NaN:1}", "InfinityNaN", "1Infinity", "[NaN\"a\"]"})
    EXPECT_EQ(events_of(text), "error") << text;
  for (const char* text : {"[NaN]", "[Infinity]", "[1e309]"}) EXPECT_EQ(events_of(text, false), "error") << text;
}

/// An object whose keys repeat, and the same object without the members that come again.
struct RepeatedKeys {
  std::string all, last;
};
RepeatedKeys draw_members(std::mt19937& chance, int depth) {
  const uint32_t kind = chance() % (depth > 3 ? 3 : 5);
  if (kind == 0) return {"7", "7"};
  if (kind == 1) return {R"("a\"}")", R"("a\"}")"};
  if (kind == 2) return {"NaN", "NaN"};
  std::vector<std::pair<std::string, RepeatedKeys>> members(chance() % 5);
  for (auto& [key, value] : members) {
    static const char* kKeys[] = {"a", "b", "\\u0061", "a\\\"", ""};
    key = kKeys[chance() % 5];
    value = draw_members(chance, depth + 1);
  }
  const bool object = kind == 4;
  const auto name = [](const std::string& key) { return key == "\\u0061" ? std::string("a") : key; };
  RepeatedKeys out{object ? "{" : "[", object ? "{" : "["};
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& [key, value] = members[i];
    bool again = false;
    for (size_t j = i + 1; j < members.size(); ++j) again |= object && name(members[j].first) == name(key);
    const std::string begin = object ? "\"" + key + "\": " : "";
    out.all += (out.all.size() > 1 ? "," : "") + begin + value.all;
    if (!again) out.last += (out.last.size() > 1 ? "," : "") + begin + value.last;
  }
  return {out.all + (object ? "}" : "]"), out.last + (object ? "}" : "]")};
}

TEST(PythonJson, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(events_of(R"({"a":{"x":1},"b":2,"a":[3]})"), events_of(R"({"b":2,"a":[3]})"));
  std::mt19937 chance(14);
  for (int i = 0; i < 3000; ++i) {
    const RepeatedKeys drawn = draw_members(chance, 0);
    ASSERT_NE(events_of(drawn.all), "error") << drawn.all;
    EXPECT_EQ(events_of(drawn.all), events_of(drawn.last)) << drawn.all;
    EXPECT_EQ(events_of(drawn.all, false) == "error", drawn.all != drawn.last || drawn.all.find("NaN") != std::string::npos)
        << drawn.all;
  }
}

TEST(PythonJson, OfConfigsAndIndexes) {
  const std::string file = safetensors({{"m.weight", "F32", "2,2", nul_bytes(16)}});
  const char* config =
      R"({"quantization_config":{"quant_method":"gptq","bits":4},"time_step_limit":[0.0,Infinity],"a":{"b":1,"c":2},
      "rope_theta":1e4,"quantization_config":{"quant_method":"gptq","bits":3},"a":{"b":-Infinity},"rope_theta":NaN})";
  const auto opened = must(open_memory({{"model.safetensors", file}, {"config.json", config}}));
  EXPECT_TRUE(opened->layers()[0].status.ok());
  const ValueTable& values = opened->values();
  EXPECT_EQ(values.repeated(), std::nullopt);
  EXPECT_TRUE(values.find("a.b") && values.find("rope_theta") && values.find("time_step_limit"));
  EXPECT_FALSE(values.find("a.c")) << "the first object of the key has gone with its members";
  const char* index = R"({"metadata":{"total_size":NaN},"weight_map":{"x":"none.safetensors"},
      "weight_map":{"m.weight":"none.safetensors","m.weight":"m.safetensors"}})";
  const auto indexed = open_memory({{"i.json", index}, {"m.safetensors", file}});
  EXPECT_TRUE(indexed.ok()) << indexed.status().message();
}

// --- metadata of safetensors --------------------------------------------------------------------------------------------

/// A layer of GPTQ in a file with these members of its metadata, and this config.json.
Layer layer_of(const std::string& metadata, const std::string& config) {
  const std::string words = nul_bytes(4 * 16 * 4), scales = nul_bytes(16 * 2), zeros = nul_bytes(2 * 4);
  std::string file = safetensors(
      {{"m.qweight", "I32", "4,16", words}, {"m.scales", "F16", "1,16", scales}, {"m.qzeros", "I32", "1,2", zeros}});
  uint64_t size = 0;
  std::memcpy(&size, file.data(), 8);
  file = safetensors(R"({"__metadata__":{"format":"pt",)" + metadata + "}," + file.substr(9, size - 1), file.substr(8 + size));
  const auto opened = open_memory({{"model.safetensors", file}, {"config.json", config}});
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? opened.value()->layers()[0] : Layer{};
}

TEST(SafetensorsMetadata, CountsLikeAConfigFile) {
  const char *v1 = R"({\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq\"})",
             *v2 = R"({\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq_v2\"})";
  const auto named = [](const std::string& key, const std::string& text) { return "\"" + key + "\":\"" + text + "\""; };
  for (const char* key : {"quantization_config", "quantization", "_quantization_metadata"}) {
    EXPECT_EQ(layer_of(named(key, v2), "{}").layout, MARLIN_LAYOUT_GPTQ_V2) << key;
    EXPECT_EQ(layer_of(named(key, v1), "{}").layout, MARLIN_LAYOUT_GPTQ_V1) << key;
  }
  EXPECT_EQ(layer_of(named("config", std::string(R"({\"quantization_config\":)") + v2 + "}"), "{}").layout,
            MARLIN_LAYOUT_GPTQ_V2);
  const Layer differs = layer_of(named("quantization_config", v2),
                                 R"({"quantization_config":{"quant_method":"gptq","bits":4,"checkpoint_format":"gptq"}})");
  EXPECT_THAT(differs.status.message(), HasSubstr("config.json and metadata of model.safetensors differ in checkpoint_format"));
  for (const char* text : {"4", "{", "int8", R"({\"format_version\":\"1.0\",\"layers\":{}})"})
    EXPECT_TRUE(
        layer_of(named("quantization_config", text), R"({"quantization_config":{"quant_method":"gptq","bits":4}})").status.ok())
        << text;
}

// --- types of a later version of safetensors ----------------------------------------------------------------------------

TEST(SafetensorsTypes, ThatAreUnknownAreListedAndTheOthersRead) {
  std::mt19937 chance(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<TestTensor> tensors;
    for (uint32_t i = 0; i < 1 + chance() % 5; ++i) {
      static const char* kNames[] = {"F8_E3M4", "I4", "U1", "F4_E2M1", "BF8", "Q4_0", "F128", "C128"};
      const bool known = chance() % 2 == 0;
      const size_t bytes = known ? 24 : 2 + chance() % 40;
      std::string data(bytes, static_cast<char>('a' + i));
      tensors.push_back({std::to_string(i) + ".weight", known ? "F32" : kNames[chance() % 8], known ? "2,3" : "2,30", data});
    }
    const auto checkpoint = must(open_memory({{"m.safetensors", safetensors(tensors)}}));
    ASSERT_EQ(checkpoint->layers().size(), tensors.size());
    for (const TestTensor& t : tensors) {
      const Layer layer = checkpoint->layers()[find_layer(*checkpoint, t.name.substr(0, 1))];
      EXPECT_EQ(layer.status.ok(), t.dtype == "F32") << layer.status.message();
      if (t.dtype != "F32") {
        EXPECT_THAT(layer.status.message(), HasSubstr("type " + t.dtype));
      }
      const TensorView view = checkpoint->tensor(t.name).value();
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(view.data), view.bytes), t.data);
    }
  }
  const auto status_of = [](const std::string& dtype, const std::string& shape) {
    return open_memory({{"m.safetensors", safetensors({{"a", dtype, shape, "1234"}})}}).status();
  };
  EXPECT_TRUE(status_of("I4", "8").ok());
  for (const char* dtype : {"", "f32", "F 32", "ABCDEFGHIJKLMNOPQRSTU"})
    EXPECT_EQ(status_of(dtype, "1").code(), MARLIN_E_FORMAT) << dtype;
  EXPECT_EQ(status_of("I4", "9223372036854775807,4").code(), MARLIN_E_FORMAT);
  for (const char* shape : {"3", "9"}) EXPECT_EQ(status_of("F4", shape).code(), MARLIN_E_FORMAT) << "no whole bytes, or others";
}

/// A text of metadata that is not about weights may be of any length.
TEST(SafetensorsMetadata, MayStandBesideTextsOfAnyLength) {
  const std::string text(300'000, 'x'), escaped = R"({\"a\":\")" + text + R"(\\\"})";
  const std::string v2 =
      R"("config":"{\"quantization_config\":{\"quant_method\":\"gptq\",\"checkpoint_format\":\"gptq_v2\",\"bits\":4}}")";
  for (const std::string& other : {text, escaped}) {
    for (const std::string& all : {"\"workflow\":\"" + other + "\"," + v2, v2 + ",\"workflow\":\"" + other + "\""}) {
      const Layer layer = layer_of(all, "{}");
      EXPECT_EQ(layer.layout, MARLIN_LAYOUT_GPTQ_V2) << layer.status.message();
    }
  }
  const auto status_of = [](const std::string& header) {
    const Status status = open_memory({{"m.safetensors", safetensors(header, "")}}).status();
    EXPECT_EQ(status.code(), MARLIN_E_FORMAT);
    return std::string(status.message());
  };
  for (const char* key : {"config", "quantization_config"})
    EXPECT_THAT(status_of("{\"__metadata__\":{\"" + std::string(key) + "\":\"" + text + "\"}}"), HasSubstr("up to 256 KiB"))
        << key;
  EXPECT_THAT(status_of("{\"__metadata__\":{\"" + text + "\":\"\"}}"), HasSubstr("up to 128 KiB"));
  EXPECT_THAT(status_of("{\"__metadata__\":{\"a\":\"" + text), HasSubstr("malformed"));
  EXPECT_THAT(status_of("{\"a\":{\"dtype\":\"" + text + "\"}}"), HasSubstr("no type"));
}

// --- files that were cut off --------------------------------------------------------------------------------------------

TEST(CutOff, AFileSaysHowLongItShouldBe) {
  const std::string whole = safetensors({{"a.weight", "F32", "2,2", nul_bytes(16)}, {"b.weight", "F32", "2,2", nul_bytes(16)}});
  const auto length = load<uint64_t>(reinterpret_cast<const std::byte*>(whole.data()));
  for (size_t size = 9; size < whole.size(); ++size) {
    const Status status = open_memory({{"m.safetensors", whole.substr(0, size)}}).status();
    EXPECT_EQ(status.code(), MARLIN_E_FORMAT);
    const bool in_header = size < 8 + length;
    EXPECT_EQ(status.message(), "m.safetensors: byte " + std::to_string(size) + (in_header ? ": header" : ": data_offsets") +
                                    ": the file is cut off: expected " + std::to_string(in_header ? 8 + length : whole.size()) +
                                    " bytes, found " + std::to_string(size));
  }
  GgufWriter writer;
  for (const char* name : {"a.weight", "b.weight", "c.weight"}) writer.tensor(name, {32, 8}, 2, nul_bytes(144));
  const std::string gguf = writer.file();
  const size_t end = gguf.size() - 16, data = end - 2 * 160 - 144;  // the last of them is padded
  for (size_t size = data; size < end; ++size) {
    EXPECT_THAT(open_memory({{"m.gguf", gguf.substr(0, size)}}).status(),
                Fails(MARLIN_E_FORMAT, HasSubstr(": the file is cut off: expected " + std::to_string(end) +
                                                 " bytes or more, found " + std::to_string(size))));
  }
}

// --- GGUF ---------------------------------------------------------------------------------------------------------------

std::string bytes_by_chance(std::mt19937& chance, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(chance());
  return bytes;
}

TEST(GgufTensors, OfUnknownTypesAreListedAndTheOthersRead) {
  std::mt19937 chance(30);
  for (int round = 0; round < 300; ++round) {
    GgufWriter writer;
    const uint32_t count = 1 + chance() % 6;
    std::vector<std::string> data(count), names(count);
    std::vector<int32_t> unknown(count);
    for (uint32_t i = 0; i < count; ++i) {
      static const int32_t kUnknown[] = {4, 31, 38, 43, 139, 1000, 9999, 65535};
      unknown[i] = chance() % 2 == 0 ? kUnknown[chance() % 8] : 0;
      names[i] = std::to_string(i) + std::string(chance() % 3 == 0 ? chance() % 65000 : 8, 'n') + ".weight";
      data[i] = unknown[i] != 0 ? bytes_by_chance(chance, chance() % 300) : bytes_by_chance(chance, 36);
      writer.tensor(names[i], {unknown[i] != 0 ? 33 : 32, 2}, unknown[i] != 0 ? unknown[i] : 2, data[i]);
    }
    const auto checkpoint = must(open_memory({{"m.gguf", writer.file()}}));
    ASSERT_EQ(checkpoint->layers().size(), count);
    for (uint32_t i = 0; i < count; ++i) {
      const Layer layer = checkpoint->layers()[find_layer(*checkpoint, names[i])];
      const TensorView view = checkpoint->tensor(names[i]).value();
      EXPECT_EQ(std::memcmp(view.data, data[i].data(), data[i].size()), 0);
      if (unknown[i] == 0) {
        EXPECT_TRUE(layer.status.ok()) << layer.status.message();
        continue;
      }
      EXPECT_THAT(layer.status, Fails(MARLIN_E_UNSUPPORTED,
                                      HasSubstr("type " + std::to_string(unknown[i]) + " is not known to this version")));
      EXPECT_EQ(view.bytes, (data[i].size() + 31) / 32 * 32) << "up to the next tensor or the end of the file";
    }
  }
}

TEST(GgufTensors, OfANumberThatIsUsedTwice) {
  struct Case {
    int32_t number;
    int64_t k;
    size_t bytes;
    bool is_ggml;
  };
  for (const Case& c : {Case{42, 128, 36, true}, Case{42, 128, 34, false}, Case{42, 128, 128, false}, Case{42, 96, 96, false},
                        Case{41, 128, 18, true}, Case{41, 128, 66, false}, Case{39, 96, 51, true}, Case{39, 96, 20, false},
                        Case{39, 48, 13, false}, Case{40, 64, 36, true}, Case{40, 32, 18, false}}) {
    for (const bool last : {false, true}) {
      GgufWriter writer;
      if (last) writer.tensor("b", {32, 1}, 2, nul_bytes(18));
      writer.tensor("a", {c.k, 16}, c.number, nul_bytes(16 * c.bytes));
      if (!last) writer.tensor("b", {32, 1}, 2, nul_bytes(18));
      const auto opened = open_memory({{"m.gguf", writer.file()}});
      ASSERT_TRUE(opened.ok()) << c.number << opened.status().message();
      const Layer layer = opened.value()->layers()[find_layer(*opened.value(), "a")];
      EXPECT_EQ(layer.status.ok(), c.is_ggml) << c.number << " " << c.bytes << " " << last << layer.status.message();
      if (!c.is_ggml) {
        EXPECT_THAT(layer.status.message(), HasSubstr("type " + std::to_string(c.number) + " of another size is not known"));
      }
      EXPECT_TRUE(opened.value()->layers()[find_layer(*opened.value(), "b")].status.ok());
    }
  }
}

TEST(GgufTensors, OfUnknownTypesEndWhereTheNextBegins) {
  const auto status_of = [](uint64_t next, std::initializer_list<int64_t> dims = {32, 2}) {
    GgufWriter writer;
    writer.tensor("a", dims, 139, nul_bytes(64));
    writer.tensor_at("b", {32}, 2, next, nul_bytes(32));
    return open_memory({{"m.gguf", writer.file()}}).status();
  };
  EXPECT_TRUE(status_of(64).ok());
  EXPECT_TRUE(status_of(32).ok()) << "nothing says how long it is";
  for (const uint64_t next : {uint64_t{33}, uint64_t{96}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 31})
    EXPECT_EQ(status_of(next).code(), MARLIN_E_FORMAT) << next;
  EXPECT_EQ(status_of(64, {INT64_MAX, 2}).code(), MARLIN_E_FORMAT);
}

// --- folders and indexes ------------------------------------------------------------------------------------------------

class WholeFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) const { write_file(folder_.at(name), content); }
  void write_shard(const std::string& name, const std::string& layer) const {
    write(name, safetensors({{layer + ".weight", "F32", "2,2", nul_bytes(16)}}));
  }
  void write_index(const std::string& map) const { write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}"); }
  Result<std::unique_ptr<Checkpoint>> open() const { return Checkpoint::open(folder_.at(""), MARLIN_LAYOUT_AUTO); }
  /// The names of the layers and the note: "a b | not opened: ...".
  std::string found() const {
    const auto opened = open();
    if (!opened.ok()) return opened.status().message();
    std::string text;
    for (const Layer& layer : opened.value()->layers()) text += layer.name + " ";
    const ValueTable& values = opened.value()->values();
    const auto note = values.find("marlin.note");
    if (!note) return text;
    const auto data = values.at(*note).value().data;
    return text + "| " + std::string(reinterpret_cast<const char*>(data.data()), data.size());
  }
  ScratchFolder folder_;
};

TEST_F(WholeFolder, AnIndexOfAnotherUpload) {
  write_shard("model-00001-of-00002.safetensors", "a");
  write_index(R"("x.weight":"model-00001-of-00005.safetensors","y.weight":"model-00005-of-00005.safetensors")");
  EXPECT_THAT(found(), HasSubstr("model-00001-of-00005.safetensors")) << "half of the shards is no model";
  write_shard("model-00002-of-00002.safetensors", "b");
  EXPECT_THAT(found(), HasSubstr("a b | model.safetensors.index.json names none of the files here"));
  write_shard("model-00005-of-00005.safetensors", "y");
  EXPECT_EQ(open().status().code(), MARLIN_E_FILE) << "one that it names is here";
  EXPECT_EQ(open().status().native_code(), ENOENT);
  EXPECT_THAT(found(), HasSubstr("model-00001-of-00005.safetensors"));
}

TEST_F(WholeFolder, ShardsWithoutAnIndex) {
  write_shard("model-00002-of-00003.safetensors", "b");
  EXPECT_THAT(found(),
              HasSubstr("expected 3 shards or an index, found 1 of them: 'model-00001-of-00003.safetensors' is missing"));
  write_shard("model-00001-of-00003.safetensors", "a");
  EXPECT_THAT(found(),
              HasSubstr("expected 3 shards or an index, found 2 of them: 'model-00003-of-00003.safetensors' is missing"));
  EXPECT_EQ(open().status().code(), MARLIN_E_FILE);
  EXPECT_EQ(open().status().native_code(), ENOENT);
  write_shard("adapter.safetensors", "z");
  EXPECT_THAT(found(), HasSubstr("'model-00003-of-00003.safetensors' is missing"));
  std::filesystem::remove(folder_.at("adapter.safetensors"));
  write_shard("model-00003-of-00003.safetensors", "c");
  EXPECT_EQ(found(), "a b c ");
  write_shard("model-mtp-of-00003.safetensors", "d");
  EXPECT_EQ(found(), "a b c d | opened, too: model-mtp-of-00003.safetensors: it is none of the numbered shards");
  write_shard("other-00001-of-00001.safetensors", "e");
  EXPECT_THAT(found(), HasSubstr("name one")) << "which of two sets?";
}

TEST_F(WholeFolder, AWholeFileBesideOthers) {
  write_shard("model.safetensors", "a");
  EXPECT_EQ(found(), "a ");
  write_shard("consolidated.safetensors", "b");
  EXPECT_EQ(found(), "a | not opened: consolidated.safetensors: the folder's main file is another");
  const auto named = must(Checkpoint::open(folder_.at("model.safetensors"), MARLIN_LAYOUT_AUTO));
  EXPECT_FALSE(named->values().find("marlin.note").has_value()) << "it was asked for";
}

TEST_F(WholeFolder, ShardsThatTheIndexDoesNotName) {
  write_shard("model-00001-of-00001.safetensors", "a");
  write_index(R"("a.weight":"model-00001-of-00001.safetensors")");
  EXPECT_EQ(found(), "a ");
  write_shard("model-mtp-of-00001.safetensors", "b");
  EXPECT_EQ(found(), "a b | opened, too: model-mtp-of-00001.safetensors: the index does not name it");
  write_shard("consolidated-00001-of-00001.safetensors", "z");
  EXPECT_THAT(found(), HasSubstr("a b | not opened: consolidated-00001-of-00001.safetensors: ")) << "the same model again";
  std::filesystem::remove(folder_.at("consolidated-00001-of-00001.safetensors"));
  write_shard("model-00001-of-00002.safetensors", "a");
  EXPECT_THAT(found(), HasSubstr("a b | not opened: model-00001-of-00002.safetensors: ")) << "of another upload";
  write_shard("model.safetensors", "c");
  EXPECT_THAT(found(), HasSubstr("a b | not opened: model-00001-of-00002.safetensors, model.safetensors: "));
  for (int i = 0; i < 20; ++i) write_shard("x" + std::to_string(i) + ".safetensors", "x");
  EXPECT_THAT(found(), HasSubstr(" and 14 more: the index"));
}

// --- files that are something else --------------------------------------------------------------------------------------

struct OtherKind {
  std::string bytes, named;
};
std::vector<OtherKind> other_kinds() {
  return {{"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n", "git lfs pull"},
          {"<!DOCTYPE html><html><body>restricted</body></html>", "web page"},
          {" \n<HTML><head>", "web page"},
          {"<?xml version=\"1.0\"?><Error/>", "XML"},
          {"Entry not found", "'Entry not found'"},
          {"PK\x03\x04" + nul_bytes(60), "pickle"},
          {"\x80\x02}q" + nul_bytes(3) + "\xff" + nul_bytes(30), "pickle"},
          {"\x80\x04\x95\xff" + nul_bytes(60), "pickle"},
          {"\x08\x07" + nul_bytes(60), "ONNX"},
          {"\x08\x08\x12\x07pytorch" + nul_bytes(60), "ONNX"},
          {"\x1f\x8b\x08" + nul_bytes(60), "gzip"},
          {"", "empty"}};
}

TEST_F(WholeFolder, AnotherKindOfFileIsNamed) {
  const std::string good = safetensors({{"a.weight", "F32", "2,2", nul_bytes(16)}});
  for (const OtherKind& kind : other_kinds()) {
    const auto expect_named = [&](std::initializer_list<std::pair<std::string, std::string>> files) {
      const auto result = open_memory(files);
      EXPECT_THAT(result.status(), Fails(MARLIN_E_FORMAT, HasSubstr(kind.named))) << files.begin()->first;
    };
    expect_named({{"model.safetensors", kind.bytes}});
    expect_named({{"model.gguf", kind.bytes}});
    expect_named({{"model", kind.bytes}});
    expect_named({{"model.safetensors.index.json", kind.bytes}, {"model.safetensors", good}});
    expect_named({{"i.json", R"({"weight_map":{"a.weight":"s.safetensors"}})"}, {"s.safetensors", kind.bytes}});
    if (!kind.bytes.empty()) {
      for (const char* config : {"config.json", "quantize_config.json", "hf_quant_config.json"})
        expect_named({{"model.safetensors", good}, {config, kind.bytes}});
    }
    write("model.safetensors", kind.bytes);
    EXPECT_THAT(found(), HasSubstr(kind.named));
  }
  EXPECT_TRUE(open_memory({{"model.gguf", good}}).ok()) << "the content decides, not the name";
  const auto named = open_memory({{"model.safetensors", R"({"error":"Invalid username or password."})"}});
  EXPECT_THAT(named.status().message(), HasSubstr("JSON text"));
}

TEST_F(WholeFolder, AFolderOfSomethingElseSaysSo) {
  for (const auto& [name, named] :
       std::initializer_list<std::pair<const char*, const char*>>{{"pytorch_model.bin", "pickle"},
                                                                  {"model.pth", "pickle"},
                                                                  {"model_q4.onnx", "ONNX"},
                                                                  {"model.safetensors.gz", "unpack"}}) {
    write(name, "x");
    EXPECT_THAT(found(), HasSubstr(named)) << name;
    EXPECT_THAT(found(), HasSubstr(name));
    std::filesystem::remove(folder_.at(name));
  }
  std::filesystem::create_directories(folder_.at("blobs"));
  std::filesystem::create_directories(folder_.at("snapshots/0123"));
  EXPECT_THAT(found(), HasSubstr("snapshots"));
  const auto message_of = [](const char* path) {
    const Status status = Checkpoint::open(path, MARLIN_LAYOUT_AUTO).status();
    EXPECT_EQ(status.code(), MARLIN_E_FILE);
    EXPECT_EQ(status.native_code(), ENOENT);
    return std::string(status.message());
  };
  EXPECT_THAT(message_of("Qwen/Qwen3-8B-AWQ"), HasSubstr("download it first"));
  EXPECT_THAT(message_of("https://huggingface.co/Qwen/Qwen3-8B-AWQ"), HasSubstr("download it first"));
  for (const char* name : {"unsloth/Qwen3-8B-GGUF:Q4_K_M", "llama3.1:8b", "hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M",
                           "huggingface.co/Qwen/Qwen3-8B-AWQ/tree/main"})
    EXPECT_THAT(message_of(name), HasSubstr("download it first")) << name;
  for (const char* path : {"./none/none", "none/none.gguf", "none/none.gguf:2", "/none:2", "none", ":none", "none:"})
    EXPECT_THAT(message_of(path), Not(HasSubstr("download"))) << path;
}

}  // namespace
}  // namespace metal_marlin::testing
