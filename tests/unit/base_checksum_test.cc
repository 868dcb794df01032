// XXH3 against what the xxHash library 0.8.1 says of the same bytes.
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <vector>

namespace metal_marlin {
namespace {

TEST(Checksum, IsXxh3OfEveryLength) {
  std::vector<std::byte> bytes(4500);
  uint32_t state = 1;
  for (std::byte& byte : bytes) byte = std::byte((state = state * 1664525u + 1013904223u) >> 24);
  // Lengths from the first number to before the second, a third of them unaligned; all digests in one number.
  struct {
    size_t begin, end;
    uint64_t digests;
  } constexpr kKnown[] = {{0, 17, 0xadea2716908d42e3}, {17, 241, 0x5da7fd78f9fa5c4d}, {241, 4500, 0x8b57e8aa72b9f761}};
  for (const auto& known : kKnown) {
    uint64_t all = 0;
    for (size_t size = known.begin; size < known.end; ++size) {
      const size_t at = size % 3 == 0 && size < 4400 ? 1 : 0;
      all = all * 31 + checksum(std::span(bytes).subspan(at, size));
    }
    EXPECT_EQ(all, known.digests) << "of up to " << known.end - 1 << " bytes";
  }
}

}  // namespace
}  // namespace metal_marlin
