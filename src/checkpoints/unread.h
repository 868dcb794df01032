// What no recognizer reads: tensors that belong to no layer, and tensors beside a layer that nobody
// knows. Nothing of the kind is silent, because a file may mean other values by it.
#pragma once

#include <cstddef>

#include "checkpoints/recognize.h"

namespace metal_marlin {

/// Whether the tensor must belong to a layer: it has two dimensions above 1 and is no bias (of
/// experts), or several elements of a type that only quantizers use.
bool is_matrix_or_codes(const TensorTable& tensors, size_t index);

/// Gives the layer the other tensors of its name ("LAYER.x"), but for biases and what concerns the
/// activations. If one of them is known to no reader, the layer cannot be read, and neither can a
/// quantized layer of files that contradict each other.
void check_siblings(const Finder& finder, Finding& found);

/// The layer of a tensor that no recognizer takes. Its status says so. Codes that are called
/// LAYER.x are one layer with the smaller tensors of the same name, unless they are `alone`.
Finding unread(const Finder& finder, const TensorView& tensor, bool alone);

}  // namespace metal_marlin
