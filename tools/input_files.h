// The files that a command reads, so that it never writes onto one of them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace metal_marlin::tools {

/// Files are told apart by device and inode: all names and links of a file are the same file.
class InputFiles {
 public:
  /// Nothing when there is no such file.
  void add(const std::string& path);
  /// All that marlin_checkpoint_open() reads for `path`: the file or the index, the shards, and the
  /// configs beside them.
  void add_checkpoint(const std::string& path);
  /// Whether the file that `path` is, or links to, is one of them.
  bool has(const std::string& path) const;

 private:
  std::set<std::pair<uint64_t, uint64_t>> files_;
};

}  // namespace metal_marlin::tools
