// One layer: its floats, quantized a stripe of rows at a time, encoded and compared with what they
// were.
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

/// body(i) for i in [0, count), each once, by the host's parallel_for or one after the other. The
/// error of the lowest index comes out; nothing that a body throws leaves its task.
Status run_tasks(const ConvertHost& host, uint32_t count,
                 const std::function<Status(uint32_t)>& body);

/// One expert of a layer as floats: borrowed from the file, or decoded.
struct LayerFloats {
  FloatMatrix matrix;
  std::vector<float> decoded;
};
Result<LayerFloats> floats_of(const Checkpoint& input, size_t layer, uint32_t expert,
                              const ConvertHost& host);

/// Reads the matrix once for its largest magnitude where the format wants that. `floats` must
/// outlive the source. `layer` is its number among the input's, which finds its column norms.
Result<std::unique_ptr<WeightSource>> quantized_source(const LayerFloats& floats, size_t layer,
                                                       const Scheme& scheme,
                                                       const ConvertOptions& options);

/// Encodes all rows, a batch of stripes at a time. After each batch on_rows(rows so far) may stop
/// it.
Status encode_matrix(const LayerFloats& floats, const WeightSource& source, const Scheme& scheme,
                     Encoder& encoder, const TensorWriter& out, const ConvertHost& host,
                     const std::function<Status(int64_t)>& on_rows, QuantizeSums& sums);

}  // namespace metal_marlin
