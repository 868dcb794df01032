// An open checkpoint: its tensors, and the layers that a recognizer found among them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/folder.h"
#include "checkpoints/mapped_file.h"
#include "formats/weights.h"
#include "layouts/floats.h"
#include "layouts/tensor_view.h"

namespace metal_marlin {

struct Layer {
  std::string name;
  int64_t n = 0, k = 0;
  uint32_t experts = 1;
  int64_t group_size = 0;
  marlin_format format = MARLIN_FORMAT_NONE;
  marlin_layout layout = MARLIN_LAYOUT_ROWS;
  uint32_t flags = 0;      ///< marlin_layer_info::flags
  marlin_dtype dtype = 0;  ///< of scales, or of values when format is NONE
  uint64_t bytes = 0;      ///< in the file, all parts
  bool rearranged =
      false;      ///< the file has the values in another order or type: only source() has them
  Status status;  ///< why it would not load
};

/// The caller's answer about stacks of experts whose shapes fit both orders.
enum class StackOrder : uint8_t { unknown, outputs_first, inputs_first };

class Container;
class TensorTable;
class ValueTable;

/// The origin of a checkpoint.
struct Origin {
  bool is_gguf = false;  ///< else safetensors
  std::string
      folder;  ///< of the disk, with a slash at its end, or ""; the files' names are in the tensors
  std::string_view config;  ///< the text of config.json, or ""; lives as long as the checkpoint
};

class Checkpoint;

/// The layers of a checkpoint. Each is described anew on every request.
class Layers {
 public:
  explicit Layers(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  size_t size() const;
  Layer operator[](size_t index) const;

  class Iterator {
   public:
    Iterator(const Layers& layers, size_t index) : layers_(layers), index_(index) {}
    Layer operator*() const { return layers_[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const Layers& layers_;
    size_t index_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  const Checkpoint& checkpoint_;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  /// path: .safetensors, .safetensors.index.json, .gguf, .marlin or a folder with one of them.
  /// Reads headers and config.json only. `config` is as marlin_open_desc has it, or "".
  static Result<std::unique_ptr<Checkpoint>> open(
      const std::string& path, marlin_layout override_layout,
      marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO,
      StackOrder stack_order = StackOrder::unknown, std::string_view config = {});

  Layers layers() const { return Layers(*this); }
  virtual size_t layer_count() const = 0;
  /// Costs a few look-ups of tensors for each expert that is stored alone. Precondition, here and
  /// below: index < layer_count(), or find_layer() gave it.
  virtual Layer layer(size_t index) const = 0;
  /// Lives as long as the checkpoint.
  virtual const char* layer_name(size_t index) const = 0;
  /// The first layer of this name. The name of an expert that is stored alone gives an index from
  /// layer_count() on, which all functions take.
  virtual std::optional<size_t> find_layer(std::string_view name) const = 0;
  virtual Result<TensorView> tensor(std::string_view name) const = 0;
  /// All tensors of the files, in their order.
  virtual const TensorTable& tensors() const = 0;
  virtual const Origin& origin() const = 0;
  /// The key-values of a GGUF, or the members of config.json.
  virtual const ValueTable& values() const = 0;
  /// Whether this file of the disk was read for the checkpoint: a shard, the index, config.json or
  /// another config.
  virtual bool has_read(const FileId& file) const = 0;
  /// The packed layers of a packed container (.marlin), or null. Its layers have no source().
  virtual const Container* container() const { return nullptr; }
  /// The tensors that make up a layer, its values (of all experts) first, then its 2:4 pattern if
  /// it has one.
  virtual std::vector<TensorView> parts(size_t layer) const = 0;
  /// The same files, in which each expert that is stored alone is a layer of its own.
  virtual const Checkpoint& singles() const { return *this; }
  /// The layers of singles() that make up this layer.
  virtual std::vector<size_t> singles_of(size_t layer) const { return {layer}; }
  /// These bytes of a tensor will not be needed soon.
  virtual void release(std::span<const std::byte> part) const = 0;
  /// One expert (0 for plain layers) of one layer. The source borrows from the checkpoint and from
  /// options.sparse.
  virtual Result<std::unique_ptr<WeightSource>> source(size_t layer, uint32_t expert,
                                                       const SourceOptions& options) const = 0;
};

/// Opens a checkpoint in any Folder. `file` is a .safetensors, .safetensors.index.json, .gguf or
/// .marlin of the folder; all other files that it needs are read from the folder, too.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(
    std::unique_ptr<Folder> folder, const std::string& file, marlin_layout override_layout,
    marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO,
    StackOrder stack_order = StackOrder::unknown, std::string_view config = {});

inline size_t Layers::size() const { return checkpoint_.layer_count(); }
inline Layer Layers::operator[](size_t index) const { return checkpoint_.layer(index); }

}  // namespace metal_marlin
