// How many tensors a checkpoint has, and how large they are together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace metal_marlin::tools {

struct FileTensors {
  uint64_t count = 0, bytes = 0;
};

/// The tensors of the files of a checkpoint that the library has opened, by the headers of the
/// files. Those of a GGUF are counted with the gaps between them. Nothing for packed containers,
/// and if a file has changed meanwhile.
std::optional<FileTensors> file_tensors(const std::string& path);

}  // namespace metal_marlin::tools
