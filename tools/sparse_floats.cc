#include "sparse_floats.h"

#include <fmt/core.h>

#include <cstring>

#include "command.h"
#include "host_matrix.h"
#include "library.h"

namespace metal_marlin::tools {
namespace {

/// The data is NULL if the checkpoint has no such tensor.
marlin_matrix find_tensor(const marlin_checkpoint* checkpoint, const std::string& name) {
  marlin_matrix matrix{};
  auto error = make<marlin_error>();
  const marlin_status status = marlin_checkpoint_tensor(checkpoint, name.c_str(), &matrix, &error);
  if (status != MARLIN_OK && status != MARLIN_E_NOT_FOUND)
    tools::check(status, error, fmt::format("cannot read '{}'", name));
  return matrix;
}

const std::byte* bytes_of(const marlin_matrix& matrix) {
  return static_cast<const std::byte*>(matrix.data) + matrix.offset_bytes;
}

/// Element `index` of tightly packed F32, F16 or BF16 at any address.
float element(const marlin_matrix& matrix, int64_t index) {
  if (matrix.dtype == MARLIN_F32) {
    float value;
    std::memcpy(&value, bytes_of(matrix) + index * 4, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes_of(matrix) + index * 2, sizeof bits);
  return matrix.dtype == MARLIN_F16 ? from_f16(bits) : from_bf16(bits);
}

[[noreturn]] void throw_bad_mask(const marlin_layer_info& layer, int64_t row) {
  throw Failure(fmt::format("'{}': row {} of its bitmask does not keep {} elements", layer.name,
                            row, layer.k / 2));
}

}  // namespace

SparseFloats::SparseFloats(const marlin_checkpoint* checkpoint, const marlin_layer_info& layer)
    : layer_(layer),
      values_(find_tensor(checkpoint, std::string(layer.name) + ".compressed")),
      bitmask_(find_tensor(checkpoint, std::string(layer.name) + ".bitmask")) {
  const bool whole = values_.data != nullptr && bitmask_.data != nullptr;
  if (!whole || values_.rows != layer.n || values_.cols != layer.k / 2)
    throw Failure(fmt::format("cannot find the values of '{}'", layer.name));
}

void SparseFloats::read_row(int64_t row, float* out) const {
  int64_t next = row * values_.cols;
  const int64_t end = next + values_.cols;
  for (int64_t k = 0; k < layer_.k; ++k) {
    const auto mask = std::to_integer<unsigned>(bytes_of(bitmask_)[row * bitmask_.cols + k / 8]);
    const bool kept = (mask >> k % 8 & 1u) != 0;
    if (kept && next == end) throw_bad_mask(layer_, row);
    out[k] = kept ? element(values_, next++) : 0.0f;
  }
  if (next != end) throw_bad_mask(layer_, row);
}

void SparseFloats::read(int64_t first, int64_t count, float* out) const {
  for (int64_t r = 0; r < count; ++r, out += layer_.k) read_row(first + r, out);
}

}  // namespace metal_marlin::tools
