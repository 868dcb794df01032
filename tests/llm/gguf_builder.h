// Heads of GGUF files, byte by byte.
#pragma once

#include <unistd.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/llm/gguf.h"

namespace llm {

class GgufBuilder {
 public:
  explicit GgufBuilder(uint32_t version = 3) { raw(uint32_t{0x46554747}).raw(version).raw(uint64_t{0}).raw(uint64_t{0}); }

  GgufBuilder& text(const std::string& key, const std::string& value) { return entry(key, 8).string(value); }
  template <class T>
  GgufBuilder& number(const std::string& key, uint32_t type, T value) {
    return entry(key, type).raw(value);
  }
  GgufBuilder& numbers(const std::string& key, const std::vector<int32_t>& values) {
    entry(key, 9).raw(uint32_t{5}).raw(uint64_t{values.size()});
    for (const int32_t value : values) raw(value);
    return *this;
  }
  GgufBuilder& floats(const std::string& key, const std::vector<float>& values) {
    entry(key, 9).raw(uint32_t{6}).raw(uint64_t{values.size()});
    for (const float value : values) raw(value);
    return *this;
  }
  GgufBuilder& texts(const std::string& key, const std::vector<std::string>& values) {
    entry(key, 9).raw(uint32_t{8}).raw(uint64_t{values.size()});
    for (const std::string& value : values) string(value);
    return *this;
  }
  /// A key and a type; the value has to follow.
  GgufBuilder& entry(const std::string& key, uint32_t type) {
    uint64_t count;
    std::memcpy(&count, &bytes_[16], 8);
    ++count;
    std::memcpy(&bytes_[16], &count, 8);
    return string(key).raw(type);
  }
  GgufBuilder& string(const std::string& value) {
    raw(uint64_t{value.size()});
    bytes_ += value;
    return *this;
  }
  template <class T>
  GgufBuilder& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }

  std::string& bytes() { return bytes_; }
  Metadata read() const { return parse(bytes_); }
  /// Through a file of its own, which only the mapping keeps.
  static Metadata parse(const std::string& bytes) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("metal-marlin-llm-" + std::to_string(getpid()));
    const fs::path path = folder / "test.gguf";
    fs::create_directories(folder);
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      Metadata metadata(path.string());
      fs::remove_all(folder);
      return metadata;
    } catch (const std::exception&) {
      fs::remove_all(folder);
      throw;
    }
  }

 private:
  std::string bytes_;
};

}  // namespace llm
