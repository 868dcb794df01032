// Variables of the environment, which belong to whoever started the process.
#pragma once

#include <cstdlib>
#if !defined(__GLIBC__) && !defined(_WIN32)
#include <unistd.h>
#endif

namespace metal_marlin {

/// The value of a variable, or null. A process that has more rights than who started it
/// (set-user-ID and the like) has no variables: they would choose the files that it writes.
inline const char* environment(const char* name) noexcept {
#if defined(__GLIBC__)
  return secure_getenv(name);
#elif defined(__APPLE__)
  return issetugid() == 0 ? std::getenv(name) : nullptr;
#elif defined(_WIN32)  // where no program has more rights than who started it
  return std::getenv(name);
#else
  return getuid() == geteuid() && getgid() == getegid() ? std::getenv(name) : nullptr;
#endif
}

}  // namespace metal_marlin
