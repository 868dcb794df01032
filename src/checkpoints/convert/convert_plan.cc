#include "checkpoints/convert/convert_plan.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/bits.h"
#include "checkpoints/convert/config_text.h"
#include "checkpoints/convert/exact_layer.h"
#include "checkpoints/convert/write_gguf.h"
#include "checkpoints/convert/write_safetensors.h"
#include "checkpoints/recognize.h"
#include "checkpoints/tensor_table.h"
#include "formats/fit.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

constexpr size_t kDropped = SIZE_MAX - 1;  // the role of a tensor that new parts replace

/// Tensors of a layer that readers do not need and that would contradict the new tensors.
constexpr const char* kLeftovers[] = {".weight_shape",
                                      ".weight_g_idx",
                                      ".weight_zero_point",
                                      ".weight_scale",
                                      ".weight_global_scale",
                                      ".input_scale",
                                      ".input_global_scale",
                                      ".weight_scale_2",
                                      ".g_idx",
                                      ".qzeros",
                                      ".meta",
                                      ".shape",
                                      ".bitmask"};

Status of_layer(const Layer& layer, const Status& status) {
  return Status::error(status.code(), "layer '%.100s': %s", layer.name.c_str(), status.message())
      .with_native(status.native_code());
}

/// Whether the layer is a single tensor of floats, which means the same in any file.
bool is_plain(const Layer& layer) {
  return layer.format == MARLIN_FORMAT_NONE && is_float(layer.dtype) &&
         (layer.flags & MARLIN_LAYER_SPARSE_2_4) == 0;
}

/// MARLIN_LAYER_* and MARLIN_PACK_* of a layer that is written.
uint32_t flags_of(const PlannedLayer& planned) {
  const WeightMeta& meta = planned.meta;
  return (meta.zero_kind == ZeroKind::integer ? MARLIN_LAYER_ZEROS : 0u) |
         (meta.zero_kind == ZeroKind::additive ? MARLIN_PACK_ADDITIVE_ZEROS : 0u) |
         (meta.has_two_level_scales() ? MARLIN_PACK_TWO_LEVEL_SCALES : 0u) |
         (meta.sparse ? MARLIN_LAYER_SPARSE_2_4 : 0u) | (planned.exact ? MARLIN_LAYER_EXACT : 0u);
}

class Planner {
 public:
  Planner(const Checkpoint& input, const Scheme& scheme, const std::string& file,
          const ConvertOptions& options)
      : input_(input), options_(options), file_(file) {
    plan_.scheme = &scheme;
  }

  Result<ConvertPlan> run() {
    for (size_t i = 0; i < options_.layers.size(); ++i) MARLIN_RETURN_IF_ERROR(add_layer(i));
    if (plan_.layers.empty())
      return Status::error(MARLIN_E_UNSUPPORTED, "no layer is left to quantize");
    MARLIN_RETURN_IF_ERROR(check_others());
    assign_roles();
    MARLIN_RETURN_IF_ERROR(add_steps());
    MARLIN_RETURN_IF_ERROR(check_names());
    MARLIN_RETURN_IF_ERROR(lay_out());
    if (!plan_.scheme->gguf) MARLIN_RETURN_IF_ERROR(add_side_files());
    return std::move(plan_);
  }

 private:
  Status add_layer(size_t place) {
    const size_t index = options_.layers[place];
    const Layer layer = input_.layer(index);
    if (options_.host.progress != nullptr &&
        options_.host.progress(options_.host.user, 0, 0, layer.name.c_str()) != 0) {
      return of_layer(layer, Status::error(MARLIN_E_CANCELLED, "cancelled by the caller"));
    }
    PlannedLayer planned;
    planned.index = index;
    planned.place = place;
    auto tensors = fit(planned);
    if (!tensors.ok()) {
      const bool shape = tensors.status().code() == MARLIN_E_SHAPE ||
                         tensors.status().code() == MARLIN_E_UNSUPPORTED;
      if (!options_.skip_unfit || !shape || !may_stay(layer))
        return of_layer(layer, tensors.status());
      planned.status = tensors.status();
      plan_.skipped.push_back(std::move(planned));
      return {};
    }
    if (layer.format != MARLIN_FORMAT_NONE && !planned.exact) {
      const std::string text = "layer '" + layer.name + "': quantized already (" +
                               format_name(layer.format) + "), so decoded and quantized again";
      options_.host.log(LogLevel::warning, text.c_str());
    }
    tensors_.push_back(tensors.take());
    plan_.layers.push_back(std::move(planned));
    return {};
  }

  /// The new tensors of the layer, or the reason why the layer does not fit.
  Result<std::vector<NamedTensor>> fit(PlannedLayer& planned) const {
    const Layer layer = input_.layer(planned.index);
    MARLIN_RETURN_IF_ERROR(layer.status);
    const Scheme& scheme = *plan_.scheme;
    if (layer.format != MARLIN_FORMAT_NONE) {
      MARLIN_ASSIGN(const auto exact, exact_meta(input_, scheme, options_, planned.place));
      if (exact) {
        planned.exact = true;
        planned.meta = *exact;
        return tensors_of(layer, planned.meta);
      }
      if (options_.format == MARLIN_FORMAT_NONE && options_.types.empty()) {
        return Status::error(MARLIN_E_UNSUPPORTED,
                             "%s: no type holds these values of %s exactly; name a format to "
                             "quantize them again",
                             scheme.name, format_name(layer.format));
      }
    }
    return fit_quantized(layer, planned);
  }

  Result<std::vector<NamedTensor>> fit_quantized(const Layer& layer, PlannedLayer& planned) const {
    const Scheme& scheme = *plan_.scheme;
    WeightMeta& meta = planned.meta;
    MARLIN_ASSIGN(meta, requested_meta(scheme, options_, planned.place, layer.n, layer.k));
    MARLIN_RETURN_IF_ERROR(scheme.encoder().check(meta));
    if ((layer.flags & MARLIN_PACK_GATE_UP_INTERLEAVED) != 0) {
      return Status::error(MARLIN_E_UNSUPPORTED, "%s: no form for rows that alternate gate and up",
                           scheme.name);
    }
    MARLIN_ASSIGN(auto tensors, tensors_of(layer, meta));
    if (is_fitted(meta) || meta.scale_type != ScaleType::f16) return tensors;
    // The values decide whether float16 can hold the scales, and thus the size of their tensor.
    for (uint32_t expert = 0; expert < layer.experts; ++expert) {
      MARLIN_ASSIGN(const LayerFloats floats,
                    floats_of(input_, planned.index, expert, options_.host));
      MARLIN_ASSIGN(const auto source,
                    quantized_source(floats, meta, planned.place, scheme, options_));
      if (source->meta().scale_type == ScaleType::f32) meta.scale_type = ScaleType::f32;
    }
    return tensors_of(layer, meta);
  }

  Result<std::vector<NamedTensor>> tensors_of(const Layer& layer, const WeightMeta& meta) const {
    SchemeTarget target{
        .base = base_of(layer), .tensor = layer.name, .experts = layer.experts, .meta = meta};
    if (!input_.origin().is_gguf) target.tensor += ".weight";
    return scheme_tensors(*plan_.scheme, target);
  }

  std::string base_of(const Layer& layer) const {
    if (!input_.origin().is_gguf) return layer.name;
    return std::string(without_suffix(layer.name, ".weight").value_or(layer.name));
  }

  /// Whether the layer may stay unchanged. Floats may, in any container. Codes may only in a
  /// container whose tensors describe themselves.
  bool may_stay(const Layer& layer) const {
    return is_plain(layer) || (plan_.scheme->gguf && input_.origin().is_gguf);
  }

  Status check_others() const {
    const auto layers = input_.layers();
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer layer = layers[i];
      if (may_stay(layer) || std::binary_search(options_.layers.begin(), options_.layers.end(), i))
        continue;
      if (!layer.status.ok())
        return Status::error(MARLIN_E_UNSUPPORTED,
                             "layer '%.100s': is not read by this version; beside newly quantized "
                             "layers its codes could not be described",
                             layer.name.c_str());
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "layer '%.100s': is quantized already and not listed; beside newly "
                           "quantized layers it could not be "
                           "described: list it too, to decode it and quantize it again",
                           layer.name.c_str());
    }
    return {};
  }

  /// Finds for each tensor of the input the layer whose values it holds, or kCopied or kDropped.
  void assign_roles() {
    const TensorTable& tensors = input_.tensors();
    roles_.assign(tensors.size(), kCopied);
    for (size_t l = 0; l < plan_.layers.size(); ++l) {
      const size_t index = plan_.layers[l].index;
      const Layer layer = input_.layer(index);
      const std::vector<TensorView> parts = input_.parts(index);
      for (size_t p = 0; p < parts.size(); ++p) {
        if (const auto at = tensors.find(parts[p].name)) roles_[*at] = p == 0 ? l : kDropped;
      }
      if (is_plain(layer)) continue;
      for (const char* suffix : kLeftovers) {
        const auto at = tensors.find(base_of(layer) + suffix);
        if (at && roles_[*at] == kCopied) roles_[*at] = kDropped;
      }
    }
  }

  Status add_steps() {
    const TensorTable& tensors = input_.tensors();
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (roles_[t] == kDropped) continue;
      const size_t first = plan_.tensors.size();
      plan_.steps.push_back({.layer = roles_[t], .tensor = t, .output = first});
      if (roles_[t] == kCopied) {
        const TensorView view = tensors.view(t);
        MARLIN_RETURN_IF_ERROR(add_tensor(
            {.name = std::string(view.name), .type = view.type_name, .dims = view.dims}));
      } else {
        PlannedLayer& layer = plan_.layers[roles_[t]];
        const uint32_t experts = input_.layer(layer.index).experts;
        layer.first_tensor = first;
        layer.tensors = tensors_[roles_[t]].size();
        for (NamedTensor& named : tensors_[roles_[t]]) {
          std::vector<int64_t>& dims = named.tensor.dims;
          if (experts > 1) dims.insert(dims.begin(), experts);
          MARLIN_RETURN_IF_ERROR(add_tensor(
              {.name = std::move(named.name), .type = named.tensor.type, .dims = std::move(dims)}));
        }
      }
      std::vector<size_t>& group = groups_.emplace_back();
      for (size_t i = first; i < plan_.tensors.size(); ++i) group.push_back(i);
    }
    return {};
  }

  Status add_tensor(OutputTensor tensor) {
    MARLIN_ASSIGN(tensor.bytes, plan_.scheme->gguf ? gguf_output_bytes(tensor)
                                                   : safetensors_output_bytes(tensor));
    plan_.tensors.push_back(std::move(tensor));
    return {};
  }

  Status check_names() const {
    std::vector<std::string_view> names;
    names.reserve(plan_.tensors.size());
    for (const OutputTensor& t : plan_.tensors) names.push_back(t.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return {};
    return Status::error(
        MARLIN_E_UNSUPPORTED,
        "tensor '%.150s': would be written twice: the input has one of this name too",
        std::string(*twice).c_str());
  }

  Status lay_out() {
    const size_t count = plan_.scheme->gguf ? 1 : assign_files();
    const std::string stem = file_.substr(0, file_.rfind('.'));
    for (size_t i = 0; i < count; ++i) {
      char number[64];
      std::snprintf(number, sizeof number, "-%05zu-of-%05zu.safetensors", i + 1, count);
      PlannedFile& file = plan_.files.emplace_back();
      file.name = count == 1 ? file_ : stem + number;
      if (plan_.scheme->gguf) {
        plan_gguf(input_, plan_.tensors, file);
      } else {
        MARLIN_RETURN_IF_ERROR(plan_safetensors(plan_.tensors, i, file));
      }
    }
    return {};
  }

  /// Assigns tensors to files and returns the number of files.
  size_t assign_files() {
    if (options_.shard_bytes != 0)
      return split_by_size(plan_.tensors, groups_, options_.shard_bytes);
    const TensorTable& tensors = input_.tensors();
    if (tensors.file_count() < 2 || file_ != "model.safetensors") return 1;
    // The files are those of the input. A shard that held only scales has nothing left.
    std::vector<size_t> renumbered(tensors.file_count(), SIZE_MAX);
    size_t count = 0;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      size_t& number = renumbered[tensors.file(plan_.steps[s].tensor)];
      if (number == SIZE_MAX) number = count++;
      for (const size_t t : groups_[s]) plan_.tensors[t].file = number;
    }
    return count;
  }

  Status add_side_files() {
    std::vector<std::string> ignore;
    const auto layers = input_.layers();
    size_t next = 0;  // of the planned ones, which are in the input's order
    for (size_t i = 0; i < layers.size(); ++i) {
      while (next < plan_.layers.size() && plan_.layers[next].index < i) ++next;
      if (next == plan_.layers.size() || plan_.layers[next].index != i)
        ignore.push_back(base_of(layers[i]));
    }
    // One description covers all layers: the requested group, or "one per row" if this holds for
    // every layer.
    Described described{plan_.layers[0].meta, ignore, {}};
    described.meta.groups = 1;
    std::vector<std::pair<std::string, WeightMeta>> written;
    for (const PlannedLayer& layer : plan_.layers) {
      described.meta.groups = std::max(described.meta.groups, layer.meta.groups);
      written.emplace_back(base_of(layers[layer.index]), layer.meta);
    }
    described.layers = written;
    if (options_.format != MARLIN_FORMAT_NONE)
      described.meta.group_size = requested_group(*plan_.scheme, options_);
    const auto describe = [&](JsonWriter& out) {
      out.begin('{');
      plan_.scheme->describe(described, out);
      out.end('}');
    };
    MARLIN_ASSIGN(std::string config,
                  config_text(input_.origin().config, plan_.scheme->config_key, describe));
    if (plan_.scheme->own_config != nullptr) {
      JsonWriter own;
      describe(own);
      plan_.side_files.push_back({plan_.scheme->own_config, own.text() + "\n"});
    }
    plan_.side_files.push_back({"config.json", std::move(config)});
    if (plan_.files.size() > 1) {
      plan_.side_files.push_back(
          {file_ + ".index.json", safetensors_index(plan_.tensors, plan_.files)});
    }
    return {};
  }

  const Checkpoint& input_;
  const ConvertOptions& options_;
  const std::string& file_;
  ConvertPlan plan_;
  std::vector<std::vector<NamedTensor>> tensors_;  // of plan_.layers
  std::vector<size_t> roles_;                      // of the input's tensors
  std::vector<std::vector<size_t>> groups_;        // the output tensors of each step
};

}  // namespace

Result<marlin_scheme> choose_scheme(const Checkpoint& input, const std::string& out_path,
                                    marlin_scheme asked) {
  if (asked == MARLIN_SCHEME_AUTO) {
    const bool gguf = out_path.ends_with(".gguf") ||
                      (input.origin().is_gguf && !out_path.ends_with(".safetensors"));
    return gguf ? MARLIN_SCHEME_GGUF : MARLIN_SCHEME_COMPRESSED_TENSORS;
  }
  if (scheme_row(asked) != nullptr) return asked;
  return Status::error(MARLIN_E_ARGUMENT, "scheme: %d is none of this version", asked);
}

Result<ConvertPlan> plan_conversion(const Checkpoint& input, const Scheme& scheme,
                                    const std::string& file, const ConvertOptions& options) {
  return Planner(input, scheme, file, options).run();
}

void report_outcome(const Checkpoint& input, const ConvertPlan& plan, const PlannedLayer& planned,
                    const QuantizeSums& sums, const ConvertOptions& options) {
  if (options.host.layer_done == nullptr) return;
  const Layer layer = input.layer(planned.index);
  marlin_convert_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  outcome.status = planned.status.code();
  outcome.name = input.layer_name(planned.index);
  char reason[sizeof marlin_error::message];
  copy_printable(planned.status.message(), reason, sizeof reason);
  outcome.reason = reason;
  outcome.n = layer.n;
  outcome.k = layer.k;
  outcome.experts = layer.experts;
  outcome.from = layer.format;
  outcome.format = layer.format;
  outcome.group_size = static_cast<uint32_t>(layer.group_size);
  outcome.flags = layer.flags;
  outcome.bytes_before = outcome.bytes_after = layer.bytes;
  if (planned.status.ok()) {
    outcome.format = planned.meta.format;
    outcome.group_size = static_cast<uint32_t>(planned.meta.group_size);
    outcome.flags = flags_of(planned);
    outcome.bytes_after = 0;
    for (size_t i = 0; i < planned.tensors; ++i)
      outcome.bytes_after += plan.tensors[planned.first_tensor + i].bytes;
    outcome.squared_error = sums.squared_error;
    outcome.squared_norm = sums.squared_norm;
    outcome.kept_norm = sums.kept_norm;
  }
  options.host.layer_done(options.host.user, &outcome);
}

}  // namespace metal_marlin
