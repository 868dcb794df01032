#include "checkpoints/safetensors_file.h"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "base/checked.h"
#include "checkpoints/json.h"

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own implementation
constexpr size_t kMaxIndex = 100'000'000;
constexpr uint32_t kMaxRank = 64;

constexpr ElementType kTypes[] = {
    {"F32", 1, 4, MARLIN_F32},
    {"F16", 1, 2, MARLIN_F16},
    {"BF16", 1, 2, MARLIN_BF16},
    {"I8", 1, 1, MARLIN_I8},
    {"I32", 1, 4, MARLIN_I32},
    {"U32", 1, 4, MARLIN_U32},
    {"U8", 1, 1, MARLIN_U8},
    {"I16", 1, 2, MARLIN_I16},
    {"I64", 1, 8, MARLIN_I64},
    {"F8_E4M3", 1, 1, MARLIN_E4M3},
    {"F8_E8M0", 1, 1, MARLIN_E8M0},
    {"BOOL", 1, 1, 0},
    {"F8_E5M2", 1, 1, 0},
    {"U16", 1, 2, 0},
    {"F64", 1, 8, 0},
    {"U64", 1, 8, 0},
    {"C64", 1, 8, 0},
    {"F4", 2, 1, 0},
    {"F6_E2M3", 4, 3, 0},
    {"F6_E3M2", 4, 3, 0},
    {"F8_E4M3FNUZ", 1, 1, 0},
    {"F8_E5M2FNUZ", 1, 1, 0},
};

const ElementType* find_type(std::string_view name) {
  for (const ElementType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

/// Follows the header {name: {dtype, shape, data_offsets}, "__metadata__": {text: text}} event by event: a header of 100 MB
/// never becomes a tree.
class HeaderReader {
 public:
  HeaderReader(const std::string& file, uint64_t data_begin, uint64_t data_size)
      : file_(file), data_begin_(data_begin), data_size_(data_size) {}

  Status visit(const JsonEvent& e) {
    switch (e.depth) {
      case 0:
        return error(e, "header", "expected an object");
      case 1:
        return visit_name(e);
      case 2:
        return in_metadata_ ? visit_metadata(e) : visit_field(e);
      default:
        return visit_number(e);
    }
  }

  /// The tensors, sorted by their data, which must cover the data exactly.
  Status finish(uint32_t file, TensorTable& table) {
    std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
      return std::tie(a.begin, a.end, a.header_offset) < std::tie(b.begin, b.end, b.header_offset);
    });
    uint64_t expected = 0;
    for (const Tensor& t : tensors_) {
      if (t.begin != expected) {
        return Status::error(MARLIN_E_FORMAT,
                             "%.60s: byte %" PRIu64 ": tensor '%.60s': data_offsets: expected to begin at %" PRIu64
                             " where the data before it ends, found %" PRIu64 " (%s)",
                             file_.c_str(), t.header_offset, t.name.c_str(), expected, t.begin,
                             t.begin < expected ? "overlap" : "hole");
      }
      expected = t.end;
    }
    if (expected != data_size_) {
      return Status::error(MARLIN_E_FORMAT,
                           "%.60s: byte %" PRIu64 ": data: expected %" PRIu64 " bytes by the header's offsets, found %" PRIu64,
                           file_.c_str(), data_begin_, expected, data_size_);
    }
    for (const Tensor& t : tensors_) {
      table.add(file, t.name, *t.type, std::span(dims_).subspan(t.dims, t.rank), data_begin_ + t.begin, t.end - t.begin);
    }
    return {};
  }

 private:
  struct Tensor {
    std::string name;
    const ElementType* type = nullptr;
    uint64_t begin = 0, end = 0, header_offset = 0;
    size_t dims = 0;
    uint32_t rank = 0;
  };
  enum class Field { dtype, shape, data_offsets, unknown };

  Status error(const JsonEvent& e, const char* field, const char* what) const {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte %" PRIu64 ": tensor '%.60s': %s: %s", file_.c_str(), e.offset,
                         tensor_.name.c_str(), field, what);
  }

  Status visit_name(const JsonEvent& e) {
    switch (e.kind) {
      case Kind::object:  // the header itself
      case Kind::end_object:
        return {};
      case Kind::key:
        in_metadata_ = e.text == "__metadata__";
        tensor_ = {};
        tensor_.name = e.text;
        tensor_.header_offset = e.offset;
        return {};
      default:
        return error(e, "header", "expected an object");
    }
  }

  Status visit_metadata(const JsonEvent& e) const {
    const bool text = e.kind == Kind::string || e.kind == Kind::key || e.kind == Kind::object || e.kind == Kind::end_object;
    return text ? Status() : error(e, "metadata", "expected an object of strings");
  }

  Status visit_field(const JsonEvent& e) {
    if (e.kind == Kind::array || e.kind == Kind::end_array) return error(e, "header", "expected an object");
    if (e.kind == Kind::object) {
      field_ = Field::unknown;
      tensor_.dims = dims_.size();
      seen_dtype_ = seen_shape_ = false;
      offsets_ = 0;
      return {};
    }
    if (e.kind == Kind::end_object) return finish_tensor(e);
    if (e.kind == Kind::key) {
      field_ = e.text == "dtype"          ? Field::dtype
               : e.text == "shape"        ? Field::shape
               : e.text == "data_offsets" ? Field::data_offsets
                                          : Field::unknown;
      return {};
    }
    if (field_ == Field::unknown) return {};
    if (field_ != Field::dtype || e.kind != Kind::string) {
      return error(e,
                   field_ == Field::dtype   ? "dtype"
                   : field_ == Field::shape ? "shape"
                                            : "data_offsets",
                   field_ == Field::dtype ? "expected a string" : "expected an array");
    }
    tensor_.type = find_type(e.text);
    seen_dtype_ = true;
    if (tensor_.type != nullptr) return {};
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte %" PRIu64 ": tensor '%.60s': dtype: '%.20s' is no type of the format",
                         file_.c_str(), e.offset, tensor_.name.c_str(), std::string(e.text).c_str());
  }

  Status visit_number(const JsonEvent& e) {
    if (in_metadata_) return error(e, "metadata", "expected strings");
    if (field_ == Field::unknown) return {};
    const char* name = field_ == Field::shape ? "shape" : field_ == Field::data_offsets ? "data_offsets" : "dtype";
    if (field_ == Field::dtype) return error(e, name, "expected a string");
    if (e.depth == 3 && e.kind == Kind::array) {
      if (field_ == Field::shape) seen_shape_ = true;
      return {};
    }
    if (e.depth == 3 && e.kind == Kind::end_array) return {};
    if (e.depth != 3 || e.kind != Kind::integer) return error(e, name, "expected whole numbers >= 0");
    if (field_ == Field::shape) {
      if (e.integer > INT64_MAX) return error(e, name, "a dimension of 2^63 or more");
      if (tensor_.rank == kMaxRank) return error(e, name, "expected at most 64 dimensions");
      dims_.push_back(static_cast<int64_t>(e.integer));
      ++tensor_.rank;
      return {};
    }
    if (offsets_ == 2) return error(e, name, "expected two numbers, found more");
    (offsets_ == 0 ? tensor_.begin : tensor_.end) = e.integer;
    ++offsets_;
    return {};
  }

  Status finish_tensor(const JsonEvent& e) {
    if (!seen_dtype_) return error(e, "dtype", "missing");
    if (!seen_shape_) return error(e, "shape", "missing");
    if (offsets_ != 2) return error(e, "data_offsets", "expected two numbers");
    if (tensor_.begin > tensor_.end || tensor_.end > data_size_) {
      return Status::error(MARLIN_E_FORMAT,
                           "%.60s: byte %" PRIu64 ": tensor '%.60s': data_offsets: expected 0 <= begin <= end <= %" PRIu64
                           ", found [%" PRIu64 ", %" PRIu64 "]",
                           file_.c_str(), e.offset, tensor_.name.c_str(), data_size_, tensor_.begin, tensor_.end);
    }
    const auto bytes = tensor_bytes(*tensor_.type, std::span(dims_).subspan(tensor_.dims, tensor_.rank));
    if (!bytes) return error(e, "shape", "its size is no whole number of bytes below 2^64");
    if (*bytes != tensor_.end - tensor_.begin) {
      return Status::error(MARLIN_E_FORMAT,
                           "%.60s: byte %" PRIu64 ": tensor '%.60s': data_offsets: expected %" PRIu64
                           " bytes by shape and dtype %s, found %" PRIu64,
                           file_.c_str(), e.offset, tensor_.name.c_str(), *bytes, tensor_.type->name,
                           tensor_.end - tensor_.begin);
    }
    tensors_.push_back(std::move(tensor_));
    return {};
  }

  const std::string& file_;
  uint64_t data_begin_, data_size_;
  std::vector<Tensor> tensors_;
  std::vector<int64_t> dims_;
  Tensor tensor_;  // being read
  Field field_ = Field::unknown;
  bool in_metadata_ = false, seen_dtype_ = false, seen_shape_ = false;
  int offsets_ = 0;
};

/// Only a name inside the folder: an index must not make us open files elsewhere.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

/// weight_map of an index: tensor to shard, and the shards in order of first mention.
struct Index {
  std::vector<std::pair<std::string, std::string>> map;
  std::vector<std::string> shards;
};

Result<Index> read_index(const std::string& name, std::span<const std::byte> bytes) {
  Index index;
  std::string tensor;
  std::unordered_set<std::string> shards;
  bool in_map = false, seen_map = false;
  const JsonText json{{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name, 0, kMaxIndex, 16};
  const auto bad = [&](const JsonEvent& e, const char* what) {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte %" PRIu64 ": weight_map: %s", name.c_str(), e.offset, what);
  };
  MARLIN_RETURN_IF_ERROR(walk_json(json, [&](const JsonEvent& e) -> Status {
    if (e.depth == 1 && e.kind == Kind::key) {
      in_map = e.text == "weight_map";
      seen_map = seen_map || in_map;
      return {};
    }
    if (!in_map || e.depth < 2) {
      return in_map && e.kind != Kind::end_object ? bad(e, "expected an object of file names") : Status();
    }
    if (e.kind == Kind::object || e.kind == Kind::end_object) return e.depth == 2 ? Status() : bad(e, "expected file names");
    if (e.kind == Kind::key) {
      tensor = e.text;
      return {};
    }
    if (e.kind != Kind::string) return bad(e, "expected file names");
    if (!is_plain_name(e.text)) return bad(e, "expected the name of a file of the same folder");
    if (shards.emplace(e.text).second) index.shards.emplace_back(e.text);
    index.map.emplace_back(tensor, e.text);
    return {};
  }));
  if (!seen_map) return Status::error(MARLIN_E_FORMAT, "%.60s: byte 0: weight_map: missing", name.c_str());
  return index;
}

}  // namespace

const ElementType* safetensors_type(std::string_view name) { return find_type(name); }

Status read_safetensors(const std::string& name, std::span<const std::byte> bytes, TensorTable& table) {
  if (bytes.size() < 8) {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte 0: header length: expected 8 bytes, found a file of %zu", name.c_str(),
                         bytes.size());
  }
  const auto length = load<uint64_t>(bytes.data());
  if (length > kMaxHeader || length > bytes.size() - 8) {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte 0: header length: expected at most %" PRIu64 ", found %" PRIu64,
                         name.c_str(), std::min<uint64_t>(kMaxHeader, bytes.size() - 8), length);
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (header.empty() || header[0] != '{') {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte 8: header: expected '{'", name.c_str());
  }
  HeaderReader reader(name, 8 + length, bytes.size() - 8 - length);
  MARLIN_RETURN_IF_ERROR(walk_json({header, name, 8, kMaxHeader, 16}, [&](const JsonEvent& e) { return reader.visit(e); }));
  return reader.finish(table.add_file(name, bytes), table);
}

Status read_safetensors_index(const std::string& name, Folder& folder, TensorTable& table) {
  MARLIN_ASSIGN(const std::span<const std::byte> bytes, folder.open(name));
  MARLIN_ASSIGN(const Index index, read_index(name, bytes));
  for (const std::string& shard : index.shards) {
    MARLIN_ASSIGN(const std::span<const std::byte> content, folder.open(shard));
    MARLIN_RETURN_IF_ERROR(read_safetensors(shard, content, table));
  }
  MARLIN_RETURN_IF_ERROR(table.finish());
  for (const auto& [tensor, shard] : index.map) {
    const auto at = table.find(tensor);
    if (!at || table.file_name(table.file(*at)) != shard) {
      return Status::error(MARLIN_E_FORMAT, "%.60s: byte 0: weight_map: tensor '%.60s' is not in '%.60s'", name.c_str(),
                           tensor.c_str(), shard.c_str());
    }
  }
  return {};
}

}  // namespace metal_marlin
