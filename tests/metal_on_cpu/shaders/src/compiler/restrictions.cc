#include "restrictions.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "attributes.h"
#include "declarations.h"

namespace metal_on_cpu {
namespace {

constexpr std::string_view kNoKeywords[] = {"double", "virtual", "new",  "delete", "try",          "catch",
                                            "throw",  "typeid",  "goto", "asm",    "dynamic_cast", "thread_local"};
std::string name_complaint(const TokenStream& s, size_t i) {
  const std::string& name = s.tokens[i].text;
  const size_t before = s.before(i);
  const bool of_operator = before < s.tokens.size() && s.tokens[before].is_name("operator");
  const bool deleted = name == "delete" && before < s.tokens.size() && s.tokens[before].is("=");
  if (std::find(std::begin(kNoKeywords), std::end(kNoKeywords), name) != std::end(kNoKeywords) && !deleted) {
    return "'" + name + (of_operator ? "' operators are not" : "' is not") + " supported in the Metal Shading Language";
  }
  return {};
}

// ( * name ) ( and ( & name ) ( declare or call through a pointer to a function.
bool function_pointer(const TokenStream& s, size_t i) {
  size_t at = s.skip(i + 1);
  const auto& t = s.tokens;
  if (at < t.size() && is_address_space(t[at])) at = s.skip(at + 1);
  if (at >= t.size() || !t[at].is_mark("*")) return false;
  at = s.skip(at + 1);
  if (at < t.size() && t[at].is_name("const")) at = s.skip(at + 1);
  if (at < t.size() && t[at].kind == Token::kName) at = s.skip(at + 1);
  if (at >= t.size() || !t[at].is_mark(")")) return false;
  at = s.skip(at + 1);
  return at < t.size() && t[at].is_mark("(");
}

size_t statement_begin(const TokenStream& s, size_t i) {
  while (i > 0 && !s.tokens[i - 1].is_mark(";") && !s.tokens[i - 1].is_mark("{") && !s.tokens[i - 1].is_mark("}")) --i;
  return s.skip(i);
}

// F of  using F = void (*)(...);  that a ( at i belongs to, or empty.
std::string alias_of(const TokenStream& s, size_t i) {
  for (size_t at = statement_begin(s, i); at < i; ++at) {
    if (s.tokens[at].is_name("using")) return s.tokens[s.skip(at + 1)].text;
  }
  return {};
}

// Whether i is between the < and > of  template <...>. As the type of a template's parameter, a pointer to a function means
// none at run time, and Apple's compiler takes it.
bool in_template_head(const TokenStream& s, size_t i) {
  const size_t begin = statement_begin(s, i);
  if (!s.tokens[begin].is_name("template")) return false;
  Angles angles;
  for (size_t at = s.skip(begin + 1), before = begin; at < i; before = at, at = s.skip(at + 1)) {
    if (angles.feed(s.tokens[at], &s.tokens[before]) == 0) return false;
  }
  return true;
}

// [ index ] = , [ first ... last ] =  in the initializer of an array.
bool designator(const TokenStream& s, size_t i) {
  const size_t before = s.before(i), close = s.close(i);
  const size_t after = close < s.tokens.size() ? s.skip(close + 1) : close;
  return (s.tokens[before].is_mark("{") || s.tokens[before].is_mark(",")) && after < s.tokens.size() &&
         s.tokens[after].is_mark("=");
}

// A [ where an expression begins.
bool lambda(const TokenStream& s, size_t i) {
  const size_t before = s.before(i);
  if (before >= s.tokens.size()) return false;
  const Token& b = s.tokens[before];
  return (b.is_mark("=") || b.is_mark("(") || b.is_mark(",") || b.is_mark("{") || b.is_mark(";") || b.is_name("return")) &&
         !designator(s, i);
}

}  // namespace

bool variable_outside_of_constant(const TokenStream& s, const Declaration& d, const std::string& in_class) {
  static const std::set<std::string> kOthers = {"using", "typedef", "static_assert", "enum",   "struct", "class",
                                                "union", "friend",  "template",      "extern", "kernel", "namespace"};
  bool is_static = false;
  Angles angles;
  const Token* before = nullptr;
  bool first = true, head = false;  // of template < ... >
  for (const size_t i : significant(s, d.begin, d.end)) {
    const Token& t = s.tokens[i];
    if (t.kind == Token::kAttribute) continue;
    if (first && t.is_name("template")) head = true;
    const int depth = angles.feed(t, before);
    const bool closes = head && depth == 0 && before && !before->is_name("template");
    before = &t;
    if (head && !closes) {
      if (depth == 0 && !t.is_name("template")) return false;  // an instantiation
      first = false;
      continue;
    }
    if (head) {
      head = false, first = true;
      continue;
    }
    if (first && (kOthers.contains(t.text) || t.is_mark(";"))) return false;
    first = false;
    if (depth != 0) continue;
    if (t.is_name("constant") || t.is_mark("(") || t.is_name("operator")) return false;
    is_static = is_static || t.is_name("static");
    if (t.is_mark("=") || t.is_mark(";") || t.is_mark("{")) break;
  }
  return in_class.empty() || is_static;
}

bool static_variable(const TokenStream& s, size_t i, size_t end) {
  if (!s.tokens[i].is_name("static")) return false;
  for (; i < end; i = s.skip(i + 1)) {
    const Token& t = s.tokens[i];
    if (t.is_name("constant") || t.is_mark("(")) return false;
    if (t.is_mark("=") || t.is_mark(";") || t.is_mark("{") || t.is_mark("[")) break;
  }
  return true;
}

bool is_address_space(const Token& token) {
  return token.kind == Token::kName &&
         (token.text == "device" || token.text == "constant" || token.text == "thread" || token.text == "threadgroup");
}

std::vector<Diagnostic> forbidden_tokens(const TokenStream& s) {
  static const std::string kPointers = "pointers to functions are not supported in the Metal Shading Language";
  std::vector<Diagnostic> found;
  std::set<std::string> pointers;  // aliases
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    const Token& token = s.tokens[i];
    if (token.kind == Token::kName) {
      if (std::string why = name_complaint(s, i); !why.empty()) found.push_back(s.diagnostic(i, why));
      if (pointers.contains(token.text) && !in_template_head(s, i)) found.push_back(s.diagnostic(i, kPointers));
    } else if (token.kind == Token::kAttribute) {
      for (const Attribute& attribute : parse_attribute(token.text)) {
        if (std::string why = attribute_complaint(attribute); !why.empty()) found.push_back(s.diagnostic(i, why));
      }
    } else if (token.is_mark("(") && function_pointer(s, i) && !in_template_head(s, i)) {
      const std::string alias = alias_of(s, i);
      if (alias.empty())
        found.push_back(s.diagnostic(i, kPointers));
      else
        pointers.insert(alias);
    } else if (token.is_mark("[") && lambda(s, i)) {
      found.push_back(s.diagnostic(i, "lambda expressions are not supported in the Metal Shading Language"));
    }
  }
  return found;
}

}  // namespace metal_on_cpu
