// The table of recognizers (recognizers.inc): how files announce their layouts. It refers to the
// rows of the table of layouts, which does not know files.
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
  /// Looks at one tensor. Returns nothing unless it is the codes (or floats) of a layer of the
  /// family.
  std::optional<Finding> (*recognize)(const Finder& finder, const TensorView& tensor);
  std::span<const LayoutId> layouts;  ///< that it finds
};

/// All recognizers, in the order of RecognizerId.
std::span<const Recognizer> recognizers();
/// The format of integer codes of this width that have one zero point for all, or nothing.
std::optional<marlin_format> integer_format(int64_t bits);
/// The layer of a matrix of floats.
Finding take_floats(const Finder& finder, std::string_view base, const TensorView& tensor);
/// Takes a number without a sign, up to 2^32 - 1, from the front of `text`; nothing if none is
/// there.
std::optional<uint32_t> take_number(std::string_view& text);
/// Whether this recognizer finds layers in the layout that a caller calls `number`.
bool finds(RecognizerId id, marlin_layout number);

// The recognizers, each in its own file.
#define MARLIN_RECOGNIZER(id, ...) \
  std::optional<Finding> recognize_##id(const Finder& finder, const TensorView& tensor);
#include "checkpoints/recognizers/recognizers.inc"

}  // namespace metal_marlin
