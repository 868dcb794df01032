// The files that a command reads and therefore must not overwrite.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace metal_marlin::tools {

/// The help of the argument that names a checkpoint.
inline constexpr const char* kCheckpointFile =
    "A .safetensors, .safetensors.index.json or .gguf file, or a folder with one";

/// Files are identified by device and inode: all names and links of a file are the same file.
class InputFiles {
 public:
  /// Adds a file; does nothing if it does not exist.
  void add(const std::string& path);
  /// Adds all files that marlin_checkpoint_open() reads for `path`: the file or the index, the
  /// shards, and the configs beside them.
  void add_checkpoint(const std::string& path);
  /// Whether `path` names or links to one of these files.
  bool has(const std::string& path) const;

 private:
  std::set<std::pair<uint64_t, uint64_t>> files_;
};

/// The files with tensors that marlin_checkpoint_open() reads for `path`.
std::vector<std::string> tensor_files(const std::string& path);

}  // namespace metal_marlin::tools
