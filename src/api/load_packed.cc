// Layers of a packed container become weights without a copy.
#include <algorithm>
#include <cinttypes>
#include <string>
#include <utility>
#include <vector>

#include "api/backends.h"
#include "api/errors.h"
#include "api/load.h"
#include "checkpoints/container/container.h"
#include "checkpoints/missing_layer.h"
#include "formats/format_table.h"

namespace metal_marlin::api {
namespace {

/// The context must have packed these bytes itself.
Status check_form(const marlin_context& context, const Container& container) {
  const PackedForm here = context.backend->packed_form();
  const PackedForm& there = container.form();
  if (here == there) return {};
  const std::string command = container.repack_command(here.device);
  if (here.device != there.device)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "the container is packed for the device %.20s, expected %.20s: pack it "
                         "anew: %s",
                         there.device.c_str(), here.device.c_str(), command.c_str());
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "the container has version %u of the packed form, expected %u: pack it "
                       "anew with this library: %s",
                       there.version, here.version, command.c_str());
}

Result<size_t> find_entry(const Checkpoint& files, const marlin_load_desc& d) {
  LayerNames layers;
  for (uint32_t i = 0; i < d.layer_count; ++i) {
    if (d.layers[i] == nullptr)
      return prefixed("layers", i,
                      Status::error(MARLIN_E_ARGUMENT, "NULL, expected a layer's name"));
    layers.push_back(d.layers[i]);
  }
  if (const auto index = files.find_layer(layers.joined())) return *index;
  const bool all_there = std::all_of(d.layers, d.layers + d.layer_count, [&](const char* one) {
    return files.find_layer(one).has_value();
  });
  if (layers.size() > 1 && all_there)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "%.80s, ...: %zu layers are packed apart in this container: load them "
                         "one by one, or pack the source file %.60s with them joined",
                         d.layers[0], layers.size(), files.container()->source_name().c_str());
  return missing_layer(files, layers.joined());
}

/// Packed weights stay as they are.
Status check_options(const marlin_load_desc& d, const WeightMeta& meta) {
  const bool is_floats = float_dtype(meta.format) != 0;
  if (is_floats && d.format != MARLIN_FORMAT_NONE && d.format != meta.format)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "format: expected 0 or %d, because the layer is packed as %s, found %d",
                         meta.format, format_name(meta.format), d.format);
  const bool prunes = (d.flags & (MARLIN_LOAD_PRUNE_2_4 | MARLIN_LOAD_OBEYS_2_4)) != 0;
  if (prunes && !meta.sparse)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "flags: expected none for 2:4, because the layer is packed dense");
  return {};
}

Result<ShardRange> experts_of(const marlin_load_desc& d, const ContainerEntry& entry) {
  const auto count = static_cast<int64_t>(entry.experts.size());
  ShardRange experts{0, count};
  if (d.expert_count > 1 && d.expert_count != count)
    return Status::error(MARLIN_E_SHAPE,
                         "desc->expert_count is %u, expected the %" PRId64 " that are packed",
                         d.expert_count, count);
  const WeightMeta& meta = entry.experts[0].matrix.meta;
  for (uint32_t i = 0; d.shards != nullptr && i < d.layer_count; ++i) {
    const marlin_shard& shard = d.shards[i];
    MARLIN_ASSIGN(const ShardRange n, range_of(shard.first[0], shard.count[0], meta.n, "N"));
    MARLIN_ASSIGN(const ShardRange k, range_of(shard.first[1], shard.count[1], meta.k, "K"));
    const bool whole_n = n.first == 0 && (n.count == meta.n || d.layer_count > 1);
    if (!whole_n || k.count != meta.k)
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "shard: expected all N and K, because the layer is packed, found rows "
                           "%" PRId64 " + %" PRId64 ", columns %" PRId64 " + %" PRId64
                           ": pack the shard of the source file",
                           n.first, n.count, k.first, k.count);
    if (d.expert_count > 1) continue;  // each name is an expert of its own
    MARLIN_ASSIGN(experts, range_of(shard.first[2], shard.count[2], count, "experts"));
  }
  return experts;
}

}  // namespace

Status check_packed_layer(const Container& container, size_t index) {
  for (const ContainerMatrix& one : container.entry(index).experts)
    MARLIN_RETURN_IF_ERROR(
        check_packed(container.form(), one.matrix, one.data.bytes, one.group_index.bytes != 0));
  return {};
}

Result<PackedLayers> load_packed(const marlin_context& context, const Checkpoint& files,
                                 const marlin_load_desc& d) {
  const Container& container = *files.container();
  MARLIN_RETURN_IF_ERROR(check_form(context, container));
  MARLIN_ASSIGN(const size_t index, find_entry(files, d));
  const ContainerEntry& entry = container.entry(index);
  const auto load = [&]() -> Result<PackedLayers> {
    const WeightMeta& meta = entry.experts[0].matrix.meta;
    MARLIN_RETURN_IF_ERROR(check_options(d, meta));
    MARLIN_ASSIGN(const ShardRange range, experts_of(d, entry));
    const auto total = static_cast<uint64_t>(meta.n) * static_cast<uint64_t>(meta.k) *
                       static_cast<uint64_t>(range.count);
    const auto report = [&](uint64_t done) {
      if (d.progress == nullptr || d.progress(d.user, done, total) == 0) return Status();
      return Status::error(MARLIN_E_CANCELLED, "cancelled by the caller");
    };
    MARLIN_RETURN_IF_ERROR(report(0));
    MARLIN_ASSIGN(const auto matrices, container.matrices(index, range.first, range.count));
    MARLIN_ASSIGN(ExpertStack experts, context.backend->adopt(matrices, container.memory()));
    MARLIN_RETURN_IF_ERROR(report(total));
    return PackedLayers{std::move(experts), entry.layout, std::string(entry.layers[0])};
  };
  auto loaded = load();
  if (!loaded.ok()) return prefixed(files.layer_name(index), loaded.status());
  return loaded;
}

}  // namespace metal_marlin::api
