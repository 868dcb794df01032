// An open checkpoint: its tensors, and the layers that an importer recognized in them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/mapped_file.h"
#include "formats/prune.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Where a tensor's bytes are and what they mean. For tensors of a file the data is mapped and read
/// only.
struct TensorView {
  std::string_view name;     ///< for messages; "values" etc. for operands given by pointer
  std::string_view file;     ///< for messages; empty for operands
  uint64_t file_offset = 0;  ///< for messages
  marlin_dtype dtype = 0;    ///< 0: a type the C ABI has no name for (see type_name)
  std::string_view type_name;
  std::vector<int64_t> dims;  ///< outermost first; the last is contiguous
  int64_t row_stride = 0;  ///< elements between rows of the last dimension; the last dim unless an
                           ///< operand is strided
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

/// The operands of one matrix in some layout: what marlin_pack_desc carries and what an importer
/// collects from a file.
struct LayoutOperands {
  marlin_layout layout = MARLIN_LAYOUT_ROWS;
  marlin_format format = MARLIN_FORMAT_NONE;
  int64_t n = 0, k = 0, group_size = 0;                         ///< group_size 0: the format's own
  uint32_t flags = 0;                                           ///< MARLIN_PACK_*
  marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO;          ///< GPTQ v1
  TensorView values, scales, zeros, group_index, tensor_scale;  ///< data == nullptr: absent
  TensorView sparse_meta;               ///< 2:4: values hold the kept elements only
  std::span<const float> column_norms;  ///< for MARLIN_PACK_PRUNE_2_4: as SparseRule has them
};

/// What becomes of a layer on its way out of a file.
struct SourceOptions {
  marlin_format quantize_to = MARLIN_FORMAT_NONE;  ///< layers of floats; NONE: they are an error
  int64_t group_size = 0;                          ///< with quantize_to; 0: the format's own
  bool search_mse = false;  ///< with quantize_to: the scales of least squared error
  SparseRule sparse{};      ///< of layers of floats and of codes
};

/// A source that reads these operands; they must outlive it. Float values are quantized. Checks
/// every shape, dtype and code.
Result<std::unique_ptr<WeightSource>> make_source(const LayoutOperands& operands);
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
  Status status;           ///< why it would not load
};

class TensorTable;

/// Where a checkpoint came from.
struct Origin {
  bool is_gguf = false;  ///< else safetensors
  std::string
      folder;  ///< of the disk, with a slash at its end, or ""; the files' names are in the tensors
  std::string_view config;  ///< the text of config.json, or ""; lives as long as the checkpoint
};

class Checkpoint;

/// The layers of a checkpoint, each described anew whenever it is asked for.
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
  /// path: .safetensors, .safetensors.index.json, .gguf or a folder with one of them. Reads headers
  /// and config.json only.
  static Result<std::unique_ptr<Checkpoint>> open(
      const std::string& path, marlin_layout override_layout,
      marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO);

  Layers layers() const { return Layers(*this); }
  virtual size_t layer_count() const = 0;
  /// Costs a few look-ups of tensors; precondition: index < layer_count(), here and below.
  virtual Layer layer(size_t index) const = 0;
  /// Lives as long as the checkpoint.
  virtual const char* layer_name(size_t index) const = 0;
  /// The first layer of this name.
  virtual std::optional<size_t> find_layer(std::string_view name) const = 0;
  virtual Result<TensorView> tensor(std::string_view name) const = 0;
  /// All that the files hold, in their order.
  virtual const TensorTable& tensors() const = 0;
  virtual const Origin& origin() const = 0;
  /// Whether this file of the disk was read for it: a shard, the index, config.json and its like.
  virtual bool has_read(const FileId& file) const = 0;
  /// The tensors that make up a layer, its values (of all experts) first, then its 2:4 pattern if
  /// it has one.
  virtual std::vector<TensorView> parts(size_t layer) const = 0;
  /// These bytes of a tensor will not be needed soon.
  virtual void release(std::span<const std::byte> part) const = 0;
  /// One expert (0 for plain layers) of one layer. The source borrows from the checkpoint and from
  /// options.sparse.
  virtual Result<std::unique_ptr<WeightSource>> source(size_t layer, uint32_t expert,
                                                       const SourceOptions& options) const = 0;
};

inline size_t Layers::size() const { return checkpoint_.layer_count(); }
inline Layer Layers::operator[](size_t index) const { return checkpoint_.layer(index); }

}  // namespace metal_marlin
