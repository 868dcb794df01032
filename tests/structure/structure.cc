#include "structure.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace fs = std::filesystem;

namespace structure {
namespace {

constexpr size_t kMaxLines = 500;
constexpr std::ptrdiff_t kMaxWidth = 100;

struct File {
  fs::path path;  // relative to the root
  std::vector<std::string> lines;
};

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The files of these folders (or single files) whose name ends so. Checkpoints and build folders are no sources.
std::vector<File> files(const fs::path& root, const std::vector<std::string>& places, const std::set<std::string>& extensions) {
  std::vector<fs::path> paths;
  for (const std::string& place : places) {
    const fs::path at = root / place;
    if (fs::is_regular_file(at)) paths.push_back(at);
    if (!fs::is_directory(at)) continue;
    for (auto it = fs::recursive_directory_iterator(at); it != fs::recursive_directory_iterator(); ++it) {
      // Inputs, some of them binary, are nothing that anybody wrote.
      const bool inputs = it->path() == root / "tests/data" || it->path() == root / "tests/fuzz/kept";
      if (it->is_directory() && inputs) it.disable_recursion_pending();
      if (it->is_regular_file() && extensions.contains(it->path().extension().string())) paths.push_back(it->path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<File> found;
  for (const fs::path& path : paths) found.push_back({path.lexically_relative(root), read_lines(path)});
  return found;
}

const std::set<std::string> kCode = {".h", ".hpp", ".c", ".cc", ".inc", ".mm", ".metal", ".cu", ".cuh"};
const std::set<std::string> kText = {".cu", ".cuh", ".h",  ".hpp",  ".c", ".cc",  ".inc", ".mm", ".metal", ".txt",  ".cmake",
                                     ".in", ".sh",  ".md", ".json", ".1", ".map", ".py",  ".rs", ".swift", ".toml", ""};

std::string at(const File& file, size_t line, const std::string& what) {
  return file.path.generic_string() + ":" + std::to_string(line + 1) + ": " + what;
}

// The part of the project that a file belongs to: "include", "formats", "backends/cpu", "tests/reference", ...
std::string part_of(const fs::path& path) {
  std::vector<std::string> names;
  for (const fs::path& name : path) names.push_back(name.string());
  if (path == fs::path("src/api/backends.cc")) return "api/backends.cc";
  if (names[0] == "src" && names.size() > 3 && names[1] == "backends") return "backends/" + names[2];
  if (names[0] == "src" && names.size() > 2) return names[1];
  if (names[0] == "shaders" && names.size() > 2) return "shaders/" + names[1];
  if (names[0] == "tests" && names.size() > 2 && names[1] == "reference") return "tests/reference";
  if (names[0] == "tests" && names.size() > 2 && names[1] == "metal_on_cpu") return "tests/metal_on_cpu";
  return names[0];
}

// Who may include whom; itself and `include` always.
const std::map<std::string, std::set<std::string>> kArrows = {
    {"include", {}},
    {"base", {}},
    {"formats", {"base"}},
    {"core", {"base", "formats"}},
    {"device", {"base"}},
    {"sources", {"base", "formats"}},
    {"layouts", {"base", "formats", "sources"}},
    {"checkpoints", {"base", "formats", "core", "layouts"}},
    {"backends/cpu", {"base", "formats", "core"}},
    {"backends/gpu", {"base", "formats", "core", "device", "shaders/common"}},
    {"backends/metal", {"base", "core", "device", "backends/gpu"}},
    {"backends/cuda", {"base", "core", "device", "backends/gpu", "shaders/common"}},
    {"api", {"base", "formats", "core", "sources", "layouts", "checkpoints", "device"}},
    {"api/backends.cc",
     {"api", "base", "formats", "core", "sources", "layouts", "checkpoints", "device", "backends/cpu", "backends/cuda",
      "backends/gpu", "backends/metal"}},
    {"tools", {"base", "formats"}},
    {"examples", {}},
    {"bindings", {}},
    {"tests/reference", {}},
    {"tests/metal_on_cpu", {}},
    {"shaders/common", {}},
    {"shaders/cuda", {"shaders/common"}},
    {"shaders/metal", {"shaders/common"}},
    {"shaders/metal4", {"shaders/common", "shaders/metal"}},
};

// Where a quoted include leads, or empty.
fs::path resolve(const fs::path& root, const fs::path& from, const std::string& name) {
  for (const fs::path& base : {from.parent_path(), fs::path("src"), fs::path("include"), fs::path("tests"),
                               fs::path("tests/reference"), fs::path("tests/metal_on_cpu/shaders/include"), fs::path()}) {
    if (fs::is_regular_file(root / base / name)) return (base / name).lexically_normal();
  }
  // A project of its own inside the tree has its own src and include.
  for (fs::path folder = from.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    for (const char* own : {"src", "include"}) {
      if (fs::is_regular_file(root / folder / own / name)) return (folder / own / name).lexically_normal();
    }
  }
  return {};
}

// A kernel that says why it is long, a file that a script writes, or the public header, which is one file by design.
bool has_allowance(const File& file) {
  if (file.path == fs::path("include/metal_marlin/metal_marlin.h")) return file.lines.size() <= 685;
  const size_t written = file.lines[0].find(" Written by ");  // behind // or #
  if (file.path.begin()->string() == "bindings" && (written == 1 || written == 2)) return true;
  return part_of(file.path).starts_with("backends/") &&
         std::any_of(file.lines.begin(), file.lines.end(),
                     [](const std::string& line) { return line.find("Longer than 500 lines: ") != std::string::npos; });
}

}  // namespace

Breaches include_arrows(const fs::path& root) {
  static const std::regex include(R"re(^\s*#\s*(?:include|import)\s*(["<])([^">]+)[">])re");
  Breaches breaches;
  for (const File& file : files(root, {"include", "src", "shaders", "tools", "examples", "bindings", "tests"}, kCode)) {
    const std::string part = part_of(file.path);
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(file.lines[i], match, include)) continue;
      const fs::path target = resolve(root, file.path, match[2]);
      if (target.empty()) {
        if (match[1] == "\"")
          breaches.push_back(at(file, i, "includes " + match[2].str() + ", which is no file of the project"));
        continue;
      }
      const std::string to = part_of(target);
      if (part == "tests" || to == part || to == "include") continue;
      const auto arrows = kArrows.find(part);
      if (arrows == kArrows.end() || !arrows->second.contains(to)) {
        breaches.push_back(at(file, i, part + " may not include " + to + " (" + target.generic_string() + ")"));
      }
    }
  }
  return breaches;
}

Breaches file_lengths(const fs::path& root) {
  Breaches breaches;
  for (const File& file :
       files(root,
             {"include", "src", "shaders", "tools", "examples", "bindings", "tests", "cmake", "dev", ".ci", "CMakeLists.txt"},
             kText)) {
    if (file.lines.size() > kMaxLines && !has_allowance(file)) {
      breaches.push_back(at(file, kMaxLines, "has " + std::to_string(file.lines.size()) + " lines, more than 500"));
    }
  }
  return breaches;
}

namespace {

constexpr size_t kMaxFunctionLines = 60;

// The longer functions that there are: file, a part of the head, lines. Nothing is to be added.
struct LongFunction {
  const char *file, *head;
  size_t lines;
};
constexpr LongFunction kLongFunctions[] = {
    {"tests/unit/checkpoint_mixed_test.cc", "WhatIsWrongWithALayerNamesItsTensor", 111},
    {"tests/gpu/dispatch_test.cc", "IsDispatchedByItsContract", 70},
    {"tests/abi/exports_signatures.h", "meaning(", 67},
};

size_t indentation(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

// The first line of the head whose last one is given.
size_t head_of(const std::vector<std::string>& lines, size_t last) {
  const auto ends_something = [](const std::string& line) {
    const size_t begin = indentation(line);
    const std::string code = line.substr(0, line.find("  //"));
    if (begin == line.size()) return true;
    return std::string(";{}:").find(code.back()) != std::string::npos || line[begin] == '#' ||
           line.compare(begin, 2, "//") == 0 || line.compare(begin, 8, "template") == 0 ||
           line.compare(begin, 8, "requires") == 0;
  };
  while (last > 0 && !ends_something(lines[last - 1])) --last;
  return last;
}

// Whether a brace behind this head, whose first and last lines are given, may be a function's: clang-format ends it so. A head
// has parentheses, and no other statement with a block stands so far to the left.
bool opens_function(const std::string& first, const std::string& last) {
  static const std::set<std::string> others = {"namespace", "struct", "class", "enum", "union", "extern", "if", "for", "while"};
  const std::string code = last.substr(0, last.find("  //"));
  const size_t begin = indentation(first);
  if (begin > 4 || !code.ends_with("{") || code.find(')') == std::string::npos) return false;
  const size_t end = first.find_first_not_of("abcdefghijklmnopqrstuvwxyz", begin);
  return !others.contains(first.substr(begin, end - begin)) && std::string("{}#").find(first[begin]) == std::string::npos;
}

// Says what is wrong with a function of so many lines, or nothing.
std::string judge_length(const std::string& path, const std::string& head, size_t lines) {
  for (const LongFunction& known : kLongFunctions) {
    if (path != known.file || head.find(known.head) == std::string::npos) continue;
    if (lines == known.lines) return "";
    const std::string listed = std::to_string(known.lines);
    return lines > known.lines ? "has grown from " + listed + " lines to " + std::to_string(lines)
                               : "is listed with " + listed + " lines and has " + std::to_string(lines) + ": shorten the list";
  }
  return lines <= kMaxFunctionLines ? "" : "has " + std::to_string(lines) + " lines, more than 60";
}

}  // namespace

Breaches function_lengths(const fs::path& root) {
  Breaches breaches;
  for (const File& file : files(root, {"include", "src", "tools", "examples", "bindings", "tests"}, kCode)) {
    const std::string path = file.path.generic_string();
    if (path.starts_with("src/backends/cpu/x86/") || path.starts_with("src/backends/cpu/arm64/")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (!file.lines[i].ends_with("{") && file.lines[i].find("{  //") == std::string::npos) continue;
      const size_t head = head_of(file.lines, i);
      if (!opens_function(file.lines[head], file.lines[i])) continue;
      const std::string close = std::string(indentation(file.lines[head]), ' ') + "}";
      size_t end = i + 1;
      while (end < file.lines.size() && !file.lines[end].starts_with(close)) ++end;
      const std::string wrong = judge_length(path, file.lines[head], end - head + 1);
      if (!wrong.empty()) breaches.push_back(at(file, head, "this function " + wrong));
      i = end;
    }
  }
  return breaches;
}

Breaches line_widths(const fs::path& root) {
  Breaches breaches;
  for (const File& file : files(root, {"src", "shaders"}, kCode)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      // Bytes that continue a character of UTF-8 take no room.
      const auto width = std::count_if(file.lines[i].begin(), file.lines[i].end(), [](char c) { return (c & 0xc0) != 0x80; });
      if (width > kMaxWidth) breaches.push_back(at(file, i, "has " + std::to_string(width) + " columns, more than 100"));
    }
  }
  return breaches;
}

Breaches nested_conditionals(const fs::path& root) {
  // What is no code, in one piece: comments, strings, characters.
  static const std::regex no_code(R"(//.*|/\*.*?\*/|"(\\.|[^"\\])*"|'(\\.|[^'\\])')");
  Breaches breaches;
  for (const File& file : files(root, {"src", "shaders"}, kCode)) {
    std::vector<int> marks = {0};  // question marks of the expression at hand, one number a bracket that is open
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const char c : std::regex_replace(file.lines[i], no_code, "")) {
        if (c == '(' || c == '[') marks.push_back(0);
        if ((c == ')' || c == ']') && marks.size() > 1) marks.pop_back();
        if (c == ';' || c == '{' || c == '}') marks = {0};
        if (c == ',') marks.back() = 0;
        if (c == '?' && ++marks.back() == 2) breaches.push_back(at(file, i, "has a conditional inside a conditional"));
      }
    }
  }
  return breaches;
}

Breaches words(const fs::path& root) {
  // Put together from halves, so that this file does not break its own rule.
  static const std::regex unwanted(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b|(^|[^\\w.])/(ho"
      "me|ro"
      "ot|Us"
      "ers|wo"
      "rk)/");
  Breaches breaches;
  for (const File& file :
       files(root,
             {"include", "src", "shaders", "tools", "examples", "bindings", "tests", "docs", "cmake", "pkgconfig", ".ci", "dev",
              "CMakeLists.txt", "CMakePresets.json", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"},
             kText)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (std::regex_search(file.lines[i], match, unwanted)) breaches.push_back(at(file, i, "says " + match.str()));
    }
  }
  return breaches;
}

namespace {

// The name of the type that the line defines, if it is one that once named several.
std::string ambiguous_type(const std::string& line) {
  if (line.find("struct ") == line.npos && line.find("class ") == line.npos && line.find("using ") == line.npos) return "";
  static const std::regex type(R"re(^ *(?:struct|class|enum class|using) (Chunk|Parts?|Walk|Place|Job)\b(?!<))re");
  std::smatch match;
  return std::regex_search(line, match, type) ? match.str(1) : "";
}

// The words of a text. A ~ within each keeps this file from breaking its own rule.
std::vector<std::string> words_of(std::string text) {
  std::erase(text, '~');
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// What a line says that has another word now. Regular expressions would take minutes here.
std::string renamed_word(const std::string& line) {
  static const std::vector<std::string> renamed = words_of(
      "telling_r~ows with_h~eight odd_s~cales w4~sym cuts_l~ast_tile takes_s~parse_meta format_by_s~pelling ehavio~ur "
      "eighbo~ur "
      "uanti~se uanti~sing uanti~sation ptimi~se ptimi~sing ptimi~sation ormali~se nitiali~se nitiali~sing ecogni~se "
      "ecogni~sing "
      "rgani~se rgani~sation eriali~se peciali~se ummari~se enerali~se");
  // The first is LLVM's word for a value that nothing may depend on, the second the field's for a pointer.
  static const std::vector<std::string> of_llvm = words_of("oiso~n i32 oiso~nValue oiso~nMask asan"),
                                        of_pointers = words_of("wil~d");
  const auto says = [&](const std::string& word) { return line.find(word) != std::string::npos; };
  const auto found = std::find_if(renamed.begin(), renamed.end(), says);
  if (found != renamed.end()) return *found;
  if (says(of_llvm[0]) && std::none_of(of_llvm.begin() + 1, of_llvm.end(), says)) return of_llvm[0];
  for (size_t at = 0; (at = line.find(of_pointers[0], at)) != std::string::npos; at += of_pointers[0].size()) {
    const auto letter = [&](size_t i) { return i < line.size() && std::isalnum(static_cast<unsigned char>(line[i])); };
    const size_t end = at + of_pointers[0].size();
    const bool whole_word = !letter(end) && (at == 0 || !letter(at - 1));
    if (whole_word && line.compare(std::min(end + 1, line.size()), 7, "pointer") != 0) return of_pointers[0];
  }
  return "";
}

}  // namespace

Breaches renamed_words(const fs::path& root) {
  Breaches breaches;
  std::map<std::string, std::string> first;
  std::set<std::string> extensions = kCode;
  extensions.insert({".md", ".1"});
  for (const File& file : files(root,
                                {"include", "src", "shaders", "tools", "examples", "bindings", "tests", "docs", "README.md",
                                 "CONTRIBUTING.md", "SECURITY.md"},
                                extensions)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string word = renamed_word(file.lines[i]), type = ambiguous_type(file.lines[i]);
      if (!word.empty()) breaches.push_back(at(file, i, "says " + word + ": docs/glossary.md has another word"));
      if (type.empty()) continue;
      const auto [known, is_new] = first.try_emplace(type, at(file, i, ""));
      if (!is_new) breaches.push_back(at(file, i, "names a second type " + type + ", after " + known->second));
    }
  }
  return breaches;
}

Breaches library_manners(const fs::path& root) {
  static const std::regex unwanted(
      R"re(\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|abort|exit|_exit|quick_exit|assert)\s*\(|std::(cout|cerr|clog|terminate)\b|#\s*include\s*<iostream>)re");
  static const std::regex comment(R"re(^\s*(//|\*|/\*))re");
  static const std::regex isa_flag(R"re(-m(arch|tune|cpu|avx|sse|fma|f16c)|#\s*pragma\s+GCC\s+target)re");
  Breaches breaches;
  for (const File& file : files(root, {"src", "CMakeLists.txt", "cmake"}, {".h", ".cc", ".inc", ".mm", ".txt", ".cmake"})) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      std::smatch match;
      if (std::regex_search(line, comment)) continue;
      if (file.path.begin()->string() == "src" && std::regex_search(line, match, unwanted)) {
        breaches.push_back(at(file, i, "prints or ends the process: " + match.str()));
      }
      if (std::regex_search(line, match, isa_flag))
        breaches.push_back(at(file, i, "an instruction set for a whole file: " + match.str()));
      if (line.find("metal_on_cpu") != std::string::npos) breaches.push_back(at(file, i, "needs the test-bed: metal_on_cpu"));
    }
  }
  return breaches;
}

Breaches sources_listed(const fs::path& root) {
  Breaches breaches;
  for (const File& file : files(root, {"src", "tools", "tests"}, kCode)) {
    const std::string name = file.path.filename().string(), extension = file.path.extension().string();
    if (extension == ".h") {
      const bool guarded = std::any_of(file.lines.begin(), file.lines.end(), [](const std::string& line) {
        return line.rfind("#pragma once", 0) == 0 || line.rfind("#ifndef ", 0) == 0;
      });
      if (!guarded) breaches.push_back(at(file, 0, "has no include guard"));
    }
    if (extension != ".cc" && extension != ".c" && extension != ".mm") continue;
    // A list may name a test's file by the test: (covering ...) for covering_test.cc.
    std::string stem = file.path.stem().string();
    if (stem.ends_with("_test")) stem.resize(stem.size() - 5);
    const std::regex named("(^|[\\s(/|])(" + stem + "(_test)?\\" + extension + "|" + stem + ")($|[\\s)\"])");
    bool listed = false;
    for (fs::path folder = file.path.parent_path(); !listed && !folder.empty(); folder = folder.parent_path()) {
      for (const char* list : {"CMakeLists.txt", "run.sh"}) {
        for (const std::string& line : read_lines(root / folder / list)) listed = listed || std::regex_search(line, named);
      }
    }
    if (!listed) breaches.push_back(at(file, 0, "no CMakeLists.txt builds it"));
  }
  return breaches;
}

Breaches weights(const fs::path& root) {
  Breaches breaches;
  std::ifstream budgets(root / "tests/structure/budgets.txt");
  for (std::string line; std::getline(budgets, line);) {
    std::istringstream row(line);
    std::string unit, folder;
    size_t budget = 0, lines = 0;
    if (!(row >> unit >> folder >> budget) || unit != "lines") continue;
    for (const File& file : files(root, {folder}, kText)) lines += file.lines.size();
    const std::string has = folder + ": has " + std::to_string(lines) + " lines, its budget is " + std::to_string(budget);
    if (lines > budget) breaches.push_back(has + ": delete as many, or raise the budget and say in the commit why");
    if (lines * 100 < budget * 97) breaches.push_back(has + ": lower it");
  }
  return breaches;
}

Breaches data_described(const fs::path& root) {
  const fs::path data = root / "tests" / "data";
  std::ostringstream index;
  index << std::ifstream(data / "index.json").rdbuf();
  Breaches breaches;
  for (const auto& entry : fs::directory_iterator(data)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    if (index.str().find('"' + name + '"') == std::string::npos)
      breaches.push_back("tests/data/" + name + ": not in index.json");
    if (!fs::exists(entry.path() / "decoded.safetensors"))
      breaches.push_back("tests/data/" + name + ": has no decoded.safetensors");
  }
  return breaches;
}

}  // namespace structure
