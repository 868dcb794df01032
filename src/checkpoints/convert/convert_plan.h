// The plan of a conversion: what it writes, and where. It is made and checked before any file is
// opened for writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/convert.h"
#include "checkpoints/convert/output_plan.h"
#include "checkpoints/convert/quantize_layer.h"
#include "checkpoints/convert/scheme.h"

namespace metal_marlin {

struct PlannedLayer {
  size_t index = 0;         ///< among the input's layers
  size_t place = 0;         ///< in ConvertOptions::layers
  WeightMeta meta;          ///< of its first expert, without the tensor scale's value
  bool exact = false;       ///< it is recoded: no value changes
  size_t first_tensor = 0;  ///< of its own among the plan's tensors, in the encoder's order
  size_t tensors = 0;       ///< how many
  Status status;            ///< why it is skipped
};

/// A piece of work. The pieces have the order of the input's tensors.
inline constexpr size_t kCopied = SIZE_MAX;
struct Step {
  size_t layer = kCopied;  ///< index into ConvertPlan::layers, or kCopied
  size_t tensor = 0;       ///< the input's tensor that is copied
  size_t output = 0;       ///< index of the first tensor of the output
};

/// A small text file beside the tensors.
struct SideFile {
  std::string name, text;
};

struct ConvertPlan {
  const Scheme* scheme = nullptr;
  std::vector<OutputTensor> tensors;
  std::vector<PlannedLayer> layers, skipped;
  std::vector<Step> steps;
  std::vector<PlannedFile> files;
  std::vector<SideFile> side_files;  ///< in the order in which they appear: an index last
};

/// Resolves MARLIN_SCHEME_AUTO; MARLIN_E_ARGUMENT for a number that is not a scheme.
Result<marlin_scheme> choose_scheme(const Checkpoint& input, const std::string& out_path,
                                    marlin_scheme asked);

/// `file` is the name of the one output file, or the stem of the names of shards. Reads floats only
/// if the type of the scales depends on them (INT4, INT8).
Result<ConvertPlan> plan_conversion(const Checkpoint& input, const Scheme& scheme,
                                    const std::string& file, const ConvertOptions& options);

/// Reports a layer to the host; skipped layers have a status.
void report_outcome(const Checkpoint& input, const ConvertPlan& plan, const PlannedLayer& layer,
                    const QuantizeSums& sums, const ConvertOptions& options);

}  // namespace metal_marlin
