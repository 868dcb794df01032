// Breaks lines between words where a terminal ends.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llm {

/// Text comes in any portions of whole characters. A word is held back until it is complete. Wide
/// characters (of East Asia, emoji) take two columns, and lines may break beside them.
class WordWrap {
 public:
  /// columns 0: nothing is broken or held back.
  explicit WordWrap(size_t columns) : columns_(columns) {}
  std::string add(std::string_view text);
  /// What is held back.
  std::string finish();

 private:
  void end_word(std::string& out);

  size_t columns_, at_ = 0;    // the column where the next word begins
  std::string spaces_, word_;  // between the last word and this one
  size_t space_width_ = 0, width_ = 0;
};

}  // namespace llm
