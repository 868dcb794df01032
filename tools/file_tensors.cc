#include "file_tensors.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "input_files.h"
#include "json.h"

namespace metal_marlin::tools {
namespace {

constexpr uint64_t kGgufMagic = 0x46554747;  // "GGUF"

/// Numbers of a file, little-endian as the machines that the library runs on.
class Header {
 public:
  explicit Header(const std::string& path)
      : file_(path, std::ios::binary), bytes_(std::filesystem::file_size(path)) {}
  template <class T>
  T next() {
    T value{};
    file_.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string text() {
    const auto length = next<uint64_t>();
    if (length > left()) file_.setstate(std::ios::failbit);
    std::string text(file_ ? length : 0, '\0');
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }
  /// Reads: after each seek, a stream would fill its buffer anew.
  void skip(uint64_t bytes) {
    if (bytes > left()) file_.setstate(std::ios::failbit);
    file_.ignore(static_cast<std::streamsize>(bytes));
  }
  uint64_t at() { return static_cast<uint64_t>(file_.tellg()); }
  uint64_t left() { return file_ ? bytes_ - at() : 0; }
  bool ok() const { return static_cast<bool>(file_); }

 private:
  std::ifstream file_;
  uint64_t bytes_;
};

constexpr uint32_t kText = 8, kArray = 9;

/// Reads a value of a key-value; returns it if it is a u32, else 0.
uint32_t gguf_value(Header& header) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // of each type
  auto type = header.next<uint32_t>();
  uint64_t count = 1;
  const bool is_array = type == kArray;
  if (is_array) {
    type = header.next<uint32_t>();
    count = header.next<uint64_t>();
  }
  if (type == 4 && !is_array) return header.next<uint32_t>();
  if (type < std::size(kBytes) && kBytes[type] != 0 && count <= header.left())
    header.skip(count * kBytes[type]);
  else
    for (; type == kText && count > 0 && header.ok(); --count) header.text();
  return 0;
}

bool add_gguf(Header& header, FileTensors& sum) {
  header.next<uint32_t>();  // magic
  if (header.next<uint32_t>() < 2) return false;
  const auto tensors = header.next<uint64_t>(), values = header.next<uint64_t>();
  uint64_t alignment = 32;
  for (uint64_t i = 0; i < values && header.ok(); ++i) {
    const std::string key = header.text();
    const uint32_t number = gguf_value(header);
    if (key == "general.alignment" && number != 0) alignment = number;
  }
  for (uint64_t i = 0; i < tensors && header.ok(); ++i) {
    header.text();
    header.skip(uint64_t{header.next<uint32_t>()} * sizeof(int64_t));
    header.skip(sizeof(uint32_t) + sizeof(uint64_t));  // type and offset
  }
  if (!header.ok()) return false;
  const uint64_t gap = (alignment - header.at() % alignment) % alignment;
  sum.count += tensors;
  sum.bytes += header.left() - std::min(gap, header.left());
  return true;
}

bool add_safetensors(Header& header, FileTensors& sum) {
  uint64_t names = 0;
  const auto count = [&](const std::string& name) { names += name != "__metadata__"; };
  if (!Json::for_each_key(header.text(), count)) return false;
  sum.count += names;
  sum.bytes += header.left();
  return true;
}

}  // namespace

std::optional<FileTensors> file_tensors(const std::string& path) {
  FileTensors sum;
  for (const std::string& file : tensor_files(path)) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
    Header header(file);
    const bool is_gguf = Header(file).next<uint32_t>() == kGgufMagic;
    if (!(is_gguf ? add_gguf(header, sum) : add_safetensors(header, sum))) return std::nullopt;
  }
  return sum;
}

}  // namespace metal_marlin::tools
