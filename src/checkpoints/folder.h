// The source of the files of a checkpoint: a folder of the disk, or memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/mapped_file.h"

namespace metal_marlin {

/// Owns the bytes of every file that it opened. One thread uses it while a checkpoint is opened;
/// any thread may call release() at any time.
class Folder {
 public:
  virtual ~Folder() = default;
  /// The whole content of a file of this folder. MARLIN_E_FILE with native code ENOENT if there is
  /// no such file.
  virtual Result<std::span<const std::byte>> open(const std::string& name) = 0;
  /// The names of its files, as far as they can be listed.
  virtual std::vector<std::string> names() const { return {}; }
  /// These bytes will not be needed soon.
  virtual void release(std::span<const std::byte> part) const = 0;
  /// Its path on the disk, with a slash at the end; "" for the current folder and for memory.
  virtual std::string path() const { return {}; }
  /// Whether it opened this file of the disk, under whatever name.
  virtual bool has_opened(const FileId&) const { return false; }
};

/// The folder `path` of the disk ("" is the current one); files are mapped.
std::unique_ptr<Folder> disk_folder(const std::string& path);

/// The path of marlin_checkpoint_open, split into the folder and the name of the file in it. If the
/// path is a folder, the file is model.safetensors.index.json, model.safetensors, model.gguf or
/// model.marlin, or else the only gptq_model-* with one of these endings, or else the only file
/// with one of them. All parts of a split GGUF count as one file, and so do all shards
/// STEM-0000N-of-0000M.safetensors.
struct CheckpointPath {
  std::string folder, file;
  std::vector<std::string> shards;  ///< all files, if there are several and no index
  bool is_chosen = false;           ///< the path is a folder, which has the file
};
Result<CheckpointPath> locate_checkpoint(const std::string& path);

/// The shards STEM-0000N-of-0000M.safetensors among these names, in their order, if there is one
/// whole set of them; else nothing.
std::vector<std::string> whole_shards(const std::vector<std::string>& names);

/// What a host should know about files of safetensors that were not opened, for the key-value
/// kNoteKey. "" if all were.
inline constexpr const char* kNoteKey = "marlin.note";
std::string note_of_unopened(std::vector<std::string> names, const std::vector<std::string>& opened,
                             const char* why);

}  // namespace metal_marlin
