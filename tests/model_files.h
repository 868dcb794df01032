// Writes GGUF and .safetensors files for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace model_files {

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

/// Writes a GGUF file piece by piece; every field can be given a wrong value.
class GgufWriter {
 public:
  uint32_t magic = 0x46554747, version = 3, alignment = 32;
  uint64_t extra_tensors = 0, extra_keys = 0;  // added to the counts only

  static std::string text(const std::string& s) {
    std::string out;
    append(out, static_cast<uint64_t>(s.size()));
    return out + s;
  }
  void key(const std::string& name, int32_t type, const std::string& value) {
    ++keys_;
    head_ += text(name);
    append(head_, type);
    head_ += value;
  }
  /// dims as the file has them, innermost first.
  void tensor(const std::string& name, std::initializer_list<int64_t> dims, int32_t type, const std::string& data) {
    tensor_at(name, dims, type, data_.size(), data);
  }
  void tensor_at(const std::string& name, std::initializer_list<int64_t> dims, int32_t type, uint64_t offset,
                 const std::string& data) {
    ++tensors_;
    infos_ += text(name);
    append(infos_, static_cast<uint32_t>(dims.size()));
    for (const int64_t d : dims) append(infos_, d);
    append(infos_, type);
    append(infos_, offset);
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
  }
  std::string file() const {
    std::string out;
    append(out, magic);
    append(out, version);
    append(out, tensors_ + extra_tensors);
    append(out, keys_ + extra_keys);
    out += head_ + infos_;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data_;
  }

 private:
  std::string head_, infos_, data_;
  uint64_t keys_ = 0, tensors_ = 0;
};

/// A .safetensors file of this header and these data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  std::string out;
  append(out, static_cast<uint64_t>(header.size()));
  return out + header + data;
}

struct TestTensor {
  std::string name, dtype, shape;  // "2, 3"
  std::string data;
};
inline std::string safetensors(const std::vector<TestTensor>& tensors) {
  std::string header = "{", data;
  for (const TestTensor& t : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + t.name + "\":{\"dtype\":\"" + t.dtype + "\",\"shape\":[" + t.shape + "],\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + t.data.size()) + "]}";
    data += t.data;
  }
  return safetensors(header + "}", data);
}

}  // namespace model_files
