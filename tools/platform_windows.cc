#include "platform.h"

#include <windows.h>
// windows.h comes first.
#include <io.h>
#include <malloc.h>

#include <bit>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/x86.h"

namespace metal_marlin::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProcessor = "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0";
constexpr const char* kSystem = "SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion";

std::string registry_text(const char* key, const char* name) {
  char text[256] = "";
  DWORD bytes = sizeof text;
  const auto found =
      RegGetValueA(HKEY_LOCAL_MACHINE, key, name, RRF_RT_REG_SZ, nullptr, text, &bytes);
  return found == ERROR_SUCCESS ? text : "";
}

/// The errno of an error, which names one in general.
int number_of(const std::error_code& error) {
  return error ? error.default_error_condition().value() : 0;
}

}  // namespace

void prepare_process() {
  // Without this, terminals show texts in the letters of another code, and no colors.
  SetConsoleOutputCP(CP_UTF8);
  for (const DWORD which : {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE}) {
    DWORD mode = 0;
    const HANDLE console = GetStdHandle(which);
    if (GetConsoleMode(console, &mode))
      SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
}

bool is_terminal(std::FILE* stream) { return _isatty(_fileno(stream)) != 0; }

size_t terminal_columns(std::FILE* stream) {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  const auto console = reinterpret_cast<HANDLE>(_get_osfhandle(_fileno(stream)));
  if (!GetConsoleScreenBufferInfo(console, &info)) return 0;
  return static_cast<size_t>(info.srWindow.Right - info.srWindow.Left + 1);
}

SystemNames system_names() { return {"Windows", registry_text(kSystem, "CurrentBuild"), "x86_64"}; }

void describe(CpuInfo& info) {
  info.model = registry_text(kProcessor, "ProcessorNameString");
  const auto add = [&](const char* name, bool has) {
    if (has) info.features.emplace_back(name);
  };
  const X86Features has = x86_features();
  add("f16c", has.f16c);
  add("fma", has.fma);
  add("avx2", has.avx2);
  add("avx_vnni", has.avx_vnni);
  add("avx512f", has.avx512f);
  add("avx512bw", has.avx512bw);
  add("avx512vl", has.avx512vl);
  add("avx512_vnni", has.avx512vnni);
  add("avx512_bf16", has.avx512bf16);
  add("avx512vbmi", has.avx512vbmi);
  add("amx", has.amx);
  DWORD bytes = 0;
  GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> all(
      bytes / sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  if (!GetLogicalProcessorInformation(all.data(), &bytes)) return;
  for (const auto& one : all) {
    if (one.Relationship != RelationCache || (one.ProcessorMask & 1) == 0 ||
        one.Cache.Type == CacheInstruction)
      continue;
    info.caches.push_back(
        {"L" + std::to_string(one.Cache.Level) + (one.Cache.Type == CacheData ? "d" : ""),
         one.Cache.Size, static_cast<unsigned>(std::popcount(one.ProcessorMask))});
  }
}

size_t memory_limit() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? static_cast<size_t>(status.ullAvailPhys) : SIZE_MAX;
}

void* map_memory(size_t bytes, bool, std::string&) {
  return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_memory(void* memory, size_t) { VirtualFree(memory, 0, MEM_RELEASE); }

std::optional<std::pair<uint64_t, uint64_t>> file_id(const std::string& path) {
  const HANDLE file = CreateFileW(fs::path(path).c_str(), FILE_READ_ATTRIBUTES,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file == INVALID_HANDLE_VALUE) return std::nullopt;
  BY_HANDLE_FILE_INFORMATION found;
  const bool is_found = GetFileInformationByHandle(file, &found);
  CloseHandle(file);
  if (!is_found) return std::nullopt;
  return std::pair{uint64_t{found.dwVolumeSerialNumber},
                   uint64_t{found.nFileIndexHigh} << 32 | found.nFileIndexLow};
}

std::FILE* open_nameless(const std::string&) { return nullptr; }
int link_nameless(std::FILE*, const std::string&) { return ENOSYS; }

int link_file(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  return number_of(error);
}

int rename_file(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return number_of(error);
}

int sync_file(std::FILE* file) { return _commit(_fileno(file)) == 0 ? 0 : errno; }

}  // namespace metal_marlin::tools
