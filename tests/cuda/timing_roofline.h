// The products of a table as the drawing of `metal-marlin bench --svg`.
#pragma once

#include <span>
#include <string>

#include "timing_report.h"

namespace timing {

/// A whole SVG file: the speed of products over the operations a byte of weights, below what reading reached at best and, where
/// there is cuBLAS, its best product of 16-bit weights.
std::string roofline_of(const Setting& setting, std::span<const ProductResult> results);

}  // namespace timing
