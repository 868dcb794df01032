#include "wildcards.h"

namespace metal_marlin::tools {
namespace {

/// Whether the set at `at` has a letter; moves `at` past it. A set without an end is the letter [.
bool set_has(const char*& at, char letter) {
  const char* p = at + 1;
  const bool is_negated = *p == '!';
  if (is_negated) ++p;
  bool has = false;
  const char* const first = p;  // where ] is a letter
  while (*p != ']' || p == first) {
    if (*p == '\0') return *at++ == letter;
    const char low = *p++;
    const bool is_range = p[0] == '-' && p[1] != ']' && p[1] != '\0';
    const char high = is_range ? p[1] : low;
    if (is_range) p += 2;
    has = has || (low <= letter && letter <= high);
  }
  at = p + 1;
  return has != is_negated;
}

/// Whether the first part of a pattern, which is no *, fits a letter; moves `at` past the part.
bool letter_fits(const char*& at, char letter) {
  if (*at == '[') return set_has(at, letter);
  const bool is_any = *at == '?';
  if (at[0] == '\\' && at[1] != '\0') ++at;
  return *at != '\0' && (*at++ == letter || is_any);
}

}  // namespace

bool fits(const char* pattern, const char* name) {
  const char *after_star = nullptr, *retry = nullptr;
  while (*name != '\0') {
    if (*pattern == '*') {
      after_star = ++pattern;
      retry = name;
    } else if (letter_fits(pattern, *name)) {
      ++name;
    } else if (after_star != nullptr) {  // the last * takes one letter more
      pattern = after_star;
      name = ++retry;
    } else {
      return false;
    }
  }
  while (*pattern == '*') ++pattern;
  return *pattern == '\0';
}

}  // namespace metal_marlin::tools
