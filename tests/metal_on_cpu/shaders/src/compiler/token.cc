#include "token.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace metal_on_cpu {
namespace {

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) { stream_.files.emplace_back("shader"); }

  TokenStream run() {
    while (at_ < source_.size()) {
      const size_t start = at_;
      const Token::Kind kind = next();
      stream_.tokens.push_back({kind, file_, line_, std::string(source_.substr(start, at_ - start))});
      Token& token = stream_.tokens.back();
      if (kind == Token::kDirective) {
        line_marker(token.text);
      } else {
        line_ += static_cast<uint32_t>(std::count(token.text.begin(), token.text.end(), '\n'));
      }
      if (kind == Token::kNumber) half_literal(token);
    }
    fold_attributes();
    return std::move(stream_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  Token::Kind next() {
    const char c = peek();
    if (c == '#' && (at_ == 0 || source_[at_ - 1] == '\n')) {
      while (at_ < source_.size() && peek() != '\n') at_++;
      return Token::kDirective;
    }
    if (std::isspace(static_cast<unsigned char>(c))) {
      // One line at a time: a directive is only one at the start of a line.
      while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(peek()))) {
        at_++;
        if (source_[at_ - 1] == '\n' && peek() == '#') break;
      }
      return Token::kSpace;
    }
    if (c == '"' || c == '\'') {
      for (at_++; at_ < source_.size() && peek() != c && peek() != '\n'; at_++) {
        if (peek() == '\\') at_++;
      }
      at_ = std::min(at_ + 1, source_.size());
      return Token::kString;
    }
    if (begins_name(c)) {
      while (in_name(peek())) at_++;
      return Token::kName;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) || (c == '.' && std::isdigit(static_cast<unsigned char>(peek(1))))) {
      const bool hex = c == '0' && (peek(1) == 'x' || peek(1) == 'X');
      while (in_name(peek()) || peek() == '.' ||
             ((peek() == '+' || peek() == '-') &&
              (std::tolower(source_[at_ - 1]) == 'p' || (!hex && std::tolower(source_[at_ - 1]) == 'e')))) {
        at_++;
      }
      return Token::kNumber;
    }
    static constexpr std::string_view kTwo[] = {
        "::", "->", "<<", ">>", "&&", "||", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--"};
    const std::string_view two = source_.substr(at_, 2);
    at_ += std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo) ? 2 : 1;
    return Token::kPunctuation;
  }

  // # 12 "shader.metal" 1
  void line_marker(const std::string& text) {
    size_t at = 1;
    while (at < text.size() && text[at] == ' ') at++;
    if (at >= text.size() || !std::isdigit(static_cast<unsigned char>(text[at]))) return;
    line_ = static_cast<uint32_t>(std::strtoul(text.c_str() + at, nullptr, 10)) - 1;  // counts from the line's end
    const size_t open = text.find('"'), end = text.rfind('"');
    if (open == std::string::npos || end <= open) return;
    const std::string name = text.substr(open + 1, end - open - 1);
    auto found = std::find(stream_.files.begin(), stream_.files.end(), name);
    if (found == stream_.files.end()) found = stream_.files.insert(found, name);
    file_ = static_cast<uint16_t>(found - stream_.files.begin());
  }

  static void half_literal(Token& token) {
    const std::string& s = token.text;
    if (s.size() < 2 || s.starts_with("0x") || s.starts_with("0X")) return;
    const bool bf = s.ends_with("bf") || s.ends_with("BF");
    const bool h = s.ends_with('h') || s.ends_with('H');
    if (bf)
      token.text = "((bfloat)" + s.substr(0, s.size() - 2) + "f)";
    else if (h)
      token.text = "((half)" + s.substr(0, s.size() - 1) + ")";
  }

  void fold_attributes() {
    std::vector<Token>& t = stream_.tokens;
    std::vector<Token> folded;
    for (size_t i = 0; i < t.size(); ++i) {
      if (!(t[i].is_mark("[") && i + 1 < t.size() && t[i + 1].is_mark("["))) {
        folded.push_back(std::move(t[i]));
        continue;
      }
      Token attribute = t[i];
      attribute.kind = Token::kAttribute;
      const size_t end = std::min(stream_.close(i), t.size() - 1);
      for (size_t k = i + 1; k <= end; ++k) attribute.text += t[k].text;
      folded.push_back(std::move(attribute));
      i = end;
    }
    t = std::move(folded);
  }

  std::string_view source_;
  size_t at_ = 0;
  uint16_t file_ = 0;
  uint32_t line_ = 1;
  TokenStream stream_;
};

}  // namespace

std::string to_text(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    if (!text.empty()) text += '\n';
    text += d.file.empty() ? std::string() : d.file + ":" + std::to_string(d.line) + ": ";
    text += "error: " + d.message;
  }
  return text;
}

void Token::erase() {
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  text = std::string(lines, '\n');
  kind = kSpace;
}

std::string TokenStream::text() const {
  std::string all;
  for (const Token& token : tokens) all += token.text;
  return all;
}

Diagnostic TokenStream::diagnostic(size_t token, std::string message) const {
  if (token >= tokens.size()) return {files.back(), 0, std::move(message)};
  return {files[tokens[token].file], tokens[token].line, std::move(message)};
}

size_t TokenStream::skip(size_t i) const {
  while (i < tokens.size() && !tokens[i].significant()) i++;
  return i;
}

size_t TokenStream::before(size_t i) const {
  while (i-- > 0) {
    if (tokens[i].significant()) return i;
  }
  return tokens.size();
}

size_t TokenStream::close(size_t i) const {
  const char open = tokens[i].text[0];
  const std::string_view opening(&open, 1), closing = open == '(' ? ")" : open == '[' ? "]" : "}";
  int depth = 0;
  for (; i < tokens.size(); ++i) {
    if (tokens[i].is_mark(opening)) depth++;
    if (tokens[i].is_mark(closing) && --depth == 0) return i;
  }
  return tokens.size();
}

TokenStream tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace metal_on_cpu
