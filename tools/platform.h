// What the command asks of the operating system. platform.cc is for POSIX, platform_windows.cc for
// Windows, where paths are UTF-8, too. A function that returns int returns 0 or an errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cpu_info.h"

namespace metal_marlin::tools {

/// Prepares the process: a limit on the size of files is an error like a full disk.
void prepare_process();
/// What writes to a terminal.
bool is_terminal(std::FILE* stream);
/// Its columns; 0 if it does not say.
size_t terminal_columns(std::FILE* stream);

struct SystemNames {
  std::string system, release, machine;
};
SystemNames system_names();
/// The model, the features and the caches, as far as the system tells.
void describe(CpuInfo& info);
/// What the system limits the memory of the process to.
size_t memory_limit();

/// Memory in large or small pages, `pages` says in which if there is a choice; null if there is
/// none.
void* map_memory(size_t bytes, bool large_pages, std::string& pages);
void unmap_memory(void* memory, size_t bytes);

/// The identity of the file at the end of all links.
std::optional<std::pair<uint64_t, uint64_t>> file_id(const std::string& path);
/// Opens a new file in the folder of `path`, which has no name yet; null if the system has none.
std::FILE* open_nameless(const std::string& path);
/// Gives a file without a name its name, or a file a second one; EEXIST if it is taken.
int link_nameless(std::FILE* file, const std::string& to);
int link_file(const std::string& from, const std::string& to);
/// Renames in one step, in place of what has the name.
int rename_file(const std::string& from, const std::string& to);
/// Waits until what was written is on the disk.
int sync_file(std::FILE* file);

}  // namespace metal_marlin::tools
