#include "tensor_names.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace llm {
namespace {

namespace fs = std::filesystem;

// The numbers and texts of one file, in order.
class Reader {
 public:
  explicit Reader(const fs::path& path)
      : path_(path), size_(fs::file_size(path)), in_(path, std::ios::binary) {}

  template <class T>
  T number() {
    T value{};
    in_.read(reinterpret_cast<char*>(&value), sizeof value);
    check();
    return value;
  }
  std::string text(uint64_t bytes) {
    if (bytes > size_) fail();
    std::string found(bytes, '\0');
    in_.read(found.data(), static_cast<std::streamsize>(bytes));
    check();
    return found;
  }
  std::string text() { return text(number<uint64_t>()); }
  void skip(uint64_t count, uint64_t bytes = 1) {
    if (count > size_ / bytes) fail();
    in_.ignore(static_cast<std::streamsize>(count * bytes));
    check();
  }
  [[noreturn]] void fail() const {
    throw std::runtime_error(path_.string() + ": the names of its tensors cannot be read");
  }

 private:
  void check() const {
    if (!in_) fail();
  }
  fs::path path_;
  uint64_t size_;
  std::ifstream in_;
};

constexpr uint32_t kText = 8, kArray = 9;

void skip_values(Reader& in, uint32_t type, uint64_t count) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  if (type >= std::size(kBytes) || type == kArray) in.fail();
  for (; type == kText && count > 0; --count) in.skip(in.number<uint64_t>());
  if (type != kText) in.skip(count, kBytes[type]);
}

// The parts of a split file lie beside each other: NAME-00001-of-00003.gguf. Returns how many there
// are.
uint64_t names_of_gguf(const fs::path& path, std::vector<std::string>& names) {
  Reader in(path);
  in.skip(8);  // the magic and the version
  const auto tensors = in.number<uint64_t>(), values = in.number<uint64_t>();
  uint64_t parts = 1;
  for (uint64_t i = 0; i < values; ++i) {
    const std::string key = in.text();
    const auto type = in.number<uint32_t>();
    if (key == "split.count" && (type == 2 || type == 3)) {
      parts = in.number<uint16_t>();
    } else if (type == kArray) {
      const auto element = in.number<uint32_t>();
      skip_values(in, element, in.number<uint64_t>());
    } else {
      skip_values(in, type, 1);
    }
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    names.push_back(in.text());
    in.skip(in.number<uint32_t>(), 8);
    in.skip(12);  // type and offset
  }
  return parts;
}

void names_of_safetensors(const fs::path& path, std::vector<std::string>& names) {
  Reader in(path);
  const auto header = nlohmann::json::parse(in.text(), nullptr, false);
  if (!header.is_object()) in.fail();
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") names.push_back(name);
}

void names_of_folder(const fs::path& folder, std::vector<std::string>& names) {
  std::ifstream in(folder / "model.safetensors.index.json");
  const auto index = nlohmann::json::parse(in, nullptr, false);
  if (index.is_object() && index.contains("weight_map") && index["weight_map"].is_object()) {
    for (const auto& [name, file] : index["weight_map"].items()) names.push_back(name);
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") names_of_safetensors(entry.path(), names);
  }
}

}  // namespace

std::vector<std::string> tensor_names(const std::string& path) {
  std::vector<std::string> names;
  if (fs::is_directory(path)) {
    names_of_folder(path, names);
  } else if (path.ends_with(".safetensors")) {
    names_of_safetensors(path, names);
  } else if (const uint64_t parts = names_of_gguf(path, names); parts > 1) {
    const std::string first = path.substr(0, path.rfind("-00001-of-"));
    for (uint64_t part = 2; part <= parts; ++part) {
      char end[32];
      std::snprintf(end, sizeof end, "-%05u-of-%05u.gguf", static_cast<unsigned>(part),
                    static_cast<unsigned>(parts));
      names_of_gguf(first + end, names);
    }
  }
  return names;
}

}  // namespace llm
