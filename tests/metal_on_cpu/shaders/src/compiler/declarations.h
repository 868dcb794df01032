// Cuts a scope of a shader into its declarations, without parsing expressions or types.
#pragma once

#include <string>
#include <vector>

#include "token.h"

namespace metal_on_cpu {

struct Declaration {
  enum Kind : uint8_t { kOther, kNamespace, kClass, kFunction };
  Kind kind = kOther;
  size_t begin = 0;  // first token
  size_t open = 0;   // the { of a namespace, class or function; else end
  size_t close = 0;  // its }; else end
  size_t end = 0;    // one past the last token, the ; included
};

/// The declaration at token `begin` (significant), which ends before `limit`.
Declaration next_declaration(const TokenStream& stream, size_t begin, size_t limit);

/// Significant tokens of [begin, end).
std::vector<size_t> significant(const TokenStream& stream, size_t begin, size_t end);

/// The name of a class, or empty.
std::string class_name(const TokenStream& stream, const Declaration& of_class);

/// Counts < and > of template argument lists in a header.
class Angles {
 public:
  /// Depth after `token`, which follows `before`.
  int feed(const Token& token, const Token* before);
  int depth() const { return depth_; }

 private:
  int depth_ = 0;
};

/// Cuts significant tokens at commas outside all brackets.
std::vector<std::vector<size_t>> split_at_commas(const TokenStream& stream, const std::vector<size_t>& tokens);

/// Their texts with blanks between.
std::string join(const TokenStream& stream, const std::vector<size_t>& tokens, size_t from, size_t to);

}  // namespace metal_on_cpu
