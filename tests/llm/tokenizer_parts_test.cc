// The tokenizer on a vocabulary of a few tokens, UTF-8, and text that arrives in pieces. tokenizer_test.py has a real
// vocabulary.
#include "examples/llm/tokenizer.h"
#include "examples/llm/unicode.h"
#include "examples/llm/words.h"
#include "llm/gguf_builder.h"
#include "test.h"

namespace llm {
namespace {

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

TEST(Tokenizer, TakesAddedTokensOutOfTheText) {
  const Tokenizer tokenizer(vocabulary().read());
  EXPECT_THAT(tokenizer.encode("abuserc"), ElementsAre(4, 10, 3));
  EXPECT_THAT(tokenizer.encode("use<|end|>a"), ElementsAre(1)) << "a control token is no text, and these bytes have no token";
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

// Pieces and their scores; bytes stand for 'A' and the two of e acute.
GgufBuilder pieces(std::vector<std::string> more = {}, std::vector<float> more_scores = {},
                   std::vector<int32_t> more_types = {}) {
  std::vector<std::string> tokens = {"<unk>",   "<s>", "</s>",   "\u2581", "a",      "b",      "c",       "ab",     "bc",
                                     "\u2581a", "cab", "<0x41>", "<0xC3>", "<0xA9>", "<tool>", "<tool>>", "\u2581b"};
  std::vector<float> scores = {0, 0, 0, -9, -1, -2, -3, -5, -4, -6, -7, 0, 0, 0, 0, 0, -6};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 6, 4, 4, 1};
  tokens.insert(tokens.end(), more.begin(), more.end());
  scores.insert(scores.end(), more_scores.begin(), more_scores.end());
  types.insert(types.end(), more_types.begin(), more_types.end());
  GgufBuilder file;
  file.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens).floats("tokenizer.ggml.scores", scores);
  return file.numbers("tokenizer.ggml.token_type", types).number<uint32_t>("tokenizer.ggml.bos_token_id", 4, 1);
}
GgufBuilder without_prefix(GgufBuilder file) { return file.number<uint8_t>("tokenizer.ggml.add_space_prefix", 7, 0); }

TEST(Tokenizer, BadOnesAreNamed) {
  const auto failure = [](const GgufBuilder& file) -> std::string {
    try {
      Tokenizer{file.read()};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing failed";
  };
  EXPECT_THAT(failure(vocabulary("bert")), HasSubstr("tokenizer.ggml.model: expected one of gpt2 (byte-level BPE), llama "
                                                     "(SentencePiece), found 'bert'"));
  EXPECT_THAT(
      failure(vocabulary("gpt2", "qwen35")),
      HasSubstr("tokenizer.ggml.pre: expected one of gpt-2, smollm, qwen2, deepseek-r1-qwen, gpt-4o, llama-bpe, llama3, "
                "llama-v3, smaug-bpe, found 'qwen35'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {"ab"})), HasSubstr("merge 0: expected two tokens, found 'ab'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {"a b", "a c"})), HasSubstr("merge 1: expected two tokens, found 'a c'"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {}, {1})),
              HasSubstr("tokenizer.ggml.token_type: expected one of each of 11 tokens, found 1"));
  EXPECT_THAT(failure(vocabulary("gpt2", "smollm", {}, {1, 1, 7, 1, 1, 1, 1, 1, 1, 1, 1})),
              HasSubstr("tokenizer.ggml.token_type: token 2: expected 0 to 6, found 7"));
  EXPECT_THAT(failure(GgufBuilder()), HasSubstr("has no key 'tokenizer.ggml.model'"));
  EXPECT_THAT(failure(GgufBuilder().text("tokenizer.ggml.model", "llama")), HasSubstr("has no key 'tokenizer.ggml.tokens'"));
  EXPECT_THAT(failure(pieces({"x"}, {}, {1})), HasSubstr("tokenizer.ggml.scores: expected one of each of 18 tokens, found 17"));
  for (const float score : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_THAT(failure(pieces({"x"}, {score}, {1})), HasSubstr("tokenizer.ggml.scores: token 17: expected a finite number"));
  for (const char* name : {"<0x4>", "<0x4G>", "<0x41", "A", "", "<0x411>"})
    EXPECT_THAT(failure(pieces({name}, {0}, {6})),
                HasSubstr("token 17: expected a byte as <0x0A>, found '" + std::string(name)));
  EXPECT_THAT(failure(pieces().number<uint8_t>("tokenizer.ggml.add_space_prefix", 7, 1).text("other", "")), "nothing failed");
  EXPECT_THAT(failure(pieces().text("tokenizer.ggml.add_space_prefix", "no")),
              HasSubstr("key 'tokenizer.ggml.add_space_prefix': expected a number"));
  GgufBuilder far = vocabulary().number<uint8_t>("tokenizer.ggml.add_bos_token", 7, 1);
  EXPECT_THAT(failure(far), HasSubstr("has no key 'tokenizer.ggml.bos_token_id'"));
  EXPECT_THAT(failure(far.number<uint32_t>("tokenizer.ggml.bos_token_id", 4, 11)),
              HasSubstr("tokenizer.ggml.bos_token_id: expected one of 11 tokens, found 11"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(failure(vocabulary()
                          .number<uint8_t>("tokenizer.ggml.add_bos_token", 7, 1)
                          .number<float>("tokenizer.ggml.bos_token_id", 6, nan)),
              HasSubstr("tokenizer.ggml.bos_token_id: expected one of 11 tokens, found nan"));
  GgufBuilder types;
  types.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a"}).floats("tokenizer.ggml.token_type", {nan});
  EXPECT_THAT(failure(types), HasSubstr("tokenizer.ggml.token_type: token 0: expected 0 to 6, found nan"));
}

std::vector<std::string_view> words(std::string_view text, WordRule rule = WordRule::single_digits) {
  return split_words(text, rule);
}

TEST(Words, FollowTheRegularExpression) {
  EXPECT_THAT(words("it's  fine"), ElementsAre("it", "'s", " ", " fine"));
  EXPECT_THAT(words("a1 23b"), ElementsAre("a", "1", " ", "2", "3", "b"));
  EXPECT_THAT(words("a1 23b", WordRule::gpt2), ElementsAre("a", "1", " 23", "b"));
  EXPECT_THAT(words("end  \n"), ElementsAre("end", "  \n"));
  EXPECT_THAT(words("\u00A0\u3000x"), ElementsAre("\u00A0", "\u3000", "x"));
  EXPECT_THAT(words(" ?!x"), ElementsAre(" ?!", "x"));
}

TEST(Words, OfLlama3HaveThreeDigits) {
  const auto llama3 = [](std::string_view text) { return words(text, WordRule::llama3); };
  EXPECT_THAT(llama3("It'S 12345 678,x\r\n\n  y"),
              ElementsAre("It", "'S", " ", "123", "45", " ", "678", ",x", "\r\n\n", " ", " y"));
  EXPECT_THAT(words("12345", WordRule::qwen2), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(llama3("\u0663\u0664\u06652 ?!\n x"), ElementsAre("\u0663\u0664\u0665", "2", " ?!\n", " x"));
}

TEST(Tokenizer, OfLlama3TakesWholeWords) {
  // No merge makes "abc"; with Llama 3, the word that is a token is one all the same.
  for (const char* pre : {"llama-bpe", "llama3", "llama-v3", "smaug-bpe"}) {
    GgufBuilder file = vocabulary("gpt2", pre, {"a b"}).number<uint32_t>("tokenizer.ggml.bos_token_id", 4, 0);
    const Tokenizer tokenizer(file.read());
    const bool whole = std::string_view(pre) != "smaug-bpe";
    EXPECT_EQ(tokenizer.encode("abc"), whole ? std::vector<Token>({6}) : std::vector<Token>({4, 3})) << pre;
    EXPECT_THAT(tokenizer.encode("abca"), ElementsAre(4, 3, 1)) << pre;
    EXPECT_EQ(tokenizer.opening().size(), whole ? 1u : 0u) << pre << ", where no key says otherwise";
    file.number<uint8_t>("tokenizer.ggml.add_bos_token", 7, 0);
    EXPECT_THAT(Tokenizer(file.read()).opening(), IsEmpty());
  }
}

TEST(Words, OfGpt4oBeginWithCapitals) {
  const auto gpt4o = [](std::string_view text) { return words(text, WordRule::gpt4o); };
  EXPECT_THAT(gpt4o("aTestOf HTMLPages's 12345/x"), ElementsAre("a", "Test", "Of", " HTMLPages's", " ", "123", "45", "/x"));
  EXPECT_THAT(gpt4o("NASA'LL go://\n/ \n x"), ElementsAre("NASA'LL", " go", "://\n/", " \n", " x"));
  // Letters of neither case, and marks, are as good as small ones and as capitals.
  EXPECT_THAT(gpt4o("\u4E2DA\u4E2D!"), ElementsAre("\u4E2DA\u4E2D", "!"));
  EXPECT_THAT(gpt4o("\u4E2DAB"), ElementsAre("\u4E2D", "AB"));
  EXPECT_THAT(gpt4o("A\u0301B"), ElementsAre("A\u0301", "B"));
  EXPECT_THAT(gpt4o("\u0301A\u0301"), ElementsAre("\u0301A\u0301"));
  EXPECT_THAT(gpt4o("1\u0301 \u0301"), ElementsAre("1", "\u0301", " \u0301"));
}

TEST(Words, OfQwenTakeAnyCharacterInFrontOfLetters) {
  const auto qwen = [](std::string_view text) { return words(text, WordRule::qwen2); };
  EXPECT_THAT(qwen("it's I'LL !now"), ElementsAre("it", "'s", " I", "'LL", " !", "now"));
  EXPECT_THAT(qwen("!now \tthen"), ElementsAre("!now", " ", "\tthen"));
  EXPECT_THAT(qwen("x 123\u0663"), ElementsAre("x", " ", "1", "2", "3", "\u0663"));
  EXPECT_THAT(qwen("a?!\r\n\nb"), ElementsAre("a", "?!\r\n\n", "b"));
  EXPECT_THAT(qwen("a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(qwen("\n'sa"), ElementsAre("\n", "'s", "a"));
  EXPECT_THAT(qwen("\nab \u3000"), ElementsAre("\n", "ab", " \u3000"));
  EXPECT_THAT(qwen("\xFF"
                   "a\xC3"),
              ElementsAre("\xFF"
                          "a",
                          "\xC3"));
}

TEST(SentencePieces, MergeByTheBestScore) {
  const Tokenizer tokenizer(without_prefix(pieces()).read());
  EXPECT_THAT(tokenizer.encode("abc"), ElementsAre(4, 8)) << "bc (-4) before ab (-5)";
  EXPECT_THAT(tokenizer.encode("cab"), ElementsAre(10)) << "ab, then all of it";
  EXPECT_THAT(tokenizer.encode("ab c"), ElementsAre(7, 3, 6));
  EXPECT_THAT(tokenizer.encode(" ab"), ElementsAre(3, 7)) << "ab (-5) before the space and a (-6)";
  EXPECT_THAT(tokenizer.encode(" a b"), ElementsAre(9, 16));
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
  EXPECT_THAT(tokenizer.encode("bcbcab"), ElementsAre(8, 8, 7));
}

TEST(SentencePieces, OfEqualScoresMergeFromTheLeft) {
  const Tokenizer tokenizer(without_prefix(pieces({"aa"}, {-1}, {1})).read());
  EXPECT_THAT(tokenizer.encode("aaaaa"), ElementsAre(17, 17, 4));
}

TEST(SentencePieces, PutASpaceInFrontOfText) {
  const Tokenizer tokenizer(pieces().read());
  EXPECT_THAT(tokenizer.encode("a"), ElementsAre(9));
  EXPECT_THAT(tokenizer.encode("a<tool>b"), ElementsAre(9, 14, 16)) << "behind a token of its own, too";
  EXPECT_THAT(tokenizer.encode(""), IsEmpty());
  EXPECT_EQ(tokenizer.text({9, 3, 5}), "a b");
  EXPECT_EQ(Tokenizer(without_prefix(pieces()).read()).text({9, 3, 5}), " a b");
}

TEST(SentencePieces, TakeBytesOrTheUnknownTokenForOtherText) {
  const Tokenizer tokenizer(without_prefix(pieces()).read());
  EXPECT_THAT(tokenizer.encode("A\u00E9"), ElementsAre(11, 12, 13));
  EXPECT_THAT(tokenizer.encode("\xC3"
                               "a\xA9"),
              ElementsAre(12, 4, 13))
      << "no UTF-8, but bytes";
  EXPECT_THAT(tokenizer.encode("\u20AC"
                               "a"),
              ElementsAre(0, 4))
      << "the vocabulary lacks these bytes";
  EXPECT_EQ(tokenizer.bytes(12), "\xC3");
  EXPECT_EQ(tokenizer.bytes(9), " a");
}

TEST(SentencePieces, TakeAddedTokensOutOfTheTextAndNoControlTokens) {
  const Tokenizer tokenizer(without_prefix(pieces()).read());
  EXPECT_THAT(tokenizer.encode("ab<tool>>c<tool>"), ElementsAre(7, 15, 6, 14)) << "the longest";
  const std::vector<Token> text = tokenizer.encode("</s>");
  EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](Token token) { return token == 2; }));
  EXPECT_EQ(tokenizer.control("</s>"), 2);
  EXPECT_EQ(tokenizer.control("<tool>"), -1);
  EXPECT_EQ(tokenizer.bytes(2), "");
  // Even where every step on the way to its name is a piece.
  const Tokenizer steps(without_prefix(pieces({"<", "s", ">", "<s"}, {0, 0, 0, 0}, {1, 1, 1, 1})).read());
  EXPECT_THAT(steps.encode("<s>"), ElementsAre(20, 19));
}

TEST(SentencePieces, SayWhatStandsInFrontOfATextOfTheirs) {
  EXPECT_THAT(Tokenizer(pieces().read()).opening(), ElementsAre(1)) << "the default of this kind";
  EXPECT_THAT(Tokenizer(pieces().number<uint8_t>("tokenizer.ggml.add_bos_token", 7, 0).read()).opening(), IsEmpty());
  EXPECT_THAT(Tokenizer(vocabulary().read()).opening(), IsEmpty());
  GgufBuilder other = vocabulary().number<uint8_t>("tokenizer.ggml.add_bos_token", 7, 1);
  EXPECT_THAT(Tokenizer(other.number<uint32_t>("tokenizer.ggml.bos_token_id", 4, 0).read()).opening(), ElementsAre(0));
}

TEST(SentencePieces, TakeLongTextInBoundedTime) {
  const Tokenizer tokenizer(without_prefix(pieces({"aa"}, {-1}, {1})).read());
  EXPECT_EQ(tokenizer.encode(std::string(300000, 'a')).size(), 150000u);
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
