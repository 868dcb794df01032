#include "platform.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace metal_marlin::tools {
namespace {

int error_of(int result) { return result == 0 ? 0 : errno; }

/// The path by which a file without a name can be linked.
std::string link_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace

// With this, a limit on the size of files (ulimit -f) is an error like a full disk, and the
// incomplete file is removed.
void prepare_process() { (void)std::signal(SIGXFSZ, SIG_IGN); }

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) != 0; }

size_t terminal_columns(std::FILE* stream) {
  winsize size{};
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

SystemNames system_names() {
  utsname names{};
  uname(&names);
  return {names.sysname, names.release, names.machine};
}

size_t memory_limit() {
  rlimit own{};  // RLIM_INFINITY is its largest value
  return getrlimit(RLIMIT_DATA, &own) == 0 ? static_cast<size_t>(own.rlim_cur) : SIZE_MAX;
}

void* map_memory(size_t bytes, [[maybe_unused]] bool large_pages,
                 [[maybe_unused]] std::string& pages) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(mapped, bytes, large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  pages = large_pages ? ", large pages" : ", small pages";
#endif
  return mapped;
}

void unmap_memory(void* memory, size_t bytes) { munmap(memory, bytes); }

std::optional<std::pair<uint64_t, uint64_t>> file_id(const std::string& path) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return std::pair{static_cast<uint64_t>(found.st_dev), static_cast<uint64_t>(found.st_ino)};
}

std::FILE* open_nameless([[maybe_unused]] const std::string& path) {
#if defined(O_TMPFILE)
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd =
      ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);  // less the process' umask
  if (fd < 0) return nullptr;
  std::FILE* file = ::access(link_of(fd).c_str(), F_OK) == 0 ? ::fdopen(fd, "wb") : nullptr;
  if (file == nullptr) ::close(fd);
  return file;
#else
  return nullptr;
#endif
}

int link_nameless(std::FILE* file, const std::string& to) {
  return link_file(link_of(::fileno(file)), to);
}

int link_file(const std::string& from, const std::string& to) {
  return error_of(::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW));
}

int rename_file(const std::string& from, const std::string& to) {
  return error_of(std::rename(from.c_str(), to.c_str()));
}

int sync_file(std::FILE* file) { return error_of(::fsync(::fileno(file))); }

}  // namespace metal_marlin::tools
