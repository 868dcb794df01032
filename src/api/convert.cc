#include <string_view>
#include <unordered_map>

#include "api/checkpoint.h"
#include "api/errors.h"
#include "checkpoints/convert/convert.h"

namespace metal_marlin::api {
namespace {

constexpr uint32_t kConvertFlags = MARLIN_CONVERT_SCALES_MSE | MARLIN_CONVERT_ASYMMETRIC | MARLIN_CONVERT_SKIP_UNFIT |
                                   MARLIN_CONVERT_OVERWRITE | MARLIN_CONVERT_DRY_RUN;

Status check_convert_desc(const marlin_convert_desc& d) {
  if ((d.flags & ~kConvertFlags) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->flags has unknown bits 0x%x", d.flags & ~kConvertFlags);
  if (d.scheme < MARLIN_SCHEME_AUTO || d.scheme > MARLIN_SCHEME_GGUF)
    return Status::error(MARLIN_E_ARGUMENT, "desc->scheme is %d, expected 0 (auto) .. 4 (GGUF)", d.scheme);
  if (d.format < MARLIN_INT4 || d.format > MARLIN_INT8)
    return Status::error(MARLIN_E_ARGUMENT, "desc->format is %d, expected 1 (INT4) .. 5 (INT8)", d.format);
  if (d.layers == nullptr || d.layer_count == 0) return Status::error(MARLIN_E_ARGUMENT, "desc names no layers");
  return {};
}

/// The layers' numbers, ascending.
Result<std::vector<size_t>> layer_numbers(std::span<const Layer> layers, const marlin_convert_desc& d) {
  std::unordered_map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < layers.size(); ++i) numbers.emplace(layers[i].name, i);
  std::vector<bool> listed(layers.size());
  for (uint32_t i = 0; i < d.layer_count; ++i) {
    if (d.layers[i] == nullptr) return Status::error(MARLIN_E_ARGUMENT, "desc->layers[%u]: NULL, expected a layer's name", i);
    const auto found = numbers.find(d.layers[i]);
    if (found == numbers.end())
      return Status::error(MARLIN_E_NOT_FOUND, "desc->layers[%u]: no layer is called %s", i, d.layers[i]);
    if (listed[found->second]) return Status::error(MARLIN_E_ARGUMENT, "desc->layers[%u]: %s is listed twice", i, d.layers[i]);
    listed[found->second] = true;
  }
  std::vector<size_t> all;
  for (size_t i = 0; i < listed.size(); ++i) {
    if (listed[i]) all.push_back(i);
  }
  return all;
}

Status convert(const marlin_checkpoint* checkpoint, const char* out_path, const marlin_convert_desc* desc) {
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
  options.skip_unfit = (d.flags & MARLIN_CONVERT_SKIP_UNFIT) != 0;
  options.overwrite = (d.flags & MARLIN_CONVERT_OVERWRITE) != 0;
  options.dry_run = (d.flags & MARLIN_CONVERT_DRY_RUN) != 0;
  options.shard_bytes = d.shard_bytes;
  options.host = {d.progress, d.layer_done, d.parallel_for, {d.log, d.user}, d.user};
  MARLIN_ASSIGN(options.layers, layer_numbers(checkpoint->files->layers(), d));
  return convert_checkpoint(*checkpoint->files, out_path, options);
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_checkpoint_convert(const marlin_checkpoint* checkpoint, const char* out_path,
                                        const marlin_convert_desc* desc, marlin_error* err) {
  return api::boundary(err, [&] { return api::convert(checkpoint, out_path, desc); });
}
