// The source of the files of a checkpoint: a folder of the disk, or memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

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
/// with one of them. All parts of a split GGUF count as one file.
struct CheckpointPath {
  std::string folder, file;
};
Result<CheckpointPath> locate_checkpoint(const std::string& path);

}  // namespace metal_marlin
