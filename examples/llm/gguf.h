// The key-values of a GGUF file: hyper-parameters and the tokenizer.
#pragma once

#include <metal_marlin/metal_marlin.hpp>
#include <string>
#include <vector>

namespace llm {

class Metadata {
 public:
  /// Opens a GGUF file, or the first part of a split one. Throws metal_marlin::error.
  explicit Metadata(const std::string& path) : file_(path), checkpoint_(path) {}

  bool has(const std::string& key) const;
  /// These throw when the key is absent or of another type. Booleans and integers are numbers
  /// (exact up to 2^53).
  double number(const std::string& key) const;
  /// Whether the number is not 0. The key may be absent.
  bool flag(const std::string& key, bool by_default) const {
    return has(key) ? number(key) != 0 : by_default;
  }
  std::string text(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  bool is_number(const std::string& key) const;
  std::vector<std::string> keys() const;
  const std::string& file() const { return file_; }

 private:
  marlin_value value(const std::string& key) const;
  [[noreturn]] void fail(const std::string& key, const char* expected) const;

  std::string file_;
  metal_marlin::checkpoint checkpoint_;
};

}  // namespace llm
