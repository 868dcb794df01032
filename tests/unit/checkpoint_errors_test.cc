// Every check of the readers: what is malformed is refused with a message that names file, byte and field.
#include "checkpoint_files.h"
#include "checkpoints/json.h"
#include "checkpoints/missing_layer.h"
#include "checkpoints/safetensors_file.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

Status open_status(const std::string& name, const std::string& content) { return open_memory({{name, content}}).status(); }

void expect_refused(const std::string& file, const std::string& content, const std::string& field) {
  EXPECT_THAT(open_status(file, content), Fails(MARLIN_E_FORMAT, AllOf(HasSubstr(file + ": byte "), HasSubstr(field))))
      << field;
}

// --- JSON ---------------------------------------------------------------------------------------------------------------

Status walk(const std::string& text, const std::function<void(const JsonEvent&)>& visit, size_t max_bytes, int max_depth) {
  return walk_json({text, "f.json", 100, static_cast<uint32_t>(max_bytes), max_depth}, [&](const JsonEvent& e) {
    visit(e);
    return Status();
  });
}
Status parse(const std::string& text, size_t max_bytes = 1000, int max_depth = 4) {
  return walk(text, [](const JsonEvent&) {}, max_bytes, max_depth);
}

TEST(CheckpointJson, Events) {
  using Kind = JsonEvent::Kind;
  const std::string text = R"({"a":[1,-2,2.5,true,null,"x\u00e9"],"b":{"c":18446744073709551615}})";
  std::vector<Kind> kinds;
  std::vector<double> numbers;
  std::vector<int> depths;
  std::string words;
  const auto status = walk(
      text,
      [&](const JsonEvent& e) {
        kinds.push_back(e.kind);
        depths.push_back(e.depth);
        if (e.kind == Kind::integer || e.kind == Kind::negative || e.kind == Kind::real) numbers.push_back(e.number);
        if (e.kind == Kind::key || e.kind == Kind::string) words += std::string(e.text) + "|";
        if (e.kind == Kind::boolean) numbers.push_back(static_cast<double>(e.integer));
      },
      1000, 4);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(words, "a|x\xc3\xa9|b|c|");
  EXPECT_EQ(numbers, (std::vector<double>{1, -2, 2.5, 1, 18446744073709551615.0}));
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::object, Kind::key, Kind::array, Kind::integer, Kind::negative, Kind::real,
                                      Kind::boolean, Kind::null, Kind::string, Kind::end_array, Kind::key, Kind::object,
                                      Kind::key, Kind::integer, Kind::end_object, Kind::end_object}));
  EXPECT_EQ(depths, (std::vector<int>{1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 1}));
}

/// Strings are found again by where they begin, whatever is escaped in and before them.
TEST(CheckpointJson, StringsByPlace) {
  const std::string text = R"(["","a","\"","\\","a\"b\\","\b\f\n\r\t\/","\u0041","\u00E9","\u20ac","\ud83d\uDE00","é€😀"])";
  const JsonStrings strings(text);
  std::vector<uint32_t> begins;
  std::vector<std::string> expected;
  const auto status = walk(
      text,
      [&](const JsonEvent& e) {
        if (e.kind != JsonEvent::Kind::string) return;
        begins.push_back(e.begin);
        expected.emplace_back(e.text);
      },
      1000, 4);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(expected.size(), 11u);
  for (size_t i = 0; i < begins.size(); ++i) {
    EXPECT_EQ(strings.get(begins[i]), expected[i]);
    EXPECT_EQ(strings.get(begins[i], 1), expected[i].substr(0, 1));
    EXPECT_EQ(strings.compare(begins[i], expected[i]), 0) << expected[i];
    EXPECT_GT(strings.compare(begins[i], ""), expected[i].empty() ? -1 : 0);
    EXPECT_LT(strings.compare(begins[i], expected[i] + "x"), 0) << expected[i];
    for (size_t j = 0; j < begins.size(); ++j) {
      const int order = expected[i].compare(expected[j]);
      EXPECT_EQ(strings.compare(begins[i], begins[j]), order < 0 ? -1 : order > 0 ? 1 : 0) << i << ", " << j;
    }
  }
  strings.sort(begins);
  std::sort(expected.begin(), expected.end());
  for (size_t i = 0; i < begins.size(); ++i) EXPECT_EQ(strings.get(begins[i]), expected[i]);
}

/// A file that another process has changed since it was walked.
TEST(CheckpointJson, StringsStayInsideAChangedText) {
  for (const std::string content : {"abc", "a\\", "\\u", "\\u12", "\\ud83d", "\\ud83d\\u", "\\ud83d\\uDE"}) {
    auto text = std::make_unique<char[]>(content.size());
    std::memcpy(text.get(), content.data(), content.size());
    const JsonStrings strings({text.get(), content.size()});
    for (uint32_t begin = 0; begin < content.size() + 3; ++begin) {
      EXPECT_LE(strings.get(begin).size(), content.size() + 4);
      EXPECT_EQ(strings.compare(begin, begin), 0);
      EXPECT_EQ(strings.compare(begin, strings.get(begin)), 0);
    }
  }
}

/// An index that names a file elsewhere as soon as its names have been checked.
class ChangingFolder final : public Folder {
 public:
  Result<std::span<const std::byte>> open(const std::string& name) override {
    opened.push_back(name);
    if (name == "i.json") return std::as_bytes(std::span(index));
    index.replace(index.find("bb"), 2, "..");
    return std::as_bytes(std::span(shard));
  }
  void release(std::span<const std::byte>) const override {}

  std::string index = R"({"weight_map":{"a":"aa","b":"bb"}})", shard = safetensors("{}", "");
  std::vector<std::string> opened;
};

TEST(CheckpointJson, AnIndexThatChangesOpensNothingElsewhere) {
  auto folder = std::make_unique<ChangingFolder>();
  const ChangingFolder& watched = *folder;
  TensorTable table;
  EXPECT_THAT(read_safetensors_index("i.json", *folder, table), Fails(MARLIN_E_FORMAT, HasSubstr("changes")));
  EXPECT_EQ(watched.opened, (std::vector<std::string>{"i.json", "aa"}));
}

TEST(CheckpointJson, Limits) {
  EXPECT_TRUE(parse("[[[[]]]]").ok());
  EXPECT_THAT(parse("[[[[[]]]]]").message(), HasSubstr("nested"));
  EXPECT_THAT(parse(std::string(1 << 20, '[')).message(), HasSubstr("at most 1000 bytes"));
  EXPECT_THAT(parse(std::string(1 << 20, '['), 1 << 20).message(), HasSubstr("nested"));
  EXPECT_THAT(parse(R"({"a":1,"b":2,"a":3})").message(), AllOf(HasSubstr("twice"), HasSubstr("a")));
  EXPECT_THAT(parse(R"({"c":1,"b":{"x":1,"x":2},"c":3})").message(), AllOf(HasSubstr("byte 119"), HasSubstr("the key x")));
  EXPECT_THAT(parse(R"({"\u0061":1,"b":{"c":1},"a":3,"b":4})").message(), AllOf(HasSubstr("byte 125"), HasSubstr("the key a")));
  EXPECT_TRUE(parse(R"([{"a":1},{"a":2}])").ok());
  EXPECT_THAT(parse(R"({"a\u0000":1})").message(), HasSubstr("NUL"));
}

TEST(CheckpointJson, MalformedTextsNameTheByte) {
  const std::pair<const char*, int> texts[] = {{"{\"a\" 1}", 105}, {"[1,]", 103},  {"{", 101},
                                               {"nul", 103},       {"[1] 2", 104}, {"\"\x01\"", 101}};
  for (const auto& [text, byte] : texts) {
    EXPECT_THAT(parse(text), Fails(MARLIN_E_FORMAT, HasSubstr("f.json: byte " + std::to_string(byte) + ":"))) << text;
  }
}

// --- safetensors ----------------------------------------------------------------------------------------------------------

TEST(CheckpointSafetensors, ValidFiles) {
  EXPECT_TRUE(open_status("f.safetensors", safetensors("{}", "")).ok());
  EXPECT_TRUE(open_status("f.safetensors", safetensors("{}   ", "")).ok()) << "padded";
  EXPECT_TRUE(open_status("f.safetensors", safetensors(R"({"__metadata__":{"a":"b"}})", "")).ok());
  EXPECT_TRUE(
      open_status("f.safetensors", safetensors(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234")).ok());
  EXPECT_TRUE(
      open_status("f.safetensors", safetensors(R"({"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})", "")).ok());
  EXPECT_TRUE(open_status("f.safetensors", safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},
      "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"later":{"x":[1,{}]}}})",
                                                       "xy"))
                  .ok());
  for (const auto& [type, bytes] :
       {std::pair{"BOOL", 4}, {"U8", 4},   {"I8", 4},   {"F8_E5M2", 4}, {"F8_E4M3", 4}, {"F8_E8M0", 4}, {"I16", 8},
        {"U16", 8},           {"F16", 8},  {"BF16", 8}, {"I32", 16},    {"U32", 16},    {"F32", 16},    {"F64", 32},
        {"I64", 32},          {"U64", 32}, {"C64", 32}, {"F4", 2},      {"F6_E2M3", 3}, {"F6_E3M2", 3}}) {
    const auto opened =
        open_memory({{"f.safetensors", safetensors({{"a", type, "2,2", std::string(static_cast<size_t>(bytes), 'x')}})}});
    ASSERT_TRUE(opened.ok()) << type << opened.status().message();
    EXPECT_EQ(opened.value()->tensor("a").value().type_name, type);
  }
}

TEST(CheckpointSafetensors, HeaderLength) {
  for (const char* content : {"x", "1234567"}) expect_refused("f.safetensors", content, "header length");
  std::string file = safetensors("{}", "");
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7}) {
    std::memcpy(file.data(), &length, 8);
    expect_refused("f.safetensors", file, "header length");
  }
  // A file of something else, as opposed to one that was cut off.
  const std::string neither = "neither safetensors nor GGUF";
  for (const char* content : {"x", "root:x:0:0:root:/root:/bin/bash"}) expect_refused("passwd", content, neither);
  const std::string whole = safetensors({{"a", "F32", "2,2", std::string(16, 'x')}});
  const Status cut_off = open_status("f.safetensors", whole.substr(0, 20));
  EXPECT_THAT(cut_off.message(), AllOf(HasSubstr("the file is cut off"), Not(HasSubstr(neither))));
  expect_refused("f.safetensors", safetensors("", ""), "header");
  expect_refused("f.safetensors", safetensors(" {}", ""), "header");
}

TEST(CheckpointSafetensors, Headers) {
  const auto refused = [](const std::string& header, const std::string& data, const char* field) {
    expect_refused("f.safetensors", safetensors(header, data), field);
  };
  refused("[]", "", "header");
  refused(R"({"a":7})", "", "header");
  refused(R"({"a":[1]})", "", "header");
  refused(R"({"a":{}})", "", "dtype");
  refused(R"({"a":{"dtype":7,"shape":[],"data_offsets":[0,0]}})", "", "dtype");
  refused(R"({"a":{"dtype":["F32"],"shape":[],"data_offsets":[0,0]}})", "", "dtype");
  refused(R"({"a":{"dtype":"f31","shape":[],"data_offsets":[0,0]}})", "", "f31");
  refused(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", "", "shape");
  refused(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,0]}})", "", "shape");
  refused(R"({"a":{"dtype":"U8","shape":{"x":1},"data_offsets":[0,0]}})", "", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "x", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", "", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "x", "shape");
  refused(R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", "x", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]}})", "", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,0]}})", "", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[1]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":"01"}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "x", "data_offsets");
  refused(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "x", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy", "hole");
  refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "xyz",
          "overlap");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "xy", "data");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy",
          "twice");
  refused(R"({"__metadata__":{"a":1}})", "", "metadata");
  refused(R"({"__metadata__":{"a":{}}})", "", "metadata");
  refused(R"({"__metadata__":[]})", "", "metadata");
  refused(R"({"__metadata__":"x"})", "", "header");
  std::string deep = R"({"a":{"dtype":"U8","shape":[1)";
  for (int i = 0; i < 65; ++i) deep += ",1";
  refused(deep + R"(],"data_offsets":[0,1]}})", "x", "64 dimensions");
}

TEST(CheckpointSafetensors, MessagesNameTheTensorAndTheByte) {
  const std::string header = R"({"some.tensor":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})";
  const Status status = open_status("f.safetensors", safetensors(header, "x"));
  EXPECT_THAT(status.message(), HasSubstr("f.safetensors: byte " + std::to_string(8 + header.size() - 1)));
  EXPECT_THAT(status.message(), HasSubstr("some.tensor"));
  EXPECT_THAT(status.message(), HasSubstr("expected 2 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("found 1"));
}

// --- GGUF -----------------------------------------------------------------------------------------------------------------

std::string u32(uint32_t v) { return bytes_of({v}); }
std::string u64(uint64_t v) { return bytes_of({v}); }

TEST(CheckpointGgufFile, ValidFiles) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer;
    writer.version = version;
    writer.alignment = 64;
    writer.key("general.alignment", 4, u32(64));
    writer.key("a", 0, "x");
    writer.key("b", 12, std::string(8, 'x'));
    writer.key("c", 8, GgufWriter::text("text"));
    writer.key("d", 9, u32(8) + u64(2) + GgufWriter::text("one") + GgufWriter::text(""));
    writer.key("e", 9, u32(1) + u64(3) + "abc");
    writer.key("f", 9, u32(12) + u64(0));
    writer.tensor("one", {3}, 0, std::string(12, 'x'));
    writer.tensor("two.weight", {32, 2}, 2, std::string(36, 'x'));
    writer.tensor("three", {}, 24, "x");
    const auto opened = must(open_memory({{"f.gguf", writer.file()}}));
    const auto two = opened->tensor("two.weight").value();
    EXPECT_EQ(two.dims, (std::vector<int64_t>{2, 32})) << "outermost first";
    EXPECT_EQ(two.type_name, "Q4_0");
    EXPECT_EQ(two.bytes, 36u);
    EXPECT_EQ(two.file_offset % 64, 0u);
  }
  EXPECT_TRUE(open_status("f.gguf", GgufWriter().file()).ok()) << "no tensor, no key";
}

TEST(CheckpointGgufFile, Head) {
  const auto refused = [](auto change, const char* field) {
    GgufWriter writer;
    writer.tensor("a", {1}, 0, "1234");
    change(writer);
    expect_refused("f.gguf", writer.file(), field);
  };
  refused([](auto& w) { w.magic = 0x46554746; }, "magic");
  refused([](auto& w) { w.version = 1; }, "version 1");
  refused([](auto& w) { w.version = 4; }, "version");
  refused([](auto& w) { w.version = 0; }, "version");
  refused([](auto& w) { w.version = 0x03000000; }, "big-endian");
  refused([](auto& w) { w.extra_tensors = 1; }, "");
  refused([](auto& w) { w.extra_tensors = UINT64_MAX - 1; }, "tensor count");
  refused([](auto& w) { w.extra_keys = 100; }, "key-value count");
  refused([](auto& w) { w.extra_keys = UINT64_MAX; }, "key-value count");
  expect_refused("f.gguf", "GG", "magic");
  expect_refused("f.gguf", "GGUF", "version");
}

TEST(CheckpointGgufFile, KeyValues) {
  const auto refused = [](const char* name, int32_t type, const std::string& value, const char* field) {
    GgufWriter writer;
    writer.key(name, type, value);
    expect_refused("f.gguf", writer.file(), field);
  };
  refused("k", 13, "12345678", "value type");
  refused("k", -1, "12345678", "value type");
  refused("k", 8, u64(1000) + "x", "length");
  refused("k", 8, u64(UINT64_MAX) + "x", "length");
  refused("k", 9, u32(9) + u64(1) + u32(0) + u64(0), "array type");
  refused("k", 9, u32(13) + u64(1), "array type");
  refused("k", 9, u32(static_cast<uint32_t>(-1)) + u64(1), "array type");
  refused("k", 9, u32(10) + u64(UINT64_MAX / 8 + 2) + "12345678", "array length");
  refused("k", 9, u32(8) + u64(UINT64_MAX) + "12345678", "array length");
  refused("k", 9, u32(0) + u64(1000), "array length");
  refused("k", 9, u32(8) + u64(2) + GgufWriter::text("x") + u64(500) + "padding to have bytes", "string in an array");
  for (const uint32_t alignment : {0u, 3u, 33u, 0x80000000u, 0xffffffffu, 1u << 21}) {
    refused("general.alignment", 4, u32(alignment), "general.alignment");
  }
  refused("general.alignment", 5, u32(32), "general.alignment");
  refused("general.alignment", 10, u64(32), "general.alignment");
  refused("general.alignment", 9, u32(4) + u64(1) + u32(32), "general.alignment");
  GgufWriter writer;
  writer.key("same", 4, u32(1));
  writer.key("other", 4, u32(1));
  writer.key("same", 4, u32(1));
  expect_refused("f.gguf", writer.file(), "'same' occurs twice");
}

/// A part of a split model is no whole one, whatever integers say that it is a part.
TEST(CheckpointGgufFile, PartsOfASplitModel) {
  const auto part = [](const std::vector<std::tuple<const char*, int32_t, std::string>>& keys) {
    GgufWriter w;
    for (const auto& [name, type, value] : keys) w.key(name, type, value);
    w.tensor("t", {1}, 0, "1234");
    return open_status("f.gguf", w.file());
  };
  const std::pair<int32_t, std::string> threes[] = {
      {0, bytes_of<uint8_t>({3})},  {1, bytes_of<int8_t>({3})},  {2, bytes_of<uint16_t>({3})},  {3, bytes_of<int16_t>({3})},
      {4, bytes_of<uint32_t>({3})}, {5, bytes_of<int32_t>({3})}, {10, bytes_of<uint64_t>({3})}, {11, bytes_of<int64_t>({3})}};
  const std::string one = bytes_of<uint16_t>({1}), two = bytes_of<uint16_t>({2}), none = bytes_of<uint16_t>({0});
  for (const auto& [type, three] : threes) {
    EXPECT_THAT(
        part({{"split.no", 2, two}, {"split.tensors.count", type, three}, {"split.count", type, three}}),
        Fails(MARLIN_E_UNSUPPORTED, AllOf(HasSubstr("f.gguf"), HasSubstr("part 3 of 3"), HasSubstr("'-00003-of-00003.gguf'"))))
        << type;
  }
  EXPECT_THAT(part({{"split.count", 2, two}}).message(), HasSubstr("part 1 of 2"));
  EXPECT_TRUE(part({{"split.count", 2, one}, {"split.no", 2, none}}).ok()) << "the whole of a model of one part";
  EXPECT_TRUE(part({{"split.count", 2, none}}).ok());
  EXPECT_TRUE(part({{"split.no", 2, two}}).ok()) << "of nothing";

  const auto malformed = [&](const std::vector<std::tuple<const char*, int32_t, std::string>>& keys, const char* field) {
    EXPECT_THAT(part(keys), Fails(MARLIN_E_FORMAT, AllOf(HasSubstr("f.gguf: byte "), HasSubstr(field)))) << field;
  };
  for (const char* key : {"split.count", "split.no", "split.tensors.count"}) {
    malformed({{key, 8, GgufWriter::text("3")}}, key);
    malformed({{key, 6, bytes_of<float>({3})}}, key);
    malformed({{key, 7, "1"}}, key);
    malformed({{key, 9, bytes_of<int32_t>({4}) + bytes_of<uint64_t>({1}) + bytes_of<uint32_t>({3})}}, key);
    malformed({{key, 13, "1234"}}, key);
    malformed({{key, 1, bytes_of<int8_t>({-1})}}, key);
    malformed({{key, 11, bytes_of<int64_t>({INT64_MIN})}}, "found -9223372036854775808");
  }
  malformed({{"split.count", 2, two}, {"split.no", 2, two}}, "split.no");
  malformed({{"split.count", 2, two}, {"split.count", 2, two}}, "twice");
  malformed({{"split.count", 10, bytes_of<uint64_t>({UINT64_MAX})}, {"split.no", 10, bytes_of<uint64_t>({UINT64_MAX})}},
            "split.no");
  GgufWriter cut;
  cut.key("split.count", 10, "");
  expect_refused("f.gguf", cut.file().substr(0, 24 + 8 + 11 + 4 + 7), "value");
}

TEST(CheckpointGgufFile, Tensors) {
  const auto refused = [](const std::string& name, std::initializer_list<int64_t> dims, int32_t type, uint64_t offset,
                          const char* field) {
    GgufWriter writer;
    writer.tensor_at(name, dims, type, offset, std::string(64, 'x'));
    expect_refused("f.gguf", writer.file(), field);
  };
  refused(std::string(65536, 'n'), {1}, 0, 0, "tensor name");
  refused(std::string("a\0b", 3), {1}, 0, 0, "NUL");
  refused("t", {1, 1, 1, 1, 1}, 0, 0, "at most 4");
  refused("t", {-1}, 0, 0, "dimension");
  refused("t", {INT64_MIN}, 0, 0, "dimension");
  refused("t", {1}, 65536, 0, "type");
  refused("t", {1}, -1, 0, "type");
  refused("t", {31}, 2, 0, "dimensions");
  refused("t", {32, INT64_MAX}, 2, 0, "dimensions");
  refused("t", {INT64_MAX, INT64_MAX}, 24, 0, "dimensions");
  refused("t", {1}, 0, 32, "offset");
  refused("t", {1}, 0, UINT64_MAX, "offset");
  refused("t", {17}, 0, 0, "data");
  refused("t", {INT64_MAX / 4}, 0, 0, "data");
  GgufWriter twice;
  twice.tensor("t", {1}, 0, "1234");
  twice.tensor("t", {1}, 0, "1234");
  expect_refused("f.gguf", twice.file(), "'t' occurs twice");
  GgufWriter gap;
  gap.tensor("a", {1}, 0, "1234");
  gap.tensor_at("b", {1}, 0, 64, "1234");
  expect_refused("f.gguf", gap.file(), "expected 32");
}

TEST(CheckpointGgufFile, EveryTruncationOfTheHeaderNamesTheByte) {
  GgufWriter writer;
  writer.key("general.alignment", 4, u32(32));
  writer.key("text", 8, GgufWriter::text("one"));
  writer.key("texts", 9, u32(8) + u64(2) + GgufWriter::text("one") + GgufWriter::text("two"));
  writer.key("numbers", 9, u32(4) + u64(2) + u32(1) + u32(2));
  writer.key("number", 12, u64(1));
  writer.key("split.count", 0, bytes_of<uint8_t>({1}));
  writer.key("split.no", 2, bytes_of<uint16_t>({0}));
  writer.key("split.tensors.count", 11, u64(1));
  writer.tensor("tensor", {2, 3}, 0, std::string(24, 'x'));
  const std::string file = writer.file();
  ASSERT_TRUE(open_status("f.gguf", file).ok());
  const size_t end = file.size() - 8;  // of the data, which padding follows
  for (size_t size = 8; size < end; ++size) expect_refused("f.gguf", file.substr(0, size), "expected");
}

// --- layers -----------------------------------------------------------------------------------------------------------------

TEST(CheckpointLayers, ShapesThatDoNotFitNameTheTensor) {
  const std::string z(1024, '\0');
  const auto expect = [](std::vector<TestTensor> tensors, const char* tensor, const char* what) {
    const auto opened = must(open_memory({{"f.safetensors", safetensors(tensors)}}));
    ASSERT_EQ(opened->layers().size(), 1u);
    const Status& status = opened->layers()[0].status;
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), AllOf(HasSubstr("f.safetensors: byte "), HasSubstr(tensor), HasSubstr(what)));
    EXPECT_EQ(opened->source(0, 0, {MARLIN_FORMAT_INT4}).status().code(), status.code());
  };
  expect({{"a.qweight", "I32", "4,8", z.substr(0, 128)},
          {"a.g_idx", "I32", "32", z.substr(0, 128)},
          {"a.scales", "F16", "1,7", z.substr(0, 14)}},
         "a.scales", "expected [1, 8], found [1, 7]");
  expect({{"a.qweight", "I32", "4,8", z.substr(0, 128)},
          {"a.g_idx", "I32", "32", z.substr(0, 128)},
          {"a.scales", "I32", "1,8", z.substr(0, 32)}},
         "a.scales", "dtype");
  expect({{"a.weight", "U8", "2,16", z.substr(0, 32)}, {"a.weight_scale", "U8", "2,2", z.substr(0, 4)}}, "a.weight_scale",
         "[2, 1]");
  expect({{"a.weight", "U8", "2,8", z.substr(0, 16)},
          {"a.weight_scale", "F8_E4M3", "2,1", z.substr(0, 2)},
          {"a.weight_scale_2", "F32", "2", z.substr(0, 8)}},
         "a.weight_scale_2", "[1, 1]");
  expect({{"a_blocks", "U8", "0,2,1,16", ""}, {"a_scales", "U8", "0,2,1", ""}}, "a_blocks", "experts");
  expect({{"a.weight", "F32", "0,4", ""}}, "a.weight", "n, k");
  expect({{"a.weight", "U32", "2,3", z.substr(0, 24)},
          {"a.scales", "F16", "2,1", z.substr(0, 4)},
          {"a.biases", "F32", "2,2", z.substr(0, 16)}},
         "a.biases", "[2, 1]");
}

TEST(CheckpointErrors, AMissingLayerSaysWhatThereIs) {
  const auto said = [](const std::vector<TestTensor>& tensors) -> std::string {
    const auto opened = must(open_memory({{"f.safetensors", safetensors(tensors)}}));
    const Status status = missing_layer(*opened, "some.layer");
    EXPECT_EQ(status.code(), MARLIN_E_NOT_FOUND);
    return status.message();
  };
  const std::string z(16, '\0');
  EXPECT_EQ(said({{"norm.weight", "F32", "4", z}}), "no layer is called some.layer; the checkpoint has no layers");
  EXPECT_EQ(said({{"a.weight", "F32", "2,2", z}}), "no layer is called some.layer; the checkpoint has 1 layer, the first is a");
  EXPECT_EQ(said({{"a.weight", "F32", "2,2", z}, {"b.weight", "F32", "2,2", z}}),
            "no layer is called some.layer; the checkpoint has 2 layers, the first is a");
  EXPECT_EQ(said({{"some.layex", "F32", "2,2", z}, {"Some.Layer", "F32", "2,2", z}}),
            "no layer is called some.layer; did you mean Some.Layer? The checkpoint has 2 layers");
  EXPECT_EQ(said({{"some.layex.weight", "F32", "2,2", z}, {"some.layer", "F32", "4", z}}),
            "no layer is called some.layer: it is a tensor of no layer, which marlin_checkpoint_tensor gives");
}

}  // namespace
}  // namespace metal_marlin::testing
