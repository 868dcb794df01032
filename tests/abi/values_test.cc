// Key-values of checkpoints, through the C ABI and its C++ wrapper: every type, every way to ask, and texts that no NUL ends.
#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text(const std::string& s) { return raw(uint64_t{s.size()}) + s; }
std::string array(int32_t type, uint64_t count, const std::string& elements) { return raw(type) + raw(count) + elements; }

/// A GGUF without tensors.
struct Gguf {
  std::string entries;
  uint64_t count = 0;
  Gguf& add(const std::string& key, int32_t type, const std::string& value) {
    entries += text(key) + raw(type) + value;
    ++count;
    return *this;
  }
  std::string file() const { return raw(uint32_t{0x46554747}) + raw(uint32_t{3}) + raw(uint64_t{0}) + raw(count) + entries; }
};

class Values : public testing::Test {
 protected:
  Values() { std::filesystem::create_directories(folder_); }
  ~Values() override { std::filesystem::remove_all(folder_); }
  mm::checkpoint gguf(const Gguf& file) { return open("m.gguf", file.file()); }
  mm::checkpoint config(const std::string& json) {
    write("config.json", json);
    return open("m.safetensors", raw(uint64_t{2}) + "{}");
  }
  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("metal-marlin-values-" + std::to_string(getpid()))).string();

 private:
  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
  }
  mm::checkpoint open(const std::string& name, const std::string& content) {
    write(name, content);
    return mm::checkpoint(folder_ + "/" + name);
  }
};

std::string_view key_of(const marlin_value& v) { return {v.key, v.key_bytes}; }
std::string_view text_of(const marlin_value& v) { return {static_cast<const char*>(v.data), v.bytes}; }
template <class T>
std::vector<T> elements_of(const marlin_value& v) {
  std::vector<T> all(v.count);
  EXPECT_EQ(v.bytes, all.size() * sizeof(T));
  if (v.bytes != 0) std::memcpy(all.data(), v.data, v.bytes);
  return all;
}

TEST_F(Values, NumbersOfEveryType) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Case {
    int32_t stored;
    std::string value;
    marlin_value_type type;
    int64_t i64;
    uint64_t u64;
    double f64;
  };
  const Case cases[] = {
      {0, raw(uint8_t{200}), MARLIN_VALUE_U64, 200, 200, 200},
      {1, raw(int8_t{-100}), MARLIN_VALUE_I64, -100, 0, -100},
      {2, raw(uint16_t{60000}), MARLIN_VALUE_U64, 60000, 60000, 60000},
      {3, raw(int16_t{-30000}), MARLIN_VALUE_I64, -30000, 0, -30000},
      {4, raw(uint32_t{4000000000}), MARLIN_VALUE_U64, 4000000000, 4000000000, 4e9},
      {5, raw(int32_t{7}), MARLIN_VALUE_I64, 7, 7, 7},
      {6, raw(-2.5f), MARLIN_VALUE_F64, -2, 0, -2.5},
      {7, raw(uint8_t{1}), MARLIN_VALUE_BOOL, 1, 1, 1},
      {7, raw(uint8_t{0}), MARLIN_VALUE_BOOL, 0, 0, 0},
      {7, raw(uint8_t{255}), MARLIN_VALUE_BOOL, 1, 1, 1},
      {10, raw(UINT64_MAX), MARLIN_VALUE_U64, INT64_MAX, UINT64_MAX, 0x1p64},
      {11, raw(INT64_MIN), MARLIN_VALUE_I64, INT64_MIN, 0, -0x1p63},
      {12, raw(3.75), MARLIN_VALUE_F64, 3, 3, 3.75},
      {12, raw(0x1p63), MARLIN_VALUE_F64, INT64_MAX, uint64_t{1} << 63, 0x1p63},
      {12, raw(kInfinity), MARLIN_VALUE_F64, INT64_MAX, UINT64_MAX, kInfinity},
      {12, raw(-kInfinity), MARLIN_VALUE_F64, INT64_MIN, 0, -kInfinity},
  };
  Gguf file;
  for (const Case& c : cases) file.add("k" + std::to_string(file.count), c.stored, c.value);
  file.add("nan", 6, raw(std::numeric_limits<float>::quiet_NaN()));
  const mm::checkpoint checkpoint = gguf(file);
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    const marlin_value v = checkpoint.value("k" + std::to_string(i));
    EXPECT_EQ(v.kind, cases[i].type);
    EXPECT_EQ(v.i64, cases[i].i64);
    EXPECT_EQ(v.u64, cases[i].u64);
    EXPECT_EQ(v.f64, cases[i].f64);
    EXPECT_EQ(v.element_type, MARLIN_VALUE_NONE);
    EXPECT_EQ(v.data, nullptr);
    EXPECT_EQ(v.count, 0u);
  }
  EXPECT_TRUE(std::isnan(checkpoint.value("nan").f64));
  EXPECT_EQ(checkpoint.value("nan").i64, 0);
  const std::vector<marlin_value> all = checkpoint.values();
  ASSERT_EQ(all.size(), std::size(cases) + 1);
  EXPECT_EQ(key_of(all[0]), "k0");
  EXPECT_EQ(key_of(all[10]), "k10") << "in file order";
}

TEST_F(Values, TextsAndArrays) {
  const mm::checkpoint checkpoint = gguf(Gguf()
                                             .add("text", 8, text("gr\xC3\xBC\xC3\x9F"))
                                             .add("empty", 8, text(""))
                                             .add("i32", 9, array(5, 3, raw(int32_t{1}) + raw(int32_t{-2}) + raw(int32_t{3})))
                                             .add("f32", 9, array(6, 1, raw(0.5f)))
                                             .add("u16", 9, array(2, 1, raw(uint16_t{65535})))
                                             .add("bool", 9, array(7, 2, std::string("\1\0", 2)))
                                             .add("none", 9, array(12, 0, ""))
                                             .add("texts", 9, array(8, 4, text("a") + text("") + text("bc") + text("")))
                                             .add("no texts", 9, array(8, 0, "")));
  EXPECT_EQ(text_of(checkpoint.value("text")), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(checkpoint.value("text").count, 6u);
  EXPECT_EQ(checkpoint.value("empty").kind, MARLIN_VALUE_STRING);
  EXPECT_EQ(text_of(checkpoint.value("empty")), "");
  const marlin_value numbers = checkpoint.value("i32");
  EXPECT_EQ(numbers.kind, MARLIN_VALUE_ARRAY);
  EXPECT_EQ(numbers.element_type, MARLIN_VALUE_I32);
  EXPECT_THAT(elements_of<int32_t>(numbers), ElementsAre(1, -2, 3));
  EXPECT_THAT(elements_of<float>(checkpoint.value("f32")), ElementsAre(0.5f));
  EXPECT_EQ(checkpoint.value("u16").element_type, MARLIN_VALUE_U16);
  EXPECT_THAT(elements_of<uint16_t>(checkpoint.value("u16")), ElementsAre(65535));
  EXPECT_EQ(checkpoint.value("bool").element_type, MARLIN_VALUE_BOOL);
  EXPECT_THAT(elements_of<uint8_t>(checkpoint.value("bool")), ElementsAre(1, 0));
  EXPECT_EQ(checkpoint.value("none").element_type, MARLIN_VALUE_F64);
  EXPECT_EQ(checkpoint.value("none").count, 0u);
  const marlin_value texts = checkpoint.value("texts");
  EXPECT_EQ(texts.element_type, MARLIN_VALUE_STRING);
  EXPECT_EQ(texts.count, 4u);
  EXPECT_THAT(mm::strings_of(texts), ElementsAre("a", "", "bc", ""));
  EXPECT_TRUE(mm::strings_of(checkpoint.value("no texts")).empty());
}

TEST_F(Values, ASplitModelHasThoseOfItsFirstPart) {
  const mm::checkpoint checkpoint(std::string(MARLIN_TEST_DATA) + "/gguf-split");
  EXPECT_EQ(text_of(checkpoint.value("general.architecture")), "llama");
  EXPECT_EQ(checkpoint.value("llama.block_count").u64, 3u);
  EXPECT_EQ(checkpoint.values().size(), 6u);
}

TEST_F(Values, MembersOfConfig) {
  const mm::checkpoint checkpoint = config(R"({
    "model_type": "llama", "hidden": 576, "negative": -7, "large": 18446744073709551615, "real": 1e-05, "tied": true,
    "null": null, "empty": [], "object": {}, "escaped\u002ekey": "a\nb",
    "quantization_config": {"bits": 4, "inner": {"group_size": 128, "": "nameless"}},
    "ignore": ["lm_head", "", "embed"], "whole": [1, 2, -3], "natural": [1, 9223372036854775808],
    "reals": [1, 0.5], "signs": [-1, 9223372036854775808, 2], "bools": [true, false],
    "mixed": [1, "a"], "nulls": [null], "objects": [{"bits": 2}, 1], "arrays": [[1]], "last": "end"})");
  EXPECT_EQ(text_of(checkpoint.value("model_type")), "llama");
  EXPECT_EQ(checkpoint.value("hidden").kind, MARLIN_VALUE_I64);
  EXPECT_EQ(checkpoint.value("hidden").u64, 576u);
  EXPECT_EQ(checkpoint.value("negative").i64, -7);
  EXPECT_EQ(checkpoint.value("large").kind, MARLIN_VALUE_U64);
  EXPECT_EQ(checkpoint.value("large").u64, UINT64_MAX);
  EXPECT_EQ(checkpoint.value("real").kind, MARLIN_VALUE_F64);
  EXPECT_EQ(checkpoint.value("real").f64, 1e-5);
  EXPECT_EQ(checkpoint.value("tied").kind, MARLIN_VALUE_BOOL);
  EXPECT_EQ(checkpoint.value("tied").i64, 1);
  EXPECT_EQ(text_of(checkpoint.value("escaped.key")), "a\nb");
  EXPECT_EQ(checkpoint.value("quantization_config.bits").i64, 4);
  EXPECT_EQ(checkpoint.value("quantization_config.inner.group_size").i64, 128);
  EXPECT_EQ(text_of(checkpoint.value("quantization_config.inner.")), "nameless");
  EXPECT_EQ(checkpoint.value("empty").element_type, MARLIN_VALUE_STRING);
  EXPECT_EQ(checkpoint.value("empty").count, 0u);
  EXPECT_THAT(mm::strings_of(checkpoint.value("ignore")), ElementsAre("lm_head", "", "embed"));
  EXPECT_EQ(checkpoint.value("whole").element_type, MARLIN_VALUE_I64);
  EXPECT_THAT(elements_of<int64_t>(checkpoint.value("whole")), ElementsAre(1, 2, -3));
  EXPECT_EQ(checkpoint.value("natural").element_type, MARLIN_VALUE_U64);
  EXPECT_THAT(elements_of<uint64_t>(checkpoint.value("natural")), ElementsAre(1u, uint64_t{1} << 63));
  EXPECT_EQ(checkpoint.value("reals").element_type, MARLIN_VALUE_F64);
  EXPECT_THAT(elements_of<double>(checkpoint.value("reals")), ElementsAre(1, 0.5));
  EXPECT_THAT(elements_of<double>(checkpoint.value("signs")), ElementsAre(-1, 0x1p63, 2));
  EXPECT_THAT(elements_of<uint8_t>(checkpoint.value("bools")), ElementsAre(1, 0));
  EXPECT_EQ(text_of(checkpoint.value("last")), "end");
  marlin_value none = mm::make<marlin_value>();
  for (const char* key :
       {"null", "object", "quantization_config", "mixed", "nulls", "objects", "objects.bits", "arrays", "", "inner"})
    EXPECT_FAILS(MARLIN_E_NOT_FOUND, key, marlin_checkpoint_value, checkpoint.get(), key, &none);
  EXPECT_EQ(checkpoint.values().size(), 18u);
}

TEST_F(Values, OddConfigs) {
  for (const char* json : {"[]", "7", "[1, 2]", "\"text\"", "{}"}) EXPECT_TRUE(config(json).values().empty()) << json;
  const mm::checkpoint twice = config(R"({"a.b": 1, "a": {"b": 2}})");
  EXPECT_EQ(twice.value("a.b").i64, 1) << "the first of one path";
  EXPECT_EQ(twice.values().size(), 2u);
  const mm::checkpoint large_numbers =
      config(R"({"i": 9223372036854775807, "u": 9223372036854775808, "n": -9223372036854775808, "f": -9223372036854775809})");
  EXPECT_EQ(large_numbers.value("i").kind, MARLIN_VALUE_I64);
  EXPECT_EQ(large_numbers.value("u").kind, MARLIN_VALUE_U64);
  EXPECT_EQ(large_numbers.value("u").i64, INT64_MAX);
  EXPECT_EQ(large_numbers.value("n").kind, MARLIN_VALUE_I64);
  EXPECT_EQ(large_numbers.value("f").kind, MARLIN_VALUE_F64);
  const mm::checkpoint mixed = config(R"({"a": [9223372036854775808, 0.5]})");
  EXPECT_THAT(elements_of<double>(mixed.value("a")), ElementsAre(0x1p63, 0.5));
  // A long name that many paths repeat would take memory without bound.
  std::string members;
  for (int i = 0; i < 1000; ++i) members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  const mm::checkpoint large = config("{\"" + std::string(1000, 'n') + "\": {" + members + "}}");
  marlin_value value = mm::make<marlin_value>();
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "config.json: byte", marlin_checkpoint_value, large.get(), "a", &value);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "config.json: byte", marlin_checkpoint_value_at, large.get(), uint64_t{0}, &value);
  const mm::checkpoint none(std::string(MARLIN_TEST_DATA) + "/float-f32/model.safetensors");
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "no.such", marlin_checkpoint_value, none.get(), "no.such", &value);
}

TEST_F(Values, WhatIsNotThere) {
  const mm::checkpoint checkpoint = gguf(Gguf().add("a", 8, text("x")).add("numbers", 9, array(0, 2, "ab")));
  marlin_value value = mm::make<marlin_value>();
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "key 'b'", marlin_checkpoint_value, checkpoint.get(), "b", &value);
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "2 of 2", marlin_checkpoint_value_at, checkpoint.get(), uint64_t{2}, &value);
  EXPECT_THROW(checkpoint.value("b"), mm::error);
  const char* string = nullptr;
  uint64_t bytes = 0;
  value.reserved = 1;
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "reserved", marlin_value_next_string, &value, &string, &bytes);
  for (const char* key : {"a", "numbers"}) {
    value = checkpoint.value(key);
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "array", marlin_value_next_string, &value, &string, &bytes);
  }
}

TEST_F(Values, StringsAreThoseOfTheArray) {
  const mm::checkpoint checkpoint = gguf(Gguf().add("a", 9, array(8, 2, text("one") + text("two"))).add("b", 8, text("x")));
  const marlin_value a = checkpoint.value("a");
  const char* string = nullptr;
  uint64_t bytes = 0;
  EXPECT_OK(marlin_value_next_string, &a, &string, &bytes);
  EXPECT_EQ(std::string_view(string, bytes), "one");
  uint64_t too_many = a.bytes;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "no string of the array", marlin_value_next_string, &a, &string, &too_many);
  const char* elsewhere = static_cast<const char*>(checkpoint.value("b").data);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "no string of the array", marlin_value_next_string, &a, &elsewhere, &bytes);
  uint64_t between = 1;  // the rest of the text is no length
  EXPECT_FAILS(MARLIN_E_FORMAT, "expected a string", marlin_value_next_string, &a, &string, &between);
  EXPECT_OK(marlin_value_next_string, &a, &string, &bytes);
  EXPECT_EQ(std::string_view(string, bytes), "two");
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "no more", marlin_value_next_string, &a, &string, &bytes);
  EXPECT_EQ(std::string_view(string, bytes), "two") << "a failure changes nothing";
}

/// Reads all values and all strings, which must lie inside of the file.
size_t read_all(const mm::checkpoint& checkpoint) {
  size_t bytes = 0;
  for (const marlin_value& v : checkpoint.values()) {
    bytes += key_of(v).size();
    if (v.data != nullptr) bytes += std::string(text_of(v)).size();  // a copy touches every byte
    if (v.element_type != MARLIN_VALUE_STRING) continue;
    for (const std::string_view string : mm::strings_of(v)) bytes += std::string(string).size();
  }
  return bytes;
}

/// An error or other values, never a read past the end.
TEST_F(Values, EveryByteMayLieAndTheFileMayEndAnywhere) {
  const std::string whole = Gguf()
                                .add("u8", 0, raw(uint8_t{1}))
                                .add("text", 8, text("abc"))
                                .add("numbers", 9, array(5, 2, raw(int32_t{1}) + raw(int32_t{2})))
                                .add("texts", 9, array(8, 3, text("a") + text("") + text("bc")))
                                .file();
  const auto attempt = [&](const std::string& bytes) {
    std::ofstream(folder_ + "/lie.gguf", std::ios::binary) << bytes;
    marlin_checkpoint* opened = nullptr;
    if (marlin_checkpoint_open((folder_ + "/lie.gguf").c_str(), nullptr, &opened, nullptr) != MARLIN_OK) return size_t{0};
    return read_all(mm::checkpoint(opened));
  };
  EXPECT_GT(attempt(whole), 50u);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(attempt(whole.substr(0, size)), 0u) << size;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int lie : {0x00, 0x01, 0x09, 0x7F, 0x80, 0xFF}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(lie);
      EXPECT_LT(attempt(bytes), 4 * whole.size()) << at;
    }
  }
}

/// A quarter of a million strings in as many steps; a reader that begins anew for each would take 3e10.
TEST_F(Values, AVocabularyIsReadInLinearTime) {
  constexpr uint64_t kTokens = 250'000;
  std::string strings;
  for (uint64_t i = 0; i < kTokens; ++i) strings += text("token" + std::to_string(i));
  const mm::checkpoint checkpoint = gguf(Gguf().add("tokenizer.ggml.tokens", 9, array(8, kTokens, strings)));
  const auto tokens = mm::strings_of(checkpoint.value("tokenizer.ggml.tokens"));
  ASSERT_EQ(tokens.size(), kTokens);
  EXPECT_EQ(tokens.back(), "token249999");
}

}  // namespace
}  // namespace abi_test
