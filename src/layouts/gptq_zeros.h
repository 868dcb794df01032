// The packed zeros of GPTQ: each group has a row of words, which is one stream of codes along N.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

/// How GPTQ stores a zero point z.
enum class ZeroReading : uint8_t {
  as_stored,   ///< v2: z
  wrap,        ///< v1: z - 1 modulo 2^bits in the place of each zero
  past_limit,  ///< v1: z - 1, where the largest code stands for z = 2^bits
  carry        ///< v1: the words minus those of a row of ones, modulo 2^32 each
};

/// Memory is borrowed. `bits` is 2, 3, 4 or 8.
class GptqZeros {
 public:
  GptqZeros() = default;
  GptqZeros(const std::byte* words, int64_t n, int64_t groups, int bits, ZeroReading reading);

  /// The words of a row of n codes.
  static int64_t words_of_row(int64_t n, int bits);
  int at(int64_t group, int64_t n) const;
  /// out[n - first][g] for n in [first, first + count).
  void gather(int64_t first, int64_t count, std::vector<uint8_t>& out) const;

  /// Keeps groups [first, first + count).
  void narrow(int64_t first, int64_t count) {
    words_ += first * row_words_ * 4;
    groups_ = count;
  }

  struct Place {
    int64_t group, n;
  };
  /// The first zero that is not `zero`.
  std::optional<Place> find_other_than(int zero) const;
  /// The first stored code that is the largest of its width. In v1, it can only be the -1 of z = 0.
  std::optional<Place> find_largest_code() const;
  /// Whether all words of 3-bit zeros are those which GPTQModel before version 7 wrote for
  /// symmetric weights.
  bool are_swapped_fours() const;

 private:
  template <class Holds>
  std::optional<Place> find(Holds holds) const;
  uint32_t word(int64_t group, int64_t index) const;
  uint32_t code(int64_t group, int64_t n) const;

  const std::byte* words_ = nullptr;
  int64_t n_ = 0, groups_ = 0, row_words_ = 0;
  int bits_ = 0;
  uint32_t add_to_word_[3] = {};  // to words 3 i, 3 i + 1 and 3 i + 2 of a row
  int add_ = 0, mask_ = 0;
};

}  // namespace metal_marlin
