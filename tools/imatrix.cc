#include "imatrix.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "command.h"

namespace metal_marlin::tools {
namespace {

/// Reads a file from its beginning to its end:
///   entries i32, then for each: bytes of its name i32 | name | calls i32 | values i32 | float32
///   each
/// What follows (the last chunk and the name of the data) is not needed.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::error_code none;
    const auto size = std::filesystem::file_size(path, none);
    std::ifstream file(path, std::ios::binary);
    if (none || !file) throw Failure(fmt::format("cannot open {}", path));
    text_.resize(size);  // at once: a text that grows takes several times its bytes
    file.read(text_.data(), static_cast<std::streamsize>(size));
    text_.resize(static_cast<size_t>(file.gcount()));
  }

  /// A number of things of which each takes `bytes` of what is left.
  size_t count(const char* what, size_t bytes) {
    const int32_t number = i32();
    const size_t left = (text_.size() - at_) / bytes;
    if (number >= 1 && static_cast<size_t>(number) <= left) return static_cast<size_t>(number);
    throw Failure(fmt::format("{}: byte {}: expected 1..{} {} of an importance matrix, found {}",
                              path_, at_ - sizeof number, left, what, number));
  }
  int32_t i32() {
    int32_t number = 0;
    std::memcpy(&number, take(sizeof number), sizeof number);
    return number;
  }
  const char* take(size_t bytes) {
    if (text_.size() - at_ < bytes) {
      throw Failure(
          fmt::format("{}: byte {}: expected {} more bytes of an importance matrix, found {}",
                      path_, at_, bytes, text_.size() - at_));
    }
    at_ += bytes;
    return text_.data() + at_ - bytes;
  }

 private:
  const std::string& path_;
  std::string text_;
  size_t at_ = 0;
};

}  // namespace

ImportanceSums read_imatrix(const std::string& path) {
  constexpr size_t kLeastEntry = 17;  // three numbers, a name of a byte and a value
  Reader reader(path);
  ImportanceSums sums;
  for (size_t entries = reader.count("entries", kLeastEntry); entries > 0; --entries) {
    const size_t length = reader.count("bytes of a name", 1);
    const std::string name(reader.take(length), length);
    reader.i32();  // calls: all values of a layer were multiplied by it
    std::vector<float>& values = sums[name];
    values.resize(reader.count("values", sizeof(float)));
    std::memcpy(values.data(), reader.take(values.size() * sizeof(float)),
                values.size() * sizeof(float));
  }
  return sums;
}

}  // namespace metal_marlin::tools
