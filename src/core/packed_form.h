// Packed weights as bytes that outlive the process: what a packed container holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "formats/weights.h"

namespace metal_marlin {

/// The device that packed bytes are for, and the version of its packed layout. Bytes of one form
/// serve every processor of this device, whatever its instruction sets are.
struct PackedForm {
  std::string device;    ///< "cpu", or "" for a device whose packed weights are not kept
  uint32_t version = 0;  ///< grows whenever the meaning of a packed byte changes
  bool operator==(const PackedForm&) const = default;
};

/// One packed matrix.
struct PackedMatrix {
  WeightMeta meta;                  ///< as it is after packing
  int64_t slots = 0;                ///< padded length of K
  int32_t slot_group = 0;           ///< slots that share a scale
  std::span<const std::byte> data;  ///< borrowed
};

}  // namespace metal_marlin
