// The system calls by which files get, lose and swap names. A test hands in others, which fail
// where it wants.
#pragma once

namespace metal_marlin {

/// All but open_nameless() return 0 or an errno, and then have changed nothing.
class NameChanges {
 public:
  virtual ~NameChanges() = default;
  /// A new file in `folder`, open for writing, that has no name yet; -1 where the system or its
  /// disk cannot do that.
  virtual int open_nameless(const char* folder) noexcept;
  /// A further name for the file that `from` is, or links to; EEXIST when `to` is taken.
  virtual int link(const char* from, const char* to) noexcept;
  /// In one step; a file that was called `to` is gone.
  virtual int rename(const char* from, const char* to) noexcept;
  /// Swaps two names in one step; ENOSYS or the like where the system or its disk cannot.
  virtual int exchange(const char* a, const char* b) noexcept;
  virtual int remove(const char* name) noexcept;
};

}  // namespace metal_marlin
