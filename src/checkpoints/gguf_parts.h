// Joins the files of a split GGUF model to one checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/folder.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/value_table.h"

namespace metal_marlin {

/// The name of a part of a split model: STEM-00002-of-00003.gguf; shards of safetensors have the
/// same form.
struct GgufPartName {
  std::string_view stem;
  uint64_t number = 0, count = 0;  ///< the first part has the number 1
};
/// Nothing if the name has another form.
std::optional<GgufPartName> parse_gguf_part_name(std::string_view name,
                                                 std::string_view ending = ".gguf");
std::string gguf_part_name(std::string_view stem, uint64_t number, uint64_t count,
                           const char* ending = ".gguf");

/// Adds the tensors of the file `name`. If it is the first part of a split model, adds those of all
/// other parts, too, which `folder` has under the names of parts. `values` receives the key-values
/// of the file `name`.
Status read_gguf(const std::string& name, std::span<const std::byte> bytes, Folder& folder,
                 TensorTable& table, ValueTable& values);

}  // namespace metal_marlin
