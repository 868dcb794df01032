#include <cinttypes>
#include <memory>
#include <string_view>
#include <vector>

#include "api/checkpoint.h"
#include "api/errors.h"
#include "api/load.h"
#include "api/weights.h"
#include "checkpoints/missing_layer.h"
#include "formats/format_table.h"
#include "sources/shard.h"
#include "sources/watch.h"

namespace metal_marlin::api {

Result<ShardRange> range_of(int64_t first, int64_t count, int64_t whole, const char* axis) {
  if (first < 0 || count < 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "shard: %s is first %" PRId64 ", count %" PRId64 ", expected 0 or more",
                         axis, first, count);
  if (first >= whole || count > whole - first)
    return Status::error(MARLIN_E_SHAPE,
                         "shard: %s is first %" PRId64 ", count %" PRId64
                         ", but the layer has %" PRId64,
                         axis, first, count, whole);
  return ShardRange{first, count != 0 ? count : whole - first};
}

namespace {

constexpr uint32_t kLoadFlags =
    MARLIN_LOAD_SCALES_MSE | MARLIN_LOAD_PRUNE_2_4 | MARLIN_LOAD_OBEYS_2_4;

Status check_load_desc(const marlin_load_desc& d) {
  if ((d.flags & ~kLoadFlags) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->flags has unknown bits 0x%x",
                         d.flags & ~kLoadFlags);
  if (d.format != MARLIN_FORMAT_NONE && format_row(d.format) == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "desc->format is %d, expected 0 (none) .. %d", d.format,
                         last_format());
  if (d.layers == nullptr || d.layer_count == 0)
    return Status::error(MARLIN_E_ARGUMENT, "desc names no layers");
  return {};
}

Result<size_t> find_layer(const Checkpoint& files, const char* name) {
  if (name == nullptr) return Status::error(MARLIN_E_ARGUMENT, "NULL, expected a layer's name");
  if (const auto index = files.find_layer(name)) return *index;
  return missing_layer(files, name);
}

/// The meaning of one of the names: some experts of a layer, and the rows and columns of each.
struct LayerPart {
  Layer layer;
  size_t index;
  ShardRange n, k, experts;
  SourceOptions options;
};

Result<LayerPart> read_part(const Checkpoint& files, uint32_t i, const marlin_load_desc& d,
                            const marlin_context& context) {
  const auto index = find_layer(files, d.layers[i]);
  if (!index.ok()) return prefixed("layers", i, index.status());
  const Layer layer = files.layer(index.value());
  const marlin_shard shard = d.shards != nullptr ? d.shards[i] : marlin_shard{};
  const auto read = [&]() -> Result<LayerPart> {
    if (!layer.status.ok()) return layer.status;
    LayerPart part{layer, index.value(),
                   {},    {},
                   {},    {d.format, d.group_size, (d.flags & MARLIN_LOAD_SCALES_MSE) != 0, {}}};
    MARLIN_ASSIGN(part.n, range_of(shard.first[0], shard.count[0], layer.n, "N"));
    MARLIN_ASSIGN(part.k, range_of(shard.first[1], shard.count[1], layer.k, "K"));
    MARLIN_ASSIGN(part.experts, range_of(shard.first[2], shard.count[2], layer.experts, "experts"));
    std::span<const float> norms;
    if (d.column_norms != nullptr) {
      MARLIN_ASSIGN(norms, column_norms_of(d.column_norms[i], layer.k, "column_norms", &context));
    }
    MARLIN_ASSIGN(part.options.sparse, sparse_rule(d.flags, norms));
    return part;
  };
  auto part = read();
  if (!part.ok()) return prefixed(layer.name.c_str(), part.status());
  return part;
}

/// One expert of a part, counted from its first.
Result<std::unique_ptr<WeightSource>> source_of(const Checkpoint& files, const LayerPart& part,
                                                int64_t expert) {
  auto source =
      files.source(part.index, static_cast<uint32_t>(part.experts.first + expert), part.options);
  if (source.ok() && (part.n.count != part.layer.n || part.k.count != part.layer.k))
    source = make_shard(source.take(), part.n.first, part.n.count, part.k.first, part.k.count);
  if (!source.ok()) return prefixed(part.layer.name.c_str(), source.status());
  return source;
}

/// The number of experts of the parts: the experts of each name or, with desc->expert_count, the
/// experts for which there are names.
Result<int64_t> count_experts(std::span<const LayerPart> parts, uint32_t expert_count) {
  const int64_t each = expert_count > 1 ? 1 : parts[0].experts.count;
  for (uint32_t i = 0; i < parts.size(); ++i)
    if (parts[i].experts.count != each)
      return prefixed(
          "layers", i,
          Status::error(MARLIN_E_SHAPE, "%s gives %" PRId64 " experts, expected %" PRId64 "%s",
                        parts[i].layer.name.c_str(), parts[i].experts.count, each,
                        expert_count > 1 ? ": desc->expert_count counts names" : " as the first"));
  if (expert_count <= 1) return each;
  if (parts.size() % expert_count != 0)
    return Status::error(MARLIN_E_SHAPE,
                         "desc->layer_count is %zu, expected a multiple of expert_count = %u",
                         parts.size(), expert_count);
  return int64_t{expert_count};
}

/// Layers of one handle have one format; make_concat would say so of numbers of parts.
Status check_formats(std::span<const LayerPart> parts) {
  const Layer& first = parts[0].layer;
  for (const LayerPart& part : parts) {
    const Layer& layer = part.layer;
    if (layer.format != first.format && layer.format != MARLIN_FORMAT_NONE &&
        first.format != MARLIN_FORMAT_NONE)
      return Status::error(MARLIN_E_SHAPE,
                           "%s is %s and %s is %s, but the layers of one handle have one format "
                           "(marlin_gemm_many runs several handles in one call)",
                           first.name.c_str(), format_name(first.format), layer.name.c_str(),
                           format_name(layer.format));
  }
  return {};
}

Result<ExpertStack> pack_watched(Backend& packer, Sources experts, const marlin_load_desc& d) {
  if (d.progress == nullptr) return packer.pack_experts(experts);
  Watch watch{d.progress, d.user};
  for (auto& expert : experts) expert = make_watched(std::move(expert), watch);
  MARLIN_RETURN_IF_ERROR(watch.report());
  MARLIN_ASSIGN(ExpertStack packed, packer.pack_experts(experts));
  MARLIN_RETURN_IF_ERROR(watch.report());
  return packed;
}

Result<marlin_weights*> load_weights(marlin_context& context, const Checkpoint& files,
                                     const marlin_load_desc& d) {
  MARLIN_RETURN_IF_ERROR(check_load_desc(d));
  MARLIN_ASSIGN(PackedLayers packed, files.container() != nullptr
                                         ? load_packed(context, files, d)
                                         : pack_layers(context, *context.backend, files, d));
  return new marlin_weights(context, std::move(packed.experts), packed.layout,
                            std::move(packed.name));
}

}  // namespace

Result<PackedLayers> pack_layers(const marlin_context& context, Backend& packer,
                                 const Checkpoint& files, const marlin_load_desc& d) {
  MARLIN_RETURN_IF_ERROR(check_load_desc(d));
  std::vector<LayerPart> parts;
  for (uint32_t i = 0; i < d.layer_count; ++i) {
    MARLIN_ASSIGN(LayerPart part, read_part(files, i, d, context));
    parts.push_back(std::move(part));
  }
  MARLIN_RETURN_IF_ERROR(check_formats(parts));
  MARLIN_ASSIGN(const int64_t expert_count, count_experts(parts, d.expert_count));
  const auto read = [&](size_t i) -> Result<std::unique_ptr<WeightSource>> {
    auto source = source_of(files, parts[i % parts.size()], static_cast<int64_t>(i / parts.size()));
    if (source.ok()) warn(context, *source.value());
    return source;
  };
  const size_t count = parts.size() * static_cast<size_t>(parts[0].experts.count);
  MARLIN_ASSIGN(Sources experts,
                make_experts(packer, count, static_cast<uint32_t>(expert_count), read));
  MARLIN_ASSIGN(ExpertStack packed, pack_watched(packer, std::move(experts), d));
  return PackedLayers{std::move(packed), parts[0].layer.layout, parts[0].layer.name};
}

}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_weights_load(marlin_context* context, const marlin_checkpoint* checkpoint,
                                  const marlin_load_desc* desc, marlin_weights** out,
                                  marlin_error* err) {
  return api::boundary_create(out, err, [&]() -> Result<marlin_weights*> {
    MARLIN_RETURN_IF_ERROR(api::check_handle(context, "context"));
    MARLIN_RETURN_IF_ERROR(api::check_handle(checkpoint, "checkpoint"));
    if (desc == nullptr) return Status::error(MARLIN_E_ARGUMENT, "desc is NULL");
    MARLIN_ASSIGN(const marlin_load_desc d, api::read_descriptor(desc, "desc"));
    return api::load_weights(*context, *checkpoint->files, d);
  });
}
