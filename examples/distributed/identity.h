// What ranks must have in common before they work together, and what differs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace distributed {

/// What one rank has. Ranks exchange it as bytes.
struct Identity {
  uint32_t version = 0;          // of the library
  uint32_t rank = 0, ranks = 0;  // that a packed container is for; ranks 0: a file for all
  uint32_t padding = 0;
  uint64_t fingerprint = 0;  // of the model
};

/// Of the file that this rank is about to load. Throws metal_marlin::error if it cannot be opened.
Identity identity_of(const std::string& path);

/// "" if these are the identities of all ranks of one job, in order; else which rank differs from
/// what is expected, and in what.
std::string first_difference(std::span<const Identity> all);

/// The file of this rank: of NAME-00001-of-0000N.marlin the one with its own number, else the path
/// itself.
std::string path_of_rank(const std::string& path, int64_t rank);

}  // namespace distributed
