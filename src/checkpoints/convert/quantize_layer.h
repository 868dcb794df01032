// Converts one layer: quantizes its floats a stripe of rows at a time, encodes them, and compares
// them with the original floats.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/convert.h"
#include "checkpoints/convert/scheme.h"
#include "formats/quantize.h"

namespace metal_marlin {

/// Sums over all elements of a layer.
struct QuantizeSums {
  double squared_error = 0, squared_norm = 0, kept_norm = 0;
};

/// Runs body(i) once for each i in [0, count), by the host's parallel_for or in sequence. Returns
/// the error of the lowest index. No exception of a body leaves its task.
Status run_tasks(const ConvertHost& host, uint32_t count,
                 const std::function<Status(uint32_t)>& body);

/// One expert of a layer as floats: borrowed from the file, or decoded.
struct LayerFloats {
  FloatMatrix matrix;
  std::vector<float> decoded;
};
Result<LayerFloats> floats_of(const Checkpoint& input, size_t layer, uint32_t expert,
                              const ConvertHost& host);

/// Reads the matrix once for its largest magnitude if the format needs it. `floats` must outlive
/// the source. `layer` is the number of the layer in the input, which finds its column norms.
Result<std::unique_ptr<WeightSource>> quantized_source(const LayerFloats& floats, size_t layer,
                                                       const Scheme& scheme,
                                                       const ConvertOptions& options);

/// Encodes all rows, a batch of stripes at a time. After each batch, on_rows(rows so far) may stop
/// the work.
Status encode_matrix(const LayerFloats& floats, const WeightSource& source, const Scheme& scheme,
                     Encoder& encoder, const TensorWriter& out, const ConvertHost& host,
                     const std::function<Status(int64_t)>& on_rows, QuantizeSums& sums);

}  // namespace metal_marlin
