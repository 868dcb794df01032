// Maps a file of the disk as read-only memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/files.h"
#include "base/status.h"

namespace metal_marlin {

/// Owns one mapping of a whole regular file. The system reads a page at its first access.
class MappedFile {
 public:
  /// MARLIN_E_FILE with errno as native code if the system refuses, and for folders, pipes and
  /// devices; MARLIN_E_FORMAT for an empty file. Never blocks on a pipe.
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), id_(other.id_) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }
  const FileId& id() const { return id_; }
  /// Releases the physical pages that lie wholly inside `part`, a piece of some mapping of this
  /// class. The system reads them again at the next access. Loading therefore needs the memory of
  /// one tensor instead of the whole file.
  static void release_pages(std::span<const std::byte> part);

 private:
  MappedFile(std::span<const std::byte> bytes, const FileId& id) : bytes_(bytes), id_(id) {}
  std::span<const std::byte> bytes_;
  FileId id_;
};

}  // namespace metal_marlin
