#include "checkpoints/convert/write_safetensors.h"

#include <algorithm>
#include <iterator>

#include "base/bits.h"
#include "base/utf8.h"
#include "checkpoints/convert/json_writer.h"
#include "checkpoints/safetensors_file.h"

namespace metal_marlin {
namespace {

/// The types in the order of the format's own writer. Files have them from the last to the first.
constexpr std::string_view kOrder[] = {
    "BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
    "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
    "U32",     "F32",         "C64",         "F64",     "I64", "U64"};
size_t rank_of(std::string_view type) {
  return static_cast<size_t>(std::find(std::begin(kOrder), std::end(kOrder), type) -
                             std::begin(kOrder));
}

}  // namespace

Result<uint64_t> safetensors_output_bytes(const OutputTensor& tensor) {
  if (!is_utf8(tensor.name)) {  // names of a GGUF may be any bytes
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "tensor '%.120s': safetensors holds names in UTF-8 only",
                         tensor.name.c_str());
  }
  return output_bytes(safetensors_type(tensor.type), tensor, "safetensors");
}

Status plan_safetensors(std::span<OutputTensor> tensors, size_t index, PlannedFile& file,
                        size_t most_header) {
  std::vector<OutputTensor*> members;
  for (OutputTensor& t : tensors) {
    if (t.file == index) members.push_back(&t);
  }
  std::sort(members.begin(), members.end(), [](const OutputTensor* a, const OutputTensor* b) {
    const size_t x = rank_of(a->type), y = rank_of(b->type);
    return x != y ? x > y : a->name < b->name;
  });
  std::string header = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (OutputTensor* t : members) {
    header += ',';
    append_json_string(t->name, header);
    header.append(R"(:{"dtype":")").append(t->type).append(R"(","shape":[)");
    for (size_t i = 0; i < t->dims.size(); ++i)
      header.append(i == 0 ? "" : ",").append(std::to_string(t->dims[i]));
    header.append(R"(],"data_offsets":[)").append(std::to_string(at)).append(",");
    t->offset = at;
    at += t->bytes;
    header.append(std::to_string(at)).append("]}");
  }
  header += '}';
  header.resize(static_cast<size_t>(round_up(static_cast<int64_t>(header.size()), 8)), ' ');
  if (header.size() > most_header) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "%.120s: %zu tensors need a header of %zu bytes, expected at most %zu",
                         file.name.c_str(), members.size(), header.size(), most_header);
  }
  file.header.resize(8);
  store(file.header.data(), static_cast<uint64_t>(header.size()));
  file.header += header;
  for (OutputTensor* t : members) t->offset += file.header.size();
  file.bytes = file.header.size() + at;
  return {};
}

std::string safetensors_index(std::span<const OutputTensor> tensors,
                              std::span<const PlannedFile> files) {
  std::vector<const OutputTensor*> sorted;
  uint64_t total = 0;
  for (const OutputTensor& t : tensors) {
    sorted.push_back(&t);
    total += t.bytes;
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const OutputTensor* a, const OutputTensor* b) { return a->name < b->name; });
  JsonWriter index;
  index.begin('{')
      .key("metadata")
      .begin('{')
      .key("total_size")
      .number(std::to_string(total))
      .end('}');
  index.key("weight_map").begin('{');
  for (const OutputTensor* t : sorted) index.key(t->name).string(files[t->file].name);
  index.end('}').end('}');
  return index.text() + "\n";
}

}  // namespace metal_marlin
