#include "float_layer.h"

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
    check(status, error, fmt::format("cannot read '{}'", name));
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

FloatLayer::FloatLayer(const marlin_checkpoint* checkpoint, const marlin_layer_info& layer)
    : layer_(layer) {
  const std::string name = layer.name;
  int64_t width = layer.k;
  if ((layer.flags & MARLIN_LAYER_SPARSE_2_4) != 0) {
    values_ = find_tensor(checkpoint, name + ".compressed");
    bitmask_ = find_tensor(checkpoint, name + ".bitmask");
    width = layer.k / 2;
    if (bitmask_.data == nullptr) values_.data = nullptr;
  } else {
    values_ = find_tensor(checkpoint, layer.layout == MARLIN_LAYOUT_GGUF ? name : name + ".weight");
  }
  if (values_.data == nullptr || values_.rows != layer.n * layer.experts || values_.cols != width) {
    throw Failure(fmt::format("cannot find the values of '{}'", name));
  }
}

void FloatLayer::read_sparse_row(int64_t row, float* out) const {
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

void FloatLayer::read(uint32_t expert, int64_t first, int64_t count, float* out) const {
  for (int64_t r = 0; r < count; ++r, out += layer_.k) {
    const int64_t row = expert * layer_.n + first + r;
    if (bitmask_.data != nullptr) {
      read_sparse_row(row, out);
    } else {
      for (int64_t k = 0; k < layer_.k; ++k) out[k] = element(values_, row * layer_.k + k);
    }
  }
}

}  // namespace metal_marlin::tools
