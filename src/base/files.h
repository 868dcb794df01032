// Files as the operating system has them: the one place that asks it about them. files.cc is for
// POSIX, files_windows.cc for Windows. Paths are UTF-8, and offsets have 64 bits. A function that
// returns int returns 0 or an errno; on Windows, what has no errno is an HRESULT, which is
// negative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

/// MARLIN_E_FILE about a file or folder; `error` is a number of the functions below.
Status file_error(const std::string& path, const char* what, int error);

/// The identity of a file. It does not depend on the names that the file has.
struct FileId {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};

namespace files {

/// What separates the names in a path, and what a name in a folder never has.
#if defined(_WIN32)  // where a colon follows a drive, or precedes a part of a file
inline constexpr std::string_view kSeparators = "/\\", kNotInNames("/\\:\0", 4);
#else
inline constexpr std::string_view kSeparators = "/", kNotInNames("/\\\0", 3);
#endif
/// The folder of a path, with a separator at its end; "" for the current one.
inline std::string folder_of(const std::string& path) {
  return path.substr(0, path.find_last_of(kSeparators) + 1);
}
inline std::string name_of(const std::string& path) {
  return path.substr(path.find_last_of(kSeparators) + 1);
}
/// The path of a folder with a separator at its end; "" stays the current one.
inline std::string as_folder(const std::string& path) {
  return path.empty() || kSeparators.find(path.back()) != kSeparators.npos ? path : path + '/';
}

enum class Kind { regular, folder, link, pipe, other };
struct Facts {
  Kind kind = Kind::other;
  uint64_t bytes = 0;
  FileId id;
  bool is_folder() const { return kind == Kind::folder; }
};

/// What has this path, at the end of all links.
int examine(const std::string& path, Facts& facts);
/// What has this path itself, which may be a link.
int examine_name(const std::string& path, Facts& facts);
bool exists(const std::string& path);
/// The names in a folder, in any order.
int list(const std::string& folder, std::vector<std::string>& names);
/// `for_all`: others may read it, as far as the process' umask lets them.
int make_folder(const std::string& path, bool for_all);
/// Removes an empty folder.
int remove_folder(const std::string& path);

/// An open file, which the destructor closes.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept { swap(other); }
  File& operator=(File&& other) noexcept {
    swap(other);
    return *this;
  }
  ~File();
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  /// Opens for reading. Never blocks on a pipe.
  int open(const std::string& path);
  /// Makes a new file for writing; EEXIST if the name is taken.
  int create(const std::string& path);
  int examine(Facts& facts) const;
  /// Gives the file a size, and the room on the disk for it if the system can.
  int reserve(uint64_t bytes) const;
  /// Writes all of the bytes. Several threads may write at once.
  int write(uint64_t offset, std::span<const std::byte> bytes) const;
  /// Waits until all data are on the disk.
  int sync() const;
  /// Maps the first `bytes` bytes, which are not 0, for reading.
  int map(size_t bytes, std::span<const std::byte>& mapped) const;
  /// The path by which a file without a name can be linked; "" if this does not work.
  std::string link_path() const;

 private:
  void swap(File& other) noexcept { std::swap(descriptor_, other.descriptor_); }
  int descriptor_ = -1;
};

/// Ends a map.
void unmap(std::span<const std::byte> mapped);
/// Gives back the physical pages that lie wholly inside this part of a map.
void release_pages(std::span<const std::byte> part);
/// Syncs the names of a folder, if the system can.
void sync_folder(const std::string& folder);

/// Opens a new file without a name for writing; -1 if the system or the disk has none.
int open_nameless(const char* folder) noexcept;
/// Gives the file that `from` names or links to another name; EEXIST if `to` is taken.
int link(const char* from, const char* to) noexcept;
/// Renames in one step; a file that had the name `to` is gone.
int rename(const char* from, const char* to) noexcept;
/// Swaps two names in one step; ENOSYS or the like if the system or the disk cannot do it.
int exchange(const char* a, const char* b) noexcept;
int remove(const char* name) noexcept;

}  // namespace files
}  // namespace metal_marlin
