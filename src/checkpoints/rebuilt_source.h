// A source that is built when it is read, and again when it is read once more.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

using SourceMaker = std::function<Result<std::unique_ptr<WeightSource>>()>;

/// A source of what `make` gives, which holds copies of the file. They live from the first row that
/// is read until as many rows have been read as there are, so that loading a stack of experts
/// needs the copies of one expert and not of all. Calls `make` here, to see whether it succeeds.
Result<std::unique_ptr<WeightSource>> make_rebuilt(SourceMaker make);

}  // namespace metal_marlin
