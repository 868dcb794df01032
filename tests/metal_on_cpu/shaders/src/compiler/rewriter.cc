#include "rewriter.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "attributes.h"
#include "casts.h"
#include "declarations.h"
#include "kernels.h"
#include "restrictions.h"

namespace metal_on_cpu {
namespace {

class Rewriter {
 public:
  Rewriter(TokenStream stream, Rewriting mode, const ConstantLiterals& constants, KernelRange range)
      : s_(std::move(stream)), mode_(mode), constants_(constants), range_(range) {}

  Rewritten run() {
    out_.errors = forbidden_tokens(s_);
    for (Token& token : s_.tokens) {
      if (token.kind == Token::kDirective) simplify_unrolling(token.text);
    }
    scope(0, s_.tokens.size(), "");
    if (out_.errors.empty()) out_.text = s_.text();
    return std::move(out_);
  }

 private:
  bool compiling() const { return mode_ != Rewriting::kCheck; }
  void fail(size_t token, std::string message) { out_.errors.push_back(s_.diagnostic(token, std::move(message))); }
  std::string fresh(const char* prefix) { return std::string("msl_") + prefix + std::to_string(++count_); }

  // #pragma unroll(MIN(a, b)): the preprocessor leaves macros there as they are, and takes their definitions away. How often a
  // loop is unrolled changes no result.
  static void simplify_unrolling(std::string& directive) {
    const size_t open = directive.find('(');
    if (!directive.starts_with("#pragma unroll") || open == std::string::npos) return;
    if (directive.find_first_not_of("0123456789() \t", open) != std::string::npos) directive.resize(open);
  }

  void scope(size_t begin, size_t end, const std::string& path) {
    for (size_t i = s_.skip(begin); i < end; i = s_.skip(i)) {
      const Token& token = s_.tokens[i];
      if (token.is_name("public") || token.is_name("private") || token.is_name("protected")) {
        i = s_.skip(i + 1) + 1;
        continue;
      }
      const Declaration d = next_declaration(s_, i, end);
      declaration(d, path);
      i = d.end;
    }
  }

  void declaration(const Declaration& d, const std::string& path) {
    if (d.kind == Declaration::kNamespace) {
      const std::string inner = path + "::" + join(s_, significant(s_, d.begin, d.open), 0, 9);
      const std::string outer = prefix_;
      for (const size_t i : significant(s_, d.begin, d.open)) {
        const Token& t = s_.tokens[i];
        if (t.kind == Token::kName && !t.is("namespace") && !t.is("inline") && !t.is("extern")) prefix_ += t.text + "::";
      }
      strip(d.begin, d.open);
      scope(d.open + 1, d.close, inner);
      prefix_ = outer;
      return;
    }
    if (compiling() && differs_only_in_address_space(d, path)) {
      erase(d.begin, d.end);
      return;
    }
    if (d.kind == Declaration::kClass) {
      const std::string inner = path + "::" + join(s_, significant(s_, d.begin, d.open), 0, 99);
      const std::string outer = std::exchange(class_, class_name(s_, d));
      strip(d.begin, d.open);
      scope(d.open + 1, d.close, inner);
      strip(d.close, d.end);
      class_ = outer;
    } else if (d.kind == Declaration::kFunction) {
      function(d);
    } else if (!function_constant(d) && !instantiation(d)) {
      if (mode_ == Rewriting::kCheck && variable_outside_of_constant(s_, d, class_))
        fail(d.begin, "variables of a program are constant: add constant");
      if (!late_variable(d)) strip(d.begin, d.end);
    }
  }

  // Overloads for several address spaces are one function once those are gone. Their bodies must agree.
  bool differs_only_in_address_space(const Declaration& d, const std::string& path) {
    const std::string head = bare(d.begin, d.open), body = bare(d.open, d.end);
    const bool is_template = s_.tokens[d.begin].is_name("template");
    if (d.kind == Declaration::kOther && !is_template) return false;
    const bool has_space = std::any_of(s_.tokens.begin() + static_cast<std::ptrdiff_t>(d.begin),
                                       s_.tokens.begin() + static_cast<std::ptrdiff_t>(d.end), is_address_space);
    if (!has_space || is_kernel(s_, d.begin, d.open)) return false;
    const auto [found, fresh] = seen_.emplace(path + "\n" + head, body);
    if (fresh) return false;
    if (found->second != body) {
      fail(d.begin, "overloads that differ only in address spaces must have the same body in this test-bed");
    }
    return true;
  }

  std::string bare(size_t begin, size_t end) const {
    std::string text;
    for (size_t i = begin; i < end; ++i) {
      const Token& t = s_.tokens[i];
      if (t.significant() && t.kind != Token::kAttribute && !is_address_space(t)) text += t.text + " ";
    }
    return text;
  }

  void erase(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (s_.tokens[i].kind != Token::kDirective) s_.tokens[i].erase();
    }
  }

  // Takes attributes away everywhere, and address spaces when compiling. `constant` implies const, except behind a member
  // function's parentheses.
  void strip(size_t begin, size_t end) {
    bool behind = false;  // behind ) or ) const
    for (size_t i = begin; i < end; ++i) {
      Token& t = s_.tokens[i];
      if (!t.significant()) continue;
      if (t.kind == Token::kAttribute || t.is_name("kernel")) {
        t.erase();
        continue;
      }
      if (is_address_space(t)) {
        if (behind) {
          out_.member_spaces.insert(class_ + " " + t.text);
          t.erase();
        } else if (compiling() && t.is("constant"))
          t.text = "const";
        else if (compiling())
          t.erase();
        continue;
      }
      behind = t.is_mark(")") || (behind && t.is_name("const"));
    }
  }

  void function(const Declaration& d) {
    const bool kernel = is_kernel(s_, d.begin, d.open);
    check_parameters(d);
    std::string registration;
    if (kernel) registration = register_kernel(d);
    body(d, kernel);
    const auto casts = compiling() ? std::vector<PointerCast>() : pointer_casts(s_, d.open, d.close);
    strip(d.begin, d.end);
    for (const PointerCast& cast : casts) {  // the only cast of C++ that keeps address spaces apart
      s_.tokens[cast.open].text = "reinterpret_cast<";
      s_.tokens[cast.close].text = ">(";
      s_.tokens[cast.last].text += ")";
    }
    s_.tokens[d.close].text += registration;
  }

  // A pointer or reference without an address space has none to default to.
  void check_parameters(const Declaration& d) {
    size_t open = s_.tokens.size();
    Angles angles;
    const Token* before = nullptr;
    for (const size_t i : significant(s_, d.begin, d.open)) {
      if (s_.tokens[i].is_mark("(") && angles.depth() == 0 && before && before->kind == Token::kName) {
        open = i;
        break;
      }
      angles.feed(s_.tokens[i], before);
      before = &s_.tokens[i];
    }
    if (open >= d.open) return;
    for (const auto& parameter : split_at_commas(s_, significant(s_, open + 1, s_.close(open)))) {
      bool refers = false, has_space = false;
      size_t at = 0;
      for (const size_t i : parameter) {
        if (s_.tokens[i].is_mark("=")) break;
        has_space = has_space || is_address_space(s_.tokens[i]);
        if (!s_.tokens[i].is_mark("*") && !s_.tokens[i].is_mark("&")) continue;
        refers = true, at = i;
      }
      if (refers && !has_space) {
        fail(at, std::string(s_.tokens[at].is("*") ? "pointer" : "reference") +
                     " parameter without an address space: add device, constant, threadgroup or thread");
      }
    }
  }

  std::string register_kernel(const Declaration& d) {
    KernelHeader k = read_kernel(s_, d, constant_names_);
    out_.errors.insert(out_.errors.end(), k.errors.begin(), k.errors.end());
    if (!compiling()) return {};
    const std::string id = fresh("params_");
    std::string text = " static constexpr msl::Params<" + std::to_string(k.param_count) + "> " + id + "={{" + k.params + "}};";
    const std::string name = k.host_name.empty() ? k.name : k.host_name, function = k.name;
    const bool is_template = k.is_template;
    if (is_template && k.max_threads != "0") {  // each instantiation has a limit of its own
      const std::string limit = fresh("threads_");
      text += k.template_head + " static constexpr unsigned " + limit + "=" + k.max_threads + ";";
      k.max_threads = prefix_ + limit;
    }
    known_[function] = {id, prefix_ + function, std::move(k)};
    if (!is_template) text += registration(known_[function], name, "");
    return text;
  }

  struct Known {
    std::string params;
    std::string function;  // qualified: a kernel may be called as a function of the library is
    KernelHeader header;
  };
  std::string registration(const Known& known, const std::string& name, const std::string& arguments) {
    const KernelHeader& k = known.header;
    // In parentheses: to a macro, commas between template arguments are its own.
    const std::string threads = k.max_threads == "0" ? "0" : "(" + k.max_threads + arguments + ")";
    out_.kernels.push_back(name);
    if (!range_.contains(out_.kernels.size() - 1)) return {};
    return " MSL_KERNEL(" + fresh("kernel_") + ",\"" + name + "\"," + known.params + "," + std::to_string(k.param_count) + "," +
           threads + ",\"" + k.file + "\"," + std::to_string(k.first_line) + "," + std::to_string(k.last_line) + "," +
           known.function + arguments + ");";
  }

  // template [[host_name("n")]] [[kernel]] void f<int>(...);   or   template ... decltype(f<int>) f<int>;
  bool instantiation(const Declaration& d) {
    const std::vector<size_t> t = significant(s_, d.begin, d.end);
    if (t.size() < 4 || !s_.tokens[t[0]].is_name("template") || s_.tokens[t[1]].is_mark("<")) return false;
    const std::string name = host_name_of(s_, d.begin, d.end);
    size_t last = t.size() - 2;  // before the ;
    if (s_.tokens[t[last]].is_mark(")")) {
      int depth = 0;
      for (;; --last) {
        if (s_.tokens[t[last]].is_mark(")")) depth++;
        if (s_.tokens[t[last]].is_mark("(") && --depth == 0) break;
        if (last == 0) return false;
      }
      last--;
    }
    size_t first = last;
    int depth = 0;
    for (;; --first) {
      const Token& token = s_.tokens[t[first]];
      if (token.is_mark(">")) depth++;
      if (token.is_mark(">>")) depth += 2;
      if (token.is_mark("<")) depth--;
      if (depth == 0 || first == 0) break;
    }
    if (first == 0) return false;
    const std::string function = s_.tokens[t[first - 1]].text;
    const auto known = known_.find(function);
    if (name.empty() && known == known_.end()) return false;
    if (!compiling()) {
      strip(d.begin, d.end);
      return true;
    }
    if (known == known_.end()) {
      fail(d.begin, "'" + function + "' is no kernel template that is defined above");
      return true;
    }
    for (size_t i = first; i <= last; ++i) {  // inside the registration no address space has a meaning
      if (is_address_space(s_.tokens[t[i]])) s_.tokens[t[i]].text = s_.tokens[t[i]].is("constant") ? "const" : "";
    }
    const std::string arguments = join(s_, t, first, last + 1);
    const std::string text = registration(known->second, name.empty() ? function + arguments : name, arguments);
    erase(d.begin, d.end);
    s_.tokens[d.begin].text = text + s_.tokens[d.begin].text;
    return true;
  }

  // constant T name [[function_constant(n)]];
  bool function_constant(const Declaration& d) {
    std::string index;
    for (size_t i = d.begin; i < d.end; ++i) {
      if (s_.tokens[i].kind != Token::kAttribute) continue;
      for (const Attribute& a : parse_attribute(s_.tokens[i].text)) {
        if (a.name == "function_constant") index = a.argument;
      }
    }
    if (index.empty() || s_.tokens[d.begin].is_name("template")) return false;
    std::vector<size_t> words;
    for (const size_t i : significant(s_, d.begin, d.end)) {
      const Token& t = s_.tokens[i];
      if (t.kind != Token::kAttribute && !is_address_space(t) && !t.is("static") && !t.is("const") && !t.is("constexpr") &&
          !t.is(";"))
        words.push_back(i);
    }
    const std::optional<uint32_t> number = number_of(index);
    if (words.size() < 2 || !number) {
      fail(d.begin, "function_constant(" + index + "): expected a number in 0..65535 on a declaration 'constant T name'");
      return true;
    }
    const std::string type = join(s_, words, 0, words.size() - 1), name = s_.tokens[words.back()].text;
    constant_names_.insert(name);
    if (!compiling()) {
      strip(d.begin, d.end);
      for (size_t i = d.begin; i < d.end; ++i) {
        if (s_.tokens[i].is_name("static") || s_.tokens[i].is_name("constexpr")) s_.tokens[i].erase();
      }
      s_.tokens[d.begin].text = "extern " + s_.tokens[d.begin].text;
      return true;
    }
    erase(d.begin, d.end);
    out_.constants.push_back(*number);
    s_.tokens[d.begin].text = constant_definition(type, name, *number) + s_.tokens[d.begin].text;
    if (mode_ == Rewriting::kCompileLate) late_.insert(name);
    return true;
  }

  // constant T name = value; where the value depends on constants that come late: it is computed wherever it is read.
  bool late_variable(const Declaration& d) {
    const std::vector<size_t> t = significant(s_, d.begin, d.end);
    const auto equals = std::find_if(t.begin(), t.end(), [&](size_t i) { return s_.tokens[i].is_mark("="); });
    const auto is_late = [&](size_t i) { return s_.tokens[i].kind == Token::kName && late_.contains(s_.tokens[i].text); };
    if (!s_.tokens[t[0]].is("constant") || std::none_of(equals, t.end(), is_late)) return false;
    const auto behind = static_cast<size_t>(equals - t.begin());
    const std::string type = join(s_, t, 1, behind - 1), name = s_.tokens[t[behind - 1]].text,
                      value = join(s_, t, behind + 1, t.size() - 1);
    erase(d.begin, d.end);
    s_.tokens[d.begin].text = "static const struct { MSL_INLINE operator " + type + "() const { return " + type + "(" + value +
                              "); } } " + name + "{};" + s_.tokens[d.begin].text;
    late_.insert(name);
    return true;
  }

  std::string constant_definition(const std::string& type, const std::string& name, uint32_t index) const {
    const std::string* value = nullptr;
    if (const auto i = constants_.find(index); i != constants_.end()) value = &i->second;
    const std::string number = std::to_string(index);
    const std::string late = "static constexpr msl::Constant<" + type + "," + number + "> " + name + "{\"" + name + "\"};";
    const std::string defined = " static constexpr bool msl_defined_" + name + "=";
    if (mode_ == Rewriting::kCompileLate)
      return late + " static constexpr msl::ConstantDefined<" + number + "> msl_defined_" + name + "{};";
    if (!value) return late + defined + "false;";
    return "static constexpr " + type + " " + name + "=" + type + "(" + *value + ");" + defined + "true;";
  }

  // Threadgroup variables: storage of the runtime, one a threadgroup. Others have none beyond a call.
  void body(const Declaration& d, bool kernel) {
    bool statement = true;  // whether a statement begins here
    for (size_t i = s_.skip(d.open); i < d.close; i = s_.skip(i + 1)) {
      const Token& token = s_.tokens[i];
      if (statement && mode_ == Rewriting::kCheck && static_variable(s_, i, d.close))
        fail(i, "static variables of a function are constant: add constant");
      if (token.is_name("threadgroup") && statement) {
        size_t end = i;
        while (end < d.close && !s_.tokens[end].is_mark(";")) {
          const Token& t = s_.tokens[end];
          end = t.is_mark("(") || t.is_mark("[") || t.is_mark("{") ? s_.close(end) + 1 : end + 1;
        }
        if (declares_variable(i + 1, end)) {
          if (!kernel) fail(i, "threadgroup variables can only be declared in kernel functions");
          threadgroup_variables(i, end);
          i = end;
        }
      }
      statement = s_.tokens[i].is_mark(";") || s_.tokens[i].is_mark("{") || s_.tokens[i].is_mark("}");
    }
  }

  // Neither a pointer nor a reference to threadgroup memory.
  bool declares_variable(size_t begin, size_t end) {
    Angles angles;
    int brackets = 0;
    const Token* before = nullptr;
    for (const size_t i : significant(s_, begin, end)) {
      const Token& t = s_.tokens[i];
      if (t.is_mark("[")) brackets++;
      if (t.is_mark("]")) brackets--;
      if (brackets == 0) angles.feed(t, before);
      before = &t;
      if (brackets != 0 || angles.depth() != 0) continue;
      if (t.is_mark("*") || t.is_mark("&")) return false;
      if (t.is_mark("=") || t.is_mark("{")) return fail(i, "threadgroup variables have no initializers"), false;
    }
    return true;
  }

  void threadgroup_variables(size_t begin, size_t end) {
    if (!compiling()) {
      s_.tokens[begin].text = "static threadgroup";
      return;
    }
    const auto declarators = split_at_commas(s_, significant(s_, begin + 1, end));
    std::string type, text;
    for (size_t n = 0; n < declarators.size(); ++n) {
      const auto& part = declarators[n];
      size_t bounds = 0;  // the first [ outside template arguments
      Angles angles;
      const Token* before = nullptr;
      for (; bounds < part.size(); ++bounds) {
        const Token& t = s_.tokens[part[bounds]];
        if (t.is_mark("[") && angles.depth() == 0) break;
        angles.feed(t, before);
        before = &t;
      }
      if (bounds < 1 || (n == 0 && bounds < 2)) return fail(begin, "cannot read this threadgroup variable");
      if (n == 0) type = join(s_, part, 0, bounds - 1);
      const std::string name = s_.tokens[part[bounds - 1]].text, alias = fresh("type_") + "_" + name;
      text += "typedef " + type + " " + alias + join(s_, part, bounds, part.size()) + "; MSL_THREADGROUP(" + alias + "," +
              std::to_string(count_) + "," + name + ");";
    }
    erase(begin, end);
    s_.tokens[begin].text = text + s_.tokens[begin].text;
  }

  TokenStream s_;
  Rewriting mode_;
  const ConstantLiterals& constants_;
  const KernelRange range_;
  Rewritten out_;
  int count_ = 0;
  std::string prefix_ = "::";                // of the namespace at hand
  std::string class_;                        // the name of the class at hand
  std::map<std::string, std::string> seen_;  // header without address spaces: body
  std::map<std::string, Known> known_;       // kernel functions by name
  std::set<std::string> constant_names_;
  std::set<std::string> late_;  // constants whose values come with a dispatch, and variables that depend on them
};

}  // namespace

Rewritten rewrite(TokenStream stream, Rewriting mode, const ConstantLiterals& constants, KernelRange range) {
  return Rewriter(std::move(stream), mode, constants, range).run();
}

}  // namespace metal_on_cpu
