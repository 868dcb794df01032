// The checksum of the files that this library writes for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace metal_marlin {

/// XXH3, 64 bits with seed 0, of the xxHash library. It finds every accident; it is no defense
/// against a person who makes a file on purpose. Precondition: check_checksums().
uint64_t checksum(std::span<const std::byte> bytes);
/// MARLIN_E_UNSUPPORTED if the library was built without xxHash.
Status check_checksums();

}  // namespace metal_marlin
