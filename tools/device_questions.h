// What small products tell of a device that no other query does: whether it keeps subnormal
// numbers, and whether its matrix units hold elements in the lanes that the kernels expect.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "library.h"

namespace metal_marlin::tools {

/// {"subnormals": [...], "fragments": [...]}, one entry for each M of a few. A kernel is "" if the
/// device serves no such product.
///   subnormals  {"kernel", "M", "of", "dtype", "answer"}: "kept", "flushed" to zero, "wrong", or
///               "not served"
///   fragments   {"kernel", "M", "wrong", "first"}: elements of one-hot products that are not the
///               weight itself, and the first of them
nlohmann::ordered_json device_questions(marlin_context* context);

}  // namespace metal_marlin::tools
