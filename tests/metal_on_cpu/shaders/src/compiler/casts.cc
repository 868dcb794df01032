#include "casts.h"

#include "declarations.h"
#include "restrictions.h"

namespace metal_on_cpu {
namespace {

class Finder {
 public:
  Finder(const TokenStream& s, size_t end) : s_(s), end_(end) {}

  // ( ... device ... * ) where an expression begins.
  bool is_cast(size_t open) const {
    if (!s_.tokens[open].is_mark("(")) return false;
    const size_t before = s_.before(open);
    if (before < s_.tokens.size()) {
      const Token& b = s_.tokens[before];
      if ((b.kind == Token::kName && !b.is("return")) || b.is_mark(")") || b.is_mark("]") || b.is_mark(">")) return false;
    }
    bool space = false;
    const Token* last = nullptr;
    for (size_t i = s_.skip(open + 1); i < s_.close(open); i = s_.skip(i + 1)) {
      const Token& t = s_.tokens[i];
      if (t.kind == Token::kPunctuation && !t.is("*") && !t.is("::") && !t.is("<") && !t.is(">") && !t.is(",")) return false;
      space = space || is_address_space(t);
      if (!t.is_name("const") && !t.is_name("volatile")) last = &t;
    }
    return space && last && last->is_mark("*");
  }

  // The last token of the operand at `i`: prefixes, something in parentheses or a name, postfixes.
  size_t operand(size_t i) const {
    static constexpr std::string_view kPrefixes[] = {"*", "&", "-", "+", "!", "~", "++", "--"};
    for (i = s_.skip(i); i < end_; i = s_.skip(i + 1)) {
      if (is_cast(i)) {
        i = s_.close(i);
        continue;
      }
      bool prefix = false;
      for (const std::string_view p : kPrefixes) prefix = prefix || s_.tokens[i].is_mark(p);
      if (!prefix) break;
    }
    if (i >= end_) return end_;
    if (s_.tokens[i].is_mark("(")) i = s_.close(i);
    return postfixes(i);
  }

 private:
  size_t postfixes(size_t i) const {
    for (size_t next = s_.skip(i + 1); next < end_; next = s_.skip(i + 1)) {
      const Token& t = s_.tokens[next];
      if (t.is_mark("(") || t.is_mark("["))
        i = s_.close(next);
      else if (t.is_mark(".") || t.is_mark("->") || t.is_mark("::"))
        i = s_.skip(next + 1);
      else if (t.is_mark("++") || t.is_mark("--"))
        i = next;
      else if (const size_t call = template_arguments(i, next); call < end_)
        i = call;
      else
        break;
    }
    return i;
  }

  // The > of name<...>(, or `end_` when < is a comparison.
  size_t template_arguments(size_t name, size_t next) const {
    if (!s_.tokens[next].is_mark("<") || s_.tokens[name].kind != Token::kName) return end_;
    Angles angles;
    for (size_t i = next; i < end_ && !s_.tokens[i].is_mark(";") && !s_.tokens[i].is_mark(")"); i = s_.skip(i + 1)) {
      if (angles.feed(s_.tokens[i], nullptr) == 0) return s_.tokens[s_.skip(i + 1)].is_mark("(") ? i : end_;
    }
    return end_;
  }

  const TokenStream& s_;
  const size_t end_;
};

}  // namespace

std::vector<PointerCast> pointer_casts(const TokenStream& s, size_t begin, size_t end) {
  const Finder finder(s, end);
  std::vector<PointerCast> found;
  for (size_t i = begin; i < end; ++i) {
    if (!finder.is_cast(i)) continue;
    const PointerCast cast{i, s.close(i), finder.operand(s.close(i) + 1)};
    if (cast.last < end) found.push_back(cast);
  }
  return found;
}

}  // namespace metal_on_cpu
