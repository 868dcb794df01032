// XXH3 as its specification describes it (xxHash, doc/xxhash_spec.md), for the seed 0 and 64 bits.
#include "base/checksum.h"

#include <array>
#include <bit>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/bits.h"

namespace metal_marlin {
namespace {

constexpr uint64_t kPrime32[] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D};
constexpr uint64_t kPrime64[] = {0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                                 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};
constexpr uint64_t kMix1 = 0x165667919E3779F9, kMix2 = 0x9FB21C651E98DF25;

constexpr uint8_t kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
constexpr size_t kStripe = 64, kBlock = kStripe * (sizeof kSecret - kStripe) / 8;

using Lanes = std::array<uint64_t, 8>;

uint64_t read(const void* bytes, size_t at) {
  return load<uint64_t>(static_cast<const uint8_t*>(bytes) + at);
}
#ifdef __SSE2__
__m128i pair(const uint8_t* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}
#endif
uint64_t swapped(uint64_t v) {
  uint64_t reversed = 0;
  for (int byte = 0; byte < 8; ++byte) reversed = reversed << 8 | (v >> (8 * byte) & 0xff);
  return reversed;
}
/// The halves of the product of 128 bits, by exclusive or.
uint64_t folded_product(uint64_t a, uint64_t b) {
  const uint64_t low = uint32_t(a) * uint64_t{uint32_t(b)}, cross = (a >> 32) * uint32_t(b);
  const uint64_t middle = (low >> 32) + uint32_t(cross) + uint32_t(a) * (b >> 32);
  return (middle << 32 | uint32_t(low)) ^ ((cross >> 32) + (middle >> 32) + (a >> 32) * (b >> 32));
}
uint64_t avalanche(uint64_t v) {
  v = (v ^ v >> 37) * kMix1;
  return v ^ v >> 32;
}
uint64_t avalanche_of_short(uint64_t v) {
  v = (v ^ v >> 33) * kPrime64[1];
  v = (v ^ v >> 29) * kPrime64[2];
  return v ^ v >> 32;
}
uint64_t mixed(const uint8_t* bytes, size_t secret) {
  return folded_product(read(bytes, 0) ^ read(kSecret, secret),
                        read(bytes, 8) ^ read(kSecret, secret + 8));
}

uint64_t up_to_16(const uint8_t* bytes, size_t size) {
  if (size == 0) return avalanche_of_short(read(kSecret, 56) ^ read(kSecret, 64));
  if (size < 4) {
    const uint32_t all = uint32_t{bytes[0]} << 16 | uint32_t{bytes[size / 2]} << 24 |
                         uint32_t{bytes[size - 1]} | uint32_t(size) << 8;
    return avalanche_of_short(all ^ (load<uint32_t>(kSecret) ^ load<uint32_t>(kSecret + 4)));
  }
  if (size <= 8) {
    const uint64_t all = load<uint32_t>(bytes + size - 4) + (uint64_t{load<uint32_t>(bytes)} << 32);
    uint64_t v = all ^ read(kSecret, 8) ^ read(kSecret, 16);
    v = (v ^ std::rotl(v, 49) ^ std::rotl(v, 24)) * kMix2;
    v = (v ^ ((v >> 35) + size)) * kMix2;
    return v ^ v >> 28;
  }
  const uint64_t low = read(bytes, 0) ^ read(kSecret, 24) ^ read(kSecret, 32);
  const uint64_t high = read(bytes, size - 8) ^ read(kSecret, 40) ^ read(kSecret, 48);
  return avalanche(size + swapped(low) + high + folded_product(low, high));
}

uint64_t up_to_240(const uint8_t* bytes, size_t size) {
  uint64_t sum = size * kPrime64[0];
  if (size <= 128) {
    for (size_t i = (size - 1) / 32 + 1; i-- > 0;)
      sum += mixed(bytes + 16 * i, 32 * i) + mixed(bytes + size - 16 * (i + 1), 32 * i + 16);
    return avalanche(sum);
  }
  for (size_t i = 0; i < 8; ++i) sum += mixed(bytes + 16 * i, 16 * i);
  sum = avalanche(sum);
  for (size_t i = 8; i < size / 16; ++i) sum += mixed(bytes + 16 * i, 16 * (i - 8) + 3);
  return avalanche(sum + mixed(bytes + size - 16, 136 - 17));
}

/// Whole stripes, each with a secret that begins 8 bytes after that of the one before. clang makes
/// vectors of the loop; g++ does not see that a multiplication of 32 bits is enough.
void accumulate(Lanes& lanes, const uint8_t* stripe, size_t count, size_t secret) {
#ifdef __SSE2__
  __m128i sums[4];
  std::memcpy(sums, &lanes, sizeof sums);
  for (; count > 0; --count, stripe += kStripe, secret += 8) {
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const __m128i values = pair(stripe + 16 * i);
      const __m128i keys = _mm_xor_si128(values, pair(kSecret + secret + 16 * i));
      const __m128i products = _mm_mul_epu32(keys, _mm_srli_epi64(keys, 32));
      const __m128i swapped = _mm_shuffle_epi32(values, _MM_SHUFFLE(1, 0, 3, 2));
      sums[i] = _mm_add_epi64(sums[i], _mm_add_epi64(products, swapped));
    }
  }
  std::memcpy(&lanes, sums, sizeof sums);
#else
  for (; count > 0; --count, stripe += kStripe, secret += 8) {
    for (size_t i = 0; i < lanes.size(); i += 2) {
      const uint64_t first = read(stripe, 8 * i), second = read(stripe, 8 * i + 8);
      const uint64_t key = first ^ read(kSecret, secret + 8 * i);
      const uint64_t next = second ^ read(kSecret, secret + 8 * i + 8);
      lanes[i] += second + (key & 0xffffffff) * (key >> 32);
      lanes[i + 1] += first + (next & 0xffffffff) * (next >> 32);
    }
  }
#endif
}

uint64_t of_stripes(const uint8_t* bytes, size_t size) {
  Lanes lanes = {kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2],
                 kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]};
  size_t at = 0;
  for (; at + kBlock < size; at += kBlock) {
    accumulate(lanes, bytes + at, kBlock / kStripe, 0);
    for (size_t i = 0; i < lanes.size(); ++i)
      lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ read(kSecret, sizeof kSecret - kStripe + 8 * i)) *
                 kPrime32[0];
  }
  accumulate(lanes, bytes + at, (size - at - 1) / kStripe, 0);
  accumulate(lanes, bytes + size - kStripe, 1, sizeof kSecret - kStripe - 7);
  uint64_t sum = size * kPrime64[0];
  for (size_t i = 0; i < 4; ++i)
    sum += folded_product(lanes[2 * i] ^ read(kSecret, 11 + 16 * i),
                          lanes[2 * i + 1] ^ read(kSecret, 19 + 16 * i));
  return avalanche(sum);
}

}  // namespace

uint64_t checksum(std::span<const std::byte> span) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(span.data());
  if (span.size() <= 16) return up_to_16(bytes, span.size());
  return span.size() <= 240 ? up_to_240(bytes, span.size()) : of_stripes(bytes, span.size());
}

}  // namespace metal_marlin
