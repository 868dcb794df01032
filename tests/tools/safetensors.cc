#include "safetensors.h"

#include <cstring>
#include <stdexcept>

#include "run_command.h"
#include "tools/json.h"

namespace metal_marlin::test {

std::map<std::string, FloatTensor> read_safetensors(const std::string& path) {
  const std::string file = read_file(path);
  uint64_t header = 0;
  if (file.size() < 8) throw std::runtime_error(path + ": no header");
  std::memcpy(&header, file.data(), 8);
  if (header > file.size() - 8) throw std::runtime_error(path + ": header beyond the end");
  const size_t start = 8 + static_cast<size_t>(header);
  const auto refuse = [&](const std::string& name, const char* what) {
    std::string message = path;
    message.append(": ").append(name).append(what);
    throw std::runtime_error(message);
  };
  std::map<std::string, FloatTensor> tensors;
  size_t covered = 0;
  const auto entries = tools::Json::parse(file.substr(8, static_cast<size_t>(header)));
  for (const auto& [name, entry] : entries.members()) {
    if (name == "__metadata__") continue;
    if (entry.at("dtype") != "F32") refuse(name, " is no float32");
    const auto offset = [&](size_t i) { return static_cast<size_t>(entry.at("data_offsets").at(i).integer()); };
    tensors[name].bytes = file.substr(start + offset(0), offset(1) - offset(0));
    for (const tools::Json& dim : entry.at("shape").items()) tensors[name].shape.push_back(dim.integer());
    size_t bytes = 4;
    for (int64_t dim : tensors[name].shape) bytes *= static_cast<size_t>(dim);
    if (tensors[name].bytes.size() != bytes) refuse(name, " has the wrong size");
    covered += bytes;
  }
  if (start + covered != file.size()) throw std::runtime_error(path + ": data that belongs to no tensor");
  return tensors;
}

}  // namespace metal_marlin::test
