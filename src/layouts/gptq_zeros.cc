#include "layouts/gptq_zeros.h"

#include <algorithm>

#include "base/bits.h"
#include "layouts/nibbles.h"

namespace metal_marlin {
namespace {

/// What GPTQModel subtracts when it writes zeros of 3 bits in v1, up to its version 6. A row of
/// ones would be 49249249, 92492492, 24924924: it swaps the first and the third word.
constexpr uint32_t kSwappedOnes[3] = {0x24924924u, 0x92492492u, 0x49249249u};
/// Its words for zeros of 4: the row of fours (24924924, 49249249, 92492492) minus these.
constexpr uint32_t kSwappedFours[3] = {0x00000000u, 0xb6db6db7u, 0x49249249u};

/// Words of codes 1, for widths that divide 32.
constexpr uint32_t ones(int bits) { return 0xffffffffu / ((1u << bits) - 1); }

}  // namespace

GptqZeros::GptqZeros(const std::byte* words, int64_t n, int64_t groups, int bits,
                     ZeroReading reading)
    : words_(words),
      n_(n),
      groups_(groups),
      row_words_(words_of_row(n, bits)),
      bits_(bits),
      mask_((1 << bits) - 1) {
  if (reading == ZeroReading::carry) {
    for (size_t i = 0; i < 3; ++i) add_to_word_[i] = bits == 3 ? kSwappedOnes[i] : ones(bits);
  } else if (reading != ZeroReading::as_stored) {
    add_ = 1;
    if (reading == ZeroReading::past_limit) mask_ = (2 << bits) - 1;
  }
}

int64_t GptqZeros::words_of_row(int64_t n, int bits) { return ceil_div(n * bits, 32); }

uint32_t GptqZeros::word(int64_t group, int64_t index) const {
  const uint64_t sum =
      uint64_t{load<uint32_t>(words_ + (group * row_words_ + index) * 4)} + add_to_word_[index % 3];
  return static_cast<uint32_t>(sum);  // modulo 2^32
}

uint32_t GptqZeros::code(int64_t group, int64_t n) const {
  return code_of_stream([&](int64_t index) { return word(group, index); }, bits_, n);
}

int GptqZeros::at(int64_t group, int64_t n) const {
  return (static_cast<int>(code(group, n)) + add_) & mask_;
}

void GptqZeros::gather(int64_t first, int64_t count, std::vector<uint8_t>& out) const {
  out.resize(static_cast<size_t>(count * groups_));
  for (int64_t g = 0; g < groups_; ++g) {
    for (int64_t r = 0; r < count; ++r)
      out[static_cast<size_t>(r * groups_ + g)] = static_cast<uint8_t>(at(g, first + r));
  }
}

template <class Holds>
std::optional<GptqZeros::Place> GptqZeros::find(Holds holds) const {
  for (int64_t g = 0; g < groups_; ++g) {
    for (int64_t n = 0; n < n_; ++n) {
      if (holds(g, n)) return Place{g, n};
    }
  }
  return std::nullopt;
}

std::optional<GptqZeros::Place> GptqZeros::find_other_than(int zero) const {
  return find([&](int64_t g, int64_t n) { return at(g, n) != zero; });
}

std::optional<GptqZeros::Place> GptqZeros::find_largest_code() const {
  constexpr uint32_t kLargest = 0xFF;  // of codes of 8 bits, the widest there are
  return find([&](int64_t g, int64_t n) { return code(g, n) == kLargest >> (8 - bits_); });
}

bool GptqZeros::are_swapped_fours() const {
  if (bits_ != 3) return false;
  for (int64_t i = 0; i < groups_ * row_words_; ++i) {
    if (load<uint32_t>(words_ + i * 4) != kSwappedFours[i % row_words_ % 3]) return false;
  }
  return true;
}

}  // namespace metal_marlin
