// The key-values at the head of a GGUF file: hyper-parameters and the tokenizer. The tensors are
// the library's to read.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace llm {

class Metadata {
 public:
  /// Reads GGUF v2 or v3. Throws std::runtime_error with the file, the byte and what was expected
  /// there.
  explicit Metadata(const std::string& path);
  /// The same from any stream of `size` bytes; `name` is for messages.
  Metadata(std::istream& in, uint64_t size, const std::string& name);

  bool has(const std::string& key) const { return values_.contains(key); }
  /// These throw when the key is absent or of another type. Booleans and integers are numbers
  /// (exact up to 2^53).
  double number(const std::string& key) const { return get<double>(key, "a number"); }
  const std::string& text(const std::string& key) const {
    return get<std::string>(key, "a string");
  }
  const std::vector<double>& numbers(const std::string& key) const {
    return get<std::vector<double>>(key, "numbers");
  }
  const std::vector<std::string>& texts(const std::string& key) const {
    return get<std::vector<std::string>>(key, "strings");
  }
  const std::string& file() const { return file_; }

 private:
  using Value = std::variant<double, std::string, std::vector<double>, std::vector<std::string>>;
  template <class T>
  const T& get(const std::string& key, const char* what) const;

  std::string file_;
  std::map<std::string, Value> values_;
};

}  // namespace llm
