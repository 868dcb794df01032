#include "checkpoints/convert/write_gguf.h"

#include <algorithm>
#include <ranges>

#include "base/bits.h"
#include "base/checked.h"
#include "checkpoints/value_table.h"
#include "layouts/gguf_types.h"

namespace metal_marlin {
namespace {

constexpr uint64_t kAlignment = 32;  // the format's default, which needs no key

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  store(bytes, value);
  out.append(bytes, sizeof value);
}
void append_string(std::string& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

/// Whether a key describes the file and not the model. We write our own value or none for such
/// keys.
bool is_of_file(std::string_view key) {
  return key == "general.alignment" || key == "general.quantization_version" ||
         key == "general.file_type" || key == "split.no" || key == "split.count" ||
         key == "split.tensors.count";
}

/// llama.cpp's number for the type of blocks that has the most bytes. Every layer that is quantized
/// has blocks.
uint32_t file_type(std::span<const OutputTensor> tensors) {
  std::vector<uint64_t> bytes(gguf_types().size());
  size_t most = 0, used = 0;
  for (const OutputTensor& t : tensors) {
    const GgufType* type = gguf_type(t.type);
    if (type == nullptr || type->block == nullptr || !type->block->is_written()) continue;
    const auto number = static_cast<size_t>(gguf_number(*type));
    if (bytes[number] == 0) ++used;
    bytes[number] += t.bytes;
    if (bytes[number] > bytes[most]) most = number;
  }
  const GgufBlock& block = *gguf_types()[most].block;
  return used == 1 ? block.file_type : block.mixed_file_type;
}

/// The key-values, after their number.
std::string key_values(const Checkpoint& input, std::span<const OutputTensor> tensors,
                       uint64_t& count) {
  std::string out;
  const auto add_u32 = [&](std::string_view key, uint32_t value) {
    append_string(out, key);
    append(out, int32_t{gguf::kU32});
    append(out, value);
    ++count;
  };
  bool has_architecture = false;
  if (input.origin().is_gguf) {
    const ValueTable& values = input.values();
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string_view key = values.key(i);
      if (is_of_file(key)) continue;
      has_architecture = has_architecture || key == "general.architecture";
      const std::span<const std::byte> raw = values.raw(i);
      out.append(reinterpret_cast<const char*>(raw.data()), raw.size());
      ++count;
    }
  }
  if (!has_architecture) {
    // The tensors keep the names of the input, which the architecture may not use in a GGUF.
    append_string(out, "general.architecture");
    append(out, int32_t{gguf::kString});
    append_string(out, "unknown");
    ++count;
  }
  add_u32("general.quantization_version", 2);  // of ggml's block types
  add_u32("general.file_type", file_type(tensors));
  return out;
}

}  // namespace

Result<uint64_t> gguf_output_bytes(const OutputTensor& tensor) {
  const GgufType* type = gguf_type(tensor.type);
  MARLIN_ASSIGN(const uint64_t bytes,
                output_bytes(type != nullptr ? &type->element : nullptr, tensor, "GGUF"));
  if (tensor.name.size() > kMaxGgufName) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "tensor '%.120s': GGUF holds names of up to %zu bytes, found %zu",
                         tensor.name.c_str(), kMaxGgufName, tensor.name.size());
  }
  if (tensor.dims.size() > kMaxGgufRank) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "tensor '%.120s': GGUF holds up to %zu dimensions, found %zu",
                         tensor.name.c_str(), kMaxGgufRank, tensor.dims.size());
  }
  return bytes;
}

void plan_gguf(const Checkpoint& input, std::span<OutputTensor> tensors, PlannedFile& file) {
  uint64_t count = 0;
  const std::string keys = key_values(input, tensors, count);
  std::string& out = file.header;
  append(out, uint32_t{0x46554747});
  append(out, uint32_t{3});
  append(out, static_cast<uint64_t>(tensors.size()));
  append(out, count);
  out += keys;
  Checked at = 0;
  for (OutputTensor& t : tensors) {
    append_string(out, t.name);
    append(out, static_cast<uint32_t>(t.dims.size()));
    for (const auto dim : std::views::reverse(t.dims)) append(out, dim);
    append(out, gguf_number(*gguf_type(t.type)));  // gguf_output_bytes() has found it
    t.offset = at.get().value_or(0);
    append(out, t.offset);
    at = (at + Checked(t.bytes)).round_up(kAlignment);
  }
  out.resize(static_cast<size_t>(round_up(static_cast<int64_t>(out.size()), kAlignment)));
  for (OutputTensor& t : tensors) t.offset += out.size();
  // What is too long has no room on a disk: OutputFile::create() says so.
  file.bytes = (at + Checked(out.size())).get().value_or(UINT64_MAX);
}

}  // namespace metal_marlin
