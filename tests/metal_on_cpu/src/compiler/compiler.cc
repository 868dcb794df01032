#include "compiler.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir_pass.h"
#include "messages.h"
#include "metallib.h"
#include "process.h"

namespace metal_on_cpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClang = "clang-19";
#if defined(__x86_64__)
constexpr const char* kTarget[] = {"-mf16c", "-mfma", "-mavx2"};  // a fused multiply-add must be one instruction
#else
constexpr const char* kTarget[] = {"-O2", "-O2", "-O2"};
#endif
const std::string kPrelude = METAL_ON_CPU_PRELUDE;

// 128 bits of FNV-1a from two starting points: a name for contents, not a signature.
std::string digest(const std::string& text) {
  std::ostringstream out;
  for (uint64_t h : {0xcbf29ce484222325ull, 0x84222325cbf29ce4ull}) {
    for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
    out << std::hex << (h ^ (h >> 29)) << '-';
  }
  std::string s = out.str();
  s.pop_back();
  return s;
}

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Everything but the shader that an image depends on.
const std::string& prelude_digest() {
  static const std::string value = [] {
    std::string all;
    for (const char* folder : {"/msl", "/check"}) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(kPrelude + folder)) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      for (const fs::path& file : files) all += read_file(file);
    }
    return digest(all + METAL_ON_CPU_BUILD);
  }();
  return value;
}

Result<fs::path> cache_folder(const CompileOptions& options) {
  const char* from_environment = std::getenv("METAL_ON_CPU_CACHE");
  std::error_code failed;
  fs::path folder = options.cache;
  if (folder.empty() && from_environment) folder = from_environment;
  if (folder.empty()) folder = fs::temp_directory_path(failed) / ("metal-on-cpu-" + std::to_string(getuid()));
  fs::create_directories(folder, failed);
  if (failed) return Error{folder.string() + ": cannot make this folder for images: " + failed.message()};
  return folder;
}

// Written under a name of its own and then renamed: readers see all or nothing.
bool publish(const fs::path& temporary, const fs::path& final_name) {
  std::error_code failed;
  fs::rename(temporary, final_name, failed);
  return !failed;
}
fs::path temporary_name(const fs::path& name) {
  static std::atomic<uint64_t> count{0};
  return name.string() + "." + std::to_string(getpid()) + "." + std::to_string(count++);
}
bool write_file(const fs::path& path, const std::string& text) {
  const fs::path temporary = temporary_name(path);
  std::ofstream(temporary, std::ios::binary) << text;
  return publish(temporary, path);
}

Error compile_error(const std::vector<Diagnostic>& errors, const ProcessResult& clang) {
  if (!errors.empty()) return Error{to_text(errors)};
  return Error{"clang-19 failed (exit " + std::to_string(clang.exit_code) + "): " + clang.errors.substr(0, 2000)};
}

std::vector<std::string> language_flags(const CompileOptions& options) {
  return {"-std=c++17",
          "-fdeclspec",
          "-fno-exceptions",
          "-fno-rtti",
          "-fno-strict-aliasing",
          "-fno-finite-loops",
          "-ffp-contract=" + std::string(options.contraction ? "on" : "off"),
          kTarget[0],
          kTarget[1],
          kTarget[2],
          "-fdebug-compilation-dir=.",
          "-Xclang",
          "-cl-single-precision-constant",
          "-Xclang",
          "-ffloat16-excess-precision=none",
          "-Xclang",
          "-fbfloat16-excess-precision=none",
          "-fno-math-errno",
          "-fno-strict-float-cast-overflow",  // out of an integer's range: the nearest one; a NaN: 0
          "-Wno-everything",
          "-Wuninitialized",
          "-Wsometimes-uninitialized",
          "-fno-caret-diagnostics",
          "-fno-color-diagnostics",
          "-ferror-limit=20",
          "-gline-tables-only",
          "-fvisibility=hidden"};
}

const std::vector<std::string>& checking_flags() {
  static const std::vector<std::string> flags = {
      "-DMSL_CHECKED", "-fno-vectorize", "-fno-slp-vectorize", "-fno-optimize-sibling-calls", "-ftrivial-auto-var-init=pattern",
      "-fsanitize=kernel-address,array-bounds",
      // Every access and every redzone goes through a call: there is no shadow memory at a fixed address.
      "-mllvm", "-asan-instrumentation-with-call-threshold=0", "-mllvm", "-asan-stack=1", "-mllvm", "-asan-mapping-offset=0",
      "-mllvm", "-asan-max-inline-poisoning-size=0", "-mllvm", "-asan-globals=0", "-mllvm", "-asan-opt-same-temp=0", "-mllvm",
      "-asan-kernel-mem-intrinsic-prefix=1"};
  return flags;
}

std::string join(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += word + " ";
  return all;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The rules of MSL that the host's C++ does not have; asked once for each text.
Result<bool> check_language(const std::string& preprocessed, const CompileOptions& options, const fs::path& folder) {
  const ConstantLiterals none;
  Rewritten checkable = rewrite(tokenize(preprocessed), Rewriting::kCheck, none);
  if (!checkable.errors.empty()) return Error{to_text(checkable.errors)};
  const fs::path passed = folder / (digest(prelude_digest() + checkable.text + std::to_string(options.language)) + ".ok");
  if (fs::exists(passed)) return true;
  const ProcessResult clang = run_process(
      {kClang, "-x", "c++", "-", "-fsyntax-only", "-std=c++" + std::to_string(options.language), "-fdeclspec", "-include",
       kPrelude + "/check/check.h", "-Wno-everything", "-Wc++17-extensions", "-Wc++20-extensions", "-fno-caret-diagnostics",
       "-fno-color-diagnostics", "-ferror-limit=0", "-Xclang", "-cl-single-precision-constant"},
      checkable.text);
  if (clang.exit_code >= 126) return compile_error({}, clang);
  const auto errors = language_errors(parse_messages(clang.errors), options.language);
  if (!errors.empty()) return Error{to_text(errors)};
  write_file(passed, "");
  return true;
}

// Fast mode: one run of clang. Checked mode: to LLVM IR, through our pass, then to code.
Result<std::vector<Diagnostic>> build_image(const std::string& text, const std::vector<std::string>& language, bool checked,
                                            const fs::path& image, const fs::path& blocks) {
  std::vector<std::string> command = {kClang};
  append(command, language);
  append(command, {"-", "-O2", "-fPIC"});
  if (!checked) {
    append(command, {"-shared", "-o", image.string()});
    const ProcessResult clang = run_process(command, text);
    const auto messages = parse_messages(clang.errors);
    if (clang.exit_code != 0) return compile_error(shader_errors(messages), clang);
    return uninitialised(messages);
  }
  append(command, checking_flags());
  append(command, {"-S", "-emit-llvm", "-o", "-"});
  const ProcessResult clang = run_process(command, text);
  const auto messages = parse_messages(clang.errors);
  if (clang.exit_code != 0) return compile_error(shader_errors(messages), clang);
  const InstrumentedIr ir = instrument(clang.output);
  if (!ir.errors.empty()) return Error{to_text(ir.errors)};
  const ProcessResult code =
      run_process({kClang, "-x", "ir", "-", "-O2", "-Xclang", "-disable-llvm-passes", "-fPIC", kTarget[0], kTarget[1],
                   kTarget[2], "-shared", "-Wno-everything", "-o", image.string()},
                  ir.text);
  if (code.exit_code != 0) return compile_error({}, code);
  std::ostringstream table;
  for (const OperationCounts& counts : ir.blocks) {
    for (const uint32_t n : counts) table << n << ' ';
    table << '\n';
  }
  if (!write_file(blocks, table.str())) return Error{image.string() + ": cannot be written"};
  return uninitialised(messages);
}

std::string warnings_text(const std::vector<Diagnostic>& warnings) {
  std::string text;
  for (const Diagnostic& w : warnings) text += w.file + "\n" + std::to_string(w.line) + "\n" + w.message + "\n";
  return text;
}

std::vector<Diagnostic> read_warnings(const fs::path& path) {
  std::vector<Diagnostic> warnings;
  std::ifstream in(path);
  Diagnostic w;
  for (std::string line; std::getline(in, w.file) && std::getline(in, line) && std::getline(in, w.message);) {
    w.line = static_cast<uint32_t>(std::stoul(line));
    warnings.push_back(w);
  }
  return warnings;
}

}  // namespace

Result<Preprocessed> preprocess(const std::string& name, const std::string& text, const CompileOptions& options) {
  auto folder = cache_folder(options);
  if (!folder) return folder.error();
  std::vector<std::string> command = {kClang,
                                      "-E",
                                      "-x",
                                      "c++",
                                      "-",
                                      "-std=c++17",
                                      "-nostdinc",
                                      "-nostdinc++",
                                      "-isystem",
                                      kPrelude + "/metal",
                                      "-D__METAL__=1",
                                      "-D__METAL_VERSION__=" + std::string(options.language >= 17 ? "400" : "320"),
                                      "-D__HAVE_BFLOAT__=1",
                                      "-DMETAL_FUNC=inline __attribute__((always_inline))",
                                      "-U__x86_64__",
                                      "-U__linux__",
                                      "-fno-caret-diagnostics",
                                      "-fno-color-diagnostics"};
  const fs::path parent = fs::path(name).parent_path();
  command.push_back("-iquote" + (parent.empty() ? std::string(".") : parent.string()));
  for (const std::string& include : options.include_folders) command.push_back("-I" + include);
  for (const std::string& define : options.defines) command.push_back("-D" + define);
  const ProcessResult clang = run_process(command, "# 1 \"" + name + "\"\n" + text);
  if (clang.exit_code != 0) return compile_error(shader_errors(parse_messages(clang.errors)), clang);
  if (auto allowed = check_language(clang.output, options, folder.value()); !allowed) return allowed.error();
  const ConstantLiterals none;
  Rewritten rewritten = rewrite(tokenize(clang.output), Rewriting::kCompile, none);
  if (!rewritten.errors.empty()) return Error{to_text(rewritten.errors)};
  return Preprocessed{clang.output, std::move(rewritten.kernels), std::move(rewritten.constants), ""};
}

Result<ImageFile> compile(const Preprocessed& source, const std::string& kernel, const ConstantLiterals& constants,
                          bool checked, const CompileOptions& options) {
  auto folder = cache_folder(options);
  if (!folder) return folder.error();
  std::string text;
  std::vector<std::string> language = {"-x", "ir", kTarget[0], kTarget[1], kTarget[2], "-Wno-everything"};
  if (!source.metallib.empty()) {
    auto ir = metallib_ir(source.metallib, kernel, constants, checked, options);
    if (!ir) return ir.error();
    text = ir.take();
  } else {
    Rewritten rewritten = rewrite(tokenize(source.text), Rewriting::kCompile, constants);
    if (!rewritten.errors.empty()) return Error{to_text(rewritten.errors)};
    text = std::move(rewritten.text);
    language = {"-x", "c++", "-include", kPrelude + "/msl/prelude.h"};
    append(language, language_flags(options));
  }
  const std::string key =
      digest(prelude_digest() + (checked ? "checked" : "fast") + join(language) + join(checking_flags()) + text);
  const fs::path image = folder.value() / (key + ".so"), blocks = folder.value() / (key + ".blocks"),
                 warnings = folder.value() / (key + ".warnings");
  if (!fs::exists(image)) {
    // The image appears last: where it is, the files beside it are.
    const fs::path built = temporary_name(image);
    auto found = build_image(text, language, checked, built, blocks);
    if (!found) return found.error();
    if (!write_file(warnings, warnings_text(found.value())) || !publish(built, image))
      return Error{image.string() + ": cannot be written"};
  }
  return ImageFile{image.string(), checked ? blocks.string() : std::string(), read_warnings(warnings)};
}

}  // namespace metal_on_cpu
