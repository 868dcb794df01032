#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

namespace metal_marlin {
namespace {

constexpr mode_t kMode = 0666;  // less the process' umask

int error_of(int result) { return result == 0 ? 0 : errno; }

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

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

files::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return files::Kind::regular;
  if (S_ISDIR(mode)) return files::Kind::folder;
  if (S_ISLNK(mode)) return files::Kind::link;
  return S_ISFIFO(mode) ? files::Kind::pipe : files::Kind::other;
}

/// Tells what stat and the like found; they return 0 or -1.
int tell(int result, const struct stat& found, files::Facts& facts) {
  if (result != 0) return errno;
  facts.kind = kind_of(found.st_mode);
  facts.bytes = static_cast<uint64_t>(std::max<off_t>(found.st_size, 0));
  facts.id = {static_cast<uint64_t>(found.st_dev), static_cast<uint64_t>(found.st_ino)};
  return 0;
}

}  // namespace

Status file_error(const std::string& path, const char* what, int error) {
  char buffer[96] = "";
  const char* reason = text_of(::strerror_r(error, buffer, sizeof buffer), buffer);
  const marlin_status code = error == ENOMEM ? MARLIN_E_MEMORY : MARLIN_E_FILE;
  return Status::error(code, "%.120s: %s: %s", path.c_str(), what, reason).with_native(error);
}

namespace files {

int examine(const std::string& path, Facts& facts) {
  struct stat found{};
  return tell(::stat(path.c_str(), &found), found, facts);
}

int examine_name(const std::string& path, Facts& facts) {
  struct stat found{};
  return tell(::lstat(path.c_str(), &found), found, facts);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

int list(const std::string& folder, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, CloseFolder> opened(::opendir(folder.c_str()));
  if (opened == nullptr) return errno;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(opened.get());  // thread-safe: no other thread has this DIR
    if (entry == nullptr) return errno;
    names.emplace_back(entry->d_name);
  }
}

int make_folder(const std::string& path, bool for_all) {
  return error_of(::mkdir(path.c_str(), for_all ? 0777 : 0700));
}

int remove_folder(const std::string& path) { return error_of(::rmdir(path.c_str())); }

File::~File() {
  if (is_open()) ::close(descriptor_);
}

int File::open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  *this = File(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return is_open() ? 0 : errno;
}

int File::create(const std::string& path) {
  *this = File(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  return is_open() ? 0 : errno;
}

int File::examine(Facts& facts) const {
  struct stat found{};
  return tell(::fstat(descriptor_, &found), found, facts);
}

int File::reserve(uint64_t bytes) const {
  if (bytes > INT64_MAX) return EFBIG;
#if defined(__linux__)
  if (bytes != 0 && ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  if (bytes != 0 && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) return errno;
#endif
  return error_of(::ftruncate(descriptor_, static_cast<off_t>(bytes)));
}

int File::write(uint64_t offset, std::span<const std::byte> bytes) const {
  constexpr size_t kPiece = size_t{1} << 30;  // Linux writes at most 2^31 bytes per call
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kPiece),
                                     static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return 0;
}

int File::sync() const { return error_of(::fsync(descriptor_)); }

int File::map(size_t bytes, std::span<const std::byte>& mapped) const {
  // Shared, so that what makes a GPU reach its pages has no reason to copy them.
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED && errno == ENODEV)  // a file system that shares no pages
    data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (data == MAP_FAILED) return errno;
  mapped = {static_cast<const std::byte*>(data), bytes};
  return 0;
}

std::string File::link_path() const {
  char link[48];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor_);
  Facts by_link, by_descriptor;
  const bool works = files::examine(link, by_link) == 0 && examine(by_descriptor) == 0 &&
                     by_link.id == by_descriptor.id;
  return works ? link : "";
}

void unmap(std::span<const std::byte> mapped) {
  ::munmap(const_cast<std::byte*>(mapped.data()), mapped.size());
}

void release_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Bytes to a page's begin.
  const size_t before = (page - reinterpret_cast<uintptr_t>(part.data()) % page) % page;
  if (before >= part.size()) return;
  std::byte* begin = const_cast<std::byte*>(part.data()) + before;
  const size_t whole = (part.size() - before) / page * page;
  // After a failure, the pages stay in memory, which is correct, too.
  if (whole != 0) (void)::madvise(begin, whole, MADV_DONTNEED);
}

void sync_folder(const std::string& folder) {
  const File opened(::open(folder.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.is_open()) (void)opened.sync();
}

int open_nameless([[maybe_unused]] const char* folder) noexcept {
#if defined(O_TMPFILE)
  return ::open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
#else
  return -1;
#endif
}

int link(const char* from, const char* to) noexcept {
  return error_of(::linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
}

int rename(const char* from, const char* to) noexcept { return error_of(std::rename(from, to)); }

int exchange([[maybe_unused]] const char* a, [[maybe_unused]] const char* b) noexcept {
#if defined(__linux__) && defined(SYS_renameat2)
  constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE, which not every C library names
  return error_of(static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, kExchange)));
#elif defined(__APPLE__)
  return error_of(::renamex_np(a, b, RENAME_SWAP));
#else
  return ENOSYS;
#endif
}

int remove(const char* name) noexcept { return error_of(::unlink(name)); }

}  // namespace files
}  // namespace metal_marlin
