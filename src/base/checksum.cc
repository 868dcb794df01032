#include "base/checksum.h"

#if defined(__has_include)
#if __has_include(<xxhash.h>)
#define XXH_INLINE_ALL  // no symbol of it is linked or exported
#include <xxhash.h>
#endif
#endif

namespace metal_marlin {

Result<uint64_t> checksum(std::span<const std::byte> bytes) {
#if defined(XXH_VERSION_NUMBER)
  return uint64_t{XXH3_64bits(bytes.data(), bytes.size())};
#else
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "checksum of %zu bytes: this library was built without xxHash, which "
                       "packed containers (.marlin) need",
                       bytes.size());
#endif
}

}  // namespace metal_marlin
