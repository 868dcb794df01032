#include "compiler.h"

#include <filesystem>
#include <sstream>

#include "../beside.h"
#include "cache.h"
#include "clang.h"
#include "messages.h"

namespace metal_on_cpu {
namespace {

namespace fs = std::filesystem;

// The rules of MSL that the host's C++ does not have; asked once for each text.
Result<bool> check_language(const std::string& preprocessed, const CompileOptions& options, const fs::path& folder) {
  const ConstantLiterals none;
  Rewritten checkable = rewrite(tokenize(preprocessed), Rewriting::kCheck, none);
  if (!checkable.errors.empty()) return Error{to_text(checkable.errors)};
  const fs::path passed = folder / (digest(prelude_digest() + checkable.text + std::to_string(options.language)) + ".ok");
  if (fs::exists(passed)) return true;
  const ProcessResult result =
      compile_behind(prelude_path() + "/check/check.h", folder,
                     {"-std=c++" + std::to_string(options.language), "-fdeclspec", "-Wno-everything", "-fno-caret-diagnostics",
                      "-fno-color-diagnostics", "-ferror-limit=0", "-Xclang", "-cl-single-precision-constant"},
                     {"-fsyntax-only"}, checkable.text);
  if (result.exit_code >= 126) return compile_error({}, result);
  const auto errors = language_errors(parse_messages(result.errors), checkable.member_spaces);
  if (!errors.empty()) return Error{to_text(errors)};
  write_file(passed, "");
  return true;
}

// Fast mode has the pass only because it refuses recursion. In checked mode the pass makes the object, too.
Result<bool> build_image(const std::string& text, const Words& language, bool checked, const fs::path& folder,
                         const fs::path& image) {
  const std::string header = prelude_path() + "/msl/prelude.h";
  Words flags = language + Words{"-O2", "-fPIC"};
  if (checked) flags = flags + checking_flags();
  flags.push_back("-fno-optimize-sibling-calls");  // the pass would not see a recursion that became a loop
  Words more = {"-fpass-plugin=" + pass_path(), "-c", "-o", "-"};
  if (checked) more = more + Words{"-emit-llvm", "-Xclang", "-load", "-Xclang", pass_path(), "-mllvm", "-msl-object"};
  const ProcessResult object = compile_behind(header, folder, flags, more, text);
  if (object.exit_code != 0) return compile_error(shader_errors(parse_messages(object.errors)), object);
  const ProcessResult linked = link_shared(object.output, image);
  if (linked.exit_code != 0) return compile_error({}, linked);
  return add_length(image) ? Result<bool>(true) : Error{image.string() + ": cannot be written"};
}

}  // namespace

Result<Preprocessed> preprocess(const std::string& name, const std::string& text, const CompileOptions& options) {
  auto folder = cache_folder(options);
  if (!folder) return folder.error();
  Words command = {"-E",
                   "-x",
                   "c++",
                   "-",
                   "-std=c++17",
                   "-nostdinc",
                   "-nostdinc++",
                   "-isystem",
                   prelude_path() + "/metal",
                   "-D__METAL__=1",
                   "-D__METAL_VERSION__=" + std::string(options.language >= 17 ? "400" : "320"),
                   "-D__HAVE_BFLOAT__=1",
                   "-DMETAL_FUNC=inline __attribute__((always_inline))",
                   "-U__x86_64__",
                   "-U__linux__",
                   "-fno-caret-diagnostics",
                   "-fno-color-diagnostics"};
  if (options.language >= 17) command.push_back("-D__HAVE_TENSOR__=1");
  const fs::path parent = fs::path(name).parent_path();
  command.push_back("-iquote" + (parent.empty() ? std::string(".") : parent.string()));
  for (const std::string& include : options.include_folders) command.push_back("-I" + include);
  for (const std::string& define : options.defines) command.push_back("-D" + define);
  const ProcessResult result = clang(command, "# 1 \"" + name + "\"\n" + text);
  if (result.exit_code != 0) return compile_error(shader_errors(parse_messages(result.errors)), result);
  if (auto allowed = check_language(result.output, options, folder.value()); !allowed) return allowed.error();
  const ConstantLiterals none;
  Rewritten rewritten = rewrite(tokenize(result.output), Rewriting::kCompile, none);
  if (!rewritten.errors.empty()) return Error{to_text(rewritten.errors)};
  return Preprocessed{result.output, std::move(rewritten.kernels), std::move(rewritten.constants)};
}

Result<std::string> compile(const Preprocessed& source, const ImageRequest& request, const CompileOptions& options) {
  auto folder = cache_folder(options);
  if (!folder) return folder.error();
  const Rewritten rewritten =
      rewrite(tokenize(source.text), options.late_constants ? Rewriting::kCompileLate : Rewriting::kCompile, request.constants,
              request.range);
  if (!rewritten.errors.empty()) return Error{to_text(rewritten.errors)};
  const Words language = language_flags(options) + target_flags();
  const std::string key = digest(prelude_digest() + (request.checked ? "checked" : "fast") + join(language) +
                                 join(checking_flags()) + rewritten.text);
  const fs::path image = folder.value() / (key + ".so");
  if (!has_its_length(image)) {
    const fs::path built = temporary_name(image);
    if (auto done = build_image(rewritten.text, language, request.checked, folder.value(), built); !done) return done.error();
    if (!publish(built, image)) return Error{image.string() + ": cannot be written"};
  }
  return image.string();
}

Result<Registers> count_registers(const Preprocessed& source, const ImageRequest& request, const CompileOptions& options) {
  auto folder = cache_folder(options);
  if (!folder) return folder.error();
  const Rewritten rewritten = rewrite(tokenize(source.text), Rewriting::kCompile, request.constants, request.range);
  if (!rewritten.errors.empty()) return Error{to_text(rewritten.errors)};
  const Words flags = language_flags(options) + gpu_flags();
  const fs::path kept = folder.value() / (digest(prelude_digest() + join(flags) + rewritten.text) + ".registers");
  if (!fs::exists(kept)) {
    const ProcessResult made = compile_behind(prelude_path() + "/msl/prelude.h", folder.value(), flags,
                                              {"-fpass-plugin=" + pass_path(), "-S", "-o", "-"}, rewritten.text);
    if (made.exit_code != 0) return compile_error(shader_errors(parse_messages(made.errors)), made);
    const fs::path written = temporary_name(kept);
    std::string numbers;
    for (const char* what : {".vgpr_count:", ".private_segment_fixed_size:"}) {
      const size_t at = made.output.rfind(what);
      if (at == std::string::npos) return Error{std::string("the code for a GPU does not say ") + what};
      numbers += std::to_string(std::stoul(made.output.substr(at + std::string(what).size()))) + " ";
    }
    if (!write_file(written, numbers) || !publish(written, kept)) return Error{kept.string() + ": cannot be written"};
  }
  Registers r;
  std::istringstream(read_file(kept)) >> r.used >> r.memory;
  return r;
}

}  // namespace metal_on_cpu
