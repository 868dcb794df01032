// A packed container (.marlin) as a checkpoint: packed layers, which a backend uses in place, and
// the other tensors and key-values of the source file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/container/directory.h"
#include "core/packed_form.h"

namespace metal_marlin {

/// The packed layers of an open container.
class Container {
 public:
  virtual ~Container() = default;
  virtual const PackedForm& form() const = 0;
  /// The name of the file that was packed.
  virtual const std::string& source_name() const = 0;
  /// The command that packs the source file for a device, for messages. Nothing does so by itself:
  /// the fingerprint of a source covers no values, so that another model of the same shape would
  /// pass.
  virtual std::string repack_command(const std::string& device) const = 0;
  /// Precondition, here and below: layer < Checkpoint::layer_count().
  virtual const ContainerEntry& entry(size_t layer) const = 0;
  /// Experts [first, first + count) of one layer, with their group indices. Reads all their bytes:
  /// MARLIN_E_FORMAT if they are not those that were written.
  virtual Result<std::vector<PackedMatrix>> matrices(size_t layer, int64_t first,
                                                     int64_t count) const = 0;
  /// Keeps the bytes alive.
  virtual std::shared_ptr<const void> memory() const = 0;
};

/// Opens the container `file`, whose bytes the folder has opened. Reads the head, the directory and
/// the key-values.
Result<std::unique_ptr<Checkpoint>> open_container(std::unique_ptr<Folder> folder,
                                                   const std::string& file,
                                                   std::span<const std::byte> bytes);

}  // namespace metal_marlin
