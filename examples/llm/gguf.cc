#include "gguf.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF is read as it lies in the file, which is little-endian");

// GGUF's numbers for types (docs/gguf.md of ggml).
enum Type : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kTypes
};
constexpr uint64_t kBytes[kTypes] = {1, 1, 2,  2, 4, 4, 4,
                                     1, 8, 12, 8, 8, 8};  // at least, for strings and arrays

// Hands out what is in a stream, never more: every count is held against the bytes that are left
// before memory is taken.
class Reader {
 public:
  Reader(std::istream& in, uint64_t size, const std::string& name)
      : in_(in), size_(size), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(name_ + ": byte " + std::to_string(at_) + ": " + what);
  }
  template <class T>
  T take() {
    T value;
    read(&value, sizeof value);
    return value;
  }
  /// How many of something follow, each of at least so many bytes.
  uint64_t count(uint64_t bytes_each) {
    const auto n = take<uint64_t>();
    if (n > (size_ - at_) / bytes_each) {
      fail("expected no more than the " + std::to_string(size_ - at_) +
           " bytes that are left, found a count of " + std::to_string(n));
    }
    return n;
  }
  std::string string() {
    std::string s(count(1), '\0');
    read(s.data(), s.size());
    return s;
  }
  double number(uint32_t type) {
    switch (type) {
      case kU8:
        return take<uint8_t>();
      case kI8:
        return take<int8_t>();
      case kU16:
        return take<uint16_t>();
      case kI16:
        return take<int16_t>();
      case kU32:
        return take<uint32_t>();
      case kI32:
        return take<int32_t>();
      case kF32:
        return double{take<float>()};
      case kBool:
        return take<uint8_t>() != 0;
      case kU64:
        return static_cast<double>(take<uint64_t>());
      case kI64:
        return static_cast<double>(take<int64_t>());
      case kF64:
        return take<double>();
      default:
        fail("expected the number of a type below 13 and no array of arrays, found " +
             std::to_string(type));
    }
  }

 private:
  void read(void* to, uint64_t bytes) {
    if (bytes > size_ - at_)
      fail("expected " + std::to_string(bytes) + " more bytes, found the end of the file");
    if (bytes && !in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)))
      fail("cannot be read");
    at_ += bytes;
  }

  std::istream& in_;
  uint64_t size_, at_ = 0;
  const std::string& name_;
};

template <class T, class Take>
std::vector<T> array(uint64_t n, Take take) {
  std::vector<T> all;
  all.reserve(n);
  for (uint64_t i = 0; i < n; ++i) all.push_back(take());
  return all;
}

std::ifstream open(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (std::filesystem::is_directory(path) || !in)
    throw std::runtime_error(path + ": cannot be opened as a GGUF file");
  return in;
}

}  // namespace

Metadata::Metadata(const std::string& path) : file_(path) {
  std::ifstream in = open(path);
  *this = Metadata(in, std::filesystem::file_size(path), path);
}

Metadata::Metadata(std::istream& in, uint64_t size, const std::string& name) : file_(name) {
  Reader reader(in, size, file_);
  if (size < 4 || reader.take<uint32_t>() != 0x46554747)
    throw std::runtime_error(name + ": is not a GGUF file");  // "GGUF"
  const auto version = reader.take<uint32_t>();
  if (version != 2 && version != 3)
    reader.fail("expected GGUF version 2 or 3, found " + std::to_string(version));
  reader.count(24);  // tensors: a name, its dimensions, a type and an offset each
  for (uint64_t left = reader.count(13); left > 0;
       --left) {  // a name, a type and a value of one byte
    const std::string key = reader.string();
    const auto type = reader.take<uint32_t>();
    Value value;
    if (type == kString) {
      value = reader.string();
    } else if (type == kArray) {
      const auto of = reader.take<uint32_t>();
      if (of >= kTypes || of == kArray) reader.number(of);  // says so
      const uint64_t n = reader.count(kBytes[of]);
      if (of == kString)
        value = array<std::string>(n, [&] { return reader.string(); });
      else
        value = array<double>(n, [&] { return reader.number(of); });
    } else {
      value = reader.number(type);
    }
    values_[key] = std::move(value);
  }
}

template <class T>
const T& Metadata::get(const std::string& key, const char* what) const {
  const auto found = values_.find(key);
  if (found == values_.end()) throw std::runtime_error(file_ + ": has no key '" + key + "'");
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw std::runtime_error(file_ + ": key '" + key + "': expected " + what +
                           ", found another type");
}

template const double& Metadata::get(const std::string&, const char*) const;
template const std::string& Metadata::get(const std::string&, const char*) const;
template const std::vector<double>& Metadata::get(const std::string&, const char*) const;
template const std::vector<std::string>& Metadata::get(const std::string&, const char*) const;

}  // namespace llm
