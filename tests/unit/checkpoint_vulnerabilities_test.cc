// One file for each way in which other loaders are known to have failed. The root cause keeps coming back: a product or sum of
// sizes from the file wraps. Each file must be refused quickly and without a large allocation.
#include "checkpoint_files.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin::testing::checkpoint_vulnerabilities_tests {
namespace {

/// Far above what opening any of these takes, also under a sanitizer on a busy machine; far below what quadratic work would.
constexpr auto kPatience = std::chrono::seconds(20);

void expect_refused(const std::string& name, const std::string& content, const std::string& what) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = open_memory({{name, content}}).status();
  EXPECT_THAT(status, Fails(MARLIN_E_FORMAT, HasSubstr(name + ": byte ")));
  EXPECT_THAT(status.message(), HasSubstr(what));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
}

std::string u32(uint32_t v) { return bytes_of({v}); }
std::string u64(uint64_t v) { return bytes_of({v}); }

constexpr int32_t kF32 = 0, kQ4_0 = 2, kI8 = 24, kF64 = 28;  // types of tensors

/// A tensor behind the one before it, or at an offset.
struct Tensor {
  std::string name;
  std::initializer_list<int64_t> dims;
  int32_t type;
  std::string data;
  int64_t offset = -1;
};

TEST(CheckpointVulnerability, OfTensorsOfGguf) {
  const std::string some(32, 'x');
  const auto refused = [](const std::vector<Tensor>& tensors, const char* field) {
    GgufWriter writer;
    for (const Tensor& t : tensors)
      if (t.offset < 0)
        writer.tensor(t.name, t.dims, t.type, t.data);
      else
        writer.tensor_at(t.name, t.dims, t.type, static_cast<uint64_t>(t.offset), t.data);
    expect_refused("f.gguf", writer.file(), field);
  };
  // CVE-2024-21802: dimensions wrap. The product of all four is 2^64 + 2^34, that of the first three fits.
  refused({{"t", {int64_t{1} << 32, int64_t{1} << 32}, kF32, some}}, "dimensions");
  refused({{"t", {int64_t{1} << 30, int64_t{1} << 4, (int64_t{1} << 30) + 1, 1}, kI8, some}}, "dimensions");
  // CVE-2026-27940: an overhead and a size wrap. The sum with the data's own offset is just above 2^64.
  refused({{"t", {INT64_MAX}, kI8, some}}, "data");
  refused({{"a", {INT64_MAX - 31}, kI8, "", 0}, {"b", {INT64_MAX}, kI8, "", INT64_MAX - 31}}, "data");
  // CVE-2026-33298: 2^61 floats are 2^63 bytes, twice that many 2^64 = 0.
  refused({{"t", {int64_t{1} << 31, int64_t{1} << 31}, kF32, std::string(4096, 'x')}}, "");
  refused({{"t", {int64_t{1} << 62, 4}, kF64, std::string(4096, 'x')}}, "dimensions");
  // CVE-2026-7482: dimensions larger than the data.
  refused({{"t", {32, 1 << 20}, kQ4_0, std::string(64, 'x')}}, "data");
  for (const int32_t type : {-1, INT32_MIN, 0x7fffffff}) refused({{"t", {1}, type, "1234"}}, "type");
}

/// CVE-2025-53630: each tensor is legal by itself; together they are 2^64 + 32 bytes. And padding near the largest size is 0.
TEST(CheckpointVulnerability, SumsOfTensorSizesWrap) {
  GgufWriter sum, padding;
  for (uint64_t i = 0; i < 4; ++i) sum.tensor_at(std::string("t") + std::to_string(i), {int64_t{1} << 62}, kI8, i << 62, "");
  sum.tensor_at("t4", {32}, kI8, 0, std::string(32, 'x'));
  expect_refused("f.gguf", sum.file(), "data");
  padding.tensor_at("a", {INT64_MAX}, kI8, 0, "");
  padding.tensor_at("b", {INT64_MAX}, kI8, uint64_t{1} << 63, "");
  padding.tensor_at("c", {1}, kI8, 0, "x");
  expect_refused("f.gguf", padding.file(), "");
}

TEST(CheckpointVulnerability, CountsOfGguf) {
  const auto head = [](uint64_t tensors, uint64_t keys, const std::string& behind) {
    return std::string("GGUF") + u32(3) + u64(tensors) + u64(keys) + behind;
  };
  const std::string zeros(256, '\0');
  // CVE-2024-23605: 2^64 / 48 + 1 keys of a 48-byte struct allocate 32 bytes.
  for (const uint64_t keys : {UINT64_MAX / 48 + 1, UINT64_MAX})
    expect_refused("f.gguf", head(0, keys, zeros), "key-value count");
  // CVE-2024-21836: likewise tensors.
  for (const uint64_t tensors : {UINT64_MAX / 88 + 1, UINT64_MAX})
    expect_refused("f.gguf", head(tensors, 0, zeros), "tensor count");
  // CVE-2024-23496: the length of a string plus one wraps.
  expect_refused("f.gguf", head(0, 1, u64(UINT64_MAX) + std::string(64, 'x')), "length");
  // As many tensors as the smallest description allows in the bytes left, but the bytes are no descriptions.
  expect_refused("f.gguf", head(1 << 16, 0, std::string(24 << 16, '\xff')), "");
}

TEST(CheckpointVulnerability, OfKeysOfGguf) {
  const auto refused = [](const char* key, int32_t type, const std::string& value, const char* field) {
    GgufWriter writer;
    writer.key(key, type, value);
    writer.tensor("t", {1}, kF32, "1234");
    expect_refused("f.gguf", writer.file(), field);
  };
  // CVE-2024-21825: the count of an array, which times 8 is 8, and its type.
  refused("k", 9, u32(10) + u64((uint64_t{1} << 61) + 1) + std::string(8, 'x'), "array length");
  refused("k", 9, u32(0x7fffffff) + u64(1) + std::string(8, 'x'), "array type");
  refused("k", 8, u64(UINT64_MAX) + "x", "length");
  for (const uint64_t count : {uint64_t{1} << 30, uint64_t{1} << 40}) {
    refused("k", 8, u64(count) + "x", "length");
    refused("k", 9, u32(12) + u64(count) + "12345678", "array length");
    refused("k", 9, u32(8) + u64(count) + "12345678", "array length");
  }
  for (const uint32_t alignment : {0x80000000u, 0u, 0xffffffffu, 48u})
    refused("general.alignment", 4, u32(alignment), "general.alignment");
  refused("general.alignment", 8, GgufWriter::text("32"), "general.alignment");
}

TEST(CheckpointVulnerability, QuadraticSearchForDuplicates) {
  GgufWriter writer, keys;
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    const std::string number = std::to_string(i % 99'999);
    writer.tensor(std::string("t") + number, {0}, kI8, "");
    keys.key(std::string("k") + number, 0, "x");
    header += (i == 0 ? "\"t" : ",\"t") + number + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  expect_refused("f.gguf", writer.file(), "occurs twice");
  expect_refused("f.gguf", keys.file(), "occurs twice");
  expect_refused("f.safetensors", safetensors(header + "}", ""), "twice");
}

/// The headers that checkpoint_errors_test.cc does not have.
TEST(CheckpointVulnerability, OfSafetensors) {
  const auto refused = [](const std::string& header, const std::string& data, const char* field) {
    expect_refused("f.safetensors", safetensors(header, data), field);
  };
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offsets, const char* field) {
    refused(R"({"a":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}", "1234", field);
  };
  for (const char* offsets : {"0,5", "4,8", "18446744073709551612,18446744073709551615", "18446744073709551615,3"})
    one("U8", "4", offsets, "data_offsets");
  one("F32", "2", "0,4", "expected 8 bytes");
  one("U8", "1048576", "0,4", "data_offsets");
  for (const char* shape : {"4294967296,4294967296", "4611686018427387905,4", "9223372036854775807,9223372036854775807,4",
                            "2,9223372036854775807,2", "4294967296,4294967296,0"})
    one("F32", shape, "0,4", "shape");
  refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "xyz",
          "hole");
  refused(std::string("{\"a\":").append(1 << 20, '['), "", "");
  std::string objects = "{\"a\":{\"x\":";
  for (int i = 0; i < 100'000; ++i) objects += "{\"x\":";
  refused(objects, "", "nested");
  // A reader of C strings sees one header, and others see another.
  refused(std::string("{} \0 ", 5), "", "NUL");
  refused(std::string("{}\0{", 4), "", "NUL");
  refused("{}{}", "", "JSON");
}

TEST(CheckpointVulnerability, SafetensorsHeaderLongerThanTheLimit) {
  // A sparse file that is long enough for its header.
  const std::string path = ::testing::TempDir() + "/marlin-long-header.safetensors";
  std::ofstream(path, std::ios::binary) << u64(100'000'001) << '{';
  std::filesystem::resize_file(path, 200'000'000);
  const Status status = Checkpoint::open(path, MARLIN_LAYOUT_AUTO).status();
  std::filesystem::remove(path);
  EXPECT_THAT(status, Fails(MARLIN_E_FORMAT, HasSubstr("header length: expected at most 100000000, found 100000001")));
}

}  // namespace
}  // namespace metal_marlin::testing::checkpoint_vulnerabilities_tests
