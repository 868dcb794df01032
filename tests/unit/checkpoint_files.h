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
#include "model_files.h"

namespace metal_marlin::testing {

using namespace model_files;

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
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (const T v : values) append(out, v);
  return out;
}

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
