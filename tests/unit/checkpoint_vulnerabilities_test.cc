// One file for each way in which other loaders are known to have failed. The root cause keeps coming back: a product or sum of
// sizes from the file wraps. Each file must be refused quickly and without a large allocation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "checkpoint_files.h"

namespace metal_marlin::testing::checkpoint_vulnerabilities_tests {
namespace {

using ::testing::HasSubstr;

/// Far above what opening any of these takes, also under a sanitizer on a busy machine; far below what quadratic work would.
constexpr auto kPatience = std::chrono::seconds(20);

void expect_refused(const std::string& name, const std::string& content, const std::string& what) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = open_memory({{name, content}}).status();
  EXPECT_EQ(status.code(), MARLIN_E_FORMAT);
  EXPECT_THAT(status.message(), HasSubstr(name + ": byte "));
  EXPECT_THAT(status.message(), HasSubstr(what));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
}

std::string u32(uint32_t v) { return bytes_of({v}); }
std::string u64(uint64_t v) { return bytes_of({v}); }

/// A GGUF head with these counts and nothing behind it but zeros.
std::string gguf_head(uint64_t tensors, uint64_t keys) {
  return std::string("GGUF") + u32(3) + u64(tensors) + u64(keys) + std::string(256, '\0');
}

TEST(CheckpointVulnerability, Cve202423605_KeyValueCountTimesSizeWraps) {
  // 2^64 / 48 + 1 keys of a 48-byte struct allocate 32 bytes.
  expect_refused("f.gguf", gguf_head(0, UINT64_MAX / 48 + 1), "key-value count");
  expect_refused("f.gguf", gguf_head(0, UINT64_MAX), "key-value count");
}

TEST(CheckpointVulnerability, Cve202421836_TensorCountTimesSizeWraps) {
  expect_refused("f.gguf", gguf_head(UINT64_MAX / 88 + 1, 0), "tensor count");
  expect_refused("f.gguf", gguf_head(UINT64_MAX, 0), "tensor count");
}

TEST(CheckpointVulnerability, Cve202421802_DimensionsWrap) {
  GgufWriter writer;
  writer.tensor("t.weight", {int64_t{1} << 32, int64_t{1} << 32}, 0, std::string(32, 'x'));
  expect_refused("f.gguf", writer.file(), "dimensions");
  GgufWriter small;  // the product of all four is 2^64 + 2^34, that of the first three fits
  small.tensor("t.weight", {int64_t{1} << 30, int64_t{1} << 4, (int64_t{1} << 30) + 1, 1}, 24, std::string(32, 'x'));
  expect_refused("f.gguf", small.file(), "dimensions");
}

TEST(CheckpointVulnerability, Cve202421825_ArrayTypeAndCount) {
  GgufWriter count, type;
  count.key("k", 9, u32(10) + u64((uint64_t{1} << 61) + 1) + std::string(8, 'x'));  // times 8 is 8
  expect_refused("f.gguf", count.file(), "array length");
  type.key("k", 9, u32(0x7fffffff) + u64(1) + std::string(8, 'x'));
  expect_refused("f.gguf", type.file(), "array type");
}

TEST(CheckpointVulnerability, Cve202423496_StringLengthPlusOneWraps) {
  GgufWriter value;
  value.key("k", 8, u64(UINT64_MAX) + "x");
  expect_refused("f.gguf", value.file(), "length");
  expect_refused("f.gguf", std::string("GGUF") + u32(3) + u64(0) + u64(1) + u64(UINT64_MAX) + std::string(64, 'x'), "length");
}

TEST(CheckpointVulnerability, Cve202553630_SumOfTensorSizesWraps) {
  // Each tensor is legal by itself; together they are 2^64 + 32 bytes.
  GgufWriter writer;
  const int64_t quarter = int64_t{1} << 62;
  for (int i = 0; i < 4; ++i)
    writer.tensor_at(std::string("t") + std::to_string(i), {quarter}, 24, static_cast<uint64_t>(i) << 62, "");
  writer.tensor_at("t4", {32}, 24, 0, std::string(32, 'x'));
  expect_refused("f.gguf", writer.file(), "data");
}

TEST(CheckpointVulnerability, Cve202627940_OverheadPlusSizeWraps) {
  GgufWriter writer;
  writer.tensor("t", {INT64_MAX}, 24, std::string(32, 'x'));
  expect_refused("f.gguf", writer.file(), "data");
  GgufWriter twice;  // the sum with the data's own offset is just above 2^64
  twice.tensor_at("a", {INT64_MAX - 31}, 24, 0, "");
  twice.tensor_at("b", {INT64_MAX}, 24, static_cast<uint64_t>(INT64_MAX - 31), "");
  expect_refused("f.gguf", twice.file(), "data");
}

TEST(CheckpointVulnerability, Cve202633298_BytesOfATensorWrap) {
  // 2^61 floats are 2^63 bytes, twice that many 2^64 = 0: exabytes by the dimensions, nothing in the file.
  GgufWriter writer;
  writer.tensor("t.weight", {int64_t{1} << 31, int64_t{1} << 31}, 0, std::string(4096, 'x'));
  expect_refused("f.gguf", writer.file(), "");
  GgufWriter blocks;
  blocks.tensor("t.weight", {int64_t{1} << 62, 4}, 28, std::string(4096, 'x'));
  expect_refused("f.gguf", blocks.file(), "dimensions");
}

TEST(CheckpointVulnerability, PaddingNearTheLargestSizeIsZero) {
  GgufWriter writer;
  writer.tensor_at("a", {INT64_MAX}, 24, 0, "");
  writer.tensor_at("b", {INT64_MAX}, 24, (uint64_t{1} << 63), "");
  writer.tensor_at("c", {1}, 24, 0, "x");
  expect_refused("f.gguf", writer.file(), "");
}

TEST(CheckpointVulnerability, AlignmentOfAWrongValueOrType) {
  for (const uint32_t alignment : {0x80000000u, 0u, 0xffffffffu, 48u}) {
    GgufWriter writer;
    writer.key("general.alignment", 4, u32(alignment));
    writer.tensor("t", {1}, 0, "1234");
    expect_refused("f.gguf", writer.file(), "general.alignment");
  }
  GgufWriter text;
  text.key("general.alignment", 8, GgufWriter::text("32"));
  expect_refused("f.gguf", text.file(), "general.alignment");
}

TEST(CheckpointVulnerability, NegativeTensorType) {
  for (const int32_t type : {-1, INT32_MIN, 0x7fffffff}) {
    GgufWriter writer;
    writer.tensor("t", {1}, type, "1234");
    expect_refused("f.gguf", writer.file(), "type");
  }
}

TEST(CheckpointVulnerability, CountThatFitsTheCheckedButNotTheAllocatedStruct) {
  // As many tensors as the smallest description allows in the bytes left, but the bytes are no descriptions.
  const std::string file = std::string("GGUF") + u32(3) + u64(1 << 16) + u64(0) + std::string(24 << 16, '\xff');
  expect_refused("f.gguf", file, "");
}

TEST(CheckpointVulnerability, Cve20267482_DimensionsLargerThanTheData) {
  GgufWriter writer;
  writer.tensor("t.weight", {32, 1 << 20}, 2, std::string(64, 'x'));
  expect_refused("f.gguf", writer.file(), "data");
  expect_refused("f.safetensors",
                 safetensors(R"({"t.weight":{"dtype":"U8","shape":[1048576],"data_offsets":[0,64]}})", std::string(64, 'x')),
                 "data_offsets");
}

TEST(CheckpointVulnerability, QuadraticSearchForDuplicates) {
  GgufWriter writer;
  for (int i = 0; i < 100'000; ++i) writer.tensor(std::string("t") + std::to_string(i % 99'999), {0}, 24, "");
  expect_refused("f.gguf", writer.file(), "occurs twice");
  GgufWriter keys;
  for (int i = 0; i < 100'000; ++i) keys.key(std::string("k") + std::to_string(i % 99'999), 0, "x");
  expect_refused("f.gguf", keys.file(), "occurs twice");
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += std::string(i == 0 ? "\"t" : ",\"t") + std::to_string(i % 99'999) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  expect_refused("f.safetensors", safetensors(header + "}", ""), "twice");
}

TEST(CheckpointVulnerability, StringsAndArraysOfAGigabyte) {
  for (const uint64_t count : {uint64_t{1} << 30, uint64_t{1} << 40}) {
    GgufWriter text, array, strings;
    text.key("k", 8, u64(count) + "x");
    expect_refused("f.gguf", text.file(), "length");
    array.key("k", 9, u32(12) + u64(count) + "12345678");
    expect_refused("f.gguf", array.file(), "array length");
    strings.key("k", 9, u32(8) + u64(count) + "12345678");
    expect_refused("f.gguf", strings.file(), "array length");
  }
}

TEST(CheckpointVulnerability, SafetensorsDuplicateNames) {
  expect_refused(
      "f.safetensors",
      safetensors(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          "xy"),
      "twice");
}

TEST(CheckpointVulnerability, SafetensorsHolesAndOverlaps) {
  expect_refused(
      "f.safetensors",
      safetensors(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
          "xyz"),
      "hole");
  expect_refused(
      "f.safetensors",
      safetensors(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xy"),
      "overlap");
}

TEST(CheckpointVulnerability, SafetensorsOffsetsPastTheEnd) {
  for (const char* offsets : {"0,5", "4,8", "18446744073709551612,18446744073709551615", "18446744073709551615,3"}) {
    const std::string header = std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[)") + offsets + "]}}";
    expect_refused("f.safetensors", safetensors(header, "1234"), "data_offsets");
  }
}

TEST(CheckpointVulnerability, SafetensorsSizeIsNotShapeTimesType) {
  expect_refused("f.safetensors", safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
                 "expected 8 bytes");
}

TEST(CheckpointVulnerability, SafetensorsNestedOrHugeJson) {
  expect_refused("f.safetensors", safetensors(std::string("{\"a\":").append(1 << 20, '['), ""), "");
  std::string objects = "{\"a\":{\"x\":";
  for (int i = 0; i < 100'000; ++i) objects += "{\"x\":";
  expect_refused("f.safetensors", safetensors(objects, ""), "nested");
}

TEST(CheckpointVulnerability, TextBehindTheEndOfJson) {
  // A reader of C strings sees one header, and others see another.
  expect_refused("f.safetensors", safetensors(std::string("{} \0 ", 5), ""), "NUL");
  expect_refused("f.safetensors", safetensors(std::string("{}\0{", 4), ""), "NUL");
  expect_refused("f.safetensors", safetensors("{}{}", ""), "JSON");
}

TEST(CheckpointVulnerability, SafetensorsHeaderLongerThanTheLimit) {
  // A sparse file that is long enough for its header.
  const std::string path = ::testing::TempDir() + "/marlin-long-header.safetensors";
  std::ofstream(path, std::ios::binary) << u64(100'000'001) << '{';
  std::filesystem::resize_file(path, 200'000'000);
  const Status status = Checkpoint::open(path, MARLIN_LAYOUT_AUTO).status();
  std::filesystem::remove(path);
  EXPECT_EQ(status.code(), MARLIN_E_FORMAT);
  EXPECT_THAT(status.message(), HasSubstr("header length: expected at most 100000000, found 100000001"));
}

TEST(CheckpointVulnerability, SafetensorsProductsThatWrapToSmallNumbers) {
  for (const char* shape : {"4294967296,4294967296", "4611686018427387905,4", "9223372036854775807,9223372036854775807,4",
                            "2,9223372036854775807,2", "4294967296,4294967296,0"}) {
    const std::string header = std::string(R"({"a.weight":{"dtype":"F32","shape":[)") + shape + R"(],"data_offsets":[0,4]}})";
    expect_refused("f.safetensors", safetensors(header, "1234"), "shape");
  }
}

}  // namespace
}  // namespace metal_marlin::testing::checkpoint_vulnerabilities_tests
