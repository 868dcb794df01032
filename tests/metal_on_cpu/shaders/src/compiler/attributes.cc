#include "attributes.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace metal_on_cpu {
namespace {

constexpr std::pair<std::string_view, const char*> kBuiltins[] = {
    {"thread_position_in_grid", "kThreadPositionInGrid"},
    {"threadgroup_position_in_grid", "kThreadgroupPositionInGrid"},
    {"thread_position_in_threadgroup", "kThreadPositionInThreadgroup"},
    {"thread_index_in_threadgroup", "kThreadIndexInThreadgroup"},
    {"thread_index_in_simdgroup", "kThreadIndexInSimdgroup"},
    {"simdgroup_index_in_threadgroup", "kSimdgroupIndexInThreadgroup"},
    {"simdgroups_per_threadgroup", "kSimdgroupsPerThreadgroup"},
    {"threads_per_threadgroup", "kThreadsPerThreadgroup"},
    {"threadgroups_per_grid", "kThreadgroupsPerGrid"},
};
constexpr std::string_view kKnown[] = {
    "kernel", "host_name", "buffer", "function_constant", "maybe_unused", "fallthrough", "max_total_threads_per_threadgroup"};

std::string trimmed(std::string_view s) {
  const size_t begin = s.find_first_not_of(" \t\r\n"), end = s.find_last_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string() : std::string(s.substr(begin, end - begin + 1));
}

}  // namespace

std::vector<Attribute> parse_attribute(std::string_view text) {
  std::vector<Attribute> found;
  if (text.size() < 4) return found;
  text = text.substr(2, text.size() - 4);
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '"') quoted = !quoted;
    if (quoted && i < text.size()) continue;
    if (c == '(') depth++;
    if (c == ')') depth--;
    if (c != ',' || depth != 0) continue;
    const std::string_view one = text.substr(start, i - start);
    start = i + 1;
    const size_t open = one.find('(');
    if (open == std::string_view::npos) {
      found.push_back({trimmed(one), ""});
    } else {
      found.push_back({trimmed(one.substr(0, open)), trimmed(one.substr(open + 1, one.rfind(')') - open - 1))});
    }
  }
  return found;
}

const char* builtin_of(std::string_view attribute) {
  for (const auto& [name, value] : kBuiltins) {
    if (name == attribute) return value;
  }
  return nullptr;
}

std::string attribute_complaint(const Attribute& attribute) {
  const std::string& name = attribute.name;
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown);
  if (name.empty() || known || builtin_of(name)) return {};
  return "unknown attribute '" + name + "'";
}

std::optional<uint32_t> number_of(std::string_view digits) {
  uint32_t n = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
  return whole && n <= 65535 ? std::optional(n) : std::nullopt;
}

std::string unquoted(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const char c : text) {
    if (c == '"')
      inside = !inside;
    else if (inside)
      out += c;
  }
  return out;
}

}  // namespace metal_on_cpu
