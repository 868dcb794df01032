#include <windows.h>
// windows.h comes first.
#include <malloc.h>
#include <process.h>

#include <bit>

#include "base/system.h"

namespace metal_marlin::system {
namespace {

/// More than the header requires of a host's threads; programs may have less by default.
constexpr unsigned kStackBytes = 1 << 20;

}  // namespace

uint64_t process_id() noexcept { return GetCurrentProcessId(); }

uint64_t memory_bytes() noexcept {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : 0;
}

uint32_t affinity_count() {
  DWORD_PTR mine = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) return 0;
  // A process whose threads are of several groups of 64 processors has no mask.
  return mine != 0 ? static_cast<uint32_t>(std::popcount(mine))
                   : GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

bool request_amx_tiles() noexcept {
  // From Windows 11 on. A header may not know it.
  constexpr DWORD64 kTileData = DWORD64{1} << 18;
  const auto enable = reinterpret_cast<BOOL(WINAPI*)(DWORD64)>(reinterpret_cast<void*>(
      GetProcAddress(GetModuleHandleW(L"kernel32.dll"), "EnableProcessOptionalXStateFeatures")));
  return enable != nullptr && enable(kTileData);
}

void* allocate(size_t size, size_t align) noexcept { return _aligned_malloc(size, align); }
void release(void* p) noexcept { _aligned_free(p); }
void prefer_huge_pages(void*, size_t) noexcept {}
void discard_pages(void*, size_t) noexcept {}

void* open_library(const char* name, std::string& why) {
  // Only of the system: no library of the same name beside the program, which anybody may have put
  // there.
  void* const library = LoadLibraryExA(name, nullptr, LOAD_LIBRARY_SEARCH_SYSTEM32);
  if (library == nullptr)
    why = std::string(name) + ": error " + std::to_string(GetLastError()) + " of Windows";
  return library;
}

void* find_symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

bool Thread::start(void (*run)(void*), void* argument) noexcept {
  run_ = run;
  argument_ = argument;
  handle_ =
      _beginthreadex(nullptr, kStackBytes, enter, this, STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
  return handle_ != 0;
}

unsigned Thread::enter(void* self) {
  const auto& thread = *static_cast<const Thread*>(self);
  thread.run_(thread.argument_);
  return 0;
}

void Thread::join() noexcept {
  const auto handle = reinterpret_cast<HANDLE>(handle_);
  WaitForSingleObject(handle, INFINITE);
  CloseHandle(handle);
}

}  // namespace metal_marlin::system
