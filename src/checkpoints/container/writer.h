// Writes a packed container (.marlin): blocks as they come, then the directory, then the head.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/container/directory.h"
#include "checkpoints/convert/output_file.h"

namespace metal_marlin {

struct ContainerOptions {
  PackedForm form;
  uint32_t rank = 0, ranks = 1;
  bool overwrite = false;
};

class ContainerWriter {
 public:
  /// Begins a file, which appears as `path` when finish() succeeds. MARLIN_E_ARGUMENT if `path` is
  /// a file of `source`; MARLIN_E_FILE if it is there and may not be replaced. Both must outlive
  /// the writer.
  static Result<std::unique_ptr<ContainerWriter>> create(const std::string& path,
                                                         const Checkpoint& source,
                                                         const ContainerOptions& options);
  /// One entry: the experts of layers that were joined under these names.
  Status add_entry(LayerNames layers, marlin_layout layout, std::span<const PackedMatrix> experts);
  /// A tensor of the source as it is.
  Status add_tensor(const TensorView& tensor);
  /// Adds the key-values of the source but for those that begin with "marlin.", which are this
  /// file's own, and ends the file.
  Status finish();

 private:
  ContainerWriter(const Checkpoint& source, bool overwrite)
      : source_(source), overwrite_(overwrite) {}
  Result<ContainerBlock> add(std::span<const std::byte> bytes, uint64_t align);
  Status add_values();

  NameChanges names_;  // first: the file uses it to the end
  std::optional<OutputFile> file_;
  const Checkpoint& source_;
  const bool overwrite_;
  uint64_t end_ = kContainerHeadBytes;  // of what is written
  ContainerDirectory directory_;
};

/// Identifies the source of a container: a checksum of the names, types, dimensions and sizes of
/// all tensors, in their order.
uint64_t fingerprint(const Checkpoint& source);

}  // namespace metal_marlin
