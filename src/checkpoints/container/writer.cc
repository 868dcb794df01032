#include "checkpoints/container/writer.h"

#include <cerrno>
#include <cinttypes>
#include <utility>

#include "base/bits.h"
#include "base/checksum.h"
#include "base/memory.h"
#include "checkpoints/folder.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/value_table.h"
#include "layouts/gguf_types.h"

namespace metal_marlin {
namespace {

constexpr uint32_t kLibraryVersion =
    MARLIN_VERSION_MAJOR << 16 | MARLIN_VERSION_MINOR << 8 | MARLIN_VERSION_PATCH;

template <class T>
void append_number(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}
void append_text(std::vector<std::byte>& out, std::string_view text) {
  append_number(out, uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Key-values as a GGUF has them.
class ValueWriter {
 public:
  void copy(std::span<const std::byte> raw) {
    begins_.push_back(bytes_.size());
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  void add(std::string_view key, uint64_t value) {
    begin(key, gguf::kU64);
    append_number(bytes_, value);
  }
  void add(std::string_view key, std::string_view value) {
    begin(key, gguf::kString);
    append_text(bytes_, value);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<uint64_t> take_begins() {
    begins_.push_back(bytes_.size());
    return std::move(begins_);
  }

 private:
  void begin(std::string_view key, gguf::ValueType type) {
    begins_.push_back(bytes_.size());
    append_text(bytes_, key);
    append_number(bytes_, static_cast<int32_t>(type));
  }
  std::vector<std::byte> bytes_;
  std::vector<uint64_t> begins_;
};

Status check_target(const std::string& path, const Checkpoint& source, bool overwrite) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return file_error(path, "no name of a file", EINVAL);
  files::Facts found;
  if (files::examine(path, found) == 0 && source.has_read(found.id))
    return Status::error(MARLIN_E_ARGUMENT, "%.150s: is part of the input; write to another name",
                         path.c_str());
  MARLIN_ASSIGN(const bool taken, is_taken(path));
  return overwrite || !taken ? Status()
                             : file_error(path, "is there already and may not be replaced", EEXIST);
}

/// A directory holds these names, so that what is written can be read.
Status check_name(std::string_view name) {
  if (name.size() <= kMostName && name.find('\0') == name.npos) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "'%.60s...': a container holds names of up to %" PRIu64
                       " bytes without NUL, found %zu bytes",
                       std::string(name.substr(0, 60)).c_str(), kMostName, name.size());
}
Status check_tensors(const TensorTable& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) MARLIN_RETURN_IF_ERROR(check_name(tensors.name(i)));
  return {};
}

}  // namespace

uint64_t fingerprint(const Checkpoint& source) {
  const TensorTable& tensors = source.tensors();
  std::vector<std::byte> facts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView view = tensors.view(i);
    append_text(facts, view.name);
    append_text(facts, view.type_name);
    for (const int64_t dim : view.dims) append_number(facts, dim);
    append_number(facts, view.bytes);
  }
  return checksum(facts);
}

Result<std::unique_ptr<ContainerWriter>> ContainerWriter::create(const std::string& path,
                                                                 const Checkpoint& source,
                                                                 const ContainerOptions& options) {
  MARLIN_RETURN_IF_ERROR(check_target(path, source, options.overwrite));
  MARLIN_RETURN_IF_ERROR(check_tensors(source.tensors()));
  std::unique_ptr<ContainerWriter> writer(new ContainerWriter(source, options.overwrite));
  MARLIN_ASSIGN(OutputFile file, OutputFile::create(path, 0, writer->names_));
  writer->file_.emplace(std::move(file));
  ContainerDirectory& directory = writer->directory_;
  directory.form = options.form;
  directory.library_version = kLibraryVersion;
  directory.rank = options.rank;
  directory.ranks = options.ranks;
  directory.source_fingerprint = fingerprint(source);
  if (source.tensors().file_count() != 0)
    directory.source = files::name_of(source.tensors().file_name(0));
  return writer;
}

// Who made this has opened the file. NOLINTBEGIN(bugprone-unchecked-optional-access)
Result<ContainerBlock> ContainerWriter::add(std::span<const std::byte> bytes, uint64_t align) {
  ContainerBlock block;
  if (bytes.empty()) return block;
  block.offset = (end_ + align - 1) / align * align;  // bytes that are on the disk never wrap
  block.bytes = bytes.size();
  block.checksum = checksum(bytes);
  MARLIN_RETURN_IF_ERROR(file_->write(block.offset, bytes));
  end_ = block.offset + block.bytes;
  return block;
}

Status ContainerWriter::add_entry(LayerNames layers, marlin_layout layout,
                                  std::span<const PackedMatrix> experts) {
  ContainerEntry entry;
  entry.layers = std::move(layers);
  entry.layout = layout;
  for (const PackedMatrix& matrix : experts) {
    ContainerMatrix one;
    one.matrix = matrix;
    one.matrix.data = {};
    if (matrix.own != 0) directory_.version = kContainerVersion;
    MARLIN_ASSIGN(one.data, add(matrix.data, kContainerAlign));
    MARLIN_ASSIGN(one.group_index,
                  add(std::as_bytes(std::span(matrix.meta.group_index)), Block::kAlign));
    one.matrix.meta.group_index = {};
    entry.experts.push_back(std::move(one));
  }
  directory_.entries.push_back(std::move(entry));
  return {};
}

Status ContainerWriter::add_tensor(const TensorView& tensor) {
  ContainerTensor one;
  one.name = tensor.name;
  one.type = tensor.type_name;
  one.is_gguf = source_.origin().is_gguf;
  one.dims = tensor.dims;
  MARLIN_ASSIGN(one.data, add({tensor.data, tensor.bytes}, Block::kAlign));
  directory_.tensors.push_back(std::move(one));
  return {};
}

Status ContainerWriter::add_values() {
  ValueWriter writer;
  const ValueTable& values = source_.values();
  MARLIN_RETURN_IF_ERROR(values.status());
  for (size_t i = 0; i < values.size(); ++i)
    if (!values.key(i).starts_with("marlin.") && values.find(values.key(i)) == i)
      writer.copy(values.raw(i));
  writer.add("marlin.device", directory_.form.device);
  writer.add("marlin.packed_version", directory_.form.version);
  writer.add("marlin.library_version", directory_.library_version);
  writer.add("marlin.rank", directory_.rank);
  writer.add("marlin.ranks", directory_.ranks);
  writer.add("marlin.source", directory_.source);
  writer.add("marlin.source_fingerprint", directory_.source_fingerprint);
  directory_.value_begins = writer.take_begins();
  MARLIN_ASSIGN(directory_.values, add(writer.bytes(), Block::kAlign));
  return {};
}

Status ContainerWriter::finish() {
  MARLIN_RETURN_IF_ERROR(add_values());
  const std::vector<std::byte> directory = encode_directory(directory_);
  ContainerHead head;
  head.version = directory_.version;
  MARLIN_ASSIGN(head.directory, add(directory, Block::kAlign));
  head.file_bytes = end_;
  MARLIN_RETURN_IF_ERROR(file_->write(0, encode_head(head)));
  MARLIN_RETURN_IF_ERROR(file_->sync());
  MARLIN_RETURN_IF_ERROR(publish_all({&*file_, 1}, overwrite_));
  sync_folder(files::folder_of(file_->path()));
  return {};
}
// NOLINTEND(bugprone-unchecked-optional-access)

}  // namespace metal_marlin
