// Copies a checkpoint and quantizes some of its layers: the flow of marlin_checkpoint_convert.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/name_changes.h"
#include "formats/prune.h"
#include "layouts/gguf_types.h"

namespace metal_marlin {

/// The host's callbacks; each may be null.
struct ConvertHost {
  int32_t (*progress)(void* user, uint64_t done_bytes, uint64_t total_bytes,
                      const char* layer) = nullptr;
  void (*layer_done)(void* user, const marlin_convert_outcome* outcome) = nullptr;
  void (*parallel_for)(void* user, uint32_t tasks, void (*task)(void* task_user, uint32_t index),
                       void* task_user) = nullptr;
  Logger log;
  void* user = nullptr;
};

struct ConvertOptions {
  marlin_scheme scheme = MARLIN_SCHEME_AUTO;
  marlin_format format = MARLIN_FORMAT_NONE;
  int64_t group_size = 0;
  bool asymmetric = false, search_mse = false;
  Sparsity sparsity = Sparsity::as_given;
  bool skip_unfit = false, overwrite = false, dry_run = false;
  uint64_t shard_bytes = 0;
  std::vector<size_t> layers;  ///< indices, ascending, none twice
  std::vector<std::span<const float>>
      column_norms;  ///< for each of `layers` (empty: all 1), or no entries at all
  /// GGUF: the type of blocks of each of `layers` (null: by format), or no entries at all.
  std::vector<const GgufType*> types;
  ConvertHost host;
  NameChanges* names = nullptr;  ///< null: the system calls
};

/// Does the work of marlin_checkpoint_convert, as the header describes it.
Status convert_checkpoint(const Checkpoint& input, const std::string& out_path,
                          const ConvertOptions& options);

}  // namespace metal_marlin
