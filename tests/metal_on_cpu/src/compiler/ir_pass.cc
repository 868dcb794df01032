#include "ir_pass.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

namespace metal_on_cpu {
namespace {

struct OpcodeClass {
  std::string_view opcode;
  Operation operation;
};
constexpr OpcodeClass kOpcodes[] = {
    {"fadd", kFloatAdd},       {"fsub", kFloatAdd},      {"fneg", kBitwise},       {"fmul", kFloatMultiply},
    {"fdiv", kFloatDivide},    {"frem", kFloatSpecial},  {"add", kIntegerAdd},     {"sub", kIntegerAdd},
    {"mul", kIntegerMultiply}, {"udiv", kIntegerDivide}, {"sdiv", kIntegerDivide}, {"urem", kIntegerDivide},
    {"srem", kIntegerDivide},  {"and", kBitwise},        {"or", kBitwise},         {"xor", kBitwise},
    {"shl", kShift},           {"lshr", kShift},         {"ashr", kShift},         {"icmp", kCompare},
    {"fcmp", kCompare},        {"select", kSelect},      {"fptrunc", kConvert},    {"fpext", kConvert},
    {"sitofp", kConvert},      {"uitofp", kConvert},     {"fptosi", kConvert},     {"fptoui", kConvert}};
constexpr OpcodeClass kFunctions[] = {
    {"llvm.fma.", kFloatFma},    {"llvm.fmuladd.", kFloatFma}, {"llvm.sqrt.", kFloatDivide},   {"llvm.minnum.", kCompare},
    {"llvm.maxnum.", kCompare},  {"llvm.smin.", kCompare},     {"llvm.smax.", kCompare},       {"llvm.umin.", kCompare},
    {"llvm.umax.", kCompare},    {"llvm.fabs.", kBitwise},     {"llvm.copysign.", kBitwise},   {"llvm.ctpop.", kBitwise},
    {"llvm.ctlz.", kBitwise},    {"llvm.cttz.", kBitwise},     {"llvm.bitreverse.", kBitwise}, {"llvm.abs.", kBitwise},
    {"llvm.fshl.", kShift},      {"llvm.fshr.", kShift},       {"llvm.floor.", kConvert},      {"llvm.ceil.", kConvert},
    {"llvm.trunc.", kConvert},   {"llvm.rint.", kConvert},     {"llvm.round.", kConvert},      {"llvm.exp", kFloatSpecial},
    {"llvm.log", kFloatSpecial}, {"llvm.pow", kFloatSpecial},  {"llvm.sin", kFloatSpecial},    {"llvm.cos", kFloatSpecial},
    {"llvm.tan", kFloatSpecial}, {"expf", kFloatSpecial},      {"tanhf", kFloatSpecial},       {"tanf", kFloatSpecial},
    {"logf", kFloatSpecial},     {"powf", kFloatSpecial},      {"sinf", kFloatSpecial},        {"cosf", kFloatSpecial},
    {"exp2f", kFloatSpecial},    {"log2f", kFloatSpecial},     {"fmodf", kFloatSpecial},       {"atan2f", kFloatSpecial}};

std::string_view word_at(std::string_view line, size_t at) {
  size_t end = at;
  while (end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) || line[end] == '_' || line[end] == '.'))
    end++;
  return line.substr(at, end - at);
}

// "@name" or "@"quoted name"" after `from`.
std::string_view global_name(std::string_view line, size_t from) {
  const size_t at = line.find('@', from);
  if (at == std::string_view::npos) return {};
  if (line.substr(at + 1, 1) == "\"") return line.substr(at + 2, line.find('"', at + 2) - at - 2);
  size_t end = at + 1;
  while (end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) ||
                               std::string_view("_.$-").find(line[end]) != std::string_view::npos))
    end++;
  return line.substr(at + 1, end - at - 1);
}

uint32_t components(std::string_view line) {
  const size_t at = line.find('<'), by = line.find(" x ");
  return at == std::string_view::npos || by == std::string_view::npos || by < at
             ? 1
             : static_cast<uint32_t>(std::strtoul(std::string(line.substr(at + 1, 8)).c_str(), nullptr, 10));
}

// The instruction's opcode: behind "%x = " and "tail".
std::string_view opcode_of(std::string_view line) {
  size_t at = line.find_first_not_of(' ');
  if (at == std::string_view::npos) return {};
  if (line[at] == '%') {
    const size_t equals = line.find(" = ", at);
    if (equals == std::string_view::npos) return {};
    at = equals + 3;
  }
  std::string_view word = word_at(line, at);
  while (word == "tail" || word == "musttail" || word == "notail") {
    at = line.find_first_not_of(' ', at + word.size());
    word = word_at(line, at);
  }
  return word;
}

void count(std::string_view line, std::string_view opcode, OperationCounts& counts) {
  if (line.find("!nosanitize") != std::string_view::npos) return;  // part of a check
  if (opcode == "call") {
    const std::string_view callee = global_name(line, 0);
    for (const OpcodeClass& f : kFunctions) {
      if (callee.starts_with(f.opcode)) {
        counts[f.operation] += components(line.substr(line.find("call")));
        return;
      }
    }
    return;
  }
  for (const OpcodeClass& o : kOpcodes) {
    if (o.opcode == opcode) counts[o.operation] += components(line.substr(line.find(o.opcode)));
  }
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

class Pass {
 public:
  explicit Pass(const std::string& ir) : ir_(ir) {}

  InstrumentedIr run() {
    collect_attributes();
    for (size_t at = 0; at < ir_.size();) {
      const size_t end = std::min(ir_.find('\n', at), ir_.size());
      line(std::string_view(ir_).substr(at, end - at));
      at = end + 1;
    }
    if (ir_.find("@_GLOBAL__sub_I_") != std::string::npos) {  // clang's name for code that runs at load time
      out_.errors.push_back(
          {"", 0, "a program-scope variable has no constant initialiser (it may use a function constant without a value)"});
    }
    find_recursion();
    out_.text += "\ndeclare void @msl_block(i32)\n";
    for (const std::string& hook : hooks_) out_.text += "declare void @" + hook + "(i64)\n";
    out_.text = replaced(replaced(std::move(out_.text), "@__asan_", "@msl_asan_"), "@__ubsan_", "@msl_ubsan_");
    return std::move(out_);
  }

 private:
  // The groups of attributes (#3) of functions to instrument.
  void collect_attributes() {
    for (size_t at = ir_.find("\nattributes #"); at != std::string::npos; at = ir_.find("\nattributes #", at + 1)) {
      const size_t end = ir_.find('\n', at + 1);
      const std::string_view group = std::string_view(ir_).substr(at + 12, end - at - 12);
      if (group.find("sanitize_address") != std::string_view::npos)
        checked_.insert(std::string(group.substr(0, group.find(' '))));
    }
  }

  void line(std::string_view text) {
    if (text.starts_with("define ")) {
      begin_function(text);
    } else if (text == "}") {
      end_function();
    } else if (inside_) {
      instruction(text);
      return;
    }
    emit(text);
    if (inside_) pending_ = true;
  }

  void emit(std::string_view text) { out_.text.append(text).append("\n"); }

  void begin_function(std::string_view text) {
    function_ = global_name(text, 0);
    inside_ = true;
    pending_ = false;
    instrumented_ = self_call_ = false;
    addresses_.clear();
    self_call_exits_.clear();
    returning_.clear();
    for (size_t at = text.find(" #"); at != std::string_view::npos; at = text.find(" #", at + 1)) {
      instrumented_ = instrumented_ || checked_.contains(std::string(text.substr(at + 1, text.find(' ', at + 2) - at - 1)));
    }
    if (const size_t dbg = text.find("!dbg !"); dbg != std::string_view::npos) {
      subprograms_[function_] = "!" + std::string(word_at(text, dbg + 6));
    }
  }

  void instruction(std::string_view text) {
    const std::string_view opcode = opcode_of(text);
    const bool label = !text.empty() && text[0] != ' ' && text.find(':') != std::string_view::npos;
    if (label || text.empty()) {
      if (label) block_ = word_at(text, 0);
      pending_ = pending_ || label;
      emit(text);
      return;
    }
    const bool real = text.find_first_not_of(' ') != std::string_view::npos && text[text.find_first_not_of(' ')] != '#' &&
                      text[text.find_first_not_of(' ')] != ';';
    if (pending_ && real && opcode != "phi") {
      pending_ = false;
      if (opcode == "ret") returning_.insert(block_);
      if (instrumented_) {
        const size_t dbg = text.find(", !dbg !");
        const std::string place =
            dbg == std::string_view::npos ? "" : std::string(text.substr(dbg, text.find_first_of(", ", dbg + 8) - dbg));
        emit("  call void @msl_block(i32 " + std::to_string(out_.blocks.size()) + ")" + place);
        out_.blocks.push_back({});
      }
    }
    if (access_hook(text)) return;
    if (self_call_ && real) note_behind_self_call(text, opcode);
    if (opcode == "call") note_call(std::string(global_name(text, text.find("call"))));
    if (instrumented_ && !out_.blocks.empty() && opcode != "phi" && !of_addresses(text, opcode))
      count(text, opcode, out_.blocks.back());
    if (!hook_.empty() && (opcode == "load" || opcode == "store" || opcode == "call")) emit_hook(text);
    emit(text);
  }

  // The hook of an access, @__asan_load4_noabort, learns the alignment that the access behind it relies on.
  bool access_hook(std::string_view text) {
    const bool hook =
        (text.find("@__asan_load") != std::string_view::npos || text.find("@__asan_store") != std::string_view::npos) &&
        text.find("_noabort(") != std::string_view::npos && text.find("N_noabort(") == std::string_view::npos;
    if (!hook) return false;
    if (!hook_.empty()) emit_hook("");
    hook_ = text;
    return true;
  }
  void emit_hook(std::string_view access) {
    const size_t at = access.rfind(", align ");
    const bool known = at != std::string_view::npos && access.find("call ") == std::string_view::npos;
    const auto align = known ? std::min(16ul, std::strtoul(std::string(access.substr(at + 8, 4)).c_str(), nullptr, 10)) : 1ul;
    const std::string line = std::exchange(hook_, {});
    const size_t name = line.find("_noabort("), begin = line.find("@__asan_") + 1;
    const std::string renamed = line.substr(begin, name - begin) + "_align" + std::to_string(align);
    hooks_.insert(renamed);
    emit(line.substr(0, begin) + renamed + line.substr(name + 8));
  }

  // Integer arithmetic on addresses is the checks' own: alignments, redzones.
  bool of_addresses(std::string_view text, std::string_view opcode) {
    const size_t equals = text.find(" = ");
    if (equals == std::string_view::npos) return false;
    bool found = opcode == "ptrtoint";
    if (opcode == "add" || opcode == "lshr" || opcode == "and" || opcode == "icmp" || opcode == "or") {
      for (size_t at = text.find('%', equals); at != std::string_view::npos; at = text.find('%', at + 1)) {
        found = found || addresses_.contains(std::string(word_at(text, at + 1)));
      }
    }
    if (found) addresses_.insert(std::string(word_at(text, text.find('%') + 1)));
    return found;
  }

  // A function that ends by calling itself is a loop: Apple's compiler takes it (mlx's LoopedElemToLoc::next is one).
  void note_call(const std::string& callee) {
    self_call_ = callee == function_;
    if (!self_call_) calls_[function_].insert(callee);
  }
  void note_behind_self_call(std::string_view text, std::string_view opcode) {
    self_call_ = false;
    if (const size_t to = text.find("br label %"); to != std::string_view::npos)
      self_call_exits_.insert(std::string(word_at(text, to + 10)));
    else if (opcode != "ret")
      calls_[function_].insert(function_);
  }
  void end_function() {
    inside_ = false;
    for (const std::string& block : self_call_exits_) {
      if (!returning_.contains(block)) calls_[function_].insert(function_);
    }
  }

  // Cycles in the call graph; each function is reported once.
  void find_recursion() {
    for (const auto& [name, callees] : calls_) {
      std::set<std::string> reached;
      std::vector<std::string> open(callees.begin(), callees.end());
      while (!open.empty()) {
        const std::string next = open.back();
        open.pop_back();
        if (!reached.insert(next).second) continue;
        if (const auto found = calls_.find(next); found != calls_.end())
          open.insert(open.end(), found->second.begin(), found->second.end());
      }
      if (!reached.contains(name)) continue;
      Diagnostic d = place(name);
      d.message = "'" + demangled(name) + "' calls itself: recursion is not supported in the Metal Shading Language";
      out_.errors.push_back(std::move(d));
    }
  }

  std::string metadata(const std::string& id) const {
    const size_t at = ir_.find("\n" + id + " = ");
    return at == std::string::npos ? std::string() : ir_.substr(at + 1, ir_.find('\n', at + 1) - at - 1);
  }
  static std::string field(const std::string& text, const std::string& name) {
    const size_t at = text.find(name + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find_first_of(",)", begin) - begin);
  }
  Diagnostic place(const std::string& function) const {
    const auto found = subprograms_.find(function);
    if (found == subprograms_.end()) return {};
    const std::string subprogram = metadata(found->second), file = metadata(field(subprogram, "file"));
    const std::string name = field(file, "filename");
    return {name.size() > 2 ? name.substr(1, name.size() - 2) : "",
            static_cast<uint32_t>(std::strtoul(field(subprogram, "line").c_str(), nullptr, 10)), ""};
  }

  const std::string& ir_;
  InstrumentedIr out_;
  std::set<std::string> checked_;
  std::map<std::string, std::set<std::string>> calls_;
  std::map<std::string, std::string> subprograms_;
  std::set<std::string> addresses_;  // values of the function that come from ptrtoint
  std::string hook_;                 // a call that waits for the access it announces
  std::set<std::string> hooks_;      // names of hooks with alignments
  std::string function_;
  bool inside_ = false, instrumented_ = false;
  bool self_call_ = false;                 // the instruction before was a call of the function itself
  std::set<std::string> self_call_exits_;  // blocks to which the function goes from there
  std::set<std::string> returning_;        // blocks that do nothing but return
  std::string block_;
  bool pending_ = false;  // at the start of a block, before its first instruction that is no phi
};

}  // namespace

const char* operation_name(int operation) {
  static constexpr const char* kNames[] = {"float add",   "float multiply",   "float fma",      "float divide", "float special",
                                           "integer add", "integer multiply", "integer divide", "bitwise",      "shift",
                                           "compare",     "select",           "convert"};
  return operation >= 0 && operation < kOperationCount ? kNames[operation] : "";
}

InstrumentedIr instrument(const std::string& ir) { return Pass(ir).run(); }

}  // namespace metal_on_cpu
