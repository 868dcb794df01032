#include "kernels.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "attributes.h"
#include "restrictions.h"

namespace metal_on_cpu {
namespace {

std::vector<Attribute> attributes_of(const TokenStream& s, const std::vector<size_t>& tokens) {
  std::vector<Attribute> all;
  for (const size_t i : tokens) {
    if (s.tokens[i].kind != Token::kAttribute) continue;
    for (Attribute& a : parse_attribute(s.tokens[i].text)) all.push_back(std::move(a));
  }
  return all;
}

const Attribute* find(const std::vector<Attribute>& all, const char* name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Attribute& a) { return a.name == name; });
  return found == all.end() ? nullptr : &*found;
}

bool refers(const TokenStream& s, const std::vector<size_t>& parameter) {
  return std::any_of(parameter.begin(), parameter.end(), [&](size_t i) {
    return s.tokens[i].is_mark("*") || s.tokens[i].is_mark("&") || s.tokens[i].is_mark("[");
  });
}

// The declared name: the last one outside brackets.
std::string parameter_name(const TokenStream& s, const std::vector<size_t>& parameter) {
  std::string name;
  int depth = 0;
  for (const size_t i : parameter) {
    const Token& token = s.tokens[i];
    if (token.is_mark("[")) depth++;
    if (token.is_mark("]")) depth--;
    if (depth == 0 && token.kind == Token::kName) name = token.text;
  }
  return name;
}

// Numbers of [[buffer(n)]] that attributes give; the others fill the gaps in order, as in Metal.
std::set<std::string> given_buffers(const TokenStream& s, const std::vector<std::vector<size_t>>& parameters) {
  std::set<std::string> given;
  for (const auto& parameter : parameters) {
    if (const auto all = attributes_of(s, parameter); const Attribute* b = find(all, "buffer")) given.insert(b->argument);
  }
  return given;
}

class Reader {
 public:
  Reader(const TokenStream& s, const Declaration& f, const std::set<std::string>& constants)
      : s_(s), f_(f), constants_(constants) {}

  KernelHeader run() {
    const std::vector<size_t> head = significant(s_, f_.begin, f_.open);
    out_.is_template = s_.tokens[f_.begin].is_name("template");
    if (out_.is_template) out_.template_head = template_head(head);
    out_.host_name = host_name_of(s_, f_.begin, f_.open);
    out_.file = s_.files[s_.tokens[f_.begin].file];
    out_.first_line = s_.tokens[f_.begin].line;
    out_.last_line = s_.tokens[f_.close].line;
    const auto head_attributes = attributes_of(s_, head);
    if (const Attribute* a = find(head_attributes, "max_total_threads_per_threadgroup")) out_.max_threads = a->argument;
    Angles angles;
    const Token* before = nullptr;
    for (size_t k = 0; k < head.size(); ++k) {
      const Token& token = s_.tokens[head[k]];
      if (token.is_mark("(") && angles.depth() == 0 && k > 0 && before->kind == Token::kName) {
        out_.name = before->text;
        const size_t close = s_.close(head[k]);
        parameters(split_at_commas(s_, significant(s_, head[k] + 1, close)));
        return std::move(out_);
      }
      angles.feed(token, before);
      before = &token;
    }
    fail(f_.begin, "cannot find the parameters of this kernel");
    return std::move(out_);
  }

 private:
  // template < ... >
  std::string template_head(const std::vector<size_t>& head) const {
    Angles angles;
    size_t k = 1;
    for (; k < head.size(); ++k) {
      if (angles.feed(s_.tokens[head[k]], &s_.tokens[head[k - 1]]) == 0) break;
    }
    return join(s_, head, 0, k + 1);
  }

  void fail(size_t token, std::string message) { out_.errors.push_back(s_.diagnostic(token, std::move(message))); }

  void parameters(const std::vector<std::vector<size_t>>& all) {
    const std::set<std::string> given = given_buffers(s_, all);
    std::map<std::string, std::string> names;  // of the parameters that are always there, by their index
    uint32_t free_index = 0;
    for (const auto& parameter : all) {
      if (parameter.empty() || join(s_, parameter, 0, 1) == "void") continue;
      const auto attributes = attributes_of(s_, parameter);
      const std::string name = parameter_name(s_, parameter);
      if (const Attribute* a = find(attributes, "buffer"); a && !find(attributes, "function_constant")) {
        const auto [other, fresh] = names.emplace(a->argument, name);
        if (!fresh) {
          fail(parameter[0], "kernel '" + out_.name + "': parameters '" + other->second + "' and '" + name +
                                 "' have the same index [[buffer(" + other->first + ")]]");
        }
      }
      if (const Attribute* b = find(attributes, "buffer")) {
        add("kBufferParam", "kBuiltinCount", enabled(attributes), index(parameter[0], *b), name);
      } else if (const char* builtin = builtin_among(attributes)) {
        const std::string_view asked = builtin;
        const bool number = asked.find("Index") != asked.npos || asked == "kSimdgroupsPerThreadgroup";
        if (!number) check_components(parameter, name);
        add("kBuiltinParam", builtin, "nullptr", "0", name);
      } else if (refers(s_, parameter)) {
        while (given.contains(std::to_string(free_index))) free_index++;
        add("kBufferParam", "kBuiltinCount", enabled(attributes), std::to_string(free_index++), name);
      } else {
        fail(parameter[0], "kernel '" + out_.name + "': parameter '" + name +
                               "' needs an attribute such as [[buffer(0)]] or [[thread_position_in_grid]]");
      }
    }
  }

  // Positions and sizes of a kernel are all scalars, or all vectors of as many components.
  void check_components(const std::vector<size_t>& parameter, const std::string& name) {
    std::string type;
    for (const size_t i : parameter) {
      const Token& t = s_.tokens[i];
      if (t.kind == Token::kName && t.text != name) type = t.text;
    }
    const char components = std::isdigit(static_cast<unsigned char>(type.back())) ? type.back() : '1';
    if (components_ == 0) components_ = components;
    if (components_ != components)
      fail(parameter[0],
           "kernel '" + out_.name + "': '" + name + "' has another number of components than the positions before it");
  }

  static const char* builtin_among(const std::vector<Attribute>& attributes) {
    for (const Attribute& a : attributes) {
      if (const char* builtin = builtin_of(a.name)) return builtin;
    }
    return nullptr;
  }

  std::string enabled(const std::vector<Attribute>& attributes) const {
    const Attribute* a = find(attributes, "function_constant");
    if (!a) return "nullptr";
    return "+[]() MSL_RUNTIME -> bool { return " +
           (constants_.contains(a->argument) ? "msl_defined_" + a->argument + " && " : "") + "static_cast<bool>(" +
           a->argument + "); }";
  }

  std::string index(size_t token, const Attribute& a) {
    const bool number = !a.argument.empty() &&
                        std::all_of(a.argument.begin(), a.argument.end(), [](unsigned char c) { return std::isdigit(c); });
    if (number && (a.argument.size() > 2 || std::stoi(a.argument) > 30)) {
      fail(token, a.name + "(" + a.argument + "): the index must be in 0..30");
    }
    return a.argument;
  }

  void add(const std::string& kind, const std::string& builtin, const std::string& enabled, const std::string& index,
           const std::string& name) {
    if (!out_.params.empty()) out_.params += ",";
    out_.params += "{msl::" + kind + ",msl::" + builtin + ",false," + enabled + "," + index + ",0,\"" + name + "\"}";
    out_.param_count++;
  }

  const TokenStream& s_;
  const Declaration& f_;
  const std::set<std::string>& constants_;
  char components_ = 0;
  KernelHeader out_;
};

}  // namespace

bool is_kernel(const TokenStream& s, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (s.tokens[i].is_name("kernel")) return true;
    if (s.tokens[i].kind != Token::kAttribute) continue;
    for (const Attribute& a : parse_attribute(s.tokens[i].text)) {
      if (a.name == "kernel") return true;
    }
  }
  return false;
}

std::string host_name_of(const TokenStream& s, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (s.tokens[i].kind != Token::kAttribute) continue;
    for (const Attribute& a : parse_attribute(s.tokens[i].text)) {
      if (a.name == "host_name") return unquoted(a.argument);
    }
  }
  return {};
}

KernelHeader read_kernel(const TokenStream& s, const Declaration& function, const std::set<std::string>& constants) {
  return Reader(s, function, constants).run();
}

}  // namespace metal_on_cpu
