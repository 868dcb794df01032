#include "safetensors_writer.h"

#include <fmt/core.h>

#include "command.h"
#include "json.h"

namespace metal_marlin::tools {

SafetensorsWriter::SafetensorsWriter(OutputFile& file, const std::vector<Tensor>& tensors)
    : file_(file) {
  std::string text;
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    uint64_t bytes = sizeof(float);
    for (int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    const Json::Members entry = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    text += text.empty() ? "{" : ",";
    text += Json(tensor.name).dump() + ":" + Json(entry).dump();
    end += bytes;
  }
  left_ = end / sizeof(float);
  text += text.empty() ? "{}" : "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned

  unsigned char length[8];
  for (size_t i = 0; i < 8; ++i)
    length[i] = static_cast<unsigned char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  file_.write(length, sizeof length);
  file_.write(text);
}

void SafetensorsWriter::write(const float* values, size_t count) {
  if (count > left_) throw Failure(fmt::format("{}: more values than announced", file_.path()));
  // All platforms of the library are little-endian, like the format.
  file_.write(values, count * sizeof(float));
  left_ -= count;
}

void SafetensorsWriter::commit() {
  if (left_ != 0)
    throw Failure(fmt::format("{}: {} values were announced and not written", file_.path(), left_));
  file_.commit();
}

}  // namespace metal_marlin::tools
