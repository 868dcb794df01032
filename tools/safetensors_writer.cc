#include "safetensors_writer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "command.h"

namespace metal_marlin::tools {

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<Tensor>& tensors)
    : path_(std::move(path)), temporary_(fmt::format("{}.part-{}", path_, getpid())) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    uint64_t bytes = sizeof(float);
    for (int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  left_ = end / sizeof(float);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned

  file_.reset(std::fopen(temporary_.c_str(), "wbx"));  // x: never another's file
  if (!file_) fail("cannot create");
  unsigned char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  if (std::fwrite(length, 1, 8, file_.get()) != 8 || std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) {
    fail("cannot write");
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_.reset();
  std::remove(temporary_.c_str());
}

void SafetensorsWriter::write(const float* values, size_t count) {
  if (count > left_) throw Failure(fmt::format("{}: more values than announced", path_));
  // All platforms of the library are little-endian, as the format is.
  if (std::fwrite(values, sizeof(float), count, file_.get()) != count) fail("cannot write");
  left_ -= count;
}

void SafetensorsWriter::commit() {
  if (left_ != 0) throw Failure(fmt::format("{}: {} values were announced and not written", path_, left_));
  // Buffered bytes may fail to reach the disk as late as here.
  if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) fail("cannot write");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename to the output");
  file_.reset();
}

void SafetensorsWriter::fail(const char* doing) const {
  throw Failure(fmt::format("{} {}: {}", doing, file_ ? path_ : temporary_, std::strerror(errno)));
}

}  // namespace metal_marlin::tools
