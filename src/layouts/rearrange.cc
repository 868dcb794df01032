#include "layouts/rearrange.h"

#include <algorithm>
#include <cstring>

#include "base/bits.h"

namespace metal_marlin {
namespace {

/// Blocks of 32 x 32 elements keep the lines of both orders in the cache.
template <class T>
void transpose(const std::byte* from, int64_t rows, int64_t columns, std::byte* to) {
  constexpr int64_t kBlock = 32;
  for (int64_t r = 0; r < rows; r += kBlock)
    for (int64_t c = 0; c < columns; c += kBlock)
      for (int64_t i = r; i < std::min(r + kBlock, rows); ++i)
        for (int64_t j = c; j < std::min(c + kBlock, columns); ++j)
          std::memcpy(to + (i * columns + j) * static_cast<int64_t>(sizeof(T)),
                      from + (j * rows + i) * static_cast<int64_t>(sizeof(T)), sizeof(T));
}

void untile(const std::byte* from, int64_t rows, int64_t columns, std::byte* to) {
  const int64_t tiles = tiled_columns(columns) / 4;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t tile = r / 128 * tiles + c / 4, row = r % 128;
      to[r * columns + c] = from[tile * 512 + row % 32 * 16 + row / 32 * 4 + c % 4];
    }
  }
}

}  // namespace

std::vector<std::byte> rearrange(const TensorView& view, Rearrangement how) {
  const int64_t rows = rows_of(view), columns = cols_of(view), elements = rows * columns;
  const std::byte* const from = view.data;
  size_t bytes = view.bytes;
  if (how == Rearrangement::widen_e5m2) bytes = 2 * view.bytes;
  if (how == Rearrangement::scale_tiles) bytes = static_cast<size_t>(elements);
  std::vector<std::byte> out(bytes);
  switch (how) {
    case Rearrangement::transpose:
      switch (elements == 0 ? 0 : static_cast<int64_t>(view.bytes) / elements) {
        case 1:
          transpose<uint8_t>(from, rows, columns, out.data());
          break;
        case 2:
          transpose<uint16_t>(from, rows, columns, out.data());
          break;
        case 4:
          transpose<uint32_t>(from, rows, columns, out.data());
          break;
        default:
          break;
      }
      break;
    case Rearrangement::swap_nibbles:
      std::transform(from, from + view.bytes, out.begin(),
                     [](std::byte b) { return b << 4 | b >> 4; });
      break;
    case Rearrangement::halve_words:
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          std::memcpy(out.data() + 4 * (r * columns + c),
                      from + 8 * (r / 2 * columns + c) + 4 * (r % 2), 4);
      break;
    case Rearrangement::scale_tiles:
      untile(from, rows, columns, out.data());
      break;
    case Rearrangement::widen_e5m2:
      for (uint64_t i = 0; i < view.bytes; ++i) {
        out[2 * i] = std::byte{0};
        out[2 * i + 1] = from[i];
      }
      break;
  }
  return out;
}

}  // namespace metal_marlin
