// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace metal_marlin {

/// Until publish() the content has no name at all where the system can do that (O_TMPFILE), so that not even a killed process
/// leaves anything behind; elsewhere it has a temporary name beside the final one, which the destructor removes.
class OutputFile {
 public:
  /// Takes room for `bytes` on the disk at once, where the system can: a full disk is an error before any work. Bytes that are
  /// never written are 0. MARLIN_E_FILE with errno.
  static Result<OutputFile> create(const std::string& path, uint64_t bytes);
  OutputFile(OutputFile&& other) noexcept { swap(other); }
  OutputFile& operator=(OutputFile&& other) noexcept {
    swap(other);
    return *this;
  }
  ~OutputFile();

  /// May be called by several threads at once for different parts of the file.
  Status write(uint64_t offset, std::span<const std::byte> bytes) const;
  /// Waits until the disk has everything.
  Status sync() const;
  /// Gives the file its name. `replace`: a file of that name is replaced in one step; else it is an error (EEXIST). The file is
  /// its name's from then on, whatever happens to this object.
  Status publish(bool replace);
  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;
  void swap(OutputFile& other) noexcept;
  Status error(const char* what, int number) const;
  Status claim_temporary_name(bool create);

  std::string path_, temporary_;  // temporary_ is "" while the file has no name
  int fd_ = -1;
};

/// Makes the names of a folder last: what was published there survives a loss of power. Failures are of no consequence for
/// whoever goes on running and are ignored.
void sync_folder(const std::string& folder);

}  // namespace metal_marlin
