#include <cinttypes>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "api/checkpoint.h"
#include "api/errors.h"
#include "api/weights.h"
#include "checkpoints/convert/convert.h"
#include "checkpoints/missing_layer.h"
#include "formats/format_table.h"

namespace metal_marlin::api {
namespace {

static_assert(MARLIN_CONVERT_PRUNE_2_4 == MARLIN_PACK_PRUNE_2_4 &&
              MARLIN_CONVERT_OBEYS_2_4 == MARLIN_PACK_OBEYS_2_4);
constexpr uint32_t kConvertFlags = MARLIN_CONVERT_PRUNE_2_4 | MARLIN_CONVERT_OBEYS_2_4 |
                                   MARLIN_CONVERT_SCALES_MSE | MARLIN_CONVERT_ASYMMETRIC |
                                   MARLIN_CONVERT_SKIP_UNFIT | MARLIN_CONVERT_OVERWRITE |
                                   MARLIN_CONVERT_DRY_RUN;

Status check_convert_desc(const marlin_convert_desc& d) {
  if ((d.flags & ~kConvertFlags) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->flags has unknown bits 0x%x",
                         d.flags & ~kConvertFlags);
  if (d.scheme < MARLIN_SCHEME_AUTO || d.scheme > MARLIN_SCHEME_MLX)
    return Status::error(MARLIN_E_ARGUMENT, "desc->scheme is %d, expected 0 (auto) .. 5 (MLX)",
                         d.scheme);
  const FormatRow* row = format_row(d.format);
  if (row == nullptr && d.format != MARLIN_FORMAT_NONE)
    return Status::error(MARLIN_E_ARGUMENT, "desc->format is %d, expected 0..%d", d.format,
                         last_format());
  const bool fitted =
      d.types != nullptr || d.scheme == MARLIN_SCHEME_MLX || (row != nullptr && !row->quantized);
  constexpr uint32_t kByNorms = MARLIN_CONVERT_PRUNE_2_4 | MARLIN_CONVERT_SCALES_MSE;
  if (d.column_norms != nullptr && !fitted && (d.flags & kByNorms) == 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "desc->column_norms are given, which %s uses with PRUNE_2_4 or "
                         "SCALES_MSE only",
                         format_name(d.format));
  if (d.layers == nullptr || d.layer_count == 0)
    return Status::error(MARLIN_E_ARGUMENT, "desc names no layers");
  return {};
}

/// Null for an entry that names no type.
Result<const GgufType*> type_called(const char* name, uint32_t index) {
  const GgufType* none = nullptr;
  if (name == nullptr) return none;
  const GgufType* type = gguf_type(name);
  if (type != nullptr && type->block != nullptr && type->block->is_written()) return type;
  return Status::error(MARLIN_E_ARGUMENT, "desc->types[%u]: expected one of %s; found %s", index,
                       gguf_block_names().c_str(), name);
}

/// Fills in the numbers of the layers among the singles, in ascending order, their types and
/// norms.
/// Experts that are stored one by one are written one by one.
Status take_layers(const Checkpoint& files, const marlin_convert_desc& d, ConvertOptions& options) {
  const Checkpoint& singles = files.singles();
  std::vector<uint32_t> listed(singles.layer_count(), UINT32_MAX);  // where
  for (uint32_t i = 0; i < d.layer_count; ++i) {
    if (d.layers[i] == nullptr)
      return Status::error(MARLIN_E_ARGUMENT, "layers[%u]: NULL, expected a layer's name", i);
    const auto found = files.find_layer(d.layers[i]);
    if (!found) return prefixed("layers", i, missing_layer(files, d.layers[i]));
    for (const size_t single : files.singles_of(*found)) {
      if (listed[single] != UINT32_MAX)
        return Status::error(MARLIN_E_ARGUMENT, "layers[%u]: %s is listed twice", i,
                             d.layers[i]);
      listed[single] = i;
    }
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] == UINT32_MAX) continue;
    options.layers.push_back(i);
    if (d.types != nullptr) {
      MARLIN_ASSIGN(const GgufType* type, type_called(d.types[listed[i]], listed[i]));
      options.types.push_back(type);
    }
    if (d.column_norms == nullptr) continue;
    char name[48];
    std::snprintf(name, sizeof name, "desc->column_norms[%" PRIu32 "]", listed[i]);
    MARLIN_ASSIGN(const auto norms,
                  column_norms_of(d.column_norms[listed[i]], singles.layer(i).k, name, nullptr));
    options.column_norms.push_back(norms);
  }
  return {};
}

Status convert(const marlin_checkpoint* checkpoint, const char* out_path,
               const marlin_convert_desc* desc) {
  MARLIN_RETURN_IF_ERROR(check_handle(checkpoint, "checkpoint"));
  if (out_path == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out_path is NULL");
  if (desc == nullptr) return Status::error(MARLIN_E_ARGUMENT, "desc is NULL");
  MARLIN_ASSIGN(const marlin_convert_desc d, read_descriptor(desc, "desc"));
  MARLIN_RETURN_IF_ERROR(check_convert_desc(d));
  ConvertOptions options;
  options.scheme = d.scheme;
  options.format = d.format;
  options.group_size = d.group_size;
  options.asymmetric = (d.flags & MARLIN_CONVERT_ASYMMETRIC) != 0;
  options.search_mse = (d.flags & MARLIN_CONVERT_SCALES_MSE) != 0;
  MARLIN_ASSIGN(const SparseRule rule, sparse_rule(d.flags, {}));
  options.sparsity = rule.sparsity;
  options.skip_unfit = (d.flags & MARLIN_CONVERT_SKIP_UNFIT) != 0;
  options.overwrite = (d.flags & MARLIN_CONVERT_OVERWRITE) != 0;
  options.dry_run = (d.flags & MARLIN_CONVERT_DRY_RUN) != 0;
  options.shard_bytes = d.shard_bytes;
  options.host = {d.progress, d.layer_done, d.parallel_for, {d.log, d.user}, d.user};
  MARLIN_RETURN_IF_ERROR(take_layers(*checkpoint->files, d, options));
  return convert_checkpoint(checkpoint->files->singles(), out_path, options);
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_checkpoint_convert(const marlin_checkpoint* checkpoint, const char* out_path,
                                        const marlin_convert_desc* desc, marlin_error* err) {
  return api::boundary(err, [&] { return api::convert(checkpoint, out_path, desc); });
}
