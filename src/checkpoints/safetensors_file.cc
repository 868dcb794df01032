#include "checkpoints/safetensors_file.h"

#include <algorithm>
#include <cinttypes>
#include <tuple>
#include <vector>

#include "base/bits.h"
#include "base/checked.h"
#include "checkpoints/file_kind.h"
#include "checkpoints/json.h"

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;

constexpr uint32_t kMaxHeader = 100'000'000;  // the limit of the format's own implementation
constexpr uint32_t kMaxIndex = 100'000'000;
constexpr size_t kMaxSafetensorsRank = 64;
constexpr uint64_t kLengthBytes = 8;  // of the header's length, which precedes it

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

Status cut_off(const std::string& file, const char* field, uint64_t expected, uint64_t found) {
  return Status::error(MARLIN_E_FORMAT,
                       "%.60s: byte %" PRIu64 ": %s: the file is cut off: expected %" PRIu64
                       " bytes, found %" PRIu64,
                       file.c_str(), found, field, expected, found);
}

/// Whether a later version of the format may call a type so.
bool may_be_type(std::string_view name) {
  return !name.empty() && name.size() <= 20 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// Follows the header {name: {dtype, shape, data_offsets}, "__metadata__": {text: text}} event by
/// event, and adds each tensor when its object ends. A header of 100 MB never becomes a tree.
class HeaderReader {
 public:
  HeaderReader(const std::string& file, std::string_view header, std::span<const std::byte> bytes,
               TensorTable& table)
      : file_(file),
        strings_(header),
        data_begin_(kLengthBytes + header.size()),
        data_size_(bytes.size() - data_begin_),
        table_(table),
        first_(table.size()),
        number_(table.add_file(file, bytes)) {}

  Status visit(const JsonEvent& e) {
    switch (e.depth) {  // 1 or more: the header begins with '{'
      case 1:
        return visit_name(e);
      case 2:
        return in_metadata_ ? visit_metadata(e) : visit_field(e);
      default:
        return visit_number(e);
    }
  }

  /// Sorts the tensors by their data, which they must cover exactly.
  Status finish() {
    if (end_of_data_ > data_size_)
      return cut_off(file_, "data_offsets", data_begin_ + end_of_data_, data_begin_ + data_size_);
    table_.sort_by_offset(first_);
    uint64_t expected = 0;
    for (size_t i = first_; i < table_.size(); ++i) {
      const TensorTable::Range range = table_.range(i);
      const uint64_t begin = range.offset - data_begin_;
      if (begin != expected) {
        return Status::error(MARLIN_E_FORMAT,
                             "%.60s: byte %" PRIu64
                             ": tensor '%.60s': data_offsets: expected to begin at %" PRIu64
                             " where the data before it ends, found %" PRIu64 " (%s)",
                             file_.c_str(), range.offset, std::string(table_.name(i)).c_str(),
                             expected, begin, begin < expected ? "overlap" : "hole");
      }
      expected = begin + range.bytes;
    }
    if (expected == data_size_) return {};
    return Status::error(MARLIN_E_FORMAT,
                         "%.60s: byte %" PRIu64 ": data: expected %" PRIu64
                         " bytes by the header's offsets, found %" PRIu64,
                         file_.c_str(), data_begin_, expected, data_size_);
  }

 private:
  enum class Field { dtype, shape, data_offsets, unknown };
  static Field field_named(std::string_view name) {
    for (const Field field : {Field::dtype, Field::shape, Field::data_offsets})
      if (name == name_of(field)) return field;
    return Field::unknown;
  }
  static const char* name_of(Field field) {
    if (field == Field::dtype) return "dtype";
    return field == Field::shape ? "shape" : "data_offsets";
  }

  /// Of the tensor that is being read; "" before the first.
  std::string name(size_t most = SIZE_MAX) const {
    return name_ == 0 ? "" : strings_.get(name_, most);
  }

  Status error(const JsonEvent& e, const char* field, const char* what) const {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte %" PRIu64 ": tensor '%.60s': %s: %s",
                         file_.c_str(), e.offset, name(60).c_str(), field, what);
  }

  Status visit_name(const JsonEvent& e) {
    switch (e.kind) {
      case Kind::object:  // the header itself
      case Kind::end_object:
        return {};
      case Kind::key:
        in_metadata_ = e.text == "__metadata__";
        name_ = e.begin;
        return {};
      default:
        return error(e, "header", "expected an object");
    }
  }

  Status visit_metadata(const JsonEvent& e) {
    if (e.kind == Kind::key) {
      is_config_ = e.text == "config";
      is_wanted_ = is_config_ || e.text.find("quantization") != std::string_view::npos;
    } else if (is_wanted_ && e.is_left_out) {
      return error(e, "metadata", "expected a config of up to 256 KiB");
    } else if (e.kind == Kind::string && is_wanted_ && e.text.starts_with('{')) {
      table_.add_text(number_, is_config_, e.text);
    }
    const bool text = e.kind == Kind::string || e.kind == Kind::key || e.kind == Kind::object ||
                      e.kind == Kind::end_object;
    return text ? Status() : error(e, "metadata", "expected an object of strings");
  }

  Status visit_field(const JsonEvent& e) {
    if (e.kind == Kind::array || e.kind == Kind::end_array)
      return error(e, "header", "expected an object");
    if (e.kind == Kind::object) {
      field_ = Field::unknown;
      dims_.clear();
      seen_dtype_ = seen_shape_ = false;
      offsets_ = 0;
      return {};
    }
    if (e.kind == Kind::end_object) return finish_tensor(e);
    if (e.kind == Kind::key) {
      field_ = field_named(e.text);
      return {};
    }
    if (field_ == Field::unknown) return {};
    if (field_ != Field::dtype || e.kind != Kind::string) {
      return error(e, name_of(field_),
                   field_ == Field::dtype ? "expected a string" : "expected an array");
    }
    type_ = find_type(e.text);
    seen_dtype_ = true;
    if (type_ == nullptr && may_be_type(e.text)) type_ = &table_.unknown_type(e.text);
    if (type_ != nullptr) return {};
    return Status::error(MARLIN_E_FORMAT,
                         "%.60s: byte %" PRIu64
                         ": tensor '%.60s': dtype: '%.20s' is no type of the format",
                         file_.c_str(), e.offset, name(60).c_str(), std::string(e.text).c_str());
  }

  Status visit_number(const JsonEvent& e) {
    if (in_metadata_) return error(e, "metadata", "expected strings");
    if (field_ == Field::unknown) return {};
    const char* name = name_of(field_);
    if (field_ == Field::dtype) return error(e, name, "expected a string");
    if (e.depth == 3 && e.kind == Kind::array) {
      if (field_ == Field::shape) seen_shape_ = true;
      return {};
    }
    if (e.depth == 3 && e.kind == Kind::end_array) return {};
    if (e.depth != 3 || e.kind != Kind::integer)
      return error(e, name, "expected whole numbers >= 0");
    if (field_ == Field::shape) {
      if (e.integer > INT64_MAX) return error(e, name, "a dimension of 2^63 or more");
      if (dims_.size() == kMaxSafetensorsRank)
        return error(e, name, "expected at most 64 dimensions");
      dims_.push_back(static_cast<int64_t>(e.integer));
      return {};
    }
    if (offsets_ == 2) return error(e, name, "expected two numbers, found more");
    (offsets_ == 0 ? begin_ : end_) = e.integer;
    ++offsets_;
    return {};
  }

  Status finish_tensor(const JsonEvent& e) {
    if (!seen_dtype_) return error(e, "dtype", "missing");
    if (!seen_shape_) return error(e, "shape", "missing");
    if (offsets_ != 2) return error(e, "data_offsets", "expected two numbers");
    if (begin_ > end_ || end_ > INT64_MAX) {
      return Status::error(MARLIN_E_FORMAT,
                           "%.60s: byte %" PRIu64
                           ": tensor '%.60s': data_offsets: expected 0 <= begin <= end < 2^63"
                           ", found [%" PRIu64 ", %" PRIu64 "]",
                           file_.c_str(), e.offset, name(60).c_str(), begin_, end_);
    }
    end_of_data_ = std::max(end_of_data_, end_);
    const auto bytes = tensor_bytes(*type_, dims_);
    if (!bytes) return error(e, "shape", "its size is no whole number of bytes below 2^64");
    if (is_unknown_type(type_->name)) {  // its offsets say how many bytes it has
      if (*bytes > INT64_MAX) return error(e, "shape", "its size is 2^63 elements or more");
    } else if (*bytes != end_ - begin_) {
      return Status::error(
          MARLIN_E_FORMAT,
          "%.60s: byte %" PRIu64 ": tensor '%.60s': data_offsets: expected %" PRIu64
          " bytes by shape and dtype %s, found %" PRIu64,
          file_.c_str(), e.offset, name(60).c_str(), *bytes, type_->name, end_ - begin_);
    }
    table_.add(number_, name(), *type_, dims_, data_begin_ + begin_, end_ - begin_);
    return {};
  }

  const std::string& file_;
  const JsonStrings strings_;  // of the header
  const uint64_t data_begin_, data_size_;
  TensorTable& table_;
  uint64_t end_of_data_ = 0;  // by the header
  const size_t first_;        // of this file's tensors
  const uint32_t number_;
  // The tensor that is being read.
  uint32_t name_ = 0;
  const ElementType* type_ = nullptr;
  uint64_t begin_ = 0, end_ = 0;
  std::vector<int64_t> dims_;
  Field field_ = Field::unknown;
  bool is_config_ = false, is_wanted_ = false;  // the member of the metadata that is being read
  bool in_metadata_ = false, seen_dtype_ = false, seen_shape_ = false;
  int offsets_ = 0;
};

/// Accepts only names inside the folder, because an index must not open files in other folders.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(files::kNotInNames) == std::string_view::npos;
}

/// Calls `visit` for each entry of the weight_map of an index, with the name of the tensor and the
/// event of the name of its shard.
Status walk_index(const std::string& name, std::string_view text,
                  const std::function<Status(uint32_t tensor, const JsonEvent& shard)>& visit) {
  uint32_t tensor = 0;
  bool in_map = false, seen_map = false;
  const auto bad = [&](const JsonEvent& e, const char* what) {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte %" PRIu64 ": weight_map: %s", name.c_str(),
                         e.offset, what);
  };
  MARLIN_RETURN_IF_ERROR(
      walk_json({text, name, 0, kMaxIndex, 16, true}, [&](const JsonEvent& e) -> Status {
        if (e.depth == 1 && e.kind == Kind::key) {
          in_map = e.text == "weight_map";
          seen_map = seen_map || in_map;
          return {};
        }
        if (!in_map || e.depth < 2) {
          return in_map && e.kind != Kind::end_object ? bad(e, "expected an object of file names")
                                                      : Status();
        }
        if (e.kind == Kind::object || e.kind == Kind::end_object)
          return e.depth == 2 ? Status() : bad(e, "expected file names");
        if (e.kind == Kind::key) {
          tensor = e.begin;
          return {};
        }
        if (e.kind != Kind::string) return bad(e, "expected file names");
        if (!is_plain_name(e.text)) return bad(e, "expected the name of a file of the same folder");
        return visit(tensor, e);
      }));
  if (!seen_map)
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte 0: weight_map: missing", name.c_str());
  return {};
}

/// If none of the shards of an index is among these names: the shards that are, if they are whole.
std::vector<std::string> others_of_stale_index(const JsonStrings& strings,
                                               const std::vector<uint32_t>& shards,
                                               const std::vector<std::string>& names) {
  std::vector<std::string> others = whole_shards(names);
  const std::string whole = "model.safetensors";
  const bool has_whole = std::find(names.begin(), names.end(), whole) != names.end();
  if (others.empty() && has_whole) others = {whole};
  if (others.empty()) return {};
  for (const std::string& name : names) {
    for (const uint32_t shard : shards)
      if (strings.compare(shard, name) == 0) return {};
  }
  return others;
}

/// The shards that an index names, each once, in the order of their first mention.
Result<std::vector<uint32_t>> shards_of(const std::string& name, std::string_view text) {
  const JsonStrings strings(text);
  std::vector<uint32_t> shards;
  MARLIN_RETURN_IF_ERROR(walk_index(name, text, [&](uint32_t, const JsonEvent& shard) {
    if (shards.empty() || strings.compare(shards.back(), shard.text) != 0)
      shards.push_back(shard.begin);
    return Status();
  }));
  strings.sort(shards);
  const auto equal = [&](uint32_t a, uint32_t b) { return strings.compare(a, b) == 0; };
  shards.erase(std::unique(shards.begin(), shards.end(), equal), shards.end());
  std::sort(shards.begin(), shards.end());
  return shards;
}

}  // namespace

const ElementType* safetensors_type(std::string_view name) { return find_type(name); }

Status read_safetensors(const std::string& name, std::span<const std::byte> bytes,
                        TensorTable& table) {
  const auto is_none = [&](const std::string& kind) {
    return Status::error(MARLIN_E_FORMAT,
                         "%.60s: byte 0: this is neither safetensors nor GGUF, but %s",
                         name.c_str(), kind.c_str());
  };
  if (bytes.size() < 9 || bytes[8] != std::byte{'{'}) {
    const std::string kind = other_kind(bytes);
    if (!kind.empty()) return is_none(kind);
  }
  if (bytes.size() < 8) {
    return Status::error(MARLIN_E_FORMAT,
                         "%.60s: byte 0: this is neither safetensors nor GGUF: header length: "
                         "expected 8 bytes, found a file of %zu",
                         name.c_str(), bytes.size());
  }
  const auto length = load<uint64_t>(bytes.data());
  if (length > bytes.size() - 8 && (bytes.size() == 8 || bytes[8] != std::byte{'{'})) {
    return Status::error(MARLIN_E_FORMAT,
                         "%.60s: byte 0: this is neither safetensors nor GGUF: header length: "
                         "expected at most %zu, found %" PRIu64,
                         name.c_str(), bytes.size() - 8, length);
  }
  if (length > kMaxHeader) {
    return Status::error(MARLIN_E_FORMAT,
                         "%.60s: byte 0: header length: expected at most %" PRIu32
                         ", found %" PRIu64,
                         name.c_str(), kMaxHeader, length);
  }
  if (length > bytes.size() - 8) return cut_off(name, "header", length + 8, bytes.size());
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (header.empty() || header[0] != '{') {
    return Status::error(MARLIN_E_FORMAT, "%.60s: byte 8: header: expected '{'", name.c_str());
  }
  HeaderReader reader(name, header, bytes, table);
  MARLIN_RETURN_IF_ERROR(walk_json({header, name, kLengthBytes, kMaxHeader, 16, false, true},
                                   [&](const JsonEvent& e) { return reader.visit(e); }));
  return reader.finish();
}

Status open_forgotten(Folder& folder, TensorTable& table, std::vector<std::string> opened,
                      const char* why, std::string* note) {
  const std::vector<std::string> names = folder.names();
  // "model" of "model-mtp-of-00001.safetensors". Sets with other stems are other forms of the
  // model.
  const auto stem = [](const std::string& name) { return name.substr(0, name.find('-')); };
  std::string added;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors") || name.find("-of-") == std::string::npos ||
        opened.empty() || stem(name) != stem(opened.front()) ||
        std::find(opened.begin(), opened.end(), name) != opened.end())
      continue;
    MARLIN_ASSIGN(const std::span<const std::byte> bytes, folder.open(name));
    TensorTable own;
    if (!read_safetensors(name, bytes, own).ok()) continue;
    bool is_there = false;
    for (size_t i = 0; i < own.size() && !is_there; ++i)
      is_there = table.find(own.name(i)).has_value();
    if (is_there) continue;
    MARLIN_RETURN_IF_ERROR(read_safetensors(name, bytes, table));
    MARLIN_RETURN_IF_ERROR(table.finish());
    opened.push_back(name);
    added += (added.empty() ? "opened, too: " : ", ") + name;
  }
  if (note == nullptr) return {};
  *note = note_of_unopened(names, opened, why);
  if (!added.empty()) *note += (note->empty() ? "" : "; ") + added + ": " + why;
  return {};
}

Status read_safetensors_index(const std::string& name, Folder& folder, TensorTable& table,
                              std::string* note) {
  MARLIN_ASSIGN(const std::span<const std::byte> bytes, folder.open(name));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  MARLIN_RETURN_IF_ERROR(expect_json(name, text));
  const JsonStrings strings(text);
  MARLIN_ASSIGN(const std::vector<uint32_t> shards, shards_of(name, text));
  const std::vector<std::string> names = folder.names();
  std::vector<std::string> opened = others_of_stale_index(strings, shards, names);
  if (!opened.empty()) {
    for (const std::string& shard : opened) {
      MARLIN_ASSIGN(const std::span<const std::byte> content, folder.open(shard));
      MARLIN_RETURN_IF_ERROR(read_safetensors(shard, content, table));
    }
    const std::string said = file_label(name) +
                             std::string(" names none of the files here; opened ") + opened[0] +
                             (opened.size() > 1 ? " to " + opened.back() : "");
    if (note != nullptr) *note = said;
    return table.finish();
  }
  for (const uint32_t begin : shards) {
    const std::string shard = strings.get(begin);
    if (!is_plain_name(shard)) {  // checked before, but other processes may have changed the file
      return Status::error(MARLIN_E_FORMAT,
                           "%.60s: byte %u: weight_map: the file changes while it is read",
                           name.c_str(), begin);
    }
    MARLIN_ASSIGN(const std::span<const std::byte> content, folder.open(shard));
    MARLIN_RETURN_IF_ERROR(read_safetensors(shard, content, table));
    opened.push_back(shard);
  }
  MARLIN_RETURN_IF_ERROR(table.finish());
  MARLIN_RETURN_IF_ERROR(
      open_forgotten(folder, table, std::move(opened), "the index does not name it", note));
  // The map is walked again instead of being kept, because it is as long as all names together.
  return walk_index(name, text, [&](uint32_t tensor, const JsonEvent& shard) {
    const auto at = table.find(strings.get(tensor));
    if (at && table.file_name(table.file(*at)) == shard.text) return Status();
    return Status::error(
        MARLIN_E_FORMAT, "%.60s: byte 0: weight_map: tensor '%.60s' is not in '%.60s'",
        name.c_str(), strings.get(tensor, 60).c_str(), std::string(shard.text).c_str());
  });
}

}  // namespace metal_marlin
