// Heads of GGUF files: their keys, which the chat reads.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/llm/gguf.h"
#include "model_files.h"

namespace llm {

class GgufBuilder {
 public:
  GgufBuilder& text(const std::string& key, const std::string& value) { return add(key, 8, Writer::text(value)); }
  template <class T>
  GgufBuilder& number(const std::string& key, int32_t type, T value) {
    std::string bytes;
    append(bytes, value);
    return add(key, type, bytes);
  }
  GgufBuilder& numbers(const std::string& key, const std::vector<int32_t>& values) { return array(key, 5, values); }
  GgufBuilder& floats(const std::string& key, const std::vector<float>& values) { return array(key, 6, values); }
  GgufBuilder& texts(const std::string& key, const std::vector<std::string>& values) { return array(key, 8, values); }

  Metadata read() const { return parse(file_.file()); }
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
  using Writer = model_files::GgufWriter;

  template <class T>
  static void append(std::string& to, const T& value) {
    model_files::append(to, value);
  }
  static void append(std::string& to, const std::string& value) { to += Writer::text(value); }
  GgufBuilder& add(const std::string& key, int32_t type, const std::string& value) {
    file_.key(key, type, value);
    return *this;
  }
  template <class T>
  GgufBuilder& array(const std::string& key, uint32_t type, const std::vector<T>& values) {
    std::string bytes;
    append(bytes, type);
    append(bytes, uint64_t{values.size()});
    for (const T& value : values) append(bytes, value);
    return add(key, 9, bytes);
  }

  Writer file_;
};

}  // namespace llm
