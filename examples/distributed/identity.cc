#include "identity.h"

#include <cinttypes>
#include <cstdio>
#include <metal_marlin/metal_marlin.hpp>
#include <string_view>

namespace distributed {
namespace {

namespace mm = metal_marlin;

/// FNV-1a, which is enough to tell models apart by mistake (Fowler, Noll and Vo, 1991).
void mix(uint64_t& hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
}
void mix(uint64_t& hash, uint64_t number) {
  mix(hash, {reinterpret_cast<const char*>(&number), sizeof number});
}

std::string version_text(uint32_t version) {
  return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff) + "." +
         std::to_string(version & 0xff);
}

std::string hex(uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

}  // namespace

Identity identity_of(const std::string& path) {
  const mm::checkpoint file(path);
  Identity own;
  own.version = marlin_version();
  const auto number = [&](const char* key) -> uint64_t {
    auto value = mm::make<marlin_value>();
    return marlin_checkpoint_value(file.get(), key, &value, nullptr) == MARLIN_OK ? value.u64 : 0;
  };
  own.ranks = static_cast<uint32_t>(number("marlin.ranks"));
  own.rank = static_cast<uint32_t>(number("marlin.rank"));
  own.fingerprint = number("marlin.source_fingerprint");
  if (own.ranks != 0) return own;
  own.fingerprint = 0xcbf29ce484222325u;
  for (const marlin_layer_info& layer : file.layers()) {
    mix(own.fingerprint, std::string_view(layer.name));
    for (const uint64_t fact :
         {static_cast<uint64_t>(layer.n), static_cast<uint64_t>(layer.k), uint64_t{layer.experts},
          static_cast<uint64_t>(layer.format), layer.bytes})
      mix(own.fingerprint, fact);
  }
  return own;
}

std::string first_difference(std::span<const Identity> all) {
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string who = "rank " + std::to_string(i);
    const Identity& one = all[i];
    if (one.version != all[0].version)
      return who + ": expected version " + version_text(all[0].version) +
             " of the library as on rank 0, found " + version_text(one.version);
    if ((one.ranks == 0) != (all[0].ranks == 0))
      return who + ": expected a " +
             (all[0].ranks == 0 ? "file for all ranks" : "packed container") +
             " as on rank 0, found another kind of file";
    if (one.ranks != 0 && one.ranks != all.size())
      return who + ": expected a container for " + std::to_string(all.size()) +
             " ranks, found one for " + std::to_string(one.ranks);
    if (one.ranks != 0 && one.rank != i)
      return who + ": expected the container of this rank, found that of rank " +
             std::to_string(one.rank);
    if (one.fingerprint != all[0].fingerprint)
      return who + ": expected the model of rank 0 (fingerprint " + hex(all[0].fingerprint) +
             "), found another (" + hex(one.fingerprint) + ")";
  }
  return "";
}

std::string path_of_rank(const std::string& path, int64_t rank) {
  const size_t of = path.rfind("-of-");
  if (of == std::string::npos || of < 6 || !path.ends_with(".marlin") || path[of - 6] != '-')
    return path;
  char number[16];
  std::snprintf(number, sizeof number, "%05d", static_cast<int>(rank + 1));
  return path.substr(0, of - 5) + number + path.substr(of);
}

}  // namespace distributed
