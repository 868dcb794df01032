// How INT8 kernels of x86 read dense codes (layout.h).
#pragma once

#include "backends/cpu/kernels.h"

namespace metal_marlin::cpu {

enum class Reading : uint8_t {
  nibbles,     ///< lines of 4-bit codes
  less_zeros,  ///< the same, less integer zeros
  looked_up,   ///< 4-bit indices of FP4; AVX-512: and of IQ4
  iq4,         ///< AVX2: 4-bit indices in the codebook of IQ4, whose integers are signed
  two_bits,    ///< AVX2: a plane of 2 bits
  three_bits,  ///< AVX2: a plane of 2 bits and one of 1 bit
  five_bits,   ///< a plane of 4 bits and one of 1 bit
  six_bits,    ///< a plane of 4 bits and one of 2 bits
  bytes,       ///< lines of signed bytes, which may be expanded ones
  expanded,    ///< AVX2: lines of unsigned bytes, expanded ones of 4-bit codes
};

/// The reading that leaves codes packed, if there is one.
inline Reading packed_reading(const PanelArgs& args) {
  const PanelLayout& layout = *args.layout;
  if (layout.expansion == Expansion::iq4) return Reading::iq4;
  if (args.code == CodeKind::fp4) return Reading::looked_up;
  if (args.code == CodeKind::u4zero) return Reading::less_zeros;
  if (!is_eight_bits(args.code)) return Reading::nibbles;
  if (layout.expansion != Expansion::integers || layout.zero_kind == ZeroKind::integer)
    return Reading::bytes;
  switch (layout.code_bits) {
    case 2:
      return Reading::two_bits;
    case 3:
      return Reading::three_bits;
    case 5:
      return Reading::five_bits;
    default:
      return Reading::six_bits;
  }
}

/// Calls call.operator()<kReading>() for one of these readings.
template <Reading kFirst, Reading... kOthers, class Call>
void with_reading_of(Reading reading, Call call) {
  if constexpr (sizeof...(kOthers) != 0)
    if (reading != kFirst) return with_reading_of<kOthers...>(reading, call);
  call.template operator()<kFirst>();
}

}  // namespace metal_marlin::cpu
