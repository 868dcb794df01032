#include "checkpoints/container/container.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "base/bits.h"
#include "base/checksum.h"
#include "checkpoints/safetensors_file.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/value_table.h"
#include "formats/format_table.h"
#include "layouts/gguf_types.h"

namespace metal_marlin {
namespace {

const ElementType* element_type(const ContainerTensor& tensor) {
  if (!tensor.is_gguf) return safetensors_type(tensor.type);
  const GgufType* const type = gguf_type(tensor.type);
  return type != nullptr ? &type->element : nullptr;
}

class PackedCheckpoint final : public Checkpoint, public Container {
 public:
  PackedCheckpoint(std::unique_ptr<Folder> folder, std::string file,
                   std::span<const std::byte> bytes, ContainerDirectory directory)
      : folder_(std::move(folder)),
        file_(std::move(file)),
        bytes_(bytes),
        directory_(std::move(directory)),
        origin_{.is_gguf = false, .folder = folder_->path(), .config = {}} {}

  /// Names, tensors and key-values. To be called once, before anything else.
  Status index() {
    by_name_.resize(layer_count());
    std::iota(by_name_.begin(), by_name_.end(), 0u);
    std::sort(by_name_.begin(), by_name_.end(),
              [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
    const auto twice =
        std::adjacent_find(by_name_.begin(), by_name_.end(),
                           [&](uint32_t a, uint32_t b) { return name_of(a) == name_of(b); });
    if (twice != by_name_.end())
      return Status::error(MARLIN_E_FORMAT, "%s: directory: layer '%.80s' occurs twice",
                           file_label(file_), layer_name(*twice));
    MARLIN_RETURN_IF_ERROR(index_tensors());
    MARLIN_RETURN_IF_ERROR(check_apart(file_, directory_));
    return index_values();
  }

  // Checkpoint

  size_t layer_count() const override { return directory_.entries.size(); }
  Layer layer(size_t index) const override {
    const ContainerEntry& entry = directory_.entries[index];
    const WeightMeta& meta = entry.experts[0].matrix.meta;
    Layer layer;
    layer.name = name_of(index);
    const auto is_size = [](int64_t size) { return size >= 0 && size <= INT32_MAX; };
    layer.n = is_size(meta.n) ? meta.n : 0;
    layer.k = is_size(meta.k) ? meta.k : 0;
    layer.experts = static_cast<uint32_t>(entry.experts.size());
    layer.group_size = meta.group_size;
    layer.format = meta.format;
    layer.layout = entry.layout;
    layer.flags = layer_flags(meta);
    const marlin_dtype floats = float_dtype(meta.format);
    layer.dtype = floats != 0 ? floats : scale_dtype(meta.scale_type);
    for (const ContainerMatrix& one : entry.experts) {
      layer.bytes += one.data.bytes;
      if (one.group_index.bytes != 0) layer.flags |= MARLIN_LAYER_ACT_ORDER;
      if (layer.status.ok())
        layer.status = check_meta_but_index(one.matrix.meta, one.group_index.bytes != 0);
    }
    return layer;
  }
  const char* layer_name(size_t index) const override { return name_of(index).c_str(); }
  std::optional<size_t> find_layer(std::string_view name) const override {
    const auto at =
        std::lower_bound(by_name_.begin(), by_name_.end(), name,
                         [&](uint32_t i, std::string_view text) { return name_of(i) < text; });
    if (at == by_name_.end() || name_of(*at) != name) return std::nullopt;
    return *at;
  }
  Result<TensorView> tensor(std::string_view name) const override {
    const auto index = tensors_.find(name);
    if (!index)
      return TensorTable::not_found(name, std::string("not in the container ") + file_label(file_));
    // The table has the order of the directory.
    MARLIN_RETURN_IF_ERROR(
        check(directory_.tensors[*index].data, directory_.tensors[*index].name.c_str()));
    return tensors_.view(*index);
  }
  const TensorTable& tensors() const override { return tensors_; }
  const Origin& origin() const override { return origin_; }
  const ValueTable& values() const override { return values_; }
  bool has_read(const FileId& file) const override { return folder_->has_opened(file); }
  std::vector<TensorView> parts(size_t index) const override {
    std::vector<TensorView> all;
    for (const ContainerMatrix& one : directory_.entries[index].experts) {
      TensorView view;
      view.name = name_of(index);
      view.file = file_;
      view.file_offset = one.data.offset;
      view.dtype = MARLIN_U8;
      view.dims = {static_cast<int64_t>(one.data.bytes)};
      view.row_stride = view.dims[0];
      view.data = block(one.data).data();
      view.bytes = one.data.bytes;
      all.push_back(std::move(view));
    }
    return all;
  }
  void release(std::span<const std::byte> part) const override { folder_->release(part); }
  Result<std::unique_ptr<WeightSource>> source(size_t index, uint32_t,
                                               const SourceOptions&) const override {
    return Status::error(
        MARLIN_E_UNSUPPORTED,
        "layer '%.80s' is packed for the device %.20s; its codes are in the source file %.80s",
        layer_name(index), directory_.form.device.c_str(), directory_.source.c_str());
  }
  const Container* container() const override { return this; }

  // Container

  const PackedForm& form() const override { return directory_.form; }
  const std::string& source_name() const override { return directory_.source; }
  std::string repack_command(const std::string& device) const override {
    std::string command = kPackCommand + (" --backend " + device);
    if (directory_.ranks > 1) command += " --ranks " + std::to_string(directory_.ranks);
    return command + " (SOURCE: " + directory_.source.substr(0, 80) + " or its folder)";
  }
  const ContainerEntry& entry(size_t layer) const override { return directory_.entries[layer]; }
  std::shared_ptr<const void> memory() const override { return folder_; }
  Result<std::vector<PackedMatrix>> matrices(size_t layer, int64_t first,
                                             int64_t count) const override {
    std::vector<PackedMatrix> all;
    for (int64_t i = first; i < first + count; ++i) {
      const ContainerMatrix& one = directory_.entries[layer].experts[static_cast<size_t>(i)];
      MARLIN_RETURN_IF_ERROR(check(one.data, layer_name(layer)));
      MARLIN_RETURN_IF_ERROR(check(one.group_index, layer_name(layer)));
      PackedMatrix matrix = one.matrix;
      matrix.data = block(one.data);
      if (one.group_index.bytes != 0) {
        matrix.meta.group_index.resize(one.group_index.bytes / sizeof(int32_t));
        std::memcpy(matrix.meta.group_index.data(), block(one.group_index).data(),
                    one.group_index.bytes);
      }
      all.push_back(std::move(matrix));
    }
    return all;
  }

 private:
  const std::string& name_of(size_t layer) const {
    return directory_.entries[layer].layers.joined();
  }

  std::span<const std::byte> block(const ContainerBlock& of) const {
    return bytes_.subspan(of.offset, of.bytes);
  }

  Status check(const ContainerBlock& of, const char* name) const {
    if (of.bytes == 0) return {};
    const uint64_t found = checksum(block(of));
    if (found == of.checksum) return {};
    return Status::error(MARLIN_E_FORMAT,
                         "%s: byte %" PRIu64 ": '%.80s': checksum of %" PRIu64
                         " bytes: expected 0x%016" PRIx64 ", found 0x%016" PRIx64,
                         file_label(file_), of.offset, name, of.bytes, of.checksum, found);
  }

  Status index_values() {
    MARLIN_RETURN_IF_ERROR(check(directory_.values, "key-values"));
    if (directory_.values.bytes == 0 || directory_.value_begins.size() < 2) return {};
    values_ = ValueTable(block(directory_.values), directory_.value_begins);
    const auto wrong = [&](size_t value, const char* found) {
      return Status::error(MARLIN_E_FORMAT,
                           "%s: byte %" PRIu64
                           ": key-value %zu: expected a key of its own and a value, found %s",
                           file_label(file_),
                           directory_.values.offset + directory_.value_begins[value], value, found);
    };
    for (size_t i = 0; i < values_.size(); ++i)
      if (!values_.at(i).ok()) return wrong(i, "neither");
    if (const auto twice = values_.repeated()) return wrong(*twice, "a key that occurs twice");
    return {};
  }

  Status index_tensors() {
    const uint32_t number = tensors_.add_file(file_, bytes_);
    size_t pool = 0;
    for (const ContainerTensor& tensor : directory_.tensors)
      pool += TensorTable::pool_bytes(tensor.name, tensor.dims);
    tensors_.reserve(directory_.tensors.size(), pool);
    for (const ContainerTensor& tensor : directory_.tensors) {
      const ElementType* const type = element_type(tensor);
      if (type == nullptr)
        return Status::error(MARLIN_E_FORMAT,
                             "%s: directory: tensor '%.60s': type: '%.20s' is none of this version",
                             file_label(file_), tensor.name.c_str(), tensor.type.c_str());
      const bool negative =
          std::any_of(tensor.dims.begin(), tensor.dims.end(), [](int64_t dim) { return dim < 0; });
      const auto expected = negative ? std::nullopt : tensor_bytes(*type, tensor.dims);
      if (expected != tensor.data.bytes)
        return Status::error(MARLIN_E_FORMAT,
                             "%s: directory: tensor '%.60s': expected %" PRIu64
                             " bytes by its dimensions, found %" PRIu64,
                             file_label(file_), tensor.name.c_str(), expected.value_or(UINT64_MAX),
                             tensor.data.bytes);
      const uint64_t offset = tensor.data.bytes != 0 ? tensor.data.offset : 0;
      tensors_.add(number, tensor.name, *type, tensor.dims, offset, tensor.data.bytes);
    }
    return tensors_.finish();
  }

  const std::shared_ptr<const Folder> folder_;
  const std::string file_;
  const std::span<const std::byte> bytes_;
  const ContainerDirectory directory_;
  const Origin origin_;
  std::vector<uint32_t> by_name_;
  TensorTable tensors_;
  ValueTable values_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_container(std::unique_ptr<Folder> folder,
                                                   const std::string& file,
                                                   std::span<const std::byte> bytes) {
  MARLIN_ASSIGN(const ContainerHead head, decode_head(file, bytes));
  MARLIN_ASSIGN(ContainerDirectory directory, decode_directory(file, bytes, head));
  auto opened =
      std::make_unique<PackedCheckpoint>(std::move(folder), file, bytes, std::move(directory));
  MARLIN_RETURN_IF_ERROR(opened->index());
  return std::unique_ptr<Checkpoint>(std::move(opened));
}

}  // namespace metal_marlin
