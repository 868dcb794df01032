#include "checkpoints/gguf_file.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/bits.h"
#include "base/checked.h"
#include "checkpoints/file_kind.h"
#include "layouts/gguf_types.h"

namespace metal_marlin {
namespace {

constexpr uint64_t kMaxKey = 65535;    // of the specification
constexpr uint64_t kMaxName = 65535;   // of a tensor; ggml's own limit is a constant of its build
constexpr uint64_t kMinKeyValue = 13;  // key length, value type, one byte
constexpr uint64_t kMinTensor = 24;    // name length, rank, type, offset
constexpr int32_t kMaxType = 65535;    // far above those of ggml and of programs built on it
constexpr int32_t kFirstShared = 39;   // MXFP4, the first number that other programs use, too
constexpr int32_t kFirstSmall = 41;    // Q1_0: blocks of others under these numbers may be larger
constexpr uint32_t kMaxAlignment = 1u << 20;

using namespace gguf;  // the types of values

struct Tensor {
  std::string_view name;
  const ElementType* type = nullptr;  // null: this version does not know the blocks
  int32_t number = 0;                 // of the type
  bool is_foreign = false;            // the number means other blocks in another program
  int64_t dims[kMaxGgufRank] = {};    // outermost first
  uint32_t rank = 0;
  uint64_t offset = 0, bytes = 0, header_offset = 0;
  std::span<const int64_t> shape() const { return std::span(dims).first(rank); }
  int label_size() const { return static_cast<int>(std::min<size_t>(name.size(), 60)); }
};

class Reader {
 public:
  Reader(const std::string& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}

  Result<GgufHeader> read_header(ValueTable& values) {
    MARLIN_RETURN_IF_ERROR(read_counts());
    for (uint64_t i = 0; i < key_values_; ++i) MARLIN_RETURN_IF_ERROR(read_key_value());
    keys_.push_back(at_);
    values = ValueTable(bytes_, std::move(keys_));
    MARLIN_RETURN_IF_ERROR(check_keys(values));
    MARLIN_RETURN_IF_ERROR(check_part_number());
    GgufHeader header{file_, bytes_, split_, tensor_count_, at_, 0, alignment_};
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      MARLIN_ASSIGN(const Tensor t, read_tensor());
      header.pool_bytes += TensorTable::pool_bytes(t.name, t.shape());
    }
    return header;
  }

  /// Reads the tensors again, because the begin of the data is known only after the last tensor.
  /// Keeping all of them until then would take more bytes than the header has.
  Status add_tensors(const GgufHeader& header, TensorTable& table) {
    tensor_count_ = header.tensor_count;
    alignment_ = header.alignment;
    at_ = header.tensors_begin;
    Tensor last;
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      MARLIN_ASSIGN(last, read_tensor());
    }
    const auto data_begin = Checked(at_).round_up(alignment_).get();
    whole_ = Checked(data_begin.value_or(UINT64_MAX)) + Checked(last.offset) +
             Checked(last.type != nullptr ? last.bytes : 0);
    at_ = header.tensors_begin;
    return place(data_begin, table);
  }

 private:
  [[gnu::format(printf, 3, 4)]] Status error(uint64_t offset, const char* format, ...) const {
    char text[160];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return Status::error(MARLIN_E_FORMAT, "%s: byte %" PRIu64 ": %s", file_label(file_), offset,
                         text);
  }
  uint64_t left() const { return bytes_.size() - at_; }
  /// The data of a tensor ends behind the file.
  Status too_short(const Tensor& t) const {
    const uint64_t whole = whole_.get().value_or(0);
    if (whole > bytes_.size())
      return error(bytes_.size(),
                   "data of '%.*s': the file is cut off: expected %" PRIu64
                   " bytes or more, found %zu",
                   t.label_size(), t.name.data(), whole, bytes_.size());
    return error(t.header_offset,
                 "tensor '%.*s': data: expected %" PRIu64 " bytes in a file of %zu", t.label_size(),
                 t.name.data(), t.bytes, bytes_.size());
  }

  template <class T>
  Result<T> take(const char* field) {
    if (left() < sizeof(T))
      return error(at_, "%s: expected %zu bytes, found the end of the file", field, sizeof(T));
    const T value = load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }
  Result<std::string_view> take_string(const char* field, uint64_t limit) {
    const uint64_t begin = at_;
    MARLIN_ASSIGN(const uint64_t size, take<uint64_t>(field));
    if (size > left() || size > limit) {
      return error(begin, "%s: length: expected at most %" PRIu64 ", found %" PRIu64, field,
                   std::min(left(), limit), size);
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }

  Status read_counts() {
    if (bytes_.empty()) return error(0, "magic: expected 'GGUF', found an empty file");
    MARLIN_ASSIGN(const uint32_t magic, take<uint32_t>("magic"));
    if (magic != 0x46554747) {
      const std::string kind = other_kind(bytes_);
      if (kind.empty()) return error(0, "magic: expected 'GGUF', found 0x%08x", magic);
      return error(0, "magic: expected 'GGUF', found %s", kind.c_str());
    }
    MARLIN_ASSIGN(const uint32_t version, take<uint32_t>("version"));
    if (version != 0 && (version & 0xffffu) == 0) {
      return error(
          4, "version: the file is big-endian (version 0x%08x); only little-endian files are read",
          version);
    }
    if (version == 1)
      return error(4, "version: GGUF version 1 is not read; convert the file to version 3");
    if (version != 2 && version != 3)
      return error(4, "version: expected 2 or 3, found %u", version);
    MARLIN_ASSIGN(tensor_count_, take<uint64_t>("tensor count"));
    MARLIN_ASSIGN(key_values_, take<uint64_t>("key-value count"));
    // The smallest size of an entry bounds both counts, so that no loop and no allocation is longer
    // than the file.
    if (tensor_count_ > left() / kMinTensor) {
      return error(8,
                   "tensor count: expected at most %" PRIu64 " in the bytes left, found %" PRIu64,
                   left() / kMinTensor, tensor_count_);
    }
    const uint64_t most_keys = std::min<uint64_t>(left() / kMinKeyValue, UINT32_MAX - 1);
    if (key_values_ > most_keys) {
      return error(
          16, "key-value count: expected at most %" PRIu64 " in the bytes left, found %" PRIu64,
          most_keys, key_values_);
    }
    return {};
  }

  Status read_key_value() {
    keys_.push_back(at_);
    MARLIN_ASSIGN(const std::string_view key, take_string("key", kMaxKey));
    const uint64_t type_at = at_;
    MARLIN_ASSIGN(const int32_t type, take<int32_t>("value type"));
    if (key == "general.alignment") {
      if (type != kU32)
        return error(type_at, "general.alignment: expected type u32 (4), found %d", type);
      MARLIN_ASSIGN(const uint32_t alignment, take<uint32_t>("general.alignment"));
      if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
        return error(at_ - 4, "general.alignment: expected a power of two up to %u, found %u",
                     kMaxAlignment, alignment);
      }
      alignment_ = alignment;
      return {};
    }
    if (key == "split.count") {
      MARLIN_ASSIGN(split_.count, take_count(key, type, type_at));
      return {};
    }
    if (key == "split.no") {
      MARLIN_ASSIGN(split_.number, take_count(key, type, type_at));
      return {};
    }
    if (key == "split.tensors.count") {
      MARLIN_ASSIGN(split_.tensors, take_count(key, type, type_at));
      return {};
    }
    return type == kArray ? skip_array(key) : skip_value(key, type, type_at);
  }

  template <class T>
  Result<uint64_t> take_count_as(std::string_view key) {
    MARLIN_ASSIGN(const T value, take<T>("value"));
    if (value >= T{0}) return static_cast<uint64_t>(value);
    return error(at_ - sizeof(T), "key '%.*s': expected 0 or more, found %" PRId64,
                 static_cast<int>(key.size()), key.data(), static_cast<int64_t>(value));
  }

  /// Reads a value >= 0 of any integer type, because writers use different types.
  Result<uint64_t> take_count(std::string_view key, int32_t type, uint64_t type_at) {
    switch (type) {
      case kU8:
        return take_count_as<uint8_t>(key);
      case kI8:
        return take_count_as<int8_t>(key);
      case kU16:
        return take_count_as<uint16_t>(key);
      case kI16:
        return take_count_as<int16_t>(key);
      case kU32:
        return take_count_as<uint32_t>(key);
      case kI32:
        return take_count_as<int32_t>(key);
      case kU64:
        return take_count_as<uint64_t>(key);
      case kI64:
        return take_count_as<int64_t>(key);
      default:
        return error(type_at,
                     "key '%.*s': value type: expected one of integers (0..5, 10, 11), found %d",
                     static_cast<int>(key.size()), key.data(), type);
    }
  }

  Status check_part_number() const {
    const uint64_t count = split_.count.value_or(0), number = split_.number.value_or(0);
    if (count == 0 || number < count) return {};
    return error(0, "key 'split.no': expected less than split.count = %" PRIu64 ", found %" PRIu64,
                 count, number);
  }

  Status check_keys(const ValueTable& values) const {
    const auto twice = values.repeated();
    if (!twice) return {};
    const std::string_view key = values.key(*twice);
    return error(values.begin(*twice), "key '%.*s' occurs twice",
                 static_cast<int>(std::min<size_t>(key.size(), 60)), key.data());
  }

  Status skip_value(std::string_view key, int32_t type, uint64_t type_at) {
    const int length = static_cast<int>(std::min<size_t>(key.size(), 60));
    if (type < 0 || type >= static_cast<int32_t>(std::size(kValueBytes)) || type == kArray) {
      return error(type_at, "key '%.*s': value type: expected 0..12, found %d", length, key.data(),
                   type);
    }
    if (type == kString) {
      const auto text = take_string("string value", UINT64_MAX);
      return text.status();
    }
    const uint64_t size = kValueBytes[type];
    if (left() < size) {
      return error(at_, "key '%.*s': value: expected %" PRIu64 " bytes, found the end of the file",
                   length, key.data(), size);
    }
    at_ += size;
    return {};
  }

  Status skip_array(std::string_view key) {
    const int length = static_cast<int>(std::min<size_t>(key.size(), 60));
    const uint64_t type_at = at_;
    MARLIN_ASSIGN(const int32_t type, take<int32_t>("array type"));
    MARLIN_ASSIGN(const uint64_t count, take<uint64_t>("array length"));
    if (type < 0 || type >= static_cast<int32_t>(std::size(kValueBytes)) || type == kArray) {
      return error(type_at, "key '%.*s': array type: expected 0..12 but no array (9), found %d",
                   length, key.data(), type);
    }
    const uint64_t least = type == kString ? 8 : kValueBytes[type];
    if (count > left() / least) {
      return error(type_at + 4,
                   "key '%.*s': array length: expected at most %" PRIu64
                   " in the bytes left, found %" PRIu64,
                   length, key.data(), left() / least, count);
    }
    if (type != kString) {
      at_ += count * least;
      return {};
    }
    for (uint64_t i = 0; i < count; ++i)
      MARLIN_RETURN_IF_ERROR(take_string("string in an array", UINT64_MAX).status());
    return {};
  }

  Result<Tensor> read_tensor() {
    Tensor t;
    t.header_offset = at_;
    MARLIN_ASSIGN(t.name, take_string("tensor name", kMaxName));
    const int length = t.label_size();
    if (t.name.find('\0') != std::string_view::npos)
      return error(t.header_offset, "tensor name: holds a NUL");
    MARLIN_ASSIGN(t.rank, take<uint32_t>("number of dimensions"));
    if (t.rank > kMaxGgufRank) {
      return error(at_ - 4, "tensor '%.*s': dimensions: expected at most 4, found %u", length,
                   t.name.data(), t.rank);
    }
    for (uint32_t i = 0; i < t.rank; ++i) {
      MARLIN_ASSIGN(const int64_t dim, take<int64_t>("dimension"));
      if (dim < 0) {
        return error(at_ - 8, "tensor '%.*s': dimension %u: expected 0 or more, found %" PRId64,
                     length, t.name.data(), i, dim);
      }
      t.dims[t.rank - 1 - i] = dim;
    }
    MARLIN_ASSIGN(t.number, take<int32_t>("tensor type"));
    if (t.number < 0 || t.number > kMaxType) {
      return error(at_ - 4, "tensor '%.*s': type: expected 0..%d, found %d", length, t.name.data(),
                   kMaxType, t.number);
    }
    MARLIN_ASSIGN(t.offset, take<uint64_t>("tensor offset"));
    const std::span<const GgufType> types = gguf_types();
    static constexpr ElementType kBytes{"unknown", 1, 1, 0};
    if (t.number < static_cast<int32_t>(types.size()) &&
        types[static_cast<size_t>(t.number)].element.name != nullptr)
      t.type = &types[static_cast<size_t>(t.number)].element;
    const int64_t inner = t.rank == 0 ? 1 : t.dims[t.rank - 1];
    t.is_foreign = t.type != nullptr && t.number >= kFirstShared && inner % t.type->block != 0;
    if (t.is_foreign) t.type = nullptr;
    const ElementType& type = t.type != nullptr ? *t.type : kBytes;
    const auto bytes = tensor_bytes(type, t.shape());
    if (inner % type.block != 0 || !bytes || (t.type == nullptr && *bytes > INT64_MAX)) {
      return error(t.header_offset,
                   "tensor '%.*s': dimensions: rows of %" PRId64
                   " are no blocks of %s (%u), or too many bytes",
                   length, t.name.data(), inner, type.name, type.block);
    }
    t.bytes = *bytes;
    return t;
  }

  /// Whether a tensor of a type whose number other programs use, too, does not end where the next
  /// one begins, so that its blocks are of another program.
  bool is_foreign(const Tensor& t, const Tensor* next, uint64_t data_bytes) const {
    if (t.type == nullptr || t.number < kFirstShared) return t.is_foreign;
    const Checked end = Checked(t.offset) + Checked(t.bytes);
    if (next != nullptr) return end.round_up(alignment_).get() != next->offset;
    const auto last = end.at_most(data_bytes);
    return !last || (t.number >= kFirstSmall && data_bytes - *last >= alignment_);
  }

  /// The bytes of a tensor whose type does not say them: up to the next tensor or the file's end.
  Status bound(Tensor& t, const Tensor* next, uint64_t data_bytes) const {
    const uint64_t end = next != nullptr ? next->offset : data_bytes;
    t.bytes = end - t.offset;
    if (end >= t.offset && end <= data_bytes && (next == nullptr || end % alignment_ == 0))
      return {};
    if (end > data_bytes || t.offset > data_bytes) return too_short(t);
    return error(t.header_offset,
                 "tensor '%.*s': offset: expected the end of its data, a multiple of %u, between "
                 "%" PRIu64 " and %" PRIu64 ", found %" PRIu64,
                 t.label_size(), t.name.data(), alignment_, t.offset, data_bytes, end);
  }

  /// Each tensor must begin at the padded end of the one before and end inside the file.
  Status place(std::optional<uint64_t> data_begin, TensorTable& table) {
    const uint32_t file = table.add_file(file_, bytes_);
    const uint64_t first = std::min<uint64_t>(data_begin.value_or(UINT64_MAX), bytes_.size());
    Checked expected = 0;
    Tensor next;
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      Tensor t = next;
      if (i == 0) {
        MARLIN_ASSIGN(t, read_tensor());
      }
      const bool is_last = i + 1 == tensor_count_;
      if (!is_last) {
        MARLIN_ASSIGN(next, read_tensor());
      }
      const auto offset = expected.get();
      if (!offset || t.offset != *offset) {
        return error(t.header_offset,
                     "tensor '%.*s': offset: expected %" PRIu64
                     " after the tensor before, found %" PRIu64,
                     t.label_size(), t.name.data(), offset.value_or(UINT64_MAX), t.offset);
      }
      const bool foreign = is_foreign(t, is_last ? nullptr : &next, bytes_.size() - first);
      if (t.type == nullptr || foreign) {
        const std::string name = std::to_string(t.number) + (foreign ? " of another size" : "");
        MARLIN_RETURN_IF_ERROR(bound(t, is_last ? nullptr : &next, bytes_.size() - first));
        t.type = &table.unknown_type(name);
      }
      const auto end = (Checked(data_begin.value_or(UINT64_MAX)) + expected + Checked(t.bytes))
                           .at_most(bytes_.size());
      if (!end) return too_short(t);
      table.add(file, t.name, *t.type, t.shape(), *end - t.bytes, t.bytes);
      expected = (expected + Checked(t.bytes)).round_up(alignment_);
    }
    return {};
  }

  const std::string& file_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0, tensor_count_ = 0, key_values_ = 0;
  uint32_t alignment_ = 32;
  Checked whole_ = 0;  // bytes of the file, by its last tensor
  GgufSplit split_;
  std::vector<uint64_t> keys_;  // where each key-value begins, and where the last ends
};

}  // namespace

Result<GgufHeader> read_gguf_header(const std::string& name, std::span<const std::byte> bytes,
                                    ValueTable& values) {
  return Reader(name, bytes).read_header(values);
}

Status add_gguf_tensors(const GgufHeader& header, TensorTable& table) {
  return Reader(header.name, header.bytes).add_tensors(header, table);
}

}  // namespace metal_marlin
