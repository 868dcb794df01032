#include "clang.h"

#include <sstream>

#include "cache.h"

namespace metal_on_cpu {
namespace {

namespace fs = std::filesystem;

// The header as clang keeps it, or empty when it cannot be made. Its name is that of all it depends on, so clang need not look
// at the times of files.
fs::path precompiled(const std::string& header, const fs::path& folder, const Words& flags) {
  const fs::path kept = folder / (digest(prelude_digest() + header + join(flags)) + ".pch");
  if (fs::exists(kept)) return kept;
  const fs::path made = temporary_name(kept);
  const ProcessResult result =
      clang(Words{"-x", "c++-header"} + flags + Words{"-Xclang", "-fno-pch-timestamp", header, "-o", made.string()}, {});
  return result.exit_code == 0 && publish(made, kept) ? kept : fs::path();
}

// The words of a line of clang -###: each is quoted, and a backslash stands before quotes, dollars and backslashes in it.
Words quoted_words(const std::string& line) {
  Words words;
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      inside = !inside;
      if (inside) words.emplace_back();
    } else if (inside) {
      if (line[i] == '\\' && i + 1 < line.size()) ++i;
      words.back() += line[i];
    }
  }
  return words;
}

constexpr const char *kObject = "/object-of-msl.o", *kShared = "/shared-of-msl.so";  // stand for the names in the command

// As an input, clang would look for the object.
const Words& link_command() {
  static const Words command = [] {
    std::istringstream lines(clang({"-###", "-shared", "-o", kShared, std::string("-Wl,") + kObject}, {}).errors);
    Words last;
    for (std::string line; std::getline(lines, line);)
      if (Words words = quoted_words(line); !words.empty()) last = std::move(words);
    return last;
  }();
  return command;
}

}  // namespace

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string join(const Words& words) {
  std::string all;
  for (const std::string& word : words) all += word + " ";
  return all;
}

ProcessResult clang(const Words& arguments, const std::string& input) {
  return run_process(Words{"clang-19"} + arguments, input);
}

ProcessResult link_shared(const std::string& object, const fs::path& shared) {
  const fs::path kept = temporary_name(shared.string() + ".o");
  ProcessResult result;
  if (!write_file(kept, object)) {
    result.exit_code = 1;
    result.errors = kept.string() + ": cannot be written";
    return result;
  }
  Words command = link_command();
  for (std::string& word : command) word = word == kObject ? kept.string() : word == kShared ? shared.string() : word;
  if (command.empty()) command = {"clang-19", "-shared", "-o", shared.string(), kept.string()};
  result = run_process(command, {});
  std::error_code ignored;
  fs::remove(kept, ignored);
  return result;
}

Error compile_error(const std::vector<Diagnostic>& errors, const ProcessResult& result) {
  if (!errors.empty()) return Error{to_text(errors)};
  return Error{"clang-19 failed (exit " + std::to_string(result.exit_code) + "): " + result.errors.substr(0, 2000)};
}

const Words& target_flags() {
#if defined(__x86_64__)
  static const Words flags = {"-mf16c", "-mfma", "-mavx2"};  // a fused multiply-add must be one instruction
#else
  static const Words flags;
#endif
  return flags;
}

Words language_flags(const CompileOptions& options) {
  return Words{"-std=c++17",
               "-fdeclspec",
               "-fno-exceptions",
               "-fno-rtti",
               "-fno-strict-aliasing",
               "-fno-finite-loops",
               options.contraction == Contraction::kOff ? "-ffp-contract=off" : "-ffp-contract=on",
               "-DMSL_CONTRACTION=" + std::to_string(static_cast<int>(options.contraction)),
               "-fdebug-compilation-dir=.",
               "-Xclang",
               "-cl-single-precision-constant",
               "-Xclang",
               "-ffloat16-excess-precision=none",
               "-Xclang",
               "-fbfloat16-excess-precision=none",
               "-Xclang",
               "-fdenormal-fp-math-f32=dynamic,dynamic",  // each dispatch says whether it flushes them
               "-fno-math-errno",
               "-fno-strict-float-cast-overflow",  // out of an integer's range: the nearest one; a NaN: 0
               "-Wno-everything",
               "-fno-caret-diagnostics",
               "-fno-color-diagnostics",
               "-ferror-limit=20",
               "-gline-tables-only",
               "-fvisibility=hidden"};
}

const Words& gpu_flags() {
  static const Words flags = [] {
    Words all = {"-DMSL_GPU",        "--target=amdgcn-amd-amdhsa",
                 "-mcpu=gfx1030",    "-nogpulib",
                 "-nostdinc++",      "-O2",
                 "-fno-vectorize",   "-fno-slp-vectorize",
                 "-mllvm",           "-disable-vector-combine",
                 "-fno-unroll-loops"};  // but for those that the shader wants unrolled
#if defined(__x86_64__)
    all.push_back("-D__x86_64__");  // the headers ask
#else
    all.push_back("-D__aarch64__");
#endif
    const Words own = quoted_words(clang({"-###", "-x", "c++", "-fsyntax-only", "-"}, {}).errors);
    for (size_t i = 0; i + 1 < own.size(); ++i)
      if (own[i].starts_with("-internal-") && own[i].ends_with("isystem")) all.insert(all.end(), {"-isystem", own[i + 1]});
    return all;
  }();
  return flags;
}

const Words& checking_flags() {
  static const Words flags = {
      "-DMSL_CHECKED", "-fno-vectorize", "-fno-slp-vectorize", "-ftrivial-auto-var-init=zero",
      "-fsanitize=kernel-address,array-bounds",
      // Every access and every redzone goes through a call: there is no shadow memory at a fixed address.
      "-mllvm", "-asan-instrumentation-with-call-threshold=0", "-mllvm", "-asan-stack=1", "-mllvm", "-asan-mapping-offset=0",
      "-mllvm", "-asan-max-inline-poisoning-size=0", "-mllvm", "-asan-globals=0", "-mllvm", "-asan-opt-same-temp=0", "-mllvm",
      "-asan-kernel-mem-intrinsic-prefix=1"};
  return flags;
}

ProcessResult compile_behind(const std::string& header, const fs::path& folder, const Words& flags, const Words& more,
                             const std::string& text) {
  const fs::path kept = precompiled(header, folder, flags);
  const Words input = {"-x", "c++", "-"};
  if (!kept.empty()) {
    ProcessResult result = clang(input + flags + more + Words{"-include-pch", kept.string()}, text);
    // One of another clang, which happens when the compiler is brought up to date, or one that is cut off.
    const bool useless = result.exit_code >= 126 || result.errors.find("PCH file") != std::string::npos ||
                         result.errors.find("AST file") != std::string::npos;
    if (result.exit_code == 0 || !useless) return result;
    std::error_code ignored;
    fs::remove(kept, ignored);
  }
  return clang(input + flags + more + Words{"-include", header}, text);
}

}  // namespace metal_on_cpu
