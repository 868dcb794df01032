// The same values in other canonical weights, without rounding: what lets a file change its layout
// and keep every value.
//
// - Weights of the same format, with the same types of scales and zeros, keep their codes and their
//   scales.
// - Integers, and IQ4, become integers of another width: a scale stays as it is, and a code moves
//   by its zero point. Zeros that are integers become additive ones (-zero * scale) or go into the
//   codes (5 bits hold every 4-bit code less its zero).
// - A group may be split, because its parts take its scale.
//
// A value that is 0 may change its sign.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Whether weights of meta `from` may be weights of meta `to`, as far as the metas say.
bool may_recode(const WeightMeta& from, const WeightMeta& to);

/// Recodes a stripe; false if a code, scale or zero has no place in `to`. may_recode has allowed
/// it.
bool recode(const WeightMeta& from, const Stripe& in, const WeightMeta& to, int64_t rows,
            Stripe& out);

/// A source that recodes what another one reads, which recode() has accepted everywhere.
std::unique_ptr<WeightSource> make_recoded(std::unique_ptr<WeightSource> source,
                                           const WeightMeta& to);

}  // namespace metal_marlin
