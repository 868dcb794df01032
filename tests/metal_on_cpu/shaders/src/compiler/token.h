// The preprocessed shader as tokens. The rewriter edits their texts in place and never adds or drops a newline, so that the
// #line markers of the preprocessor stay true and every later message names the shader's own file and line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metal_on_cpu {

/// Something wrong with a shader, at a place in its own files.
struct Diagnostic {
  std::string file;
  uint32_t line = 0;
  std::string message;
};

/// "file:line: error: message", one a line.
std::string to_text(const std::vector<Diagnostic>& diagnostics);

struct Token {
  enum Kind : uint8_t { kSpace, kDirective, kString, kName, kNumber, kPunctuation, kAttribute };
  Kind kind;
  uint16_t file;  // index into TokenStream::files
  uint32_t line;
  std::string text;

  bool significant() const { return kind != kSpace && kind != kDirective; }
  bool is(std::string_view s) const { return text == s; }
  bool is_name(std::string_view s) const { return kind == kName && text == s; }
  bool is_mark(std::string_view s) const { return kind == kPunctuation && text == s; }
  /// Leaves only the newlines.
  void erase();
};

struct TokenStream {
  std::vector<Token> tokens;
  std::vector<std::string> files;

  std::string text() const;
  Diagnostic diagnostic(size_t token, std::string message) const;
  /// The first significant token at or after i, or size().
  size_t skip(size_t i) const;
  /// The last significant token before i, or size() when there is none.
  size_t before(size_t i) const;
  /// The bracket that closes the one at i, or size().
  size_t close(size_t i) const;
};

/// Cuts the preprocessor's output. [[...]] becomes one token; literals such as 1.5h become casts.
TokenStream tokenize(std::string_view source);

}  // namespace metal_on_cpu
