// Files that appear under their names only when they are complete, and all together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoints/convert/name_changes.h"

namespace metal_marlin {

/// Until publish() the content has no name at all where the system can do that (O_TMPFILE), so that
/// not even a killed process leaves anything behind; elsewhere it has a temporary name beside the
/// final one, which the destructor removes.
class OutputFile {
 public:
  /// Takes room for `bytes` on the disk at once, where the system can: a full disk is an error
  /// before any work. Bytes that are never written are 0. MARLIN_E_FILE with errno. `names` must
  /// outlive the file.
  static Result<OutputFile> create(const std::string& path, uint64_t bytes, NameChanges& names);
  OutputFile(OutputFile&& other) noexcept { swap(other); }
  OutputFile& operator=(OutputFile&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Takes publish() back, too, unless keep() was called: the name is again what it was before, or
  /// free.
  ~OutputFile();

  /// May be called by several threads at once for different parts of the file.
  Status write(uint64_t offset, std::span<const std::byte> bytes) const;
  /// Waits until the disk has everything.
  Status sync() const;
  const std::string& path() const { return path_; }

 private:
  friend Status publish_all(std::span<OutputFile> files, bool replace);
  /// Where publish() has left the name and the file that had it before.
  enum class Name {
    unchanged,
    given,      ///< nothing had it
    swapped,    ///< the old file is temporary_
    backed_up,  ///< the old file is backup_
  };
  OutputFile() = default;
  void swap(OutputFile& other) noexcept;
  Status error(const char* what, int number) const;
  Status claim_temporary_name(bool create);
  Status prepare(bool replace);
  Status publish(bool replace);
  Status give_name();
  Status replace_old();
  Status replace_with_backup();
  void undo() noexcept;
  void keep() noexcept;

  std::string path_, temporary_, backup_;  // temporary_ is "" while the file has no name
  NameChanges* names_ = nullptr;
  Name name_ = Name::unchanged;
  int fd_ = -1;
};

/// Whether a regular file has this name; an error when anything else has it, which is never
/// replaced nor written through.
Result<bool> is_taken(const std::string& path);

/// Gives the files their names, all or none: after an error every name is what it was before.
/// `replace`: files of these names are replaced; else one of them is an error (EEXIST).
Status publish_all(std::span<OutputFile> files, bool replace);

/// Makes the names of a folder last: what was published there survives a loss of power. Failures
/// are of no consequence for whoever goes on running and are ignored.
void sync_folder(const std::string& folder);

}  // namespace metal_marlin
