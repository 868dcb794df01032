// The checksum of the files that this library writes for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace metal_marlin {

/// XXH3, 64 bits with seed 0. It finds every accident; it is no defense against a person who makes
/// a file on purpose.
uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace metal_marlin
