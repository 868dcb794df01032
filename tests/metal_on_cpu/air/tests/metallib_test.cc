// The container alone: what a good file gives, and that no spoilt one gives anything else than a typed error.
#include "../src/metallib.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "small_metallib.h"

namespace metal_on_cpu::air {
namespace {

using Kind = ReadError::Kind;
using ::testing::HasSubstr;

Bytes bytes_of(const std::string& s) { return {reinterpret_cast<const std::byte*>(s.data()), s.size()}; }

std::string string_of(Bytes b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }

// The first error of a file: of the container, else of its modules.
struct Outcome {
  std::optional<ReadError> error;
  std::vector<std::string> modules;
};
Outcome read_all(const std::string& file) {
  // An allocation of exactly these bytes: the address sanitizer sees a read behind them.
  const std::vector<std::byte> exact(bytes_of(file).begin(), bytes_of(file).end());
  auto parsed = Metallib::parse(exact);
  Outcome outcome;
  if (auto* wrong = std::get_if<ReadError>(&parsed)) {
    outcome.error = *wrong;
    return outcome;
  }
  for (const Function& f : std::get<Metallib>(parsed).functions()) {
    auto module = std::get<Metallib>(parsed).module(f);
    if (auto* wrong = std::get_if<ReadError>(&module)) {
      if (!outcome.error) outcome.error = *wrong;
    } else {
      outcome.modules.push_back(string_of(std::get<Bytes>(module)));
    }
  }
  return outcome;
}

std::string two_functions() {
  return small_metallib({{"first", tiny_bitcode('a')}, {"second", tiny_bitcode('b'), true, false}});
}

TEST(Metallib, GivesTheFunctionsAndTheirBitcode) {
  const std::string file = two_functions();
  const auto parsed = Metallib::parse(bytes_of(file));
  ASSERT_TRUE(std::holds_alternative<Metallib>(parsed)) << std::get<ReadError>(parsed).text();
  const auto& library = std::get<Metallib>(parsed);
  ASSERT_EQ(library.functions().size(), 2u);
  EXPECT_EQ(library.functions()[0].name, "first");
  EXPECT_EQ(library.functions()[1].name, "second");
  EXPECT_EQ(library.functions()[0].type, FunctionType::kKernel);
  EXPECT_EQ(library.functions()[0].air_major, 2);
  EXPECT_EQ(library.functions()[0].air_minor, 6);
  EXPECT_EQ(library.functions()[0].language_major, 3);
  EXPECT_EQ(library.find("second"), &library.functions()[1]);
  EXPECT_EQ(library.find("third"), nullptr);
  EXPECT_EQ(string_of(std::get<Bytes>(library.module("first"))), tiny_bitcode('a')) << "without the wrapper";
  EXPECT_EQ(string_of(std::get<Bytes>(library.module("second"))), tiny_bitcode('b')) << "has none";
}

TEST(Metallib, RefusesEveryTruncation) {
  const std::string file = two_functions();
  for (size_t n = 0; n < file.size(); ++n) {
    const Outcome outcome = read_all(file.substr(0, n));
    ASSERT_TRUE(outcome.error) << n << " of " << file.size() << " bytes";
    EXPECT_EQ(outcome.error->kind, Kind::kTruncated) << n << ": " << outcome.error->text();
    EXPECT_EQ(outcome.error->offset, n);
  }
}

TEST(Metallib, NeverTakesABitForAnother) {
  const std::string file = two_functions();
  const std::string before[] = {tiny_bitcode('a'), tiny_bitcode('b')};
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string spoilt = file;
    spoilt[bit / 8] = static_cast<char>(spoilt[bit / 8] ^ (1 << (bit % 8)));
    const Outcome outcome = read_all(spoilt);
    if (outcome.error) {
      EXPECT_LE(outcome.error->offset, file.size());
      continue;
    }
    // Names, versions and fields that are not read may change; modules may not.
    for (const std::string& module : outcome.modules) EXPECT_THAT(before, ::testing::Contains(module)) << "bit " << bit;
  }
}

TEST(Metallib, FindsASpoiltModuleByItsHash) {
  std::string file = two_functions();
  file.back() = 'z';
  const Outcome outcome = read_all(file);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->kind, Kind::kChecksum);
  EXPECT_EQ(outcome.error->offset, file.size() - tiny_bitcode().size());
  EXPECT_THAT(outcome.error->text(), HasSubstr("second"));
}

struct Spoilt {
  const char* what;
  std::string file;
  Kind kind;
  const char* says;
};
void put(std::string& file, size_t at, uint64_t value) {
  std::string number;
  append_number(number, value);
  file.replace(at, 8, number);
}

TEST(Metallib, SaysWhatIsWrong) {
  const std::string good = two_functions();
  std::vector<Spoilt> cases = {
      {"another format",
       "\x7f"
       "ELF" +
           good.substr(4),
       Kind::kForeign, "MTLB"},
      {"bytes behind the end", good + "x", Kind::kMalformed, "the file has"},
      {"no bitcode", small_metallib({{"a", "ELF, perhaps"}}), Kind::kForeign, "expected LLVM bitcode"},
      {"an empty module", small_metallib({{"a", "", true, false}}), Kind::kTruncated, "0 bytes"},
      {"two of a name", small_metallib({{"a", tiny_bitcode()}, {"a", tiny_bitcode()}}), Kind::kMalformed,
       "two functions are called a"},
      {"no name", small_metallib({{"", tiny_bitcode()}}), Kind::kMalformed, "name"},
  };
  const auto with = [&](const char* what, size_t at, uint64_t value, const char* says) {
    std::string file = good;
    put(file, at, value);
    cases.push_back({what, std::move(file), Kind::kMalformed, says});
  };
  with("a section that ends past 2^64", 0x20, ~uint64_t{0}, "function list");
  with("a section inside the header", 0x18, 8, "function list");
  with("bitcode outside", 0x48, uint64_t{1} << 60, "bitcode");
  with("more functions than there are", 0x58, 0xffffffff, "entry");
  for (const Spoilt& c : cases) {
    const Outcome outcome = read_all(c.file);
    ASSERT_TRUE(outcome.error) << c.what;
    EXPECT_EQ(outcome.error->kind, c.kind) << c.what << ": " << outcome.error->text();
    EXPECT_THAT(outcome.error->text(), HasSubstr(c.says)) << c.what;
  }
}

TEST(Metallib, OpensFilesAndOutlivesTheCallersVariables) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "small.metallib";
  std::ofstream(path, std::ios::binary) << two_functions();
  std::optional<Metallib> copy;
  {
    auto opened = Metallib::open(path.string());
    ASSERT_TRUE(std::holds_alternative<Metallib>(opened));
    copy = std::get<Metallib>(opened);
  }
  EXPECT_EQ(string_of(std::get<Bytes>(copy->module("first"))), tiny_bitcode('a'));
  const auto absent = Metallib::open(path.string() + ".absent");
  ASSERT_TRUE(std::holds_alternative<ReadError>(absent));
  EXPECT_EQ(std::get<ReadError>(absent).kind, Kind::kUnreadable);
  const auto no_function = copy->module("third");
  ASSERT_TRUE(std::holds_alternative<ReadError>(no_function));
  EXPECT_EQ(std::get<ReadError>(no_function).kind, Kind::kAbsent);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace metal_on_cpu::air
