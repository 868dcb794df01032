#include "failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <string_view>

namespace metal_marlin::testing {
namespace {

FailingCall* youngest = nullptr;  // no object with a destructor: coverage is written when those are gone

bool fails(const char* function) {
  for (FailingCall* call = youngest; call != nullptr; call = call->older())
    if (call->fails(function)) return true;
  return false;
}

/// The C library's own.
template <class Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

FailingCall::FailingCall(const char* function, int at, int number)
    : function_(function), at_(at), number_(number), older_(std::exchange(youngest, this)) {}

FailingCall::~FailingCall() { youngest = older_; }

bool FailingCall::fails(const char* function) {
  if (std::string_view(function) != function_ || calls_++ != at_) return false;
  errno = number_;
  return true;
}

std::vector<std::pair<dev_t, ino_t>>& synced() {
  static std::vector<std::pair<dev_t, ino_t>> files;
  return files;
}

}  // namespace metal_marlin::testing

namespace failing = metal_marlin::testing;

extern "C" {

int open(const char* path, int flags, ...) {
  if (failing::fails("open")) return -1;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, int);  // any number, if there is none
  va_end(arguments);
  static const auto call = failing::real("open", &open);
  return call(path, flags, mode);
}

int stat(const char* path, struct stat* info) noexcept {
  static const auto call = failing::real("stat", static_cast<int (*)(const char*, struct stat*)>(&stat));
  return failing::fails("stat") ? -1 : call(path, info);
}

int lstat(const char* path, struct stat* info) noexcept {
  static const auto call = failing::real("lstat", static_cast<int (*)(const char*, struct stat*)>(&lstat));
  return failing::fails("lstat") ? -1 : call(path, info);
}

int fstat(int fd, struct stat* info) noexcept {
  static const auto call = failing::real("fstat", static_cast<int (*)(int, struct stat*)>(&fstat));
  return failing::fails("fstat") ? -1 : call(fd, info);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto call = failing::real("mkdir", static_cast<int (*)(const char*, mode_t)>(&mkdir));
  return failing::fails("mkdir") ? -1 : call(path, mode);
}

DIR* opendir(const char* path) {
  static const auto call = failing::real("opendir", &opendir);
  return failing::fails("opendir") ? nullptr : call(path);
}

dirent* readdir(DIR* folder) {
  static const auto call = failing::real("readdir", &readdir);
  return failing::fails("readdir") ? nullptr : call(folder);
}

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  static const auto call = failing::real("mmap", static_cast<void* (*)(void*, size_t, int, int, int, off_t)>(&mmap));
  return failing::fails("mmap") ? MAP_FAILED : call(at, size, protection, flags, fd, offset);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static const auto call = failing::real("pwrite", &pwrite);
  if (failing::fails("pwrite")) return errno == 0 ? 0 : -1;
  return call(fd, bytes, count, offset);
}

int ftruncate(int fd, off_t size) noexcept {
  static const auto call = failing::real("ftruncate", static_cast<int (*)(int, off_t)>(&ftruncate));
  return failing::fails("ftruncate") ? -1 : call(fd, size);
}

#if defined(__linux__)
int fallocate(int fd, int mode, off_t offset, off_t size) {
  static const auto call = failing::real("fallocate", &fallocate);
  return failing::fails("fallocate") ? -1 : call(fd, mode, offset, size);
}
#endif

int fsync(int fd) {
  static const auto call = failing::real("fsync", &fsync);
  struct stat file{};
  if (::fstat(fd, &file) == 0) failing::synced().emplace_back(file.st_dev, file.st_ino);
  return failing::fails("fsync") ? -1 : call(fd);
}

}  // extern "C"
