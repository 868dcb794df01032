// Reads the headers of .safetensors files and of .safetensors.index.json files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/folder.h"
#include "checkpoints/tensor_table.h"

namespace metal_marlin {

/// Adds the tensors of one file, in the order of their data. Reads the header only. Everything is
/// checked: the header's length, every dtype and shape, and that the tensors' ranges follow each
/// other from the header's end to the file's end without hole or overlap, each as long as shape and
/// dtype say.
Status read_safetensors(const std::string& name, std::span<const std::byte> bytes,
                        TensorTable& table);

/// The type that a header calls `name`; null when the format has none.
const ElementType* safetensors_type(std::string_view name);

/// Adds the tensors of all shards that an index names. A shard's name must be a plain file name;
/// each tensor must be where the index says.
Status read_safetensors_index(const std::string& name, Folder& folder, TensorTable& table);

}  // namespace metal_marlin
