// What `quantize` says of the layers that it wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quantize_host.h"

namespace metal_marlin::tools {

/// The matrices that were not chosen to be quantized, for whatever reason.
struct Untouched {
  uint64_t matrices = 0, bytes = 0;
  std::string first;  ///< the name of one of them

  void add(const marlin_layer_info& layer) {
    if (matrices++ == 0) first = layer.name;
    bytes += layer.bytes;
  }
};

/// A table, and the sums below it. `all_bytes` are those of all tensors of the input; 0: nobody
/// knows.
void print_quantized(const std::vector<LayerOutcome>& outcomes, const Untouched& untouched,
                     uint64_t all_bytes, bool dry_run);
/// The same as one JSON object.
void print_quantized_json(const std::vector<LayerOutcome>& outcomes, const Untouched& untouched,
                          const std::string& input, const std::string& output, bool dry_run);

}  // namespace metal_marlin::tools
