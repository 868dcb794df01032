// What the library asks of the operating system besides files: memory, threads, libraries and the
// machine. system.cc is for POSIX, system_windows.cc for Windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace metal_marlin::system {

uint64_t process_id() noexcept;
/// The memory of the machine in bytes, or 0 if the system does not say.
uint64_t memory_bytes() noexcept;
/// The processors that this process may use, or 0 if the system does not say.
uint32_t affinity_count();
/// Asks for the tile registers of AMX on behalf of the process. False: it may not use them.
bool request_amx_tiles() noexcept;

/// Memory for release(), or null. `size` is a multiple of `align`.
void* allocate(size_t size, size_t align) noexcept;
void release(void* p) noexcept;
/// Whether large memory is worth an alignment to huge pages.
#if defined(_WIN32)  // which gives them to privileged users alone
inline constexpr bool kHasHugePages = false;
#else
inline constexpr bool kHasHugePages = true;
#endif
/// Prefers huge pages for this memory, which is aligned to them.
void prefer_huge_pages(void* p, size_t bytes) noexcept;
/// Gives the whole pages of this memory back, whose contents nobody needs.
void discard_pages(void* p, size_t bytes) noexcept;

/// Opens a shared library, which stays open. Null with the system's words in `why`.
void* open_library(const char* name, std::string& why);
/// The address of a function of a library, or null.
void* find_symbol(void* library, const char* name) noexcept;

/// A thread of the library, on which no handler of the host's signals runs. Who started it calls
/// join(), unless a fork has left the thread behind; nothing else ends with the object.
class Thread {
 public:
  /// False if the system allows no more threads. The object stays where it is until join().
  bool start(void (*run)(void*), void* argument) noexcept;
  void join() noexcept;

 private:
#if defined(_WIN32)
  static unsigned __stdcall enter(void* self);
  uintptr_t handle_ = 0;
#else
  static void* enter(void* self);
  pthread_t handle_{};
#endif
  void (*run_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace metal_marlin::system
