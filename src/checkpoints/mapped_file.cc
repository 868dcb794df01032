#include "checkpoints/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace metal_marlin {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// strerror_r returns the text with glibc and a number in other C libraries. Unlike strerror, it has
// no shared buffer.
template <class T>
const char* text_of(T returned, [[maybe_unused]] const char* buffer) {
  if constexpr (std::is_pointer_v<T>) {
    return returned;
  } else {
    return buffer;
  }
}

}  // namespace

Status file_error(const std::string& path, const char* what, int error) {
  char buffer[96] = "";
  const char* reason = text_of(::strerror_r(error, buffer, sizeof buffer), buffer);
  const marlin_status code = error == ENOMEM ? MARLIN_E_MEMORY : MARLIN_E_FILE;
  return Status::error(code, "%.120s: %s: %s", path.c_str(), what, reason).with_native(error);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return file_error(path, "name with a NUL", EINVAL);
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return file_error(path, "cannot open", errno);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return file_error(path, "cannot examine", errno);
  if (S_ISDIR(info.st_mode)) return file_error(path, "expected a file", EISDIR);
  if (!S_ISREG(info.st_mode))
    return file_error(path, "expected a regular file, found a pipe or device", EINVAL);
  if (info.st_size <= 0)
    return Status::error(MARLIN_E_FORMAT, "%.150s: byte 0: the file is empty", path.c_str());
  if (static_cast<uint64_t>(info.st_size) > SIZE_MAX)
    return file_error(path, "too large to map", EFBIG);
  const auto size = static_cast<size_t>(info.st_size);
  // Shared, so that what makes a GPU reach its pages has no reason to copy them.
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED && errno == ENODEV)  // a file system that shares no pages
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return file_error(path, "cannot map", errno);
  return MappedFile(std::span(static_cast<const std::byte*>(data), size),
                    {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Bytes to a page's begin.
  const size_t before = (page - reinterpret_cast<uintptr_t>(part.data()) % page) % page;
  if (before >= part.size()) return;
  std::byte* begin = const_cast<std::byte*>(part.data()) + before;
  const size_t whole = (part.size() - before) / page * page;
  // After a failure, the pages stay in memory, which is correct, too.
  if (whole != 0) (void)::madvise(begin, whole, MADV_DONTNEED);
}

}  // namespace metal_marlin
