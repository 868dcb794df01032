// Key-values whose bytes change after they were found, as another process may change a mapped file.
#include "checkpoints/value_table.h"

#include "checkpoint_files.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

/// Bytes of an exact-size heap block, so that the address sanitizer sees a read past the end.
struct Changing {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> begins;
  void add(const std::string& key, int32_t type, const std::string& value) {
    begins.push_back(bytes.size());
    const std::string all = GgufWriter::text(key) + bytes_of<int32_t>({type}) + value;
    for (const char c : all) bytes.push_back(static_cast<std::byte>(c));
  }
  ValueTable table() {
    bytes.shrink_to_fit();
    std::vector<uint64_t> ends = begins;
    ends.push_back(bytes.size());
    return {std::span<const std::byte>(bytes), ends};
  }
};

TEST(ValueTable, NothingIsReadPastAValueThatChanges) {
  Changing file;
  file.add("texts", gguf::kArray,
           bytes_of<int32_t>({gguf::kString}) + bytes_of<uint64_t>({2}) + GgufWriter::text("a") + GgufWriter::text("bc"));
  file.add("numbers", gguf::kArray, bytes_of<int32_t>({gguf::kU16}) + bytes_of<uint64_t>({2}) + "abcd");
  file.add("text", gguf::kString, GgufWriter::text("abc"));
  file.add("number", gguf::kF64, bytes_of<double>({0.5}));
  const ValueTable table = file.table();
  ASSERT_EQ(table.size(), 4u);
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_TRUE(table.at(i).ok());
    EXPECT_EQ(table.find(table.key(i)), i);
  }
  EXPECT_EQ(table.find("numbers "), std::nullopt);
  size_t refused = 0;
  for (std::byte& byte : file.bytes) {
    const std::byte before = byte;
    for (const int lie : {0x00, 0x01, 0x09, 0x0d, 0x7f, 0x80, 0xff}) {
      byte = static_cast<std::byte>(lie);
      for (size_t i = 0; i < table.size(); ++i) {
        (void)table.find(table.key(i));
        const auto value = table.at(i);
        if (!value.ok()) {
          EXPECT_EQ(value.status().code(), MARLIN_E_FORMAT);
          ++refused;
          continue;
        }
        const auto raw = table.raw(i), data = value.value().data;
        ASSERT_GE(data.data(), raw.data());
        ASSERT_LE(data.data() + data.size(), raw.data() + raw.size());
      }
    }
    byte = before;
  }
  EXPECT_GT(refused, 100u);
}

TEST(ValueTable, FindsTheFirstOfEqualKeys) {
  Changing file;
  for (const char* key : {"b", "a", "b", ""}) file.add(key, gguf::kU8, "x");
  const ValueTable table = file.table();
  EXPECT_EQ(table.find("b"), 0u);
  EXPECT_EQ(table.find(""), 3u);
  EXPECT_EQ(table.repeated(), 2u);
  EXPECT_EQ(ValueTable().size(), 0u);
  EXPECT_EQ(ValueTable().find(""), std::nullopt);
}

}  // namespace
}  // namespace metal_marlin::testing
