#include <atomic>
#include <cinttypes>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "api/checkpoint.h"
#include "api/errors.h"
#include "api/weights.h"

namespace metal_marlin::api {
namespace {

constexpr uint32_t kLoadFlags = MARLIN_LOAD_SCALES_MSE | MARLIN_LOAD_PRUNE_2_4 | MARLIN_LOAD_OBEYS_2_4;

Status check_load_desc(const marlin_load_desc& d) {
  if ((d.flags & ~kLoadFlags) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->flags has unknown bits 0x%x", d.flags & ~kLoadFlags);
  if (d.expert_count > 1)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->expert_count is %u; this version loads one expert a handle, by its shard",
                         d.expert_count);
  if (d.format < MARLIN_FORMAT_NONE || d.format > MARLIN_INT8)
    return Status::error(MARLIN_E_ARGUMENT, "desc->format is %d, expected 0 (none) .. 5 (INT8)", d.format);
  if (d.layers == nullptr || d.layer_count == 0) return Status::error(MARLIN_E_ARGUMENT, "desc names no layers");
  return {};
}

Result<size_t> find_layer(std::span<const Layer> layers, const char* name) {
  if (name == nullptr) return Status::error(MARLIN_E_ARGUMENT, "NULL, expected a layer's name");
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].name == std::string_view(name)) return i;
  return Status::error(MARLIN_E_NOT_FOUND, "no layer is called %s", name);
}

struct Range {
  int64_t first, count;
};

/// The part of `whole` elements that a shard takes along one axis.
Result<Range> range_of(int64_t first, int64_t count, int64_t whole, const char* axis) {
  if (first < 0 || count < 0)
    return Status::error(MARLIN_E_ARGUMENT, "shard: %s is first %" PRId64 ", count %" PRId64 ", expected 0 or more", axis,
                         first, count);
  if (first >= whole || count > whole - first)
    return Status::error(MARLIN_E_SHAPE, "shard: %s is first %" PRId64 ", count %" PRId64 ", but the layer has %" PRId64, axis,
                         first, count, whole);
  return Range{first, count != 0 ? count : whole - first};
}

/// What the i-th name, layer `index` of the files, stands for.
Result<std::unique_ptr<WeightSource>> layer_source(const Checkpoint& files, size_t index, uint32_t i, const marlin_load_desc& d,
                                                   const marlin_context& context) {
  const Layer& layer = files.layers()[index];
  if (!layer.status.ok()) return layer.status;
  const marlin_shard shard = d.shards != nullptr ? d.shards[i] : marlin_shard{};
  MARLIN_ASSIGN(const Range n, range_of(shard.first[0], shard.count[0], layer.n, "N"));
  MARLIN_ASSIGN(const Range k, range_of(shard.first[1], shard.count[1], layer.k, "K"));
  MARLIN_ASSIGN(const Range experts, range_of(shard.first[2], shard.count[2], layer.experts, "experts"));
  if (experts.count != 1)
    return Status::error(MARLIN_E_UNSUPPORTED, "the layer has %u experts; this version loads one by its shard, count[2] = 1",
                         layer.experts);
  SourceOptions options{d.format, d.group_size, (d.flags & MARLIN_LOAD_SCALES_MSE) != 0, {}};
  std::span<const float> norms;
  if (d.column_norms != nullptr) {
    MARLIN_ASSIGN(norms, column_norms_of(d.column_norms[i], layer.k, context));
  }
  MARLIN_ASSIGN(options.sparse, sparse_rule(d.flags, norms));
  MARLIN_ASSIGN(auto source, files.source(index, static_cast<uint32_t>(experts.first), options));
  if (n.count == layer.n && k.count == layer.k) return source;
  return make_shard(std::move(source), n.first, n.count, k.first, k.count);
}

/// Tells the host how much has been read, on the host's own thread, and stops where the host says so.
class WatchedSource final : public WeightSource {
 public:
  WatchedSource(std::unique_ptr<WeightSource> source, const marlin_load_desc& d)
      : source_(std::move(source)), progress_(d.progress), user_(d.user) {
    meta_ = source_->meta();
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    MARLIN_RETURN_IF_ERROR(source_->read(first, count, out));
    rows_.fetch_add(count, std::memory_order_relaxed);
    return std::this_thread::get_id() == caller_ ? report() : Status();
  }

  Status report() const {
    const auto k = static_cast<uint64_t>(meta_.k);
    const auto rows = static_cast<uint64_t>(rows_.load(std::memory_order_relaxed));
    if (progress_(user_, rows * k, static_cast<uint64_t>(meta_.n) * k) == 0) return {};
    return Status::error(MARLIN_E_CANCELLED, "desc->progress asked to stop");
  }

 private:
  std::unique_ptr<WeightSource> source_;
  int32_t (*progress_)(void*, uint64_t, uint64_t);
  void* user_;
  std::thread::id caller_ = std::this_thread::get_id();
  mutable std::atomic<int64_t> rows_{0};
};

Result<marlin_weights*> watched_weights(marlin_context& context, std::unique_ptr<WeightSource> source, const Layer& first,
                                        const marlin_load_desc& d) {
  if (d.progress == nullptr) return make_weights(context, *source, first.layout, first.name);
  const WatchedSource watched(std::move(source), d);
  MARLIN_RETURN_IF_ERROR(watched.report());
  MARLIN_ASSIGN(auto* weights, make_weights(context, watched, first.layout, first.name));
  std::unique_ptr<marlin_weights> owned(weights);
  MARLIN_RETURN_IF_ERROR(watched.report());
  return owned.release();
}

Result<marlin_weights*> load(marlin_context& context, const Checkpoint& files, const marlin_load_desc& d) {
  MARLIN_RETURN_IF_ERROR(check_load_desc(d));
  const auto layers = files.layers();
  std::vector<std::unique_ptr<WeightSource>> sources;
  const Layer* first = nullptr;
  for (uint32_t i = 0; i < d.layer_count; ++i) {
    const auto index = find_layer(layers, d.layers[i]);
    if (!index.ok()) return prefixed("desc->layers", i, index.status());
    auto source = layer_source(files, index.value(), i, d, context);
    if (!source.ok()) return prefixed(layers[index.value()].name.c_str(), source.status());
    warn(context, *source.value());
    sources.push_back(source.take());
    if (i == 0) first = &layers[index.value()];
  }
  if (sources.size() == 1) return watched_weights(context, std::move(sources[0]), *first, d);
  MARLIN_ASSIGN(auto all, make_concat(std::move(sources)));
  return watched_weights(context, std::move(all), *first, d);
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_weights_load(marlin_context* context, const marlin_checkpoint* checkpoint, const marlin_load_desc* desc,
                                  marlin_weights** out, marlin_error* err) {
  return api::boundary_create(out, err, [&]() -> Result<marlin_weights*> {
    MARLIN_RETURN_IF_ERROR(api::check_handle(context, "context"));
    MARLIN_RETURN_IF_ERROR(api::check_handle(checkpoint, "checkpoint"));
    if (desc == nullptr) return Status::error(MARLIN_E_ARGUMENT, "desc is NULL");
    MARLIN_ASSIGN(const marlin_load_desc d, api::read_descriptor(desc, "desc"));
    return api::load(*context, *checkpoint->files, d);
  });
}
