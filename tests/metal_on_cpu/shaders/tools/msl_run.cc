// msl-run: compiles a Metal shader, dispatches one of its kernels on the CPU, prints findings and counters.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <metal_on_cpu/metal_on_cpu.h>

#include "buffers.h"

namespace {

using metal_on_cpu::CompileOptions;
using metal_on_cpu::Dispatch;
using metal_on_cpu::Kernel;
using metal_on_cpu::Library;
using metal_on_cpu::Size3;
using msl_run::number;

const std::string kUsage =
    "usage: msl-run FILE.metal|FILE.image KERNEL --grid X[,Y[,Z]] --group X[,Y[,Z]] [OPTION...]\n"
    "       msl-run FILE.metal --list\n"
    "       msl-run FILE.metal [KERNEL] --emit FILE.image [--check] [--constant N=V...]\n"
    "\n"
    "Runs a kernel and prints what the checks find, and then the values of the buffers that have a type.\n"
    "\n"
    "  --grid X[,Y[,Z]]            the threads of the grid\n"
    "  --group X[,Y[,Z]]           the threads of a threadgroup\n"
    "  --buffer [N=]SPEC           buffer N (default: the next one). SPEC is TYPE:V[,V...], TYPE:zeros(N), random:BYTES\n"
    "                              (floats in -1..1), a number of bytes (zeros) or the name of a file\n"
    "                              TYPE is one of " +
    msl_run::type_names() +
    "\n"
    "                              @M or @M+BYTES: the memory of buffer M, from a byte on\n"
    "  --offset N=BYTES            binds buffer N from this byte on\n"
    "  --read-only N               a write to buffer N is a finding, whatever the kernel declares\n"
    "  --out N=FILE                writes buffer N to a file afterwards\n"
    "  --threadgroup N=BYTES       threadgroup memory of [[threadgroup(N)]]\n"
    "  --constant N=V, NAME=V      a function constant: true, false, an integer or a number with a point\n"
    "  -I FOLDER, -D NAME[=VALUE]  as for a compiler\n"
    "  --check                     checks every access and barrier\n"
    "  --count                     checks, and counts traffic and arithmetic\n"
    "  --json                      findings and counters as JSON; buffers are not printed\n"
    "  --seed N                    order of lanes, simdgroups and threadgroups\n"
    "  --workers N                 host threads\n"
    "  --time-limit SECONDS        of CPU time for each of them; 0 is none (default: 60)\n"
    "  --steps N                   with --check, the basic blocks that a thread may execute (default: 100000000)\n"
    "  --repeat N                  then runs it N times more and prints the least and the median CPU time of these\n"
    "  --language 14|17            of Metal up to 3.2 (the default), or of Metal 4, with tensors\n"
    "  --contraction MODE          which a * b + c are rounded once: off, float (the default) or all\n"
    "  --flush-to-zero             float subnormals are zero\n"
    "  --list                      prints the names of the kernels and stops\n"
    "  --emit FILE                 writes an image that is dispatched without compiling, with these constants, and stops\n"
    "\n"
    "Exit status: 0 no findings, 1 findings or a shader or dispatch that is refused, 2 wrong usage.\n"
    "\n"
    "Example: one of the project's tests, checked and counted; y[i] = a x[i] + y[i] for 64 floats.\n"
    "  msl-run shaders/tests/shaders/correct/linear.metal axpy_float --grid 64 --group 32 \\\n"
    "    --buffer random:256 --buffer random:256 --buffer float:2 --check --count\n";

struct Arguments {
  std::string file, kernel, emit;
  std::vector<std::pair<int, std::string>> buffers, outputs, threadgroup, offsets;
  std::set<int> read_only;
  std::vector<std::string> constants;
  CompileOptions options;
  std::optional<Size3> grid, group;
  bool check = false, count = false, json = false, flush = false, list = false;
  uint64_t seed = 0, steps = 0;  // 0 steps: as many as the library says
  int workers = 1, repeat = 0;
  std::optional<double> time_limit;
  std::string wrong;
};

std::optional<Size3> size3(const std::string& text) {
  Size3 s;
  std::istringstream in(text);
  uint32_t* parts[] = {&s.x, &s.y, &s.z};
  size_t n = 0;
  for (std::string part; std::getline(in, part, ','); ++n) {
    if (n == 3 || !number(part, *parts[n])) return {};
  }
  return n == 0 ? std::nullopt : std::optional(s);
}

// "3=rest" or "rest", which takes the number `next`.
std::optional<std::pair<int, std::string>> numbered(const std::string& text, int next) {
  const size_t equals = text.find('=');
  int n = next;
  if (equals == std::string::npos) return std::pair(n, text);
  if (!number(text.substr(0, equals), n)) return std::pair(next, text);
  return std::pair(n, text.substr(equals + 1));
}

bool option_with_value(Arguments& a, const std::string& name, const std::string& value) {
  if (name == "--emit")
    a.emit = value;
  else if (name == "--grid")
    return (a.grid = size3(value)).has_value();
  else if (name == "--group")
    return (a.group = size3(value)).has_value();
  else if (name == "--buffer")
    a.buffers.push_back(*numbered(value, a.buffers.empty() ? 0 : a.buffers.back().first + 1));
  else if (name == "--out")
    a.outputs.push_back(*numbered(value, 0));
  else if (name == "--offset")
    a.offsets.push_back(*numbered(value, 0));
  else if (name == "--read-only") {
    int buffer = 0;
    return number(value, buffer) && a.read_only.insert(buffer).second;
  } else if (name == "--steps")
    return number(value, a.steps) && a.steps > 0;
  else if (name == "--threadgroup")
    a.threadgroup.push_back(*numbered(value, 0));
  else if (name == "--constant")
    a.constants.push_back(value);
  else if (name == "-I")
    a.options.include_folders.push_back(value);
  else if (name == "-D")
    a.options.defines.push_back(value);
  else if (name == "--contraction") {
    a.options.contraction = value == "off"     ? metal_on_cpu::Contraction::kOff
                            : value == "float" ? metal_on_cpu::Contraction::kFloat
                                               : metal_on_cpu::Contraction::kAll;
    return value == "off" || value == "float" || value == "all";
  } else if (name == "--seed")
    return number(value, a.seed);
  else if (name == "--workers")
    return number(value, a.workers) && a.workers > 0;
  else if (name == "--repeat")
    return number(value, a.repeat) && a.repeat > 0;
  else if (name == "--time-limit")
    return number(value, a.time_limit.emplace()) && *a.time_limit >= 0;
  else if (name == "--language")
    return number(value, a.options.language) && (a.options.language == 14 || a.options.language == 17);
  else
    return false;
  return true;
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments a;
  for (size_t i = 0; i < words.size() && a.wrong.empty(); ++i) {
    const std::string& word = words[i];
    if (word == "--check")
      a.check = true;
    else if (word == "--count")
      a.count = true;
    else if (word == "--json")
      a.json = true;
    else if (word == "--list")
      a.list = true;
    else if (word == "--flush-to-zero")
      a.flush = true;
    else if ((word.starts_with("-I") || word.starts_with("-D")) && word.size() > 2)
      option_with_value(a, word.substr(0, 2), word.substr(2));
    else if (!word.starts_with("-"))
      (a.file.empty() ? a.file : a.kernel) = a.kernel.empty() ? word : (a.wrong = word + ": more than a file and a kernel");
    else if (i + 1 == words.size())
      a.wrong = word + ": unknown, or its value is missing";
    else if (!option_with_value(a, word, words[i + 1]))
      a.wrong = word + " " + words[i + 1] + ": unknown option, or not a value for it";
    else
      ++i;
  }
  if (a.wrong.empty() && a.file.empty()) a.wrong = "no shader is given";
  if (a.wrong.empty() && !a.list && a.emit.empty() && (a.kernel.empty() || !a.grid || !a.group))
    a.wrong = "a kernel, --grid and --group are needed";
  return a;
}

bool set_constant(Kernel& kernel, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  metal_on_cpu::ConstantValue v;
  int64_t integer = 0;
  double real = 0;
  if (value == "true" || value == "false")
    v = value == "true";
  else if (number(value, integer))
    v = integer;
  else if (number(value, real))
    v = real;
  else
    return false;
  uint32_t index = 0;
  if (number(name, index))
    kernel.constant(index, v);
  else
    kernel.constant(name, v);
  return true;
}

int fail(const std::string& message, int code = 1) {
  std::cerr << message << "\n";
  return code;
}

std::string time_text(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  char text[96];
  std::snprintf(text, sizeof text, "CPU time of %zu runs: least %.4f s, median %.4f s\n", seconds.size(), seconds.front(),
                seconds[seconds.size() / 2]);
  return text;
}

// What a buffer is bound to: memory of its own or of another buffer, from a byte on.
struct Range {
  char* data = nullptr;
  size_t bytes = 0;
};

// Empty, or the message of what is wrong.
std::string bind_buffers(const Arguments& a, Dispatch& dispatch, std::map<int, msl_run::Buffer>& memory) {
  std::map<int, Range> ranges;
  const auto from = [&](int index, size_t offset, Range& range) {
    const auto found = ranges.find(index);
    if (found == ranges.end()) return "there is no buffer " + std::to_string(index) + " in front of it";
    if (offset > found->second.bytes)
      return "buffer " + std::to_string(index) + " has only " + std::to_string(found->second.bytes) + " bytes";
    range = {found->second.data + offset, found->second.bytes - offset};
    return std::string();
  };
  for (const auto& [index, spec] : a.buffers) {
    msl_run::Alias alias;
    if (msl_run::read_alias(spec, alias)) {
      if (const std::string wrong = from(alias.buffer, alias.offset, ranges[index]); !wrong.empty())
        return "--buffer " + spec + ": " + wrong;
      continue;
    }
    auto made = msl_run::make_buffer(spec, a.seed + static_cast<uint64_t>(index));
    if (!made) return "--buffer " + made.message();
    msl_run::Buffer& buffer = memory[index] = made.take();
    ranges[index] = {buffer.bytes.data(), buffer.bytes.size()};
  }
  for (const auto& [index, text] : a.offsets) {
    size_t offset = 0;
    if (!number(text, offset)) return "--offset " + text + ": expected N=BYTES";
    if (const std::string wrong = from(index, offset, ranges[index]); !wrong.empty())
      return "--offset " + std::to_string(index) + "=" + text + ": " + wrong;
  }
  for (const auto& [index, range] : ranges) {
    if (a.read_only.contains(index))
      dispatch.buffer(index, static_cast<const void*>(range.data), range.bytes);
    else
      dispatch.buffer(index, static_cast<void*>(range.data), range.bytes);
  }
  return "";
}

// Hands the buffers and sizes to the dispatch. Empty, or the message of what is wrong.
std::string prepare(const Arguments& a, Dispatch& dispatch, std::map<int, msl_run::Buffer>& memory) {
  if (const std::string wrong = bind_buffers(a, dispatch, memory); !wrong.empty()) return wrong;
  for (const auto& [index, text] : a.threadgroup) {
    size_t bytes = 0;
    if (!number(text, bytes)) return "--threadgroup " + text + ": expected a number of bytes";
    dispatch.threadgroup_memory(index, bytes);
  }
  dispatch.grid(a.grid->x, a.grid->y, a.grid->z).threads(a.group->x, a.group->y, a.group->z);
  dispatch.check(a.check).count(a.count).seed(a.seed).workers(a.workers).flush_to_zero(a.flush);
  if (a.steps) dispatch.step_budget(a.steps);
  if (a.time_limit) dispatch.time_limit(*a.time_limit);
  return "";
}

void print(const Arguments& a, const metal_on_cpu::Report& report, const std::map<int, msl_run::Buffer>& memory) {
  if (a.json) {
    std::cout << report.json() << "\n";
    return;
  }
  std::cout << report.text();
  if (!report.complete) std::cout << "incomplete: threadgroups ended at a finding, and their results are missing\n";
  for (const auto& [index, buffer] : memory) {
    if (buffer.type) std::cout << "buffer " << index << " " << msl_run::values_text(buffer) << "\n";
  }
  if (a.count) std::cout << report.counters.table();
  std::cout << std::flush;
  std::printf("%.3f s\n", report.seconds);
}

// Of a source; images and compiled libraries do not tell which constants they have. Empty, or the message.
std::string unknown_constant(const Arguments& a, const Library& library) {
  if (a.file.ends_with(".image")) return "";
  std::string all;
  for (const auto& c : library.function_constants())
    all += (all.empty() ? "" : ", ") + c.name + " (" + std::to_string(c.index) + ")";
  for (const std::string& constant : a.constants) {
    const std::string given = constant.substr(0, constant.find('='));
    bool known = false;
    for (const auto& c : library.function_constants()) known = known || given == c.name || given == std::to_string(c.index);
    if (!known) return "--constant " + constant + ": the shader has no such constant; it has: " + (all.empty() ? "none" : all);
  }
  return "";
}

int run(const Arguments& a) {
  auto library = Library::from_file(a.file, a.options);
  if (!library) return fail(library.message());
  if (a.list) {
    for (const std::string& name : library.value().kernel_names()) std::cout << name << "\n";
    return 0;
  }
  if (const std::string wrong = unknown_constant(a, library.value()); !wrong.empty()) return fail("msl-run: " + wrong, 2);
  Kernel kernel = library.value().kernel(a.kernel);
  for (const std::string& constant : a.constants) {
    if (!set_constant(kernel, constant)) return fail("msl-run: --constant " + constant + ": expected N=VALUE or NAME=VALUE", 2);
  }
  if (!a.emit.empty()) {
    const std::string wrong = kernel.emit(a.emit, a.check || a.count);
    return wrong.empty() ? 0 : fail(wrong);
  }
  Dispatch dispatch = kernel.dispatch();
  std::map<int, msl_run::Buffer> memory;
  const std::string wrong = prepare(a, dispatch, memory);
  if (!wrong.empty()) return fail("msl-run: " + wrong, 2);
  const auto report = dispatch.run();
  if (!report) return fail(report.message());
  for (const auto& [index, file] : a.outputs) {
    std::ofstream out(file, std::ios::binary);
    out.write(memory[index].bytes.data(), static_cast<std::streamsize>(memory[index].bytes.size()));
    if (!out) return fail("msl-run: --out " + file + ": cannot be written");
  }
  print(a, report.value(), memory);
  std::vector<double> seconds;
  for (int i = 0; i < a.repeat; ++i) {
    const auto again = dispatch.run();
    if (!again) return fail(again.message());
    seconds.push_back(again.value().cpu_seconds);
  }
  if (!seconds.empty() && !a.json) std::fputs(time_text(seconds).c_str(), stdout);
  return report.value().findings.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    std::fputs(kUsage.c_str(), words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  const Arguments arguments = parse(words);
  if (!arguments.wrong.empty()) return fail("msl-run: " + arguments.wrong + "\n" + kUsage, 2);
  return run(arguments);
}
