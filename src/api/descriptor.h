// The one reader and writer of structs that carry a struct_size, so that every descriptor grows by
// the same rule.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace metal_marlin::api {

/// The bytes of each struct in version 1 of the ABI. They never change; a struct grows after them.
template <class T>
inline constexpr uint32_t kVersion1Size = 0;
template <>
inline constexpr uint32_t kVersion1Size<marlin_error> = 256;
template <>
inline constexpr uint32_t kVersion1Size<marlin_device_info> = 280;
template <>
inline constexpr uint32_t kVersion1Size<marlin_context_desc> = 64;
template <>
inline constexpr uint32_t kVersion1Size<marlin_stream_desc> = 64;
template <>
inline constexpr uint32_t kVersion1Size<marlin_pack_desc> = 328;
template <>
inline constexpr uint32_t kVersion1Size<marlin_gemm_desc> = 264;
template <>
inline constexpr uint32_t kVersion1Size<marlin_load_desc> = 40;
template <>
inline constexpr uint32_t kVersion1Size<marlin_open_desc> = 16;
template <>
inline constexpr uint32_t kVersion1Size<marlin_layer_info> = 64;
template <>
inline constexpr uint32_t kVersion1Size<marlin_convert_desc> = 88;
template <>
inline constexpr uint32_t kVersion1Size<marlin_save_desc> = 32;
template <>
inline constexpr uint32_t kVersion1Size<marlin_value> = 80;

/// No struct will ever be longer. A larger struct_size is uninitialized memory, and the library
/// must not read that many bytes.
inline constexpr uint32_t kMaxStructSize = 4096;
/// Each version of each struct ends at such a multiple. A size that is none could end inside a
/// pointer, and the library would follow half of an address.
inline constexpr uint32_t kStructSizeUnit = 8;
template <class T>
inline constexpr bool kMayCross =
    kVersion1Size<T> != 0 && kVersion1Size<T> % kStructSizeUnit == 0 &&
    sizeof(T) % kStructSizeUnit == 0 && sizeof(T) <= kMaxStructSize;

/// The struct_size of a caller's struct of any alignment, if it is legal.
Result<uint32_t> struct_size_of(const void* caller, uint32_t version1_size,
                                const char* name) noexcept;
/// Copies a caller's input struct into `to` of `size` bytes. Fields that the caller does not know
/// become 0, and fields that this version does not know must be 0. The struct_size of `to` becomes
/// `size`.
Status read_struct(const void* caller, void* to, uint32_t size, uint32_t version1_size,
                   const char* name) noexcept;
/// Copies `from` of `size` bytes to a caller's output struct, as far as it fits. Fields that this
/// version does not know become 0. The caller's struct_size stays.
Status write_struct(void* caller, const void* from, uint32_t size, uint32_t version1_size,
                    const char* name) noexcept;

/// `caller` must not be NULL.
template <class T>
Result<T> read_descriptor(const T* caller, const char* name) noexcept {
  static_assert(kMayCross<T>);
  T local;
  MARLIN_RETURN_IF_ERROR(read_struct(caller, &local, sizeof local, kVersion1Size<T>, name));
  return local;
}
/// `caller` may be NULL, which means all defaults.
template <class T>
Result<T> read_optional_descriptor(const T* caller, const char* name) noexcept {
  if (caller != nullptr) return read_descriptor(caller, name);
  T local{};
  local.struct_size = sizeof local;
  return local;
}
/// Checks, before any work is done, that `caller` is an output struct that write_descriptor()
/// accepts.
template <class T>
Status check_output(const T* caller, const char* name) noexcept {
  if (caller == nullptr) return Status::error(MARLIN_E_ARGUMENT, "%s is NULL", name);
  return struct_size_of(caller, kVersion1Size<T>, name).status();
}
template <class T>
Status write_descriptor(T* caller, const T& from, const char* name) noexcept {
  static_assert(kMayCross<T>);
  return write_struct(caller, &from, sizeof from, kVersion1Size<T>, name);
}

}  // namespace metal_marlin::api
