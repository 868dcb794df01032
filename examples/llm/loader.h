// The layers and tensors of a checkpoint, found by the names of one of the two tables.
#pragma once

#include <functional>
#include <metal_marlin/metal_marlin.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "architecture.h"

namespace llm {

/// Layers with the same input. Neighbors in one format are one handle; results stand side by side.
using Joined = std::vector<metal_marlin::weights>;

/// All that is missing or of another size is a std::runtime_error that names it.
class Loader {
 public:
  /// path: a GGUF file, or a folder of safetensors. progress hears the share of all layers, of
  /// which there are so many.
  Loader(const std::string& path, int64_t layers, std::function<void(double part)> progress);

  const TensorNames& names() const { return names_; }
  std::string in_block(int64_t index, const char* name) const {
    return names_.block + std::to_string(index) + "." + name;
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  bool has_tensor(const std::string& name) const;

  /// Several layers, rows after rows: n is how many in all (0: any number), k the columns of each.
  /// Stacks of experts have so many, each with n rows, and are joined expert by expert. floats: the
  /// format of what a file left unquantized, as embeddings often are; NONE keeps it.
  /// shards: one for each layer, or none for all of them; the sizes are those of whole layers. A
  /// packed container holds the shards of its rank: it has no whole layers, and shards are not
  /// looked at.
  Joined load(const metal_marlin::context& to, const std::vector<std::string>& names, int64_t n,
              int64_t k, int64_t experts = 1, marlin_format floats = MARLIN_FORMAT_INT8,
              const std::vector<marlin_shard>& shards = {});
  /// The rows of a layer, as the file has it.
  int64_t rows(const std::string& name) const;
  /// Whether the file is a packed container.
  bool packed() const { return packed_; }
  /// A tensor of floats in any of the types there are.
  std::vector<float> vector(const std::string& tensor, int64_t size);
  /// Throws if the file has a tensor that was not loaded: the model without it would be another
  /// one. Of a packed container it knows the layers, their biases and rotation factors.
  void check_all_used(const char* architecture);
  [[noreturn]] void fail(const std::string& what) const;

 private:
  using Layers = std::span<const marlin_layer_info* const>;
  metal_marlin::weights load(const metal_marlin::context& to, Layers layers, marlin_format floats,
                             const marlin_shard* shards);
  Joined load_packed(const metal_marlin::context& to, const std::vector<std::string>& names);
  bool is_used(std::string name);
  std::vector<std::string> names_of_container() const;
  const marlin_layer_info* find(const std::string& name) const;
  [[noreturn]] void wrong_size(const std::string& name, int64_t found, int64_t expected,
                               const char* what) const;

  std::string path_;
  metal_marlin::checkpoint file_;
  std::vector<marlin_layer_info> layers_;
  const TensorNames& names_;
  std::set<std::string> used_;  // layers and tensors
  bool packed_ = false;
  std::function<void(double)> progress_;
  double all_, loaded_ = 0, loading_ = 0;  // layers
};

}  // namespace llm
