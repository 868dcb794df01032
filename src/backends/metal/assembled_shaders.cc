// The shaders for builds that run no script, such as the Swift package's. The assembler embeds the
// files, and each #include "..." is replaced at run time, as cmake/embed_shaders.cmake does it.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "backends/metal/metal_device.h"

// All files of the folders shaders/metal, shaders/metal4 and shaders/common that shaders are made
// of. The package has the top folder among its include paths, where the assembler looks, too.
#define MARLIN_SHADER_FILES(FILE)               \
  FILE(activations, "metal/activations.h")      \
  FILE(constants, "metal/constants.h")          \
  FILE(decode, "metal/decode.h")                \
  FILE(epilogue, "metal/epilogue.h")            \
  FILE(finish, "metal/finish.metal")            \
  FILE(gemv, "metal/gemv.metal")                \
  FILE(instances, "metal/instances.h")          \
  FILE(prepare, "metal/prepare.metal")          \
  FILE(product, "metal/product.h")              \
  FILE(regdecode, "metal/regdecode.metal")      \
  FILE(route, "metal/route.metal")              \
  FILE(scales, "metal/scales.h")                \
  FILE(unpack, "metal/unpack.metal")            \
  FILE(tensor, "metal4/regdecode_tensor.metal") \
  FILE(arguments, "common/arguments.h")         \
  FILE(exact, "common/exact.h")                 \
  FILE(layout, "common/layout.h")

#if defined(__APPLE__)
#define MARLIN_SECTION ".section __TEXT,__const\n"
#define MARLIN_END_SECTION ".text\n"
#define MARLIN_SYMBOL(name) "_marlin_shader_" name
#else
#define MARLIN_SECTION ".pushsection .rodata\n"
#define MARLIN_END_SECTION ".popsection\n"
#define MARLIN_SYMBOL(name) "marlin_shader_" name
#endif
// Local to the object: nothing is declared global.
#define MARLIN_EMBED(name, path)                                                             \
  asm(MARLIN_SECTION MARLIN_SYMBOL(#name) ":\n.incbin \"shaders/" path "\"\n" MARLIN_SYMBOL( \
      #name) "_end:\n.byte 0\n" MARLIN_END_SECTION);                                         \
  extern "C" {                                                                               \
  [[gnu::visibility("hidden")]] extern const char marlin_shader_##name[],                    \
      marlin_shader_##name##_end[];                                                          \
  }
MARLIN_SHADER_FILES(MARLIN_EMBED)

namespace metal_marlin::metal {
namespace {

struct File {
  std::string_view path, text;
};

std::span<const File> files() {
#define MARLIN_FILE(name, path) \
  {path,                        \
   {marlin_shader_##name,       \
    static_cast<size_t>(marlin_shader_##name##_end - marlin_shader_##name)}},
  static const File kFiles[] = {MARLIN_SHADER_FILES(MARLIN_FILE)};
  return kFiles;
}

/// "metal/../common/layout.h" as "common/layout.h".
std::string resolved(std::string_view includer, std::string_view name) {
  std::string folder(includer.substr(0, includer.find('/') + 1));
  if (name.starts_with("../")) return std::string(name.substr(3));
  return folder.append(name);
}

/// Appends a file in which each file that was not seen yet stands where it is included.
void flatten(std::string_view path, std::set<std::string>& seen, std::string& out) {
  constexpr std::string_view kInclude = "#include \"";
  if (!seen.emplace(path).second) return;
  const std::string name(path.substr(path.find('/') + 1));
  std::string_view rest;
  for (const File& file : files())
    if (file.path == path) rest = file.text;
  out += "#line 1 \"" + name + "\"\n";
  bool first = true;  // of what the script of CMake takes as one piece
  for (int line = 1; !rest.empty(); ++line) {
    const size_t length = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view text = rest.substr(0, length);
    rest.remove_prefix(length);
    if (text.starts_with(kInclude)) {
      if (first) out += "\n";
      const std::string_view included = text.substr(kInclude.size());
      flatten(resolved(path, included.substr(0, included.find('"'))), seen, out);
      out += "#line " + std::to_string(line + 1) + " \"" + name + "\"\n";
    } else {
      out += text == "#pragma once\n" ? "\n" : text;
    }
    first = text.starts_with(kInclude);
  }
}

std::vector<std::string> flattened(std::string_view folder) {
  std::vector<std::string> made;
  for (const File& file : files()) {
    if (!file.path.starts_with(folder) || !file.path.ends_with(".metal")) continue;
    std::set<std::string> seen;
    flatten(file.path, seen, made.emplace_back());
  }
  return made;
}

}  // namespace

Shaders embedded_shaders() {
  static const std::vector<std::string> kTexts = flattened("metal/"),
                                        kTensorTexts = flattened("metal4/");
  static const std::vector<std::string_view> kSources(kTexts.begin(), kTexts.end()),
      kTensorSources(kTensorTexts.begin(), kTensorTexts.end());
  return {{}, kSources, {}, kTensorSources};
}

}  // namespace metal_marlin::metal
