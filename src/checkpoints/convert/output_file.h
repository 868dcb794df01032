// Output files, which appear under their names all together, and only when they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/files.h"
#include "base/status.h"
#include "checkpoints/convert/name_changes.h"

namespace metal_marlin {

/// If the system supports it (O_TMPFILE), the file has no name until publish(), so that not even a
/// killed process leaves a file behind. Otherwise it has a temporary name beside the final one, and
/// the destructor removes it.
class OutputFile {
 public:
  /// Reserves `bytes` on the disk at once if the system can, so that a full disk is an error before
  /// any work. Bytes that are never written are 0. Errors are MARLIN_E_FILE with errno. `names`
  /// must outlive the file.
  static Result<OutputFile> create(const std::string& path, uint64_t bytes, NameChanges& names);
  OutputFile(OutputFile&& other) noexcept { swap(other); }
  OutputFile& operator=(OutputFile&& other) = delete;
  /// Also undoes publish() unless keep() was called: the name belongs to the old file again, or it
  /// is free.
  ~OutputFile();

  /// Several threads may write different parts of the file at once.
  Status write(uint64_t offset, std::span<const std::byte> bytes) const;
  /// Waits until all data are on the disk.
  Status sync() const;
  const std::string& path() const { return path_; }

 private:
  friend Status publish_all(std::span<OutputFile> files, bool replace);
  /// The state of the name and of the file that had it before, after publish().
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
  files::File file_;
};

/// Whether a regular file has this name. It is an error if anything else has it, because such a
/// thing is never replaced or written through.
Result<bool> is_taken(const std::string& path);

/// Gives the files their names, all or none: after an error every name is as it was before. With
/// `replace`, existing files of these names are replaced; otherwise they are an error (EEXIST).
Status publish_all(std::span<OutputFile> files, bool replace);

/// Syncs a folder, so that published names survive a loss of power. Failures do not affect a
/// process that continues to run, so they are ignored.
void sync_folder(const std::string& folder);

}  // namespace metal_marlin
