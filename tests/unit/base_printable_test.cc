// Text for people: what is escaped, what is kept, and where it is cut.
#include "base/printable.h"

#include "base/utf8.h"
#include "test.h"

namespace metal_marlin {
namespace {

std::string printed(const std::string& text, size_t size = 256) {
  std::string out(size, 'x');
  copy_printable(text.c_str(), out.data(), size);
  return out.c_str();
}

TEST(Printable, EscapesWhatSteersATerminalOrIsNoText) {
  EXPECT_EQ(printed("a\x1b[2J\n\t\rb"), "a\\x1b[2J\\x0a\\x09\\x0db");
  EXPECT_EQ(printed("\x7f\xc2\x80\xc2\x9b\xc2\xa0"), "\\u007f\\u0080\\u009b\xc2\xa0");
  EXPECT_EQ(printed("\xff\xc3(\xe2\x82"), "\\xff\\xc3(\\xe2\\x82");
  EXPECT_EQ(printed("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printed("\u202e\u2066\u2029\u061c\u200f"), "\\u202e\\u2066\\u2029\\u061c\\u200f");
  const std::string plain = "model.layers.0 \"gr\u00fc\u00df\u4eac\U0001f98a\" \\x1b";
  EXPECT_EQ(printed(plain), plain);
}

TEST(Printable, IsCutBehindAWholeCharacter) {
  const std::string text = "a\u4eac\x1b\u202e\U0001f98a";
  const std::string whole = printed(text);
  for (size_t size = 1; size <= whole.size() + 1; ++size) {
    const std::string cut = printed(text, size);
    EXPECT_LT(cut.size(), size);
    EXPECT_EQ(cut, whole.substr(0, cut.size()));
    EXPECT_TRUE(is_utf8(cut)) << size;
    EXPECT_TRUE(cut.empty() || cut.back() != '\\') << size;
  }
  EXPECT_EQ(printed(text, whole.size() + 1), whole);
}

}  // namespace
}  // namespace metal_marlin
