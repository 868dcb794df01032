#include "base/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace metal_marlin {
namespace {

/// The value of a variable that names a folder by its whole path; the others are not meant.
std::string folder_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
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
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    mkdir(path.substr(0, end).c_str(), 0700);
  struct stat found{};
  return (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) && stat(path.c_str(), &found) == 0 &&
         S_ISDIR(found.st_mode);
}

std::string part_name(const std::string& path) {
  return path + "." + std::to_string(getpid()) + ".part";
}

Status replace_file(const std::string& path, std::string_view contents) {
  if (!make_folders(path.substr(0, path.rfind('/'))))
    return file_error(path, "its folder cannot be made");
  const std::string part = part_name(path);
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return file_error(part, "cannot be opened");
  Status done = write_all(file, contents, part);
  if (close(file) != 0 && done.ok()) done = file_error(part, "cannot be closed");
  if (done.ok() && rename(part.c_str(), path.c_str()) != 0)
    done = file_error(path, "cannot be replaced");
  if (!done.ok()) unlink(part.c_str());
  return done;
}

}  // namespace metal_marlin
