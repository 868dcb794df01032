// What opening a checkpoint costs: at most four times the bytes of its headers (the header of a .gguf, the JSON of a
// .safetensors, the index, config.json) and a constant, whatever a hostile writer puts into them.
#include "checkpoint_files.h"
#include "checkpoints/gguf_parts.h"
#include "counting_new.h"
#include "test.h"

namespace metal_marlin::testing::checkpoint_memory_tests {
namespace {

constexpr size_t kConstant = size_t{1} << 20;
constexpr int64_t kMany = 100'000;

/// Files and how many of their bytes are headers.
struct Crafted {
  std::unique_ptr<MemoryFolder> folder = std::make_unique<MemoryFolder>();
  std::string file;  ///< the one to open
  size_t header = 0;

  void add(const std::string& name, const std::string& content, size_t data = 0) {
    if (file.empty()) file = name;
    header += content.size() - data;
    folder->add(name, content);
  }
};

/// A short name for each number, other than JSON's quote and backslash.
std::string short_name(int64_t i) {
  static constexpr char kDigits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  std::string name;
  do name += kDigits[i % 64];
  while ((i /= 64) != 0);
  return name;
}

/// Bytes that live at once while the files are opened and every layer is listed, beyond those of before.
size_t peak_of(Crafted files, marlin_status expected = MARLIN_OK) {
  const std::string file = files.file;
  auto folder = std::move(files.folder);
  counting_new::peak = counting_new::live.load();
  const size_t before = counting_new::live;
  const auto opened = open_checkpoint(std::move(folder), file, MARLIN_LAYOUT_AUTO);
  EXPECT_EQ(opened.status().code(), expected) << opened.status().message();
  if (opened.ok()) {
    const auto layers = opened.value()->layers();
    for (size_t i = 0; i < layers.size(); ++i) EXPECT_FALSE(layers[i].name.empty());
  }
  return counting_new::peak - before;
}

void expect_bounded(Crafted files, const char* what, marlin_status expected = MARLIN_OK) {
  const size_t header = files.header;
  const size_t peak = peak_of(std::move(files), expected);
  EXPECT_LE(peak, 4 * header + kConstant) << what << ": a header of " << header << " bytes";
  ::testing::Test::RecordProperty(what, std::to_string(static_cast<double>(peak) / static_cast<double>(header)));
}

Crafted gguf(const std::function<void(GgufWriter&)>& fill, size_t data = 0) {
  GgufWriter writer;
  writer.alignment = 1;
  writer.key("general.alignment", 4, bytes_of<uint32_t>({1}));
  fill(writer);
  Crafted files;
  files.add("m.gguf", writer.file(), data);
  return files;
}

constexpr int32_t kF32 = 0, kQ40 = 2;

TEST(CheckpointMemory, TensorsOfGguf) {
  expect_bounded(gguf([](GgufWriter& w) {
                   for (int64_t i = 0; i < kMany; ++i) w.tensor(short_name(i), {0, 0}, kQ40, "");
                 }),
                 "empty layers");
  expect_bounded(gguf([](GgufWriter& w) {
                   for (int64_t i = 0; i < kMany; ++i) w.tensor(short_name(i) + ".weight", {32, 1, 0}, kQ40, "");
                 }),
                 "empty stacks");
  expect_bounded(gguf([](GgufWriter& w) {
                   for (int64_t i = 0; i < kMany; ++i) w.tensor(short_name(i), {0}, kF32, "");
                 }),
                 "empty vectors");
  expect_bounded(gguf(
                     [](GgufWriter& w) {
                       for (int64_t i = 0; i < kMany; ++i) w.tensor(short_name(i), {}, kF32, "1234");
                     },
                     4 * kMany),
                 "scalars");
  expect_bounded(gguf([](GgufWriter& w) {
                   for (int64_t i = 0; i < kMany; ++i) w.tensor(short_name(i), {INT64_MAX, INT64_MAX, INT64_MAX, 0}, kF32, "");
                 }),
                 "large dimensions");
}

/// `parts` parts, each with this many tensors without elements.
Crafted split_gguf(int64_t parts, int64_t tensors) {
  Crafted files;
  for (int64_t i = 0; i < parts; ++i) {
    GgufWriter w;
    w.alignment = 1;
    w.key("general.alignment", 4, bytes_of<uint32_t>({1}));
    w.key("split.no", 4, bytes_of<uint32_t>({static_cast<uint32_t>(i)}));
    w.key("split.count", 4, bytes_of<uint32_t>({static_cast<uint32_t>(parts)}));
    w.key("split.tensors.count", 4, bytes_of<uint32_t>({static_cast<uint32_t>(parts * tensors)}));
    for (int64_t t = 0; t < tensors; ++t) w.tensor(short_name(i * tensors + t), {0}, kF32, "");
    files.add(gguf_part_name("m", static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(parts)), w.file());
  }
  return files;
}

TEST(CheckpointMemory, PartsOfGguf) {
  expect_bounded(split_gguf(3, kMany / 2), "tensors of few parts");
  expect_bounded(split_gguf(20'000, 1), "many parts");
  expect_bounded(split_gguf(20'000, 0), "many empty parts");
}

TEST(CheckpointMemory, KeyValuesOfGguf) {
  constexpr int32_t kU8 = 0, kString = 8, kArray = 9;
  expect_bounded(gguf([](GgufWriter& w) {
                   for (int64_t i = 0; i < kMany; ++i) w.key(short_name(i), kU8, "1");
                 }),
                 "keys");
  expect_bounded(gguf([](GgufWriter& w) {
                   const std::string text = GgufWriter::text(std::string(50'000, 't'));
                   for (int64_t i = 0; i < 100; ++i) w.key(std::string(50'000, 'k') + short_name(i), kString, text);
                 }),
                 "long keys and strings");
  expect_bounded(gguf([](GgufWriter& w) {
                   std::string items = bytes_of<int32_t>({kString});
                   append(items, uint64_t{kMany});
                   for (int64_t i = 0; i < kMany; ++i) items += GgufWriter::text(short_name(i));
                   w.key("strings", kArray, items);
                 }),
                 "arrays");
}

/// A .safetensors of tensors without elements.
std::string empty_tensors(int64_t count, const std::function<std::string(int64_t)>& name_of, const std::string& dtype,
                          const std::string& shape) {
  std::string header = "{";
  for (int64_t i = 0; i < count; ++i) {
    header += (i == 0 ? "\"" : ",\"") + name_of(i) + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[0,0]}";
  }
  return safetensors(header + "}", "");
}
std::string empty_tensors(int64_t count, const std::string& suffix, const std::string& dtype, const std::string& shape) {
  return empty_tensors(count, [&](int64_t i) { return short_name(i) + suffix; }, dtype, shape);
}

TEST(CheckpointMemory, TensorsOfSafetensors) {
  const auto expect_tensors = [](const char* what, const std::string& content) {
    Crafted files;
    files.add("m.safetensors", content);
    expect_bounded(std::move(files), what);
  };
  expect_tensors("vectors", empty_tensors(kMany, "", "U8", "0"));
  expect_tensors("floats", empty_tensors(kMany, ".weight", "F16", "0,0"));
  expect_tensors("codes without scales", empty_tensors(kMany, ".qweight", "I32", "0,0"));
  expect_tensors("escaped names", empty_tensors(kMany, "\\u002Eweight", "F16", "0,0"));
  expect_tensors("long names", empty_tensors(50, std::string(100'000, 'n') + ".weight", "F16", "0,0"));
  const auto of_one = [](int64_t i) { return "experts." + std::to_string(i) + ".w.weight"; };
  expect_tensors("experts of one layer", empty_tensors(kMany, of_one, "F16", "0,0"));
  const auto of_many = [](int64_t i) { return "experts." + std::to_string(i % 2) + "." + short_name(i / 2) + ".weight"; };
  expect_tensors("experts of many layers", empty_tensors(kMany, of_many, "F16", "0,0"));
  std::string dims = "0";
  for (int i = 1; i < 64; ++i) dims += ",0";
  expect_tensors("dimensions", empty_tensors(20'000, "", "U8", dims));
  std::string metadata;
  for (int64_t i = 0; i < kMany; ++i) metadata += (i == 0 ? "\"" : ",\"") + short_name(i) + "\":\"\"";
  expect_tensors("metadata", safetensors("{\"__metadata__\":{" + metadata + "}}", ""));
}

// A parser keeps copies of a word, so none is long.
TEST(CheckpointMemory, WordsOfJson) {
  const auto expect_word = [](const char* what, const std::string& header, marlin_status expected) {
    Crafted files;
    files.add("m.safetensors", safetensors(header, ""));
    expect_bounded(std::move(files), what, expected);
  };
  const auto name = [](size_t bytes, char c = 'n') {
    return "{\"" + std::string(bytes, c) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  };
  const auto text = [](const std::string& word) { return R"({"__metadata__":{"a":")" + word + R"("},"b":[]})"; };
  for (const size_t bytes : {size_t{131'000}, size_t{131'080}, size_t{4'000'000}}) {
    const marlin_status expected = bytes < 131'072 ? MARLIN_OK : MARLIN_E_FORMAT;
    expect_word("key", name(bytes), expected);
    expect_word("number", "{\"a\":" + std::string(bytes, '1') + "}", MARLIN_E_FORMAT);
    expect_word("letters", "{\"a\":" + std::string(bytes, 'n') + "}", MARLIN_E_FORMAT);
    expect_word("name without end", "{\"" + std::string(bytes, 'n'), MARLIN_E_FORMAT);
    expect_word("escapes", "{\"" + std::string(bytes, '\\'), MARLIN_E_FORMAT);
  }
  expect_word("text", R"({"__metadata__":{"a":")" + std::string(260'000, 't') + "\"}}", MARLIN_OK);
  expect_word("text that nobody reads", R"({"__metadata__":{"a":")" + std::string(4'000'000, 't') + "\"}}", MARLIN_OK);
  expect_word("long text", text(std::string(263'000, 't')), MARLIN_E_FORMAT);
  expect_word("longer text", text(std::string(4'000'000, 't')), MARLIN_E_FORMAT);
}

TEST(CheckpointMemory, Config) {
  const auto expect_config = [](const char* what, const std::string& config) {
    Crafted files;
    files.add("m.safetensors", safetensors("{}", ""));
    files.add("config.json", config);
    expect_bounded(std::move(files), what);
  };
  /// `before` + one item a number + `after`
  const auto repeated = [](const std::string& before, const std::function<std::string(int64_t)>& item, const char* after) {
    std::string text = before;
    for (int64_t i = 0; i < 3 * kMany; ++i) text += (i == 0 ? "" : ",") + item(i);
    return text + after;
  };
  const auto name = [](int64_t i) { return "\"" + short_name(i) + "\":"; };
  expect_config("numbers", repeated("[", [](int64_t) { return "0"; }, "]"));
  expect_config("arrays", repeated("[", [](int64_t) { return "[0]"; }, "]"));
  expect_config("an array of numbers", repeated("{\"a\":[", [](int64_t) { return "0"; }, "]}"));
  expect_config("an array of texts", repeated("{\"a\":[", [](int64_t i) { return "\"" + short_name(i) + "\""; }, "]}"));
  expect_config("a long path",
                "{\"" + std::string(kMany, 'n') + "\":" + repeated("{", [&](int64_t i) { return name(i) + "0"; }, "}}"));
  expect_config("objects", repeated("[", [](int64_t) { return "{}"; }, "]"));
  expect_config("keys", repeated("{", [&](int64_t i) { return name(i) + "0"; }, "}"));
  expect_config("escaped keys", repeated("{", [&](int64_t i) { return "\"\\n" + short_name(i) + "\":0"; }, "}"));
  for (const std::string section : {"quantization", "quantization_config"}) {
    const std::string begin = "{\"" + section + "\":{";
    expect_config("paths of a section",
                  repeated(begin, [&](int64_t i) { return "\n    " + name(i) + " \"" + short_name(i) + "\""; }, "}}"));
    expect_config("keys of a section", repeated(begin, [&](int64_t i) { return name(i) + "0"; }, "}}"));
    expect_config("layers", repeated(begin, [&](int64_t i) { return name(i) + "{}"; }, "}}"));
    expect_config("layers that differ", repeated(begin, [&](int64_t i) { return name(i) + "{\"bits\":4}"; }, "}}"));
    expect_config(
        "groups",
        repeated(
            begin + "\"config_groups\":{",
            [&](int64_t i) { return name(i) + "{\"weights\":{\"group_size\":" + std::to_string(i + 1) + "}}"; }, "}}}"));
  }
}

/// An index of `count` tensors, each in the shard that `shard_of` names.
std::string index_of(int64_t count, const std::function<std::string(int64_t)>& shard_of) {
  std::string text = "{\"weight_map\":{";
  for (int64_t i = 0; i < count; ++i) text += (i == 0 ? "\"" : ",\"") + short_name(i) + "\":\"" + shard_of(i) + "\"";
  return text + "}}";
}

TEST(CheckpointMemory, Index) {
  {
    Crafted files;
    files.add("i.json", index_of(kMany, [](int64_t) { return "s"; }));
    files.add("s", empty_tensors(kMany, "", "U8", "0"));
    expect_bounded(std::move(files), "tensors");
  }
  {
    Crafted files;
    files.add("i.json", index_of(20'000, short_name));
    for (int64_t i = 0; i < 20'000; ++i) {
      files.add(short_name(i), safetensors("{\"" + short_name(i) +
                                               "\":{\"dtype\":\"U8\",\"shape\":[0],"
                                               "\"data_offsets\":[0,0]}}",
                                           ""));
    }
    expect_bounded(std::move(files), "shards");
  }
  {
    Crafted files;
    files.add("i.json", index_of(3 * kMany, [](int64_t i) { return i == 0 ? "none" : short_name(i); }));
    expect_bounded(std::move(files), "shards that are not there", MARLIN_E_FILE);
  }
}

}  // namespace
}  // namespace metal_marlin::testing::checkpoint_memory_tests
