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

constexpr mode_t kMode = 0666;         // less the process' umask
constexpr int kTemporaryNames = 1000;  // temporary names that are tried

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// The path by which a file without a name can be linked; "" if this does not work.
std::string link_of(int fd) {
  char link[48];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  struct stat by_link{}, by_fd{};
  const bool works = ::stat(link, &by_link) == 0 && ::fstat(fd, &by_fd) == 0 &&
                     by_link.st_dev == by_fd.st_dev && by_link.st_ino == by_fd.st_ino;
  return works ? link : "";
}

int open_nameless(const std::string& folder, NameChanges& names) {
  const int fd = names.open_nameless(folder.c_str());
  if (fd < 0 || !link_of(fd).empty()) return fd;
  ::close(fd);  // no /proc here
  return -1;
}

/// Reserves space on the disk. Returns 0 or an errno.
int reserve(int fd, uint64_t bytes) {
  if (bytes > INT64_MAX) return EFBIG;
#if defined(__linux__)
  if (bytes != 0 && ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  if (bytes != 0 && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) return errno;
#endif
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

/// Whether the error means that the disk or system does not have the call at all. Linux returns
/// EPERM for links on a disk without links.
bool is_no_such_call(int number) {
  // NOLINTNEXTLINE(misc-redundant-expression): some systems give both names one number
  const bool not_supported = number == ENOTSUP || number == EOPNOTSUPP;
  return not_supported || number == ENOSYS || number == EINVAL || number == EPERM;
}

constexpr const char* kCannotName = "cannot give the file its name";

}  // namespace

Result<bool> is_taken(const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0)
    return errno == ENOENT ? Result<bool>(false) : file_error(path, "cannot examine", errno);
  if (S_ISREG(found.st_mode)) return true;
  if (S_ISDIR(found.st_mode))
    return file_error(path, "expected a new name or a regular file", EISDIR);
  const char* what = "device or socket";
  if (S_ISLNK(found.st_mode)) what = "symbolic link";
  if (S_ISFIFO(found.st_mode)) what = "pipe";
  return Status::error(MARLIN_E_FILE, "%.120s: expected a new name or a regular file, found a %s",
                       path.c_str(), what)
      .with_native(EINVAL);
}

Status OutputFile::error(const char* what, int number) const {
  return file_error(path_, what, number);
}

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t bytes, NameChanges& names) {
  OutputFile file;
  file.path_ = path;
  file.names_ = &names;
  file.fd_ = open_nameless(folder_of(path), names);
  if (file.fd_ < 0) MARLIN_RETURN_IF_ERROR(file.claim_temporary_name(true));
  if (const int number = reserve(file.fd_, bytes); number != 0)
    return file.error("cannot take room for the file", number);
  return file;
}

/// Creates the file under a free temporary name, or gives this name to the existing file.
Status OutputFile::claim_temporary_name(bool create) {
  for (int i = 0; i < kTemporaryNames; ++i) {
    std::string name = path_ + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    if (create) {
      fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
      if (fd_ < 0 && errno != EEXIST) return error("cannot create", errno);
      if (fd_ < 0) continue;
    } else if (const int number = names_->link(link_of(fd_).c_str(), name.c_str()); number != 0) {
      if (number != EEXIST) return error("cannot give the file a name", number);
      continue;
    }
    temporary_ = std::move(name);
    return {};
  }
  return error("cannot find a free temporary name", EEXIST);
}

OutputFile::~OutputFile() {
  undo();
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) (void)names_->remove(temporary_.c_str());
}

void OutputFile::swap(OutputFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(backup_, other.backup_);
  std::swap(names_, other.names_);
  std::swap(name_, other.name_);
  std::swap(fd_, other.fd_);
}

Status OutputFile::write(uint64_t offset, std::span<const std::byte> bytes) const {
  constexpr size_t kPiece = size_t{1} << 30;  // Linux writes at most 2^31 bytes a call
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kPiece), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return error("cannot write", written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status OutputFile::sync() const {
  return ::fsync(fd_) == 0 ? Status() : error("cannot write", errno);
}

/// Does the work that must precede the first change of a name: a file that replaces another needs a
/// name that it can swap.
Status OutputFile::prepare(bool replace) {
  MARLIN_ASSIGN(const bool taken, is_taken(path_));
  if (!taken) return {};
  if (!replace) return error(kCannotName, EEXIST);
  return temporary_.empty() ? claim_temporary_name(false) : Status();
}

Status OutputFile::publish(bool replace) {
  MARLIN_ASSIGN(const bool taken, is_taken(path_));
  return replace && taken && !temporary_.empty() ? replace_old() : give_name();
}

/// A link fails if the name is taken. Only on a disk without links, the check may be outdated.
Status OutputFile::give_name() {
  const std::string from = temporary_.empty() ? link_of(fd_) : temporary_;
  int number = names_->link(from.c_str(), path_.c_str());
  if (number != 0 && is_no_such_call(number) && !temporary_.empty()) {
    number = ::access(path_.c_str(), F_OK) == 0 ? EEXIST
                                                : names_->rename(temporary_.c_str(), path_.c_str());
    if (number == 0) temporary_.clear();
  }
  if (number != 0) return error(kCannotName, number);
  name_ = Name::given;
  return {};
}

Status OutputFile::replace_old() {
  const int number = names_->exchange(temporary_.c_str(), path_.c_str());
  if (number != 0)
    return is_no_such_call(number) ? replace_with_backup() : error(kCannotName, number);
  name_ = Name::swapped;
  return {};
}

/// For disks on which names cannot be swapped. The old file gets a second name or, on a disk
/// without links, another name.
Status OutputFile::replace_with_backup() {
  backup_ = temporary_ + ".old";
  int number = names_->link(path_.c_str(), backup_.c_str());
  const bool moved = number != 0 && is_no_such_call(number);
  if (moved) number = names_->rename(path_.c_str(), backup_.c_str());
  if (number != 0) return error("cannot keep the old file", number);
  number = names_->rename(temporary_.c_str(), path_.c_str());
  if (number != 0) {
    (void)(moved ? names_->rename(backup_.c_str(), path_.c_str())
                 : names_->remove(backup_.c_str()));
    return error(kCannotName, number);
  }
  temporary_.clear();
  name_ = Name::backed_up;
  return {};
}

/// An old file that cannot get its name back keeps its other name.
void OutputFile::undo() noexcept {
  if (name_ == Name::given) (void)names_->remove(path_.c_str());
  if (name_ == Name::backed_up) (void)names_->rename(backup_.c_str(), path_.c_str());
  if (name_ == Name::swapped && names_->exchange(temporary_.c_str(), path_.c_str()) != 0) {
    (void)names_->rename(temporary_.c_str(), path_.c_str());
    temporary_.clear();
  }
  name_ = Name::unchanged;
}

void OutputFile::keep() noexcept {
  if (name_ == Name::backed_up) (void)names_->remove(backup_.c_str());
  name_ = Name::unchanged;  // a swapped file's temporary_ is the old one's, which the destructor
                            // removes
}

Status publish_all(std::span<OutputFile> files, bool replace) {
  Status status;
  for (OutputFile& file : files) {
    if (status.ok()) status = file.prepare(replace);
  }
  for (OutputFile& file : files) {
    if (status.ok()) status = file.publish(replace);
  }
  for (OutputFile& file : files) status.ok() ? file.keep() : file.undo();
  return status;
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace metal_marlin
