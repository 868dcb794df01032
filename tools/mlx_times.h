// The times of MLX for the products of `report`, if there is a Python that has MLX.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace metal_marlin::tools {

struct MlxProducts {
  std::string python;  ///< the program to run; "": MLX is not asked
  int64_t n, k;
  double seconds;  ///< for each product, about
};

/// {"version", "device", "products": [{"format", "M", "seconds"}]}, or {"why_not": reason}. MLX
/// runs on its own default device, the GPU of a Mac, with half activations and copies of the
/// weights that are larger than the caches. A format ends with the first M that takes more than a
/// second. Formats are "int4", which is MLX's affine mode with
/// zeros, and "mxfp4"; groups are those of the command.
nlohmann::ordered_json mlx_times(const MlxProducts& products);

}  // namespace metal_marlin::tools
