#include "attributes.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
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
    {"dispatch_simdgroups_per_threadgroup", "kDispatchSimdgroupsPerThreadgroup"},
    {"threads_per_simdgroup", "kThreadsPerSimdgroup"},
    {"thread_execution_width", "kThreadsPerSimdgroup"},
    {"threads_per_threadgroup", "kThreadsPerThreadgroup"},
    {"dispatch_threads_per_threadgroup", "kDispatchThreadsPerThreadgroup"},
    {"threads_per_grid", "kThreadsPerGrid"},
    {"threadgroups_per_grid", "kThreadgroupsPerGrid"},
    {"quadgroup_index_in_threadgroup", "kQuadgroupIndexInThreadgroup"},
    {"thread_index_in_quadgroup", "kThreadIndexInQuadgroup"},
    {"quadgroups_per_threadgroup", "kQuadgroupsPerThreadgroup"},
    {"dispatch_quadgroups_per_threadgroup", "kDispatchQuadgroupsPerThreadgroup"},
    {"grid_origin", "kGridOrigin"},
    {"grid_size", "kGridSize"},
};
constexpr std::string_view kKnown[] = {
    "kernel", "host_name",    "buffer",     "threadgroup",   "function_constant",
    "id",     "maybe_unused", "deprecated", "nodiscard",     "fallthrough",
    "likely", "unlikely",     "noinline",   "always_inline", "max_total_threads_per_threadgroup"};
constexpr std::string_view kOtherStages[] = {"vertex",
                                             "fragment",
                                             "stage_in",
                                             "position",
                                             "texture",
                                             "sampler",
                                             "color",
                                             "mesh",
                                             "object",
                                             "payload",
                                             "vertex_id",
                                             "visible",
                                             "intersection",
                                             "attribute",
                                             "instance_id",
                                             "stitchable",
                                             "point_size",
                                             "user",
                                             "patch",
                                             "imageblock_data",
                                             "render_target_array_index",
                                             "barycentric_coord"};

template <size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

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
  if (name.empty() || among(kKnown, name) || builtin_of(name) || name.starts_with("clang::") || name.starts_with("gnu::")) {
    return {};
  }
  if (among(kOtherStages, name)) return "attribute '" + name + "' is not supported: only compute kernels with buffers are";
  return "unknown attribute '" + name + "'";
}

namespace {

// Sums and products of whole numbers, with parentheses.
class Sum {
 public:
  explicit Sum(std::string_view text) : text_(text) {}
  std::optional<int64_t> value() {
    const int64_t n = sum();
    return good_ && peek() == '\0' ? std::optional(n) : std::nullopt;
  }

 private:
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) at_++;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  int64_t sum() {
    int64_t n = product();
    while (peek() == '+' || peek() == '-') n = take('+') ? n + product() : (at_++, n - product());
    return n;
  }
  int64_t product() {
    int64_t n = term();
    while (take('*')) n *= term();
    return n;
  }
  int64_t term() {
    if (depth_ < 64 && take('(')) {
      depth_++;
      const int64_t n = sum();
      depth_--;
      good_ = good_ && take(')');
      return n;
    }
    int64_t n = 0;
    size_t digits = 0;
    peek();  // to the first digit
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && digits < 6; digits++)
      n = n * 10 + (text_[at_++] - '0');
    good_ = good_ && digits > 0;
    return good_ ? n : 0;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

}  // namespace

std::optional<uint32_t> number_of(std::string_view expression) {
  const auto n = Sum(expression).value();
  return n && *n >= 0 && *n <= 65535 ? std::optional(static_cast<uint32_t>(*n)) : std::nullopt;
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
