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

/// The rows that one task takes.
int64_t stripe_rows(int64_t k);

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

/// The meta that a matrix [n, k] gets as number `place` of options.layers, as far as it follows
/// from the shape.
Result<WeightMeta> requested_meta(const Scheme& scheme, const ConvertOptions& options, size_t place,
                                  int64_t n, int64_t k);
/// The group size that is asked for, before a row that is shorter than it.
int64_t requested_group(const Scheme& scheme, const ConvertOptions& options);

/// Weights of this meta. Reads the matrix once for its largest magnitude if the format needs it.
/// `floats` must outlive the source. `place` is that of the layer in options.layers.
Result<std::unique_ptr<WeightSource>> quantized_source(const LayerFloats& floats,
                                                       const WeightMeta& meta, size_t place,
                                                       const Scheme& scheme,
                                                       const ConvertOptions& options);

/// Encodes all rows, a batch of stripes at a time. After each batch, on_rows(rows so far) may stop
/// the work.
Status encode_matrix(const LayerFloats& floats, const WeightSource& source, const Scheme& scheme,
                     Encoder& encoder, const TensorWriter& out, const ConvertHost& host,
                     const std::function<Status(int64_t)>& on_rows, QuantizeSums& sums);

}  // namespace metal_marlin
