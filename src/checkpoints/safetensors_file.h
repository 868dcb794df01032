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

/// Adds the tensors of one file, in the order of their data. Reads only the header and checks all
/// of it: its length, every dtype and shape, and that the ranges of the tensors follow each other
/// from the end of the header to the end of the file without gap or overlap, each as long as its
/// shape and dtype require.
Status read_safetensors(const std::string& name, std::span<const std::byte> bytes,
                        TensorTable& table);

/// The type that a header calls `name`, or null.
const ElementType* safetensors_type(std::string_view name);

/// Adds the tensors of all shards that an index names. The name of a shard must be a plain file
/// name, and each tensor must be in the shard that the index names. If the index names no file of
/// the folder, it is of another upload, and the whole shards that are there are read in its place.
/// `note` says so, and which shards of the folder the index does not name.
Status read_safetensors_index(const std::string& name, Folder& folder, TensorTable& table,
                              std::string* note = nullptr);

/// Opens the shards ("model-x-of-y") of the same stem that are not `opened`, as those of layers
/// that were added later. A shard whose tensors are in the table already is one of another upload
/// and stays unopened. `note` (or null) says `why` of both. The table must be finished, and is so
/// afterwards.
Status open_forgotten(Folder& folder, TensorTable& table, std::vector<std::string> opened,
                      const char* why, std::string* note);

}  // namespace metal_marlin
