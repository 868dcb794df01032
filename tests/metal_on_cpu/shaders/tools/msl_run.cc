// msl-run: compiles a Metal shader, dispatches one of its kernels on the CPU, prints findings and counters.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <metal_on_cpu/metal_on_cpu.h>

namespace {

using metal_on_cpu::CompileOptions;
using metal_on_cpu::Dispatch;
using metal_on_cpu::Kernel;
using metal_on_cpu::Library;
using metal_on_cpu::Size3;

constexpr const char* kUsage =
    "usage: msl-run FILE.metal|FILE.metallib|FILE.image --kernel NAME --groups X[,Y[,Z]] --threads X[,Y[,Z]] [OPTION...]\n"
    "       msl-run FILE.metal --emit FILE.image [--check] [--constant N=V...]\n"
    "\n"
    "  --groups, --grid X[,Y[,Z]]  the grid in threadgroups, or in threads\n"
    "  --threads X[,Y[,Z]]         threads of a threadgroup\n"
    "  --buffer [N=]SPEC           buffer N (default: the next). SPEC is a file's name, a size in bytes (zeros),\n"
    "                              random:BYTES (floats in -1..1), int:V[,V...] or float:V[,V...]\n"
    "  --out N=FILE                writes buffer N to a file afterwards\n"
    "  --threadgroup N=BYTES       threadgroup memory of [[threadgroup(N)]]\n"
    "  --constant N=V, NAME=V      a function constant: true, false, an integer or a number with a point\n"
    "  -I FOLDER, -D NAME[=VALUE]  as for a compiler\n"
    "  --check, --count, --json    checked mode; counters too; both as JSON\n"
    "  --seed N                    order of lanes, simdgroups and threadgroups\n"
    "  --workers N                 host threads\n"
    "  --time-limit SECONDS        of CPU time for each of them; 0 is none (default: 60, with --check none)\n"
    "  --repeat N                  then runs it N times more and prints the least and the median CPU time of these\n"
    "  --language 14|17            C++14 (Metal up to 3.2, the default) or C++17 (Metal 4)\n"
    "  --contraction MODE          which a * b + c are rounded once: off, float (the default) or all\n"
    "  --flush-to-zero             float subnormals are zero\n"
    "  --list                      print the names of the kernels and stop\n"
    "  --emit FILE                 write an image that is dispatched without compiling, with these constants, and stop\n"
    "\n"
    "Exit status: 0 no findings, 1 findings or a shader or dispatch that is refused, 2 wrong usage.\n"
    "\n"
    "Example: one of the project's tests, checked and counted; y[i] = a x[i] + y[i] for 64 floats.\n"
    "  msl-run tests/shaders/correct/linear.metal --kernel axpy_float --groups 2 --threads 32 \\\n"
    "    --buffer random:256 --buffer random:256 --buffer float:2 --check --count\n";

struct Arguments {
  std::string file, kernel, emit;
  std::vector<std::pair<int, std::string>> buffers, outputs, threadgroup;
  std::vector<std::string> constants;
  CompileOptions options;
  std::optional<Size3> groups, grid, threads;
  bool check = false, count = false, json = false, flush = false, list = false;
  uint64_t seed = 0;
  int workers = 1, repeat = 0;
  std::optional<double> time_limit;
  std::string wrong;
};

template <class T>
bool number(const std::string& text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

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
  if (name == "--kernel")
    a.kernel = value;
  else if (name == "--emit")
    a.emit = value;
  else if (name == "--groups")
    return (a.groups = size3(value)).has_value();
  else if (name == "--grid")
    return (a.grid = size3(value)).has_value();
  else if (name == "--threads")
    return (a.threads = size3(value)).has_value();
  else if (name == "--buffer")
    a.buffers.push_back(*numbered(value, a.buffers.empty() ? 0 : a.buffers.back().first + 1));
  else if (name == "--out")
    a.outputs.push_back(*numbered(value, 0));
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
      a.wrong = a.file.empty() ? (a.file = word, "") : "more than one file: " + word;
    else if (i + 1 == words.size())
      a.wrong = word + ": unknown, or its value is missing";
    else if (!option_with_value(a, word, words[i + 1]))
      a.wrong = word + " " + words[i + 1] + ": unknown option, or not a value for it";
    else
      ++i;
  }
  if (a.wrong.empty() && a.file.empty()) a.wrong = "no shader is given";
  if (a.wrong.empty() && !a.list && a.emit.empty() && (a.kernel.empty() || !a.threads || !(a.groups || a.grid)))
    a.wrong = "--kernel, --threads and --groups or --grid are needed";
  return a;
}

// "1,2,3" as values of T.
template <class T>
std::optional<std::vector<char>> values(const std::string& text) {
  std::vector<char> bytes;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    T value{};
    if (!number(part, value)) return {};
    const auto* from = reinterpret_cast<const char*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
  }
  return bytes;
}

// The contents that a SPEC describes.
std::optional<std::vector<char>> contents(const std::string& spec, uint64_t seed) {
  size_t bytes = 0;
  if (number(spec, bytes)) return std::vector<char>(bytes);
  if (spec.starts_with("random:") && number(spec.substr(7), bytes)) {
    std::vector<char> all(bytes);
    std::mt19937_64 random(seed + 1);
    std::uniform_real_distribution<float> values(-1, 1);
    for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
      const float v = values(random);
      std::memcpy(all.data() + i, &v, sizeof v);
    }
    return all;
  }
  if (spec.starts_with("int:")) return values<int32_t>(spec.substr(4));
  if (spec.starts_with("float:")) return values<float>(spec.substr(6));
  std::ifstream in(spec, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return {};
  const std::string all = text.str();
  return std::vector<char>(all.begin(), all.end());
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

int run(const Arguments& a) {
  auto library = Library::from_file(a.file, a.options);
  if (!library) return fail(library.message());
  if (a.list) {
    for (const std::string& name : library.value().kernel_names()) std::cout << name << "\n";
    return 0;
  }
  Kernel kernel = library.value().kernel(a.kernel);
  for (const std::string& constant : a.constants) {
    if (!set_constant(kernel, constant)) return fail("msl-run: --constant " + constant + ": expected N=VALUE or NAME=VALUE", 2);
  }
  if (!a.emit.empty()) {
    const std::string wrong = kernel.emit(a.emit, a.check || a.count);
    return wrong.empty() ? 0 : fail(wrong);
  }
  Dispatch dispatch = kernel.dispatch();
  std::map<int, std::vector<char>> memory;
  for (const auto& [index, spec] : a.buffers) {
    auto bytes = contents(spec, a.seed + static_cast<uint64_t>(index));
    if (!bytes) return fail("msl-run: --buffer " + spec + ": cannot be read");
    memory[index] = std::move(*bytes);
    dispatch.buffer(index, memory[index].data(), memory[index].size());
  }
  for (const auto& [index, text] : a.threadgroup) {
    size_t bytes = 0;
    if (!number(text, bytes)) return fail("msl-run: --threadgroup " + text + ": expected a number of bytes", 2);
    dispatch.threadgroup_memory(index, bytes);
  }
  if (a.groups)
    dispatch.groups(a.groups->x, a.groups->y, a.groups->z);
  else
    dispatch.grid(a.grid->x, a.grid->y, a.grid->z);
  dispatch.threads(a.threads->x, a.threads->y, a.threads->z)
      .check(a.check)
      .count(a.count)
      .seed(a.seed)
      .workers(a.workers)
      .flush_to_zero(a.flush);
  if (a.time_limit) dispatch.time_limit(*a.time_limit);
  auto report = dispatch.run();
  if (!report) return fail(report.message());
  for (const auto& [index, file] : a.outputs) {
    std::ofstream out(file, std::ios::binary);
    out.write(memory[index].data(), static_cast<std::streamsize>(memory[index].size()));
    if (!out) return fail("msl-run: --out " + file + ": cannot be written");
  }
  if (a.json)
    std::cout << report.value().json() << "\n";
  else
    std::cout << report.value().text();
  if (!a.json && a.count) std::cout << report.value().counters.table();
  if (!a.json) std::printf("%.3f s\n", report.value().seconds);
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
    std::fputs(kUsage, words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  const Arguments arguments = parse(words);
  if (!arguments.wrong.empty()) return fail("msl-run: " + arguments.wrong + "\n" + kUsage, 2);
  return run(arguments);
}
