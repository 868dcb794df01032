// Packed weights as bytes that outlive the process: what a packed container holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/slots.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The device that packed bytes are for, and the version of its packed layout. Bytes of one form
/// serve every processor of this device, whatever its instruction sets are.
struct PackedForm {
  std::string device;    ///< "cpu", "metal" or "cuda"
  uint32_t version = 0;  ///< grows whenever the meaning of a packed byte changes
  bool operator==(const PackedForm&) const = default;
};

/// One packed matrix.
struct PackedMatrix {
  WeightMeta meta;                  ///< as it is after packing
  int64_t slots = 0;                ///< padded length of K
  int32_t slot_group = 0;           ///< slots that share a scale
  uint32_t own = 0;                 ///< what else the layout of the device depends on
  std::span<const std::byte> data;  ///< borrowed
};

/// The numbers of a packed matrix that follow from its meta.
struct PackedNumbers {
  uint64_t bytes = 0;
  int64_t slots = 0;
  int32_t slot_group = 0;
  uint32_t own = 0;
  bool operator==(const PackedNumbers&) const = default;
};
/// MARLIN_E_FORMAT, with both, if the matrix has others.
Status check_numbers(const PackedMatrix& found, uint64_t found_bytes,
                     const PackedNumbers& expected);

/// The slots of a matrix whose group index is not known are its own, within what an index can lead
/// to. They are padded to a multiple of `pad`. MARLIN_E_FORMAT if they are outside.
Result<Slots> own_slots(const PackedMatrix& matrix, int64_t pad);

}  // namespace metal_marlin
