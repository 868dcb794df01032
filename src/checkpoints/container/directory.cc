#include "checkpoints/container/directory.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/bits.h"
#include "base/checked.h"
#include "base/checksum.h"
#include "checkpoints/tensor_table.h"
#include "core/plan_key.h"

namespace metal_marlin {
namespace {

/// The first byte is no ASCII, and the line ends show a transfer as text, as in PNG.
constexpr unsigned char kMagic[8] = {0x89, 'M', 'R', 'L', '\r', '\n', 0x1a, '\n'};
constexpr uint32_t kByteOrder = 0x0a0b0c0d, kOtherByteOrder = 0x0d0c0b0a;
constexpr size_t kHeadChecksum = kContainerHeadBytes - 8;
constexpr uint64_t kMostRank = 64;

/// Appends fields to bytes.
class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& out) : out_(out) {}

  template <class T>
  void number(const char*, const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    append(&value, sizeof value);
  }
  template <class Enum>
  void choice(const char*, const Enum& value, Enum) {
    number("", static_cast<uint8_t>(value));
  }
  void flag(const char*, const bool& value) { number("", uint8_t{value}); }
  void text(const char*, std::string_view value) {
    number("", static_cast<uint32_t>(value.size()));
    append(value.data(), value.size());
  }
  void names(const LayerNames& names) {
    number("", uint64_t{names.size()});
    for (size_t i = 0; i < names.size(); ++i) text("", names[i]);
  }
  template <class T, class Each>
  void list(const char*, const std::vector<T>& values, uint64_t, const Each& each) {
    number("", uint64_t{values.size()});
    for (const T& value : values) each(value);
  }

 private:
  void append(const void* from, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), bytes, bytes + size);
  }
  std::vector<std::byte>& out_;
};

/// Takes fields from bytes, each checked against what is left. Behind the first error it takes
/// nothing more.
class FieldReader {
 public:
  FieldReader(const std::string& file, std::span<const std::byte> bytes, uint64_t begin,
              uint64_t end)
      : file_(file), bytes_(bytes.first(end)), at_(begin) {}

  template <class T>
  void number(const char* field, T& value) {
    if (!has(field, sizeof value)) return;
    value = load<T>(bytes_.data() + at_);
    at_ += sizeof value;
  }
  /// An enumeration whose values are 0 to `last`.
  template <class Enum>
  void choice(const char* field, Enum& value, Enum last) {
    value = static_cast<Enum>(byte(field, static_cast<uint8_t>(last), "a value of this version"));
  }
  void flag(const char* field, bool& value) { value = byte(field, 1, "0 or 1") != 0; }
  void text(const char* field, std::string& value) {
    uint32_t size = 0;
    number(field, size);
    if (size > kMostName) return error(field, "at most 65535 bytes", size);
    if (!has(field, size)) return;
    value.assign(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    if (value.find('\0') != std::string::npos) return error(field, "a text without NUL", 0);
    at_ += size;
  }
  void names(LayerNames& names) {
    const uint64_t count = this->count("layers", 4);
    names.reserve(count);
    std::string name;
    for (uint64_t i = 0; i < count; ++i) {
      name.clear();
      text("layer", name);
      names.push_back(name);
    }
  }
  template <class T, class Each>
  void list(const char* field, std::vector<T>& values, uint64_t least, const Each& each) {
    values.resize(count(field, least));
    for (T& value : values) each(value);
  }
  /// The first error, or that bytes are left.
  Status finish() {
    if (status_.ok() && at_ != bytes_.size()) error("end", "the end of the directory", 0);
    return status_;
  }

 private:
  /// `least` bytes per element bound the count, so that no loop is longer than the file.
  uint64_t count(const char* field, uint64_t least) {
    uint64_t count = 0;
    number(field, count);
    if (count <= (bytes_.size() - at_) / least) return count;
    error(field, "a count that fits the directory", count);
    return 0;
  }
  void error(const char* field, const char* expected, uint64_t found) {
    status_ = Status::error(MARLIN_E_FORMAT,
                            "%s: byte %" PRIu64 ": directory: %s: expected %s, found %" PRIu64,
                            file_label(file_), at_, field, expected, found);
  }
  bool has(const char* field, uint64_t size) {
    if (!status_.ok()) return false;
    if (size <= bytes_.size() - at_) return true;
    status_ = Status::error(MARLIN_E_FORMAT,
                            "%s: byte %" PRIu64 ": directory: %s: expected %" PRIu64
                            " bytes, found %" PRIu64 " to the end of the directory",
                            file_label(file_), at_, field, size, bytes_.size() - at_);
    return false;
  }
  /// 0 if it is above `most`.
  uint8_t byte(const char* field, uint8_t most, const char* expected) {
    uint8_t value = 0;
    number(field, value);
    if (value <= most) return value;
    error(field, expected, value);
    return 0;
  }

  const std::string& file_;
  const std::span<const std::byte> bytes_;
  uint64_t at_;
  Status status_;
};

// The directory, field by field. `Archive` is a FieldWriter or a FieldReader; what it visits is
// const for the writer. The last number of a list is the fewest bytes of an element.

constexpr uint64_t kLeastMatrix = 133;

template <class Archive, class Block>
void visit_block(Archive& a, Block& block) {
  a.number("offset", block.offset);
  a.number("bytes", block.bytes);
  a.number("checksum", block.checksum);
}

template <class Archive, class Meta>
void visit_meta(Archive& a, Meta& meta) {
  a.number("format", meta.format);
  a.number("n", meta.n);
  a.number("k", meta.k);
  a.number("group size", meta.group_size);
  a.number("groups", meta.groups);
  a.choice("type of scales", meta.scale_type, ScaleType::nested);
  a.choice("kind of zeros", meta.zero_kind, ZeroKind::additive);
  a.choice("type of zeros", meta.zero_type, ScaleType::s8);
  a.flag("gate and up alternate", meta.gate_up_interleaved);
  a.flag("2:4 sparse", meta.sparse);
  a.number("squared norm", meta.squared_norm);
  a.number("kept norm", meta.kept_norm);
  a.list("codebook", meta.codebook, 4, [&](auto& value) { a.number("value", value); });
  a.list("tensor scales", meta.tensor_scales, 17, [&](auto& scale) {
    a.number("first row", scale.first_row);
    a.number("value", scale.value);
    a.number("divisor", scale.divisor);
    a.flag("divides", scale.divide);
  });
  if (!meta.has_nested_scales()) return;
  a.list("map of scales", meta.scale_map, 4, [&](auto& value) { a.number("value", value); });
  a.number("groups of a factor", meta.factor_groups);
}

template <class Archive, class Matrix>
void visit_matrix(Archive& a, Matrix& one, uint32_t version) {
  visit_meta(a, one.matrix.meta);
  a.number("slots", one.matrix.slots);
  a.number("slot group", one.matrix.slot_group);
  if (version != 1) a.number("own", one.matrix.own);
  visit_block(a, one.data);
  visit_block(a, one.group_index);
}

template <class Archive, class Entry>
void visit_entry(Archive& a, Entry& entry, uint32_t version) {
  a.names(entry.layers);
  a.number("layout", entry.layout);
  a.list("experts", entry.experts, kLeastMatrix, [&](auto& one) { visit_matrix(a, one, version); });
}

template <class Archive, class Tensor>
void visit_tensor(Archive& a, Tensor& tensor) {
  a.text("tensor", tensor.name);
  a.flag("of GGUF", tensor.is_gguf);
  a.text("type", tensor.type);
  a.list("dimensions", tensor.dims, 8, [&](auto& dim) { a.number("dimension", dim); });
  visit_block(a, tensor.data);
}

template <class Archive, class Directory>
void visit_directory(Archive& a, Directory& d) {
  a.text("device", d.form.device);
  a.number("version of the packed form", d.form.version);
  a.number("version of the library", d.library_version);
  a.number("rank", d.rank);
  a.number("ranks", d.ranks);
  a.text("source", d.source);
  a.number("fingerprint of the source", d.source_fingerprint);
  visit_block(a, d.values);
  a.list("key-values", d.value_begins, 8, [&](auto& begin) { a.number("key-value", begin); });
  a.list("tensors", d.tensors, 41, [&](auto& tensor) { visit_tensor(a, tensor); });
  a.list("entries", d.entries, 20, [&](auto& entry) { visit_entry(a, entry, d.version); });
}

/// Bits are compared, because a NaN does not equal itself.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

/// The rules of experts that are packed together (sources/concat.h), after packing.
bool are_alike(const WeightMeta& a, const WeightMeta& b) {
  return WeightKind(a) == WeightKind(b) && same_bits(a.codebook, b.codebook) &&
         same_bits(a.scale_map, b.scale_map);
}

/// What the fields say of each other and of the file.
class DirectoryCheck {
 public:
  DirectoryCheck(const std::string& file, const ContainerHead& head) : file_(file), head_(head) {}

  Status operator()(const ContainerDirectory& d) const {
    if (d.ranks == 0 || d.rank >= d.ranks)
      return wrong("rank", "container", "below the number of ranks", d.rank);
    MARLIN_RETURN_IF_ERROR(check_block(d.values, 1, "key-values"));
    if (!std::is_sorted(d.value_begins.begin(), d.value_begins.end()) ||
        (!d.value_begins.empty() && d.value_begins.back() > d.values.bytes))
      return wrong("key-values", "container", "ascending places inside their block",
                   d.values.bytes);
    for (const ContainerTensor& tensor : d.tensors) {
      MARLIN_RETURN_IF_ERROR(check_block(tensor.data, 1, tensor.name.c_str()));
      if (tensor.dims.size() > kMostRank)
        return wrong("dimensions", tensor.name.c_str(), "at most 64", tensor.dims.size());
    }
    for (const ContainerEntry& entry : d.entries) MARLIN_RETURN_IF_ERROR(check_entry(entry));
    return {};
  }

 private:
  Status wrong(const char* field, const char* where, const char* expected, uint64_t found) const {
    return Status::error(MARLIN_E_FORMAT, "%s: directory: '%.60s': %s: expected %s, found %" PRIu64,
                         file_label(file_), where, field, expected, found);
  }

  Status check_block(const ContainerBlock& block, uint64_t align, const char* where) const {
    if (block.bytes == 0) return {};
    const auto end = (Checked(block.offset) + Checked(block.bytes)).at_most(head_.directory.offset);
    if (!end || block.offset < kContainerHeadBytes)
      return wrong("block", where, "bytes between the head and the directory", block.offset);
    if (block.offset % align != 0)
      return wrong("block", where, "a multiple of 4096 as its place", block.offset);
    return {};
  }

  Status check_entry(const ContainerEntry& entry) const {
    const char* const name = entry.layers.joined().c_str();
    if (entry.layers.empty() || entry.experts.empty())
      return wrong("layers and experts", name, "one or more", 0);
    const WeightMeta& first = entry.experts[0].matrix.meta;
    for (const ContainerMatrix& one : entry.experts) {
      const WeightMeta& meta = one.matrix.meta;
      if (!are_alike(meta, first))
        return wrong("experts", name,
                     "one format and shape, and scales, zeros and codebooks of one kind, as the "
                     "first has them",
                     static_cast<uint64_t>(&one - entry.experts.data()));
      if (one.data.bytes == 0) return wrong("data", name, "one byte or more", 0);
      MARLIN_RETURN_IF_ERROR(check_block(one.data, kContainerAlign, name));
      MARLIN_RETURN_IF_ERROR(check_block(one.group_index, 4, name));
      const auto index_bytes = (Checked(meta.k) * Checked(4)).get().value_or(1);
      if (one.group_index.bytes != 0 && one.group_index.bytes != index_bytes)
        return wrong("group index", name, "four bytes for each k", one.group_index.bytes);
    }
    return {};
  }

  const std::string& file_;
  const ContainerHead& head_;
};

}  // namespace

std::array<std::byte, kContainerHeadBytes> encode_head(const ContainerHead& head) {
  std::array<std::byte, kContainerHeadBytes> bytes{};
  std::memcpy(bytes.data(), kMagic, sizeof kMagic);
  store(bytes.data() + 8, kByteOrder);
  store(bytes.data() + 12, head.version);
  store(bytes.data() + 16, head.file_bytes);
  store(bytes.data() + 24, head.directory.offset);
  store(bytes.data() + 32, head.directory.bytes);
  store(bytes.data() + 40, head.directory.checksum);
  store(bytes.data() + kHeadChecksum, checksum(std::span(bytes).first(kHeadChecksum)));
  return bytes;
}

bool is_container(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
}

Result<ContainerHead> decode_head(const std::string& file, std::span<const std::byte> bytes) {
  const char* const name = file_label(file);
  if (bytes.size() < kContainerHeadBytes)
    return Status::error(MARLIN_E_FORMAT, "%s: byte 0: expected a head of %zu bytes, found %zu",
                         name, kContainerHeadBytes, bytes.size());
  if (!is_container(bytes))
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte 0: magic: expected 89 'MRL' 0d 0a 1a 0a of a packed container, "
                         "found 0x%016" PRIx64,
                         name, load<uint64_t>(bytes.data()));
  const auto order = load<uint32_t>(bytes.data() + 8);
  if (order == kOtherByteOrder)
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte 8: byte order: expected little-endian, found big-endian", name);
  if (order != kByteOrder)
    return Status::error(MARLIN_E_FORMAT, "%s: byte 8: byte order: expected 0x%08x, found 0x%08x",
                         name, kByteOrder, order);
  const auto stored = load<uint64_t>(bytes.data() + kHeadChecksum);
  const uint64_t found = checksum(bytes.first(kHeadChecksum));
  if (stored != found)
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte %zu: checksum of the head: expected 0x%016" PRIx64
                         ", found 0x%016" PRIx64,
                         name, kHeadChecksum, stored, found);
  const auto version = load<uint32_t>(bytes.data() + 12);
  if (version == 0 || version > kContainerVersion)
    return Status::error(
        MARLIN_E_UNSUPPORTED,
        "%s: byte 12: version of the container: expected 1 to %u, found %u: a newer "
        "library wrote it; pack its source with this one: %s",
        name, kContainerVersion, version, kPackCommand);
  ContainerHead head;
  head.version = version;
  head.file_bytes = load<uint64_t>(bytes.data() + 16);
  head.directory = {load<uint64_t>(bytes.data() + 24), load<uint64_t>(bytes.data() + 32),
                    load<uint64_t>(bytes.data() + 40)};
  if (head.file_bytes != bytes.size())
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte 16: size of the file: expected %" PRIu64 " bytes, found %zu",
                         name, head.file_bytes, bytes.size());
  const auto end = (Checked(head.directory.offset) + Checked(head.directory.bytes)).get();
  if (end != head.file_bytes || head.directory.offset < kContainerHeadBytes)
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte 24: directory: expected it to end with the file at %" PRIu64
                         ", found %" PRIu64 " + %" PRIu64,
                         name, head.file_bytes, head.directory.offset, head.directory.bytes);
  return head;
}

std::vector<std::byte> encode_directory(const ContainerDirectory& directory) {
  std::vector<std::byte> bytes;
  FieldWriter writer(bytes);
  visit_directory(writer, directory);
  return bytes;
}

Result<ContainerDirectory> decode_directory(const std::string& file,
                                            std::span<const std::byte> bytes,
                                            const ContainerHead& head) {
  const std::span<const std::byte> own = bytes.subspan(head.directory.offset, head.directory.bytes);
  const uint64_t found = checksum(own);
  if (found != head.directory.checksum)
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte %" PRIu64 ": checksum of the directory: expected 0x%016" PRIx64
                         ", found 0x%016" PRIx64,
                         file_label(file), head.directory.offset, head.directory.checksum, found);
  ContainerDirectory directory;
  directory.version = head.version;
  FieldReader reader(file, bytes, head.directory.offset,
                     head.directory.offset + head.directory.bytes);
  visit_directory(reader, directory);
  MARLIN_RETURN_IF_ERROR(reader.finish());
  MARLIN_RETURN_IF_ERROR(DirectoryCheck(file, head)(directory));
  return directory;
}

Status check_apart(const std::string& file, const ContainerDirectory& directory) {
  std::vector<const ContainerBlock*> blocks = {&directory.values};
  for (const ContainerTensor& tensor : directory.tensors) blocks.push_back(&tensor.data);
  for (const ContainerEntry& entry : directory.entries)
    for (const ContainerMatrix& one : entry.experts)
      blocks.insert(blocks.end(), {&one.data, &one.group_index});
  std::erase_if(blocks, [](const ContainerBlock* block) { return block->bytes == 0; });
  std::ranges::sort(blocks, {}, &ContainerBlock::offset);
  for (size_t i = 1; i < blocks.size(); ++i) {
    const uint64_t end = blocks[i - 1]->offset + blocks[i - 1]->bytes;
    if (blocks[i]->offset < end)
      return Status::error(MARLIN_E_FORMAT,
                           "%s: byte %" PRIu64
                           ": directory: block: expected it behind the end of "
                           "another at %" PRIu64,
                           file_label(file), blocks[i]->offset, end);
  }
  return {};
}

}  // namespace metal_marlin
