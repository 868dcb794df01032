#include "checkpoints/file_kind.h"

#include <algorithm>

#include "base/utf8.h"

namespace metal_marlin {
namespace {

struct Magic {
  std::string_view bytes;
  const char* kind;
  size_t at = 0;
};
using namespace std::string_view_literals;

constexpr Magic kMagics[] = {
    {"version https://git-lfs"sv, "a Git LFS pointer in place of the file: run git lfs pull"},
    {"\x1f\x8b"sv, "gzip data: unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data: unpack it first"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data: unpack it first"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive: unpack it first"},
    {"BZh"sv, "bzip2 data: unpack it first"},
    {"PK\x03\x04"sv,
     "a ZIP archive or a pickle of PyTorch (.bin, .pt), which is not read: save it as "
     "safetensors"},
    {"ustar"sv, "a tar archive: unpack it first", 257},
    {"\x93NUMPY"sv, "a NumPy array"},
    {"\x89HDF\r\n"sv, "an HDF5 file"},
    {"TFL3"sv, "a TensorFlow Lite model", 4},
    {"lmgg"sv, "a GGML file from before GGUF: convert it to GGUF"},
    {"fmgg"sv, "a GGML file from before GGUF: convert it to GGUF"},
    {"tjgg"sv, "a GGML file from before GGUF: convert it to GGUF"},
    {"\x7f"
     "ELF"sv,
     "a program"},
};
constexpr const char* kPickle =
    "a pickle of PyTorch (.bin, .pt), which is not read: save it as safetensors";
constexpr const char* kOnnx = "an ONNX model, which is not read";

bool is_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\n' || c == '\r' || c == '\t' || static_cast<uint8_t>(c) >= 0x20;
  });
}

std::string_view without_space(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

/// 0x80, the version of the protocol and the first operation of a pickle.
bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5 &&
         "}](cXK\x8a\x95)N\x8c"sv.find(bytes[2]) != std::string_view::npos;
}

/// The version of the format as the first field, and another field.
bool is_onnx(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == 8 && bytes[1] > 0 && bytes[1] < 32 &&
         "\0\x12\x1a\x22\x2a\x3a\x42"sv.find(bytes[2]) != std::string_view::npos;
}

std::string of_text(std::string_view text) {
  std::string start;
  for (const char c : text.substr(0, 9)) start += small_letter(c);
  if (start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<head"))
    return "a web page (HTML) in place of the file: download the file itself";
  if (start.starts_with("<?xml")) return "an XML text in place of the file";
  if (start.starts_with('{') || start.starts_with('[')) return "a JSON text";
  const size_t line = std::min<size_t>({text.find_first_of("\r\n"), text.size(), 40});
  return "a text in place of the file: '" + std::string(text.substr(0, line)) + "'";
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

std::string other_kind(std::span<const std::byte> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()),
                             std::min<size_t>(bytes.size(), 512));
  if (all.empty()) return "an empty file";
  for (const Magic& magic : kMagics)
    if (all.size() > magic.at && all.substr(magic.at).starts_with(magic.bytes)) return magic.kind;
  if (is_pickle(all)) return kPickle;
  if (is_onnx(all)) return kOnnx;
  const std::string_view text = without_space(all);
  return text.size() > 8 && is_text(text) ? of_text(text) : "";
}

Status expect_json(std::string_view file, std::string_view text) {
  const std::string_view first = without_space(text.substr(0, 64));
  const bool may_be =
      !first.empty() && "{[\"-0123456789tfnNI"sv.find(first[0]) != std::string_view::npos;
  if (may_be) return {};
  const std::string kind = other_kind(std::as_bytes(std::span(text.data(), text.size())));
  if (kind.empty()) return {};
  return Status::error(MARLIN_E_FORMAT, "%.*s: byte 0: expected JSON, found %s",
                       static_cast<int>(std::min<size_t>(file.size(), 80)), file.data(),
                       kind.c_str());
}

std::string other_folder(const std::string& path, const std::vector<std::string>& names) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("snapshots") && has("blobs"))
    return "; this is a folder of a hub's cache: name a folder in '" +
           files::as_folder(path.substr(0, 80)) + "snapshots'";
  for (const std::string& name : names) {
    const std::string_view shown = std::string_view(name).substr(0, 60);
    const auto found = [&](const char* what) {
      return "; found " + std::string(what) + " ('" + std::string(shown) + "')";
    };
    if (name.starts_with("models--"))
      return found("a hub's cache: name a folder in 'snapshots' of");
    if (ends_with_any(name, {".bin", ".pt", ".pth", ".ckpt", ".pkl"})) return found(kPickle);
    if (ends_with_any(name, {".onnx", ".onnx_data"})) return found(kOnnx);
    if (ends_with_any(name, {".gz", ".zst", ".xz", ".zip", ".tar", ".7z"}))
      return found("packed data: unpack it first");
    if (ends_with_any(name, {".h5", ".msgpack", ".tflite", ".npz", ".mlmodel"}))
      return found("a model that is not read");
  }
  return "";
}

std::string other_path(std::string_view path) {
  if (path.find("://") != std::string_view::npos) return "this is an address: download it first";
  for (const std::string_view hub : {"hf.co/", "huggingface.co/", "modelscope.cn/", "ollama.com/"})
    if (path.starts_with(hub)) return "this is an address without https://: download it first";
  // "org/model:Q4_K_M" and "model:8b"; one letter is a drive of Windows.
  const size_t tag = path.rfind(':');
  const bool has_tag = tag != std::string_view::npos && tag > 1 && tag + 1 < path.size();
  if (has_tag) path = path.substr(0, tag);
  const size_t slash = path.find('/');
  const bool one_slash = slash != std::string_view::npos && slash > 0 && slash + 1 < path.size() &&
                         path.find('/', slash + 1) == std::string_view::npos;
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return (c >= '0' && c <= '9') || (small_letter(c) >= 'a' && small_letter(c) <= 'z') ||
           c == '-' || c == '_' || c == '.' || c == '/';
  });
  const bool is_file = ends_with_any(path, {".safetensors", ".gguf", ".json", ".marlin"});
  const bool one_name = has_tag && slash == std::string_view::npos;
  if (!(one_slash || one_name) || !plain || is_file || path.starts_with('.')) return "";
  return "if this is the name of a model on a hub, download it first and name its folder";
}

}  // namespace metal_marlin
