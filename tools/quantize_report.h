// What `quantize` says of the layers that it wrote.
#pragma once

#include <string>
#include <vector>

#include "quantize_host.h"

namespace metal_marlin::tools {

/// A table, and the sums below it.
void print_quantized(const std::vector<LayerOutcome>& outcomes, bool dry_run);
/// The same as one JSON object.
void print_quantized_json(const std::vector<LayerOutcome>& outcomes, const std::string& input,
                          const std::string& output, bool dry_run);

}  // namespace metal_marlin::tools
