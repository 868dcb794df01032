// The shaders, which the assembler embeds: no script needs to run, so that the Swift package, too,
// is built of this file. Each #include "..." is replaced by the file at run time.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "backends/metal/metal_device.h"

// The folder of the shaders, with a '/'. The Swift package has the top folder among its include
// paths, where the assembler looks, too. A compiler notes what __has_include finds among what the
// object depends on, and .incbin it does not see.
#ifndef MARLIN_SHADERS
#define MARLIN_SHADERS "shaders/"
// clang-format off
#if !(__has_include("shaders/metal/activations.h") && \
      __has_include("shaders/metal/constants.h") && \
      __has_include("shaders/metal/decode.h") && \
      __has_include("shaders/metal/epilogue.h") && \
      __has_include("shaders/metal/finish.metal") && \
      __has_include("shaders/metal/gemv.metal") && \
      __has_include("shaders/metal/instances.h") && \
      __has_include("shaders/metal/prepare.metal") && \
      __has_include("shaders/metal/product.h") && \
      __has_include("shaders/metal/regdecode.metal") && \
      __has_include("shaders/metal/route.metal") && \
      __has_include("shaders/metal/scales.h") && \
      __has_include("shaders/metal/unpack.metal") && \
      __has_include("shaders/metal4/regdecode_nax.metal") && \
      __has_include("shaders/metal4/regdecode_tensor.metal") && \
      __has_include("shaders/common/arguments.h") && \
      __has_include("shaders/common/exact.h") && \
      __has_include("shaders/common/layout.h"))
#error "the folder of shaders/ is not among the include paths"
#endif
// clang-format on
#endif

// All files of the folders shaders/metal, shaders/metal4 and shaders/common that shaders are made
// of: headers, and files of kernels with ShaderFile::kernels.
#define MARLIN_HEADERS(FILE)               \
  FILE(activations, "metal/activations.h") \
  FILE(constants, "metal/constants.h")     \
  FILE(decode, "metal/decode.h")           \
  FILE(epilogue, "metal/epilogue.h")       \
  FILE(instances, "metal/instances.h")     \
  FILE(product, "metal/product.h")         \
  FILE(scales, "metal/scales.h")           \
  FILE(arguments, "common/arguments.h")    \
  FILE(exact, "common/exact.h")            \
  FILE(layout, "common/layout.h")
#define MARLIN_KERNELS(FILE)                               \
  FILE(finish, "metal/finish.metal", "finish")             \
  FILE(gemv, "metal/gemv.metal", "gemv")                   \
  FILE(prepare, "metal/prepare.metal", "quantize gather")  \
  FILE(regdecode, "metal/regdecode.metal", "regdecode")    \
  FILE(route, "metal/route.metal", "route")                \
  FILE(unpack, "metal/unpack.metal", "unpack")             \
  FILE(regdecode_nax, "metal4/regdecode_nax.metal", "nax") \
  FILE(regdecode_tensor, "metal4/regdecode_tensor.metal", "tensor")

// An end that is no symbol of its own, so that Apple's linker keeps it where it is.
#if defined(__APPLE__)
#define MARLIN_SECTION ".section __TEXT,__const\n.p2align 4\n"
#define MARLIN_END_SECTION ".text\n"
#define MARLIN_SYMBOL(name) "_marlin_" name
#define MARLIN_END(name) ".alt_entry " MARLIN_SYMBOL(name) "\n" MARLIN_SYMBOL(name)
#else
#define MARLIN_SECTION ".pushsection .rodata\n.p2align 4\n"
#define MARLIN_END_SECTION ".popsection\n"
#define MARLIN_SYMBOL(name) "marlin_" name
#define MARLIN_END(name) MARLIN_SYMBOL(name)
#endif
// Symbols local to the object: nothing is declared global.
#define MARLIN_EMBED(name, what)                                                          \
  asm(MARLIN_SECTION MARLIN_SYMBOL(#name) ":\n" what MARLIN_END(                          \
      #name "_end") ":\n.byte 0\n" MARLIN_END_SECTION);                                   \
  extern "C" {                                                                            \
  [[gnu::visibility("hidden")]] extern const char marlin_##name[], marlin_##name##_end[]; \
  }
#define MARLIN_EMBED_TEXT(name, path, ...) \
  MARLIN_EMBED(shader_##name, ".incbin \"" MARLIN_SHADERS path "\"\n")
// A build with a compiler of Metal's says where what it made is, a file for each file of kernels.
#ifdef MARLIN_LIBRARIES
#define MARLIN_EMBED_LIBRARY(name, ...) \
  MARLIN_EMBED(library_##name, ".incbin \"" MARLIN_LIBRARIES #name ".metallib\"\n")
#else
#define MARLIN_EMBED_LIBRARY(name, ...) MARLIN_EMBED(library_##name, "")
#endif
MARLIN_HEADERS(MARLIN_EMBED_TEXT)
MARLIN_KERNELS(MARLIN_EMBED_TEXT)
MARLIN_KERNELS(MARLIN_EMBED_LIBRARY)

namespace metal_marlin::metal {
namespace {

#define MARLIN_TEXT(name) \
  std::string_view(marlin_##name, static_cast<size_t>(marlin_##name##_end - marlin_##name))

std::string_view text_of(std::string_view path) {
#define MARLIN_IS(name, its_path, ...) \
  if (path == its_path) return MARLIN_TEXT(shader_##name);
  MARLIN_HEADERS(MARLIN_IS)
  MARLIN_KERNELS(MARLIN_IS)
  return {};
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
  std::string_view rest = text_of(path);
  out += "#line 1 \"" + name + "\"\n";
  for (int line = 1; !rest.empty(); ++line) {
    const size_t length = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view text = rest.substr(0, length);
    rest.remove_prefix(length);
    if (text.starts_with(kInclude)) {
      const std::string_view included = text.substr(kInclude.size());
      flatten(resolved(path, included.substr(0, included.find('"'))), seen, out);
      out += "#line " + std::to_string(line + 1) + " \"" + name + "\"\n";
    } else {
      out += text == "#pragma once\n" ? "\n" : text;
    }
  }
}

std::string flattened(std::string_view path) {
  std::set<std::string> seen;
  std::string text;
  flatten(path, seen, text);
  return text;
}

}  // namespace

Shaders embedded_shaders() {
#define MARLIN_FLAT(name, path, kernels) flattened(path),
  static const std::string kTexts[] = {MARLIN_KERNELS(MARLIN_FLAT)};
#define MARLIN_FILE(name, path, kernels) \
  {kernels, *text++, std::as_bytes(std::span(MARLIN_TEXT(library_##name)))},
  static const std::vector<ShaderFile> kFiles = [text = std::begin(kTexts)]() mutable {
    return std::vector<ShaderFile>{MARLIN_KERNELS(MARLIN_FILE)};
  }();
  return kFiles;
}

}  // namespace metal_marlin::metal
