// The folder in which the library keeps files of its own, and the names of these files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metal_marlin {

/// FNV-1a, 64 bits: names files after what their contents depend on.
class Hash {
 public:
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

/// The folder of this user's caches, with "metal-marlin" appended: below ~/Library/Caches on
/// Apple's systems, below $XDG_CACHE_HOME or ~/.cache elsewhere. It need not exist. Empty if the
/// environment names none.
std::string user_cache_folder();
/// Makes the folder and, if it must, the one above it, for this user alone: ~/.cache, but no home
/// that is not there. False if it cannot be made.
bool make_folders(const std::string& path);
/// A name beside `path` for a file that is not complete yet: another one on each call, which nobody
/// can foretell.
std::string part_name(const std::string& path);

}  // namespace metal_marlin
