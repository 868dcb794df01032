#include "checkpoints/convert/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "checkpoints/mapped_file.h"

namespace metal_marlin {
namespace {

constexpr mode_t kMode = 0666;  // less the process' umask
constexpr int kNames = 1000;    // temporary names that are tried

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// How a file without a name is found again; "" where that does not work.
std::string link_of(int fd) {
  char link[48];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  struct stat by_link{}, by_fd{};
  const bool works = ::stat(link, &by_link) == 0 && ::fstat(fd, &by_fd) == 0 && by_link.st_dev == by_fd.st_dev &&
                     by_link.st_ino == by_fd.st_ino;
  return works ? link : "";
}

int open_nameless(const std::string& folder) {
#if defined(O_TMPFILE)
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (fd >= 0 && link_of(fd).empty()) {  // no /proc here
    ::close(fd);
    return -1;
  }
  return fd;
#else
  (void)folder;
  return -1;
#endif
}

/// 0 or an errno.
int reserve(int fd, uint64_t bytes) {
  if (bytes > INT64_MAX) return EFBIG;
#if defined(__linux__)
  if (bytes != 0 && ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  if (bytes != 0 && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) return errno;
#endif
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace

Status OutputFile::error(const char* what, int number) const { return file_error(path_, what, number); }

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t bytes) {
  OutputFile file;
  file.path_ = path;
  file.fd_ = open_nameless(folder_of(path));
  if (file.fd_ < 0) MARLIN_RETURN_IF_ERROR(file.claim_temporary_name(true));
  if (const int number = reserve(file.fd_, bytes); number != 0) return file.error("cannot take room for the file", number);
  return file;
}

/// Creates the file under a free temporary name, or gives that to the file as it is.
Status OutputFile::claim_temporary_name(bool create) {
  for (int i = 0; i < kNames; ++i) {
    std::string name = path_ + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    if (create) {
      fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
      if (fd_ < 0 && errno != EEXIST) return error("cannot create", errno);
      if (fd_ < 0) continue;
    } else if (::linkat(AT_FDCWD, link_of(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      if (errno != EEXIST) return error("cannot give the file a name", errno);
      continue;
    }
    temporary_ = std::move(name);
    return {};
  }
  return error("cannot find a free temporary name", EEXIST);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::swap(OutputFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
}

Status OutputFile::write(uint64_t offset, std::span<const std::byte> bytes) const {
  constexpr size_t kPiece = size_t{1} << 30;  // Linux writes at most 2^31 bytes a call
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kPiece), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return error("cannot write", written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status OutputFile::sync() const { return ::fsync(fd_) == 0 ? Status() : error("cannot write", errno); }

Status OutputFile::publish(bool replace) {
  // Without replacing, a link is what fails when the name is taken; only where there are no links the answer may be old.
  if (!replace) {
    const std::string from = temporary_.empty() ? link_of(fd_) : temporary_;
    if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
    if (errno == EEXIST || temporary_.empty()) return error("cannot give the file its name", errno);
    if (::access(path_.c_str(), F_OK) == 0) return error("cannot give the file its name", EEXIST);
  }
  if (temporary_.empty()) MARLIN_RETURN_IF_ERROR(claim_temporary_name(false));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return error("cannot give the file its name", errno);
  temporary_.clear();
  return {};
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace metal_marlin
