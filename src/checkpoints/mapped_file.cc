#include "checkpoints/mapped_file.h"

#include <cerrno>
#include <cstdint>

namespace metal_marlin {

Result<MappedFile> MappedFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return file_error(path, "name with a NUL", EINVAL);
  files::File file;
  if (const int error = file.open(path); error != 0) return file_error(path, "cannot open", error);
  files::Facts facts;
  if (const int error = file.examine(facts); error != 0)
    return file_error(path, "cannot examine", error);
  if (facts.is_folder()) return file_error(path, "expected a file", EISDIR);
  if (facts.kind != files::Kind::regular)
    return file_error(path, "expected a regular file, found a pipe or device", EINVAL);
  if (facts.bytes == 0)
    return Status::error(MARLIN_E_FORMAT, "%.150s: byte 0: the file is empty", path.c_str());
  if (facts.bytes > SIZE_MAX) return file_error(path, "too large to map", EFBIG);
  std::span<const std::byte> bytes;
  if (const int error = file.map(static_cast<size_t>(facts.bytes), bytes); error != 0)
    return file_error(path, "cannot map", error);
  return MappedFile(bytes, facts.id);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) files::unmap(bytes_);
}

void MappedFile::release_pages(std::span<const std::byte> part) { files::release_pages(part); }

}  // namespace metal_marlin
