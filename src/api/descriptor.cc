#include "api/descriptor.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/bits.h"

namespace metal_marlin::api {

Result<uint32_t> struct_size_of(const void* caller, uint32_t version1_size,
                                const char* name) noexcept {
  const auto size = load<uint32_t>(caller);
  if (size < version1_size || size > kMaxStructSize)
    return Status::error(MARLIN_E_STRUCT_SIZE,
                         "%s->struct_size is %u, expected %u or more (sizeof the struct)", name,
                         size, version1_size);
  if (size % kStructSizeUnit != 0)
    return Status::error(MARLIN_E_STRUCT_SIZE,
                         "%s->struct_size is %u, expected a multiple of %u (sizeof the struct)",
                         name, size, kStructSizeUnit);
  return size;
}

Status read_struct(const void* caller, void* to, uint32_t size, uint32_t version1_size,
                   const char* name) noexcept {
  MARLIN_ASSIGN(const uint32_t given, struct_size_of(caller, version1_size, name));
  const auto* bytes = static_cast<const unsigned char*>(caller);
  for (uint32_t i = size; i < given; ++i)
    if (bytes[i] != 0)
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "%s: byte %u of %u is not 0; this version knows %u bytes", name, i,
                           given, size);
  const uint32_t known = std::min(given, size);
  std::memcpy(to, caller, known);
  std::memset(static_cast<unsigned char*>(to) + known, 0, size - known);
  store(to, size);
  return {};
}

Status write_struct(void* caller, const void* from, uint32_t size, uint32_t version1_size,
                    const char* name) noexcept {
  MARLIN_ASSIGN(const uint32_t given, struct_size_of(caller, version1_size, name));
  auto* bytes = static_cast<unsigned char*>(caller);
  const uint32_t known = std::min(given, size);
  std::memcpy(bytes + sizeof given, static_cast<const unsigned char*>(from) + sizeof given,
              known - sizeof given);
  std::memset(bytes + known, 0, given - known);
  return {};
}

}  // namespace metal_marlin::api
