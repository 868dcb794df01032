// The system calls by which files get, lose and swap names. A test replaces them by calls that fail
// at chosen places.
#pragma once

namespace metal_marlin {

/// All except open_nameless() return 0 or an errno. After an errno, nothing has changed.
class NameChanges {
 public:
  virtual ~NameChanges() = default;
  /// Opens a new file in `folder` for writing, which has no name yet; -1 if the system or the disk
  /// does not support this.
  virtual int open_nameless(const char* folder) noexcept;
  /// Gives the file that `from` names or links to another name; EEXIST if `to` is taken.
  virtual int link(const char* from, const char* to) noexcept;
  /// Renames in one step; a file that had the name `to` is gone.
  virtual int rename(const char* from, const char* to) noexcept;
  /// Swaps two names in one step; ENOSYS or the like if the system or the disk cannot do it.
  virtual int exchange(const char* a, const char* b) noexcept;
  virtual int remove(const char* name) noexcept;
};

}  // namespace metal_marlin
