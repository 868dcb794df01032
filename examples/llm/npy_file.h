// A NumPy file of float32, which appears whole or not at all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace llm {

/// Written under a temporary name, which the destructor removes; commit() gives it its own. What is
/// there stays: a regular file unless `force` is set, and always what is no regular file (a link, a
/// pipe) and a file of `inputs`, or of a folder of them. Members throw std::runtime_error.
class NpyFile {
 public:
  NpyFile(std::string path, bool force, std::vector<std::string> inputs);
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  /// The head, before any values.
  void begin(size_t rows, int64_t columns);
  void write(std::span<const float> values);
  void commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void put(const void* data, size_t bytes);
  bool must_replace() const;
  [[noreturn]] void refuse(const std::string& why) const;

  std::string path_, temporary_;
  bool force_;
  std::vector<std::string> inputs_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace llm
