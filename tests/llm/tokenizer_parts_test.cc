// The tokenizer on a vocabulary of a few tokens, UTF-8, and text that arrives in pieces. tokenizer_test.py has a real
// vocabulary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/llm/tokenizer.h"
#include "examples/llm/unicode.h"
#include "llm/gguf_builder.h"

namespace llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GgufBuilder vocabulary(const std::string& model = "gpt2", const std::string& pre = "smollm",
                       std::vector<std::string> merges = {},
                       const std::vector<int32_t>& types = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4}) {
  GgufBuilder file;
  if (merges.empty()) merges = {"b c", "a b", "ab c", "a bc"};
  file.text("tokenizer.ggml.model", model).text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.merges", merges);
  // \u0120 stands for a space, \u00C3 and \u00A9 for the two bytes of e acute.
  file.texts("tokenizer.ggml.tokens", {"<|end|>", "a", "b", "c", "ab", "bc", "abc", "\u0120", "\u00C3", "\u00A9", "user"});
  return file.numbers("tokenizer.ggml.token_type", types);
}

TEST(Tokenizer, MergesInTheOrderOfTheList) {
  const Tokenizer tokenizer(vocabulary().read());
  EXPECT_THAT(tokenizer.encode("abc"), ElementsAre(6));  // b c first, then a bc
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(4));
  EXPECT_THAT(tokenizer.encode("bcab"), ElementsAre(5, 4));
  EXPECT_THAT(tokenizer.encode("aabcc"), ElementsAre(1, 6, 3));
  EXPECT_THAT(tokenizer.encode("ab c"), ElementsAre(4, 7, 3));  // no merge across words
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
}

TEST(Tokenizer, LeavesOutWhatItHasNoTokenFor) {
  const Tokenizer tokenizer(vocabulary().read());
  EXPECT_THAT(tokenizer.encode("axb"), ElementsAre(4));  // as its reference: the neighbors merge
  EXPECT_THAT(tokenizer.encode("\xC3\xA9"), ElementsAre(8, 9));
  EXPECT_THAT(tokenizer.encode("\xA9\xC3"), ElementsAre(9, 8)) << "no UTF-8, but bytes";
}

TEST(Tokenizer, ControlTokensAreNoText) {
  const Tokenizer tokenizer(vocabulary().read());
  EXPECT_EQ(tokenizer.control("<|end|>"), 0);
  EXPECT_EQ(tokenizer.control("abc"), -1);
  EXPECT_TRUE(tokenizer.is_control(0));
  EXPECT_EQ(tokenizer.bytes(0), "");
  EXPECT_EQ(tokenizer.bytes(7), " ");
  EXPECT_EQ(tokenizer.bytes(9), "\xA9");
  EXPECT_EQ(tokenizer.bytes(10), "user");
  EXPECT_FALSE(tokenizer.is_control(10));
  EXPECT_THROW(tokenizer.bytes(11), std::out_of_range);
  EXPECT_THROW(tokenizer.bytes(-1), std::out_of_range);
}

TEST(Tokenizer, BadOnesAreNamed) {
  const auto failure = [](const GgufBuilder& file) -> std::string {
    try {
      Tokenizer{file.read()};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing failed";
  };
  EXPECT_THAT(failure(vocabulary("llama")), HasSubstr("tokenizer.ggml.model: expected gpt2 (byte-level BPE), found 'llama'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "qwen2")), HasSubstr("tokenizer.ggml.pre: expected gpt-2 or smollm, found 'qwen2'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {"ab"})), HasSubstr("merge 0: expected two tokens, found 'ab'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {"a b", "a c"})), HasSubstr("merge 1: expected two tokens, found 'a c'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {}, {1})), HasSubstr("as many token types as tokens"));
  EXPECT_THAT(failure(GgufBuilder()), HasSubstr("has no key 'tokenizer.ggml.tokens'"));
}

TEST(Words, FollowTheRegularExpression) {
  EXPECT_THAT(split_words("it's  fine", true), ElementsAre("it", "'s", " ", " fine"));
  EXPECT_THAT(split_words("a1 23b", true), ElementsAre("a", "1", " ", "2", "3", "b"));
  EXPECT_THAT(split_words("a1 23b", false), ElementsAre("a", "1", " 23", "b"));
  EXPECT_THAT(split_words("end  \n", true), ElementsAre("end", "  \n"));
  EXPECT_THAT(split_words("\u00A0\u3000x", true), ElementsAre("\u00A0", "\u3000", "x"));
  EXPECT_THAT(split_words(" ?!x", true), ElementsAre(" ?!", "x"));
}

TEST(Utf8, TakesWhatIsWellFormed) {
  for (const char* good : {"", "a", "\u00E9", "\u20AC", "\U0001F600", "\U0010FFFF", "\uD7FF", "\uE000"})
    EXPECT_TRUE(is_utf8(good)) << good;
  const char* const bad[] = {"\x80", "\xC3", "\xC0\xAF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                             "\xF5", "\xFF", "a\xE2\x82"};
  for (const char* text : bad) EXPECT_FALSE(is_utf8(text)) << text;
}

TEST(TextStream, WaitsForTheEndOfACharacter) {
  const std::string text = "a\u00E9\u20AC\U0001F600\U0010FFFF.\n\t";
  TextStream by_byte;
  std::string all;
  for (const char byte : text) {
    const std::string out = by_byte.add({&byte, 1});
    EXPECT_TRUE(is_utf8(out));
    all += out;
  }
  EXPECT_EQ(all + by_byte.finish(), text);
}

TEST(TextStream, ReplacesWhatCannotBecomeACharacter) {
  const std::string mark = "\uFFFD";
  const std::pair<std::string, std::string> cases[] = {{"\xE2\x82", ""},
                                                       {"\xE2x", mark + "x"},
                                                       {"\xF0\x9F", ""},
                                                       {"\x80", mark},
                                                       {"\xED\xA0", mark + mark},
                                                       {"\xE0\x80", mark + mark},
                                                       {"\xF4\x90", mark + mark},
                                                       {"\xFFy", mark + "y"},
                                                       {"\x1B[2Jz\x07\x7F\u0085", "[2Jz"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(TextStream().add(bytes), text);
  TextStream cut;
  EXPECT_EQ(cut.add("b\xE2\x82"), "b");
  EXPECT_EQ(cut.finish(), mark + mark);
  EXPECT_EQ(cut.finish(), "");
}

}  // namespace
}  // namespace llm
