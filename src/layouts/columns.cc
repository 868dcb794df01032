#include "layouts/columns.h"

#include "base/bits.h"

namespace metal_marlin {
namespace {

template <class T>
void gather(const std::byte* from, int64_t stride, int64_t groups, int64_t first, int64_t count,
            uint8_t* out) {
  for (int64_t g = 0; g < groups; ++g) {
    const std::byte* row = from + (g * stride + first) * static_cast<int64_t>(sizeof(T));
    for (int64_t n = 0; n < count; ++n) {
      store(out + (n * groups + g) * static_cast<int64_t>(sizeof(T)),
            load<T>(row + n * static_cast<int64_t>(sizeof(T))));
    }
  }
}

}  // namespace

void gather_columns(const std::byte* from, int64_t stride, size_t size, int64_t groups,
                    int64_t first, int64_t count, std::vector<uint8_t>& out) {
  out.resize(static_cast<size_t>(count * groups) * size);
  switch (size) {
    case 1:
      return gather<uint8_t>(from, stride, groups, first, count, out.data());
    case 2:
      return gather<uint16_t>(from, stride, groups, first, count, out.data());
    default:
      return gather<uint32_t>(from, stride, groups, first, count, out.data());
  }
}

void gather_packed_columns(const std::byte* from, int64_t words, const uint8_t (&nibble_of)[8],
                           int64_t groups, int64_t first, int64_t count,
                           std::vector<uint8_t>& out) {
  out.resize(static_cast<size_t>(count * groups));
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < count; ++n) {
      const auto word = load<uint32_t>(from + (g * words + (first + n) / 8) * 4);
      out[static_cast<size_t>(n * groups + g)] =
          static_cast<uint8_t>(word >> 4 * nibble_of[(first + n) % 8] & 15u);
    }
  }
}

}  // namespace metal_marlin
