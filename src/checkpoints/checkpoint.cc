#include "checkpoints/checkpoint.h"

#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/config.h"
#include "checkpoints/config_values.h"
#include "checkpoints/container/container.h"
#include "checkpoints/experts.h"
#include "checkpoints/gguf_parts.h"
#include "checkpoints/rebuilt_source.h"
#include "checkpoints/recognize.h"
#include "checkpoints/safetensors_file.h"
#include "checkpoints/value_table.h"
#include "formats/prune.h"
#include "layouts/layout_table.h"

namespace metal_marlin {
namespace {

/// Releases the pages of a layer when it has been read, so that loading a model needs the memory of
/// one tensor and not of the file.
class MappedSource final : public WrappedSource {
 public:
  MappedSource(std::unique_ptr<WeightSource> source, const Folder& folder, const LayoutOperands& o)
      : WrappedSource(std::move(source)),
        folder_(folder),
        values_(o.values.data, o.values.bytes),
        scales_(o.scales.data, o.scales.bytes) {}
  ~MappedSource() override {
    folder_.release(values_);
    folder_.release(scales_);
  }

 private:
  const Folder& folder_;
  std::span<const std::byte> values_, scales_;
};

/// Keeps the parts of a source that are copies, and says whether its rows alternate gate and up,
/// which quantizers do not know.
class OwningSource final : public WrappedSource {
 public:
  OwningSource(std::unique_ptr<WeightSource> source, std::vector<std::vector<std::byte>> parts,
               bool interleaved)
      : WrappedSource(std::move(source)), parts_(std::move(parts)) {
    meta_.gate_up_interleaved |= interleaved;
  }
  void narrow(int64_t first, int64_t count) override {
    const bool interleaved = meta_.gate_up_interleaved;
    WrappedSource::narrow(first, count);
    meta_.gate_up_interleaved = interleaved;
  }

 private:
  const std::vector<std::vector<std::byte>> parts_;
};

/// The caller's choice for layers whose names are ambiguous.
struct Reading {
  bool is_gguf = false;
  marlin_layout layout = MARLIN_LAYOUT_AUTO;
  marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO;
  StackOrder stack_order = StackOrder::unknown;
};

class FileCheckpoint final : public Checkpoint {
 public:
  FileCheckpoint(std::unique_ptr<Folder> folder, TensorTable tensors, QuantConfig config,
                 ValueTable values, const Reading& reading)
      : folder_(std::move(folder)),
        tensors_(std::move(tensors)),
        config_(std::move(config)),
        values_(std::move(values)),
        reading_(reading),
        origin_{reading.is_gguf, folder_->path(), config_.text},
        layers_(LayerTable::find(finder())) {}

  size_t layer_count() const override { return layers_.size(); }
  Layer layer(size_t index) const override {
    Finding found = layers_.finding(finder(), index);
    describe(found);
    return std::move(found.layer);
  }
  const char* layer_name(size_t index) const override { return layers_.name(index); }
  std::optional<size_t> find_layer(std::string_view name) const override {
    return layers_.find(name);
  }

  Result<TensorView> tensor(std::string_view name) const override {
    TensorView view = tensors_.view(name);
    if (view.data != nullptr) return view;
    return TensorTable::not_found(name, "in none of the files");
  }

  const TensorTable& tensors() const override { return tensors_; }
  const Origin& origin() const override { return origin_; }
  const ValueTable& values() const override { return values_; }
  bool has_read(const FileId& file) const override { return folder_->has_opened(file); }
  std::vector<TensorView> parts(size_t index) const override {
    std::vector<TensorView> all;
    const Finding found = layers_.finding(finder(), index);
    const LayoutOperands& o = found.operands;
    for (const TensorView* view : {&o.values, &o.sparse_meta, &o.scales, &o.zeros, &o.group_index,
                                   &o.tensor_scale, &o.nested.map, &o.nested.absmax}) {
      if (present(*view) && !view->file.empty()) all.push_back(*view);
    }
    all.insert(all.end(), found.others.begin(), found.others.end());
    return all;
  }
  void release(std::span<const std::byte> part) const override { folder_->release(part); }

  Result<std::unique_ptr<WeightSource>> source(size_t index, uint32_t expert,
                                               const SourceOptions& options) const override {
    if (index >= layers_.size())
      return Status::error(MARLIN_E_NOT_FOUND, "layer %zu: the checkpoint has %zu", index,
                           layers_.size());
    Finding found = layers_.finding(finder(), index);
    describe(found);
    const Layer& layer = found.layer;
    if (!layer.status.ok()) return layer.status;
    if (expert >= layer.experts) {
      return Status::error(MARLIN_E_ARGUMENT, "layer '%.120s': expert: expected 0..%u, found %u",
                           layer.name.c_str(), layer.experts - 1, expert);
    }
    const LayoutOperands one =
        found.stacked ? expert_slice(found.operands, expert, layer.experts) : found.operands;
    MARLIN_ASSIGN(auto source, found.rearranged.empty() ? read(found.row, one, options)
                                                        : read_rearranged(found, one, options));
    return std::unique_ptr<WeightSource>(
        std::make_unique<MappedSource>(std::move(source), *folder_, one));
  }

 private:
  Finder finder() const {
    return {tensors_,        config_,         reading_.is_gguf,
            reading_.layout, reading_.zero_f, reading_.stack_order};
  }

  static Result<std::unique_ptr<WeightSource>> read(const LayoutRow* row, const LayoutOperands& o,
                                                    const SourceOptions& options) {
    if (row == nullptr) {
      MARLIN_ASSIGN(auto source, quantize_floats(o, options));
      if ((o.flags & MARLIN_PACK_GATE_UP_INTERLEAVED) == 0) return source;
      return std::unique_ptr<WeightSource>(std::make_unique<OwningSource>(
          std::move(source), std::vector<std::vector<std::byte>>(), true));
    }
    MARLIN_ASSIGN(auto source, read_layout(*row, o, Depth::full));
    if (options.sparse.sparsity == Sparsity::as_given) return source;
    return make_sparse(std::move(source), options.sparse);
  }

  /// A source that owns the parts which it has brought into order.
  static Result<std::unique_ptr<WeightSource>> read_rearranged(const Finding& found,
                                                               const LayoutOperands& one,
                                                               const SourceOptions& options) {
    return make_rebuilt([one, options, row = found.row,
                         rearranged = found.rearranged]() -> Result<std::unique_ptr<WeightSource>> {
      LayoutOperands o = one;
      std::vector<std::vector<std::byte>> parts;
      for (const RearrangedPart& part : rearranged) {
        TensorView& view = o.*part.part;
        parts.push_back(rearrange(view, part.how));
        view.data = parts.back().data();
        view.bytes = parts.back().size();
      }
      MARLIN_ASSIGN(auto source, read(row, o, options));
      return std::unique_ptr<WeightSource>(
          std::make_unique<OwningSource>(std::move(source), std::move(parts), false));
    });
  }

  const std::unique_ptr<Folder> folder_;
  const TensorTable tensors_;
  const QuantConfig config_;
  const ValueTable values_;
  const Reading reading_;
  const Origin origin_;
  const LayerTable layers_;  // last: the others find them
};

}  // namespace

namespace {

/// Whether a file whose name says otherwise has the header of safetensors.
bool is_safetensors(std::span<const std::byte> bytes) {
  return bytes.size() > 8 && bytes[8] == std::byte{'{'} &&
         load<uint64_t>(bytes.data()) <= bytes.size() - 8;
}

/// Reads all shards of a folder without an index.
Status read_shards(const std::vector<std::string>& shards, Folder& folder, TensorTable& tensors,
                   std::string& note) {
  for (const std::string& shard : shards) {
    MARLIN_ASSIGN(const std::span<const std::byte> bytes, folder.open(shard));
    MARLIN_RETURN_IF_ERROR(read_safetensors(shard, bytes, tensors));
  }
  MARLIN_RETURN_IF_ERROR(tensors.finish());
  return open_forgotten(folder, tensors, shards, "it is none of the numbered shards", &note);
}

/// What tells everything itself needs no answers of the caller's.
Status expect_no_answers(std::string_view answers, const std::string& file) {
  if (answers.empty()) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "%.100s: config: expected NULL, because this file leaves nothing open",
                       file.c_str());
}

Result<std::unique_ptr<Checkpoint>> open_files(std::unique_ptr<Folder> folder,
                                               const CheckpointPath& found,
                                               marlin_layout override_layout,
                                               marlin_gptq_zero_f zero_f, StackOrder stack_order,
                                               std::string_view answers) {
  const std::string& file = found.file;
  if (caller_layout(override_layout) == nullptr) {
    return Status::error(MARLIN_E_ARGUMENT, "layout: %d is none of this version", override_layout);
  }
  TensorTable tensors;
  QuantConfig config;
  ValueTable values;
  bool is_gguf = false;
  std::string note;
  if (!found.shards.empty()) {
    MARLIN_RETURN_IF_ERROR(read_shards(found.shards, *folder, tensors, note));
  } else if (file.ends_with(".json")) {
    MARLIN_RETURN_IF_ERROR(read_safetensors_index(file, *folder, tensors, &note));
  } else {
    MARLIN_ASSIGN(const std::span<const std::byte> bytes, folder->open(file));
    if (is_container(bytes) || file.ends_with(".marlin")) {
      if (override_layout != MARLIN_LAYOUT_AUTO || zero_f != MARLIN_GPTQ_ZERO_F_AUTO)
        return Status::error(MARLIN_E_UNSUPPORTED,
                             "%.100s: layout and gptq_zero_f: expected 0, because the layers of "
                             "this file are packed, found %d and %d",
                             file.c_str(), override_layout, zero_f);
      MARLIN_RETURN_IF_ERROR(expect_no_answers(answers, file));
      return open_container(std::move(folder), file, bytes);
    }
    is_gguf = bytes.size() >= 4 && load<uint32_t>(bytes.data()) == 0x46554747;
    MARLIN_RETURN_IF_ERROR(is_gguf || (file.ends_with(".gguf") && !is_safetensors(bytes))
                               ? read_gguf(file, bytes, *folder, tensors, values)
                               : read_safetensors(file, bytes, tensors));
    MARLIN_RETURN_IF_ERROR(tensors.finish());
    if (found.is_chosen)
      note = note_of_unopened(folder->names(), {file}, "the folder's main file is another");
  }
  if (is_gguf) {
    MARLIN_RETURN_IF_ERROR(expect_no_answers(answers, file));
  } else {
    MARLIN_ASSIGN(config, read_config(*folder, tensors, answers));
    values = config_values(config.text, note);
  }
  const Reading reading{is_gguf, override_layout, zero_f, stack_order};
  return gather_experts(std::make_unique<FileCheckpoint>(
      std::move(folder), std::move(tensors), std::move(config), std::move(values), reading));
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_checkpoint(
    std::unique_ptr<Folder> folder, const std::string& file, marlin_layout override_layout,
    marlin_gptq_zero_f zero_f, StackOrder stack_order, std::string_view config) {
  return open_files(std::move(folder), {"", file, {}}, override_layout, zero_f, stack_order,
                    config);
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path,
                                                     marlin_layout override_layout,
                                                     marlin_gptq_zero_f zero_f,
                                                     StackOrder stack_order,
                                                     std::string_view config) {
  MARLIN_ASSIGN(const CheckpointPath found, locate_checkpoint(path));
  return open_files(disk_folder(found.folder), found, override_layout, zero_f, stack_order, config);
}

}  // namespace metal_marlin
