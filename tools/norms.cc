#include "norms.h"

#include <fmt/format.h>

#include <cstring>

#include "command.h"
#include "names.h"

namespace metal_marlin::tools {

std::vector<float> Norms::of(const marlin_layer_info& layer) const {
  auto error = make<marlin_error>();
  marlin_matrix matrix{};
  check(marlin_checkpoint_tensor(checkpoint_.get(), layer.name, &matrix, &error), error,
        fmt::format("cannot read the norms of {} from {}", layer.name, path_));
  if (matrix.dtype != MARLIN_F32 || matrix.rows != 1 || matrix.cols != layer.k) {
    throw Failure(
        fmt::format("{}: the norms of {}: expected {} numbers in f32, found {} x {} in {}", path_,
                    layer.name, layer.k, matrix.rows, matrix.cols, dtype_name(matrix.dtype)));
  }
  std::vector<float> norms(static_cast<size_t>(layer.k));
  std::memcpy(norms.data(), static_cast<const std::byte*>(matrix.data) + matrix.offset_bytes,
              norms.size() * sizeof(float));
  return norms;  // a copy: a file's floats may lie at any address
}

}  // namespace metal_marlin::tools
