#include "declarations.h"

namespace metal_on_cpu {
namespace {

// What a header says so far about what follows.
struct Header {
  std::string keyword;       // namespace, struct, class, union, enum: the first outside template parameters
  bool assigned = false;     // an = outside brackets: braces are an initializer
  bool parameters = false;   // a parenthesis of a function
  bool initializer = false;  // the : of a constructor
  bool external = false;     // extern "C"
};

bool is_class_keyword(const std::string& s) { return s == "struct" || s == "class" || s == "union"; }

bool opens_no_parameters(const Token* before) {
  return before && (before->is("alignas") || before->is("__attribute__") || before->is("decltype") || before->is("noexcept") ||
                    before->is("static_assert"));
}

// After ) const and the like, a { begins the body; after a name in a constructor's initializers it begins one of them.
bool member_initializer(const Token& before) {
  return before.kind == Token::kName && !before.is("const") && !before.is("noexcept") && !before.is("device") &&
         !before.is("constant") && !before.is("thread") && !before.is("threadgroup");
}

void note_token(Header& header, const Token& token, const Token* before, const Angles& angles) {
  if (token.kind == Token::kName && angles.depth() == 0) {
    if (header.keyword.empty() && (token.is("namespace") || is_class_keyword(token.text) || token.is("enum"))) {
      header.keyword = token.text;
    }
    if (token.is("extern")) header.external = true;
  }
  if (token.is_mark("=") && angles.depth() == 0 && !(before && before->is_name("operator"))) header.assigned = true;
  if (token.is_mark(":") && header.parameters) header.initializer = true;
}

Declaration whole(size_t begin, size_t end) { return {Declaration::kOther, begin, end, end, end}; }

}  // namespace

int Angles::feed(const Token& token, const Token* before) {
  if (token.kind != Token::kPunctuation || (before && before->is_name("operator"))) return depth_;
  if (token.is("<")) depth_++;
  if (token.is(">") && depth_ > 0) depth_--;
  if (token.is(">>") && depth_ > 0) depth_ = depth_ > 1 ? depth_ - 2 : 0;
  return depth_;
}

Declaration next_declaration(const TokenStream& s, size_t begin, size_t limit) {
  const auto& t = s.tokens;
  Header header;
  Angles angles;
  const Token* before = nullptr;
  for (size_t i = begin; i < limit; i = s.skip(i + 1)) {
    const Token& token = t[i];
    if (token.kind == Token::kAttribute) continue;
    if (token.is_mark("(") || token.is_mark("[")) {
      if (token.is("(") && !opens_no_parameters(before) && angles.depth() == 0) header.parameters = true;
      i = s.close(i);
      if (i >= limit) break;
      before = &t[i];
      continue;
    }
    angles.feed(token, before);
    note_token(header, token, before, angles);
    if (token.is_mark(";")) return whole(begin, i + 1);
    if (token.is_mark("{")) {
      const size_t close = s.close(i);
      if (close >= limit) break;
      if (header.keyword == "namespace" || (header.external && !header.parameters && !header.assigned)) {
        return {Declaration::kNamespace, begin, i, close, close + 1};
      }
      if (!header.assigned && header.parameters && header.keyword != "enum") {
        if (!header.initializer || !before || !member_initializer(*before)) {
          return {Declaration::kFunction, begin, i, close, close + 1};
        }
      } else if (!header.assigned && is_class_keyword(header.keyword)) {
        size_t end = close + 1;
        while (end < limit && !t[end].is_mark(";")) end++;
        return {Declaration::kClass, begin, i, close, end < limit ? end + 1 : limit};
      }
      i = close;
      before = &t[close];
      continue;
    }
    before = &token;
  }
  return whole(begin, limit);
}

std::string class_name(const TokenStream& s, const Declaration& of_class) {
  Angles angles;
  bool behind_keyword = false;
  const Token* before = nullptr;
  for (const size_t i : significant(s, of_class.begin, of_class.open)) {
    const Token& t = s.tokens[i];
    if (angles.feed(t, before) == 0 && t.kind == Token::kName) {
      if (behind_keyword) return t.text;
      behind_keyword = is_class_keyword(t.text);
    }
    before = &t;
  }
  return {};
}

std::vector<size_t> significant(const TokenStream& s, size_t begin, size_t end) {
  std::vector<size_t> found;
  for (size_t i = begin; i < end; ++i) {
    if (s.tokens[i].significant()) found.push_back(i);
  }
  return found;
}

std::vector<std::vector<size_t>> split_at_commas(const TokenStream& s, const std::vector<size_t>& tokens) {
  std::vector<std::vector<size_t>> parts(1);
  Angles angles;
  int depth = 0;
  const Token* before = nullptr;
  for (const size_t i : tokens) {
    const Token& token = s.tokens[i];
    if (token.is_mark("(") || token.is_mark("[") || token.is_mark("{")) depth++;
    if (token.is_mark(")") || token.is_mark("]") || token.is_mark("}")) depth--;
    if (depth == 0) angles.feed(token, before);
    before = &token;
    if (token.is_mark(",") && depth == 0 && angles.depth() == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(i);
    }
  }
  if (parts.size() == 1 && parts[0].empty()) parts.clear();
  return parts;
}

std::string join(const TokenStream& s, const std::vector<size_t>& tokens, size_t from, size_t to) {
  std::string text;
  for (size_t i = from; i < to && i < tokens.size(); ++i) {
    if (!text.empty()) text += ' ';
    text += s.tokens[tokens[i]].text;
  }
  return text;
}

}  // namespace metal_on_cpu
