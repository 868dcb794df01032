// The table of recognizers (recognizers.inc): how files announce the layouts that they hold. It
// refers to the rows of the table of layouts, which knows nothing of files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "checkpoints/recognize.h"
#include "layouts/layout_table.h"

namespace metal_marlin {

enum class RecognizerId : uint8_t {
#define MARLIN_RECOGNIZER(id, ...) id,
#include "checkpoints/recognizers/recognizers.inc"
};

struct Recognizer {
  /// Looks at one tensor: nothing unless it is the codes (or floats) of a layer of its family.
  std::optional<Finding> (*recognize)(const Finder& finder, const TensorView& tensor);
  std::span<const LayoutId> layouts;  ///< that it finds
};

/// All, in the order of RecognizerId.
std::span<const Recognizer> recognizers();
/// Whether this recognizer finds layers in the layout that a caller calls `number`.
bool finds(RecognizerId id, marlin_layout number);

// Each in its own file.
#define MARLIN_RECOGNIZER(id, ...) \
  std::optional<Finding> recognize_##id(const Finder& finder, const TensorView& tensor);
#include "checkpoints/recognizers/recognizers.inc"

}  // namespace metal_marlin
