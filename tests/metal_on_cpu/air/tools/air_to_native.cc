// air-to-native FILE.metallib --kernel NAME ... : kernels that Apple's compiler compiled, as LLVM IR for this processor.
#include <fnmatch.h>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "../src/convert.h"

namespace {

using namespace metal_on_cpu;
using namespace metal_on_cpu::air;

constexpr const char* kUsage =
    R"(usage: air-to-native FILE.metallib --kernel NAME [--output FILE.ll] [--checked] [--flush-to-zero]
                     [--contract TYPE,...] [--constant INDEX|NAME=VALUE]...
       air-to-native FILE.metallib --list [PATTERN]
       air-to-native FILE.metallib --verify [PATTERN] [--every N]

  --contract   whose a * b + c is rounded once: off, float (the default), all, or types: f32, f16, bf16, none
  --constant   a function constant: true, false, an integer or a number with a point
  --verify     converts the kernels that match and says which cannot be; constants without a value are zero

Clang makes an image of the output:   clang-19 -x ir FILE.ll -O2 -fPIC -shared -o FILE.so
Exit status: 0 all is well, 1 something failed, 2 wrong usage.
)";

struct Arguments {
  std::string file, kernel, output, pattern = "*";
  bool list = false, verify = false, wrong = false;
  size_t every = 1;
  ConvertOptions options;
};

bool take_contraction(const std::string& text, Contraction& c) {
  c = {false, false, false};
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string type = text.substr(at, end - at);
    if (type == "float" || type == "all" || type == "off")  // the modes of CompileOptions::contraction
      c = {type != "off", type == "all", type == "all"};
    else if (type == "f32")
      c.f32 = true;
    else if (type == "f16")
      c.f16 = true;
    else if (type == "bf16")
      c.bf16 = true;
    else if (type != "none")
      return false;
    at = end + 1;
  }
  return true;
}

bool take_constant(const std::string& text, ConvertOptions& options) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) return false;
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
  char *key_end = nullptr, *end = nullptr;
  const unsigned long index = std::strtoul(key.c_str(), &key_end, 10);
  ConstantValue v;
  if (value == "true" || value == "false") {
    v = value == "true";
  } else if (value.find('.') != std::string::npos) {
    v = std::strtod(value.c_str(), &end);
  } else {
    v = static_cast<int64_t>(std::strtoll(value.c_str(), &end, 0));
  }
  if (end && *end) return false;
  if (*key_end)
    options.named_constants[key] = v;
  else
    options.constants[static_cast<uint32_t>(index)] = v;
  return true;
}

Arguments read(int count, char** values) {
  Arguments a;
  for (int i = 1; i < count && !a.wrong; ++i) {
    const std::string word = values[i];
    const bool more = i + 1 < count;
    const auto next = [&] { return std::string(values[++i]); };
    if (word == "--checked")
      a.options.checked = true;
    else if (word == "--flush-to-zero")
      a.options.flush_to_zero = true;
    else if (word == "--list" || word == "--verify") {
      (word == "--list" ? a.list : a.verify) = true;
      if (more && values[i + 1][0] != '-') a.pattern = next();
    } else if (!more && word.starts_with("--"))
      a.wrong = true;
    else if (word == "--kernel")
      a.kernel = next();
    else if (word == "--output")
      a.output = next();
    else if (word == "--every")
      a.every = std::strtoul(values[++i], nullptr, 10);
    else if (word == "--contract")
      a.wrong = !take_contraction(next(), a.options.contraction);
    else if (word == "--constant")
      a.wrong = !take_constant(next(), a.options);
    else if (word.starts_with("-") || !a.file.empty())
      a.wrong = true;
    else
      a.file = word;
  }
  a.wrong = a.wrong || a.file.empty() || a.every == 0 || (a.kernel.empty() && !a.list && !a.verify);
  return a;
}

int fail(const std::string& message) {
  std::cerr << "air-to-native: " << message << "\n";
  return 1;
}

Result<std::string> convert(const Metallib& library, const Function& f, const ConvertOptions& options) {
  const auto module = library.module(f);
  if (const auto* wrong = std::get_if<ReadError>(&module)) return Error{wrong->text()};
  return air_to_ir(std::get<Bytes>(module), options);
}

int verify(const Metallib& library, const Arguments& a) {
  ConvertOptions options = a.options;
  options.absent_constants_are_zero = true;
  size_t good = 0, bad = 0, number = 0;
  for (const Function& f : library.functions()) {
    if (fnmatch(a.pattern.c_str(), f.name.c_str(), 0) != 0 || number++ % a.every != 0) continue;
    const auto ir = convert(library, f, options);
    if (!ir) std::cout << f.name << ": " << ir.message() << "\n";
    ++(ir ? good : bad);
  }
  std::cout << good << " kernels converted and verified, " << bad << " not\n";
  return bad != 0 || good == 0;
}

}  // namespace

int main(int count, char** values) {
  const Arguments a = read(count, values);
  if (a.wrong) {
    std::cerr << kUsage;
    return 2;
  }
  const auto opened = Metallib::open(a.file);
  if (const auto* wrong = std::get_if<ReadError>(&opened)) return fail(wrong->text());
  const auto& library = std::get<Metallib>(opened);
  if (a.verify) return verify(library, a);
  if (a.list) {
    for (const Function& f : library.functions()) {
      if (fnmatch(a.pattern.c_str(), f.name.c_str(), 0) == 0) std::cout << f.name << "\n";
    }
    return 0;
  }
  const Function* f = library.find(a.kernel);
  if (!f) return fail(a.file + ": there is no function '" + a.kernel + "'");
  const auto ir = convert(library, *f, a.options);
  if (!ir) return fail(a.kernel + ": " + ir.message());
  if (a.output.empty()) {
    std::cout << ir.value();
  } else if (!(std::ofstream(a.output, std::ios::binary) << ir.value())) {
    return fail(a.output + ": cannot be written");
  }
  return 0;
}
