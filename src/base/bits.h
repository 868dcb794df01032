// Small integer and byte helpers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace metal_marlin {

static_assert(std::endian::native == std::endian::little,
              "files and packed layouts are little-endian");

/// Reads a T from memory of any alignment.
template <class T>
inline T load(const void* p) noexcept {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
inline void store(void* p, T v) noexcept {
  std::memcpy(p, &v, sizeof v);
}
constexpr int64_t ceil_div(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) noexcept { return ceil_div(a, b) * b; }

}  // namespace metal_marlin
