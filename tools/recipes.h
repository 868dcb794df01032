// Recipes: which type of blocks each layer of a GGUF gets, as llama.cpp chooses them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

bool is_recipe(std::string_view name);  ///< "q4_k_m", ...
std::string recipe_names();             ///< "q3_k_m, q4_k_s, ..."

/// The type of each layer's blocks, as ggml names it; null for a layer whose rows are no whole
/// blocks of any type, and which therefore stays as it is. `layers` are all layers of the model,
/// because counts of them decide.
std::vector<const char*> recipe_types(std::string_view recipe,
                                      const std::vector<marlin_layer_info>& layers);

}  // namespace metal_marlin::tools
