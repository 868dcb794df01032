// Draws the roofline as SVG: the speed of products over the operations per byte of weights.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure.h"

namespace metal_marlin::tools {

struct RooflinePoint {
  std::string series;  ///< one color and one line of the legend each
  bool filled;         ///< a disc, else a ring
  int64_t m;
  double intensity;  ///< operations a byte of weights
  double rate;       ///< operations a second
  double fraction;   ///< of the limit
};

struct Roofline {
  std::string title, subtitle;
  double read_rate;                                   ///< bytes a second
  std::string reading;                                ///< how memory was read
  std::vector<std::pair<std::string, double>> peaks;  ///< instruction, operations a second
  std::vector<RooflinePoint> points;
};

/// Limits are medians over all measurements. Each product is placed at its own fraction of them,
/// because the speed of the machine drifts during a run, and the fraction was measured in turn.
Roofline roofline_of(std::span<const Measurement> measurements);
/// "reading memory 80.1 GB/s (64-byte loads, 4 streams, ...), vdpbf16ps 1010 Gop/s, ..."
std::string limits_text(const Roofline& roofline);
/// A whole SVG file, 960 x 600, for light and dark backgrounds. No label lies on a point or on
/// another label.
std::string render_roofline(const Roofline& roofline);

}  // namespace metal_marlin::tools
