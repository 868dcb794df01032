// What the tests of checkpoints share: files in memory, writers of small files, and decoding whole layers.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/checkpoint.h"
#include "checkpoints/folder.h"
#include "formats/decode.h"

namespace metal_marlin::testing {

/// Files that exist in memory only. Their bytes are copied to exact-size heap blocks, so that the address sanitizer sees a read
/// past the end.
class MemoryFolder final : public Folder {
 public:
  MemoryFolder() = default;
  MemoryFolder(std::initializer_list<std::pair<std::string, std::string>> files) {
    for (const auto& [name, content] : files) add(name, content);
  }
  void add(const std::string& name, const std::string& content) {
    auto block = std::make_unique<std::byte[]>(content.size());
    std::memcpy(block.get(), content.data(), content.size());
    files_[name] = {std::move(block), content.size()};
  }
  Result<std::span<const std::byte>> open(const std::string& name) override {
    const auto at = files_.find(name);
    if (at == files_.end()) return Status::error(MARLIN_E_FILE, "%s: no such file", name.c_str()).with_native(ENOENT);
    return std::span<const std::byte>(at->second.bytes.get(), at->second.size);
  }
  void release(std::span<const std::byte> part) const override {
    if (released != nullptr) released->push_back(part.data());
  }
  std::vector<const std::byte*>* released = nullptr;  ///< where each part that is no longer needed begins

 private:
  struct File {
    std::unique_ptr<std::byte[]> bytes;
    size_t size;
  };
  std::map<std::string, File> files_;
};

inline Result<std::unique_ptr<Checkpoint>> open_memory(std::initializer_list<std::pair<std::string, std::string>> files,
                                                       marlin_layout layout = MARLIN_LAYOUT_AUTO) {
  return open_checkpoint(std::make_unique<MemoryFolder>(files), files.begin()->first, layout);
}

inline std::string data_path(const std::string& name) { return std::string(MARLIN_TEST_DATA) + "/" + name; }

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (const T v : values) append(out, v);
  return out;
}

/// A .safetensors file of this header and these data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  std::string out;
  append(out, static_cast<uint64_t>(header.size()));
  return out + header + data;
}

struct TestTensor {
  std::string name, dtype, shape;  // "2, 3"
  std::string data;
};
inline std::string safetensors(const std::vector<TestTensor>& tensors) {
  std::string header = "{", data;
  for (const TestTensor& t : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[" + t.shape + "],\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + t.data.size()) + "]}";
    data += t.data;
  }
  return safetensors(header + "}", data);
}

/// Writes a GGUF file piece by piece; every field can be given a wrong value.
class GgufWriter {
 public:
  uint32_t magic = 0x46554747, version = 3, alignment = 32;
  uint64_t extra_tensors = 0, extra_keys = 0;  // added to the counts only

  static std::string text(const std::string& s) {
    std::string out;
    append(out, static_cast<uint64_t>(s.size()));
    return out + s;
  }
  void key(const std::string& name, int32_t type, const std::string& value) {
    ++keys_;
    head_ += text(name);
    append(head_, type);
    head_ += value;
  }
  /// dims as the file has them, innermost first.
  void tensor(const std::string& name, std::initializer_list<int64_t> dims, int32_t type, const std::string& data) {
    tensor_at(name, dims, type, data_.size(), data);
  }
  void tensor_at(const std::string& name, std::initializer_list<int64_t> dims, int32_t type, uint64_t offset,
                 const std::string& data) {
    ++tensors_;
    infos_ += text(name);
    append(infos_, static_cast<uint32_t>(dims.size()));
    for (const int64_t d : dims) append(infos_, d);
    append(infos_, type);
    append(infos_, offset);
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
  }
  std::string file() const {
    std::string out;
    append(out, magic);
    append(out, version);
    append(out, tensors_ + extra_tensors);
    append(out, keys_ + extra_keys);
    out += head_ + infos_;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data_;
  }

 private:
  std::string head_, infos_, data_;
  uint64_t keys_ = 0, tensors_ = 0;
};

/// All values of a source, read `stripe` rows at a time.
inline Result<std::vector<float>> decode_all(const WeightSource& source, int64_t stripe = 7) {
  const WeightMeta& meta = source.meta();
  std::vector<float> out(static_cast<size_t>(meta.n * meta.k));
  Stripe rows;
  for (int64_t n = 0; n < meta.n; n += stripe) {
    const int64_t count = std::min(stripe, meta.n - n);
    MARLIN_RETURN_IF_ERROR(source.read(n, count, rows));
    decode_rows(meta, rows, n, count, out.data() + n * meta.k);
  }
  return out;
}

inline size_t find_layer(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.find_layer(name).value_or(SIZE_MAX);
}

}  // namespace metal_marlin::testing
