#include "checkpoints/convert/name_changes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

namespace metal_marlin {
namespace {

int error_of(int result) { return result == 0 ? 0 : errno; }

}  // namespace

int NameChanges::open_nameless(const char* folder) noexcept {
#if defined(O_TMPFILE)
  return ::open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);  // less the process' umask
#else
  (void)folder;
  return -1;
#endif
}

int NameChanges::link(const char* from, const char* to) noexcept {
  return error_of(::linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
}

int NameChanges::rename(const char* from, const char* to) noexcept {
  return error_of(std::rename(from, to));
}

int NameChanges::exchange(const char* a, const char* b) noexcept {
#if defined(__linux__) && defined(SYS_renameat2)
  constexpr unsigned kExchange =
      2;  // RENAME_EXCHANGE, which not every C library names, as it has no renameat2() itself
  return error_of(static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, kExchange)));
#elif defined(__APPLE__)
  return error_of(::renamex_np(a, b, RENAME_SWAP));
#else
  (void)a, (void)b;
  return ENOSYS;
#endif
}

int NameChanges::remove(const char* name) noexcept { return error_of(::unlink(name)); }

}  // namespace metal_marlin
