#include "base/system.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>

#include <vector>
#endif

namespace metal_marlin::system {
namespace {

/// Twice the stack that the header requires of a host's threads, because sanitizers need more.
constexpr size_t kStackBytes = 256 << 10;

/// Attributes of threads with a stack of at least this size, for systems whose default is less
/// (`ulimit -s`, other C libraries).
class ThreadAttributes {
 public:
  ThreadAttributes() : made_(pthread_attr_init(&attributes_) == 0) {
    size_t bytes = 0;
    if (made_ && pthread_attr_getstacksize(&attributes_, &bytes) == 0 && bytes < kStackBytes)
      pthread_attr_setstacksize(&attributes_, kStackBytes);
  }
  ~ThreadAttributes() {
    if (made_) pthread_attr_destroy(&attributes_);
  }
  ThreadAttributes(const ThreadAttributes&) = delete;
  ThreadAttributes& operator=(const ThreadAttributes&) = delete;
  const pthread_attr_t* get() const { return made_ ? &attributes_ : nullptr; }

 private:
  pthread_attr_t attributes_;
  const bool made_;
};

/// New threads inherit the signal mask of their creator. This class blocks all signals meanwhile,
/// so that the host's handlers never run on our threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
};

}  // namespace

uint64_t process_id() noexcept { return static_cast<uint64_t>(getpid()); }

uint64_t memory_bytes() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0
             ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes)
             : 0;
}

uint32_t affinity_count() {
#if defined(__linux__)
  // The kernel refuses masks shorter than its own, which may be longer than cpu_set_t.
  for (size_t cpus = CPU_SETSIZE; cpus <= size_t{1} << 20; cpus *= 2) {
    std::vector<cpu_set_t> mask(cpus / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0)
      return static_cast<uint32_t>(CPU_COUNT_S(bytes, mask.data()));
    if (errno != EINVAL) return 0;
  }
#endif
  return 0;
}

/// Linux gives a process the tile registers on request (Documentation/arch/x86/xstate.rst). From
/// then on, its alternate signal stacks need room for them.
bool request_amx_tiles() noexcept {
#if defined(__linux__) && defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void* allocate(size_t size, size_t align) noexcept { return std::aligned_alloc(align, size); }
void release(void* p) noexcept { std::free(p); }

void prefer_huge_pages([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  madvise(p, bytes, MADV_HUGEPAGE);  // advice: no harm when refused
#endif
}

void discard_pages([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) noexcept {
#if defined(__linux__)                         // where MADV_DONTNEED gives pages back
  constexpr size_t kPages = size_t{64} << 10;  // a multiple of all page sizes
  const auto begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t first = (begin + kPages - 1) / kPages * kPages,
                  last = (begin + bytes) / kPages * kPages;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#endif
}

void* open_library(const char* name, std::string& why) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const reason = dlerror();
  why = reason != nullptr ? reason : name;
  return nullptr;
}

void* find_symbol(void* library, const char* name) noexcept { return dlsym(library, name); }

bool Thread::start(void (*run)(void*), void* argument) noexcept {
  run_ = run;
  argument_ = argument;
  const BlockedSignals blocked;
  const ThreadAttributes attributes;
  return pthread_create(&handle_, attributes.get(), enter, this) == 0;
}

void* Thread::enter(void* self) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), "metal-marlin");
#endif
  const auto& thread = *static_cast<const Thread*>(self);
  thread.run_(thread.argument_);
  return nullptr;
}

void Thread::join() noexcept { pthread_join(handle_, nullptr); }

}  // namespace metal_marlin::system
