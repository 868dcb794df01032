#include "base/checksum.h"

#if defined(__has_include)
#if __has_include(<xxhash.h>)
#define XXH_INLINE_ALL  // no symbol of it is linked or exported
#include <xxhash.h>
#endif
#endif

namespace metal_marlin {

#if defined(XXH_VERSION_NUMBER)

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
Status check_checksums() { return {}; }

#else

uint64_t checksum(std::span<const std::byte>) { return 0; }
Status check_checksums() {
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "this library was built without xxHash, which packed containers (.marlin) "
                       "need");
}

#endif

}  // namespace metal_marlin
