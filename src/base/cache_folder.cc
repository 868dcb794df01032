#include "base/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

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
  bool is_random = false;
  // (The glibc of 2.17, which wheels run on, has no function for it.)
  if (std::FILE* const file = std::fopen("/dev/urandom", "rbe")) {
    is_random = std::fread(&random, sizeof random, 1, file) == 1;
    std::fclose(file);
  }
  // Without random numbers, the name is still one of its own in this system.
  if (!is_random) random = static_cast<uint64_t>(getpid()) << 32 ^ calls.fetch_add(1);
  char ending[32];
  std::snprintf(ending, sizeof ending, ".%016" PRIx64 ".part", random);
  return path + ending;
}

}  // namespace metal_marlin
