#include "base/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/random.h>
#endif

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "base/environment.h"

namespace metal_marlin {
namespace {

/// The value of a variable that names a folder by its whole path, without slashes at its end; the
/// others, and the root of all folders, are not meant.
std::string folder_of(const char* variable) {
  const char* const value = environment(variable);
  if (value == nullptr || value[0] != '/') return "";
  std::string path = value;
  while (path.ends_with('/')) path.pop_back();
  return path;
}

Status file_error(const std::string& path, const char* what) {
  const int code = errno;
  return Status::error(MARLIN_E_FILE, "%s: %s: %s", path.c_str(), what, std::strerror(code))
      .with_native(code);
}

Status write_all(int file, std::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t done = write(file, contents.data(), contents.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return file_error(path, "cannot be written");
    contents.remove_prefix(static_cast<size_t>(done));
  }
  return {};
}

}  // namespace

std::string user_cache_folder() {
  const std::string home = folder_of("HOME");
#if defined(__APPLE__)
  return home.empty() ? "" : home + "/Library/Caches/metal-marlin";
#else
  if (const std::string caches = folder_of("XDG_CACHE_HOME"); !caches.empty())
    return caches + "/metal-marlin";
  return home.empty() ? "" : home + "/.cache/metal-marlin";
#endif
}

bool make_folders(const std::string& path) {
  const std::string above = path.substr(0, path.rfind('/'));
  if (mkdir(path.c_str(), 0700) != 0 && errno == ENOENT && !above.empty()) {
    mkdir(above.c_str(), 0700);
    mkdir(path.c_str(), 0700);
  }
  struct stat found{};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string part_name(const std::string& path) {
  static std::atomic<uint64_t> calls{0};
  uint64_t random = 0;
  // Without random numbers, the name is still one of its own in this system.
  if (getentropy(&random, sizeof random) != 0)
    random = static_cast<uint64_t>(getpid()) << 32 ^ calls.fetch_add(1);
  char ending[32];
  std::snprintf(ending, sizeof ending, ".%016" PRIx64 ".part", random);
  return path + ending;
}

Status replace_file(const std::string& path, std::string_view contents) {
  if (!make_folders(path.substr(0, path.rfind('/'))))
    return file_error(path, "its folder cannot be made");
  // A new file, whatever else others made here: neither a link nor a pipe is followed.
  std::string part;
  int file = -1;
  for (int attempt = 0; file < 0 && attempt < 8; ++attempt) {
    part = part_name(path);
    file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0 && errno != EEXIST) break;
  }
  if (file < 0) return file_error(part, "cannot be opened");
  Status done = write_all(file, contents, part);
  if (close(file) != 0 && done.ok()) done = file_error(part, "cannot be closed");
  if (done.ok() && rename(part.c_str(), path.c_str()) != 0)
    done = file_error(path, "cannot be replaced");
  if (!done.ok()) unlink(part.c_str());
  return done;
}

}  // namespace metal_marlin
