// Containers with right checksums, whatever their directories say.
#pragma once

#include <span>
#include <string>

#include "base/bits.h"
#include "base/checksum.h"
#include "checkpoints/container/directory.h"

namespace container_test {

using metal_marlin::load;
using metal_marlin::store;

inline constexpr size_t kHead = metal_marlin::kContainerHeadBytes;

inline uint64_t sum(const char* bytes, size_t size) { return metal_marlin::checksum(std::as_bytes(std::span(bytes, size))); }

/// A file whose checksums of head and directory are right again.
inline std::string sealed(std::string bytes) {
  const auto at = load<uint64_t>(bytes.data() + 24), size = load<uint64_t>(bytes.data() + 32);
  if (at + size <= bytes.size()) store(bytes.data() + 40, sum(bytes.data() + at, size));
  store(bytes.data() + kHead - 8, sum(bytes.data(), kHead - 8));
  return bytes;
}

/// The file with a directory in place of its own, whose checksums are right.
inline std::string with_directory(const std::string& file, const std::string& directory) {
  const size_t at = load<uint64_t>(file.data() + 24);
  std::string bytes = file.substr(0, at) + directory;
  store(bytes.data() + 16, uint64_t{bytes.size()});
  store(bytes.data() + 32, uint64_t{directory.size()});
  return sealed(bytes);
}
inline std::string with_directory(const std::string& file, const metal_marlin::ContainerDirectory& directory) {
  const auto bytes = metal_marlin::encode_directory(directory);
  return with_directory(file, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}
inline metal_marlin::Result<metal_marlin::ContainerDirectory> directory_of(const std::string& file) {
  const auto bytes = std::as_bytes(std::span(file));
  const auto head = metal_marlin::decode_head("f.marlin", bytes);
  if (!head.ok()) return head.status();
  return metal_marlin::decode_directory("f.marlin", bytes, head.value());
}

}  // namespace container_test
