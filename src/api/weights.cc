#include "api/weights.h"

#include <algorithm>
#include <cinttypes>
#include <vector>

#include "api/errors.h"
#include "api/operand.h"
#include "formats/format_table.h"
#include "formats/packed_budget.h"
#include "layouts/layout_table.h"
#include "layouts/source.h"
#include "sources/concat.h"

namespace metal_marlin::api {

Result<Sources> make_experts(Backend& packer, size_t part_count, uint32_t expert_count,
                             const ReadPart& read_part) {
  Sources experts;
  PackedBudget budget;
  const size_t parts_each = part_count / expert_count;
  for (size_t e = 0; e < expert_count; ++e) {
    Sources parts;
    for (size_t i = e * parts_each; i < (e + 1) * parts_each; ++i) {
      MARLIN_ASSIGN(auto part, read_part(i));
      parts.push_back(std::move(part));
    }
    auto expert = make_concat(std::move(parts));
    if (!expert.ok() && expert_count > 1)
      return prefixed("experts", static_cast<uint32_t>(e), expert.status());
    if (!expert.ok()) return expert.status();
    budget.add_own(own_bytes(expert.value()->meta()));
    MARLIN_ASSIGN(const uint64_t bytes, packer.packed_bytes(*expert.value()));
    MARLIN_RETURN_IF_ERROR(budget.take(bytes));
    experts.push_back(expert.take());
  }
  MARLIN_RETURN_IF_ERROR(make_alike(experts));
  return experts;
}

void warn(const marlin_context& context, const WeightSource& source) {
  if (!source.warning().empty()) context.logger(LogLevel::warning, source.warning().c_str());
}

Status check_weights(const marlin_weights* weights, const marlin_context* context) {
  MARLIN_RETURN_IF_ERROR(check_handle(weights, "weights"));
  if (context == nullptr || weights->context.get() == context) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "weights belong to another context than the rest of the call");
}

Result<std::span<const float>> column_norms_of(const marlin_matrix& norms, int64_t k,
                                               const char* name, const marlin_context* context) {
  if (norms.data == nullptr) return std::span<const float>();
  MARLIN_ASSIGN(const Operand operand,
                context != nullptr ? resolve(norms, name, *context) : resolve_host(norms, name));
  MARLIN_RETURN_IF_ERROR(operand.check_host_reads(name));
  if (operand.dtype != MARLIN_F32)
    return Status::error(MARLIN_E_ARGUMENT, "%s.dtype is %d, expected F32 (%d)", name,
                         operand.dtype, MARLIN_F32);
  if (operand.rows != 1 || operand.cols != k)
    return Status::error(MARLIN_E_SHAPE,
                         "%s is [%" PRId64 ", %" PRId64 "], expected [1, k = %" PRId64 "]", name,
                         operand.rows, operand.cols, k);
  return std::span(static_cast<const float*>(operand.data), static_cast<size_t>(k));
}

namespace {

constexpr uint32_t kPackFlags = MARLIN_PACK_ADDITIVE_ZEROS | MARLIN_PACK_DIVIDE_SCALE |
                                MARLIN_PACK_GATE_UP_INTERLEAVED | MARLIN_PACK_SCALES_MSE |
                                MARLIN_PACK_PRUNE_2_4 | MARLIN_PACK_OBEYS_2_4 |
                                MARLIN_PACK_TWO_LEVEL_SCALES;

Status check_pack_desc(const marlin_pack_desc& d) {
  if (format_row(d.format) == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "format is %d, expected 1..%d", d.format,
                         last_format());
  const LayoutRow* layout = caller_layout(d.layout);
  if (layout == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "layout is %d, expected 0..%d", d.layout,
                         last_layout());
  if ((d.flags & MARLIN_PACK_TWO_LEVEL_SCALES) != 0 && !layout->has_place(Takes::two_level))
    return Status::error(MARLIN_E_ARGUMENT, "flags: %s has no two-level scales", layout->name);
  if (d.n <= 0 || d.k <= 0)
    return Status::error(MARLIN_E_SHAPE, "n, k is %" PRId64 ", %" PRId64 ", expected 1 or more",
                         d.n, d.k);
  if ((d.flags & ~kPackFlags) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "flags has unknown bits 0x%x",
                         d.flags & ~kPackFlags);
  if (!is_known(d.gptq_zero_f))
    return Status::error(MARLIN_E_ARGUMENT, "gptq_zero_f is %d, expected 0..3", d.gptq_zero_f);
  return {};
}

/// The operand of a part in the form of the readers; empty if absent. `name` has static storage.
Result<TensorView> tensor_view(const marlin_matrix& m, const char* name,
                               const marlin_context& context) {
  TensorView view;
  view.name = name;
  if (m.data == nullptr) return view;
  MARLIN_ASSIGN(const Operand operand, resolve(m, name, context));
  MARLIN_RETURN_IF_ERROR(operand.check_host_reads(name));
  view.dtype = operand.dtype;
  view.dims = {operand.rows, operand.cols};
  view.row_stride = operand.stride;
  view.data = static_cast<const std::byte*>(operand.data);
  view.bytes = operand.bytes;
  return view;
}

Result<LayoutOperands> operands_of(const marlin_pack_desc& d, const marlin_context& context) {
  MARLIN_RETURN_IF_ERROR(check_pack_desc(d));
  LayoutOperands operands;
  operands.layout = d.layout == MARLIN_LAYOUT_AUTO ? MARLIN_LAYOUT_ROWS : d.layout;
  operands.format = d.format;
  operands.n = d.n;
  operands.k = d.k;
  operands.group_size = d.group_size;
  operands.flags = d.flags;
  operands.zero_f = d.gptq_zero_f;
  if (d.values.data == nullptr) return Status::error(MARLIN_E_ARGUMENT, "values.data is NULL");
  MARLIN_ASSIGN(operands.values, tensor_view(d.values, "values", context));
  MARLIN_ASSIGN(operands.scales, tensor_view(d.scales, "scales", context));
  MARLIN_ASSIGN(operands.zeros, tensor_view(d.zeros, "zeros", context));
  MARLIN_ASSIGN(operands.sparse_meta, tensor_view(d.sparse_meta, "sparse_meta", context));
  MARLIN_ASSIGN(operands.group_index, tensor_view(d.group_index, "group_index", context));
  MARLIN_ASSIGN(operands.tensor_scale, tensor_view(d.tensor_scale, "tensor_scale", context));
  MARLIN_ASSIGN(operands.column_norms,
                column_norms_of(d.column_norms, d.k, "column_norms", &context));
  MARLIN_ASSIGN(operands.codebook, tensor_view(d.codebook, "codebook", context));
  return operands;
}

/// The source of one part, checked as far as make_source() checks it.
Result<std::unique_ptr<WeightSource>> part_source(const marlin_pack_desc* part,
                                                  const marlin_context& context,
                                                  marlin_layout& layout) {
  if (part == nullptr) return Status::error(MARLIN_E_ARGUMENT, "NULL, expected a descriptor");
  MARLIN_ASSIGN(const marlin_pack_desc desc, read_descriptor(part, "part"));
  MARLIN_ASSIGN(const LayoutOperands operands, operands_of(desc, context));
  layout = operands.layout;
  return make_source(operands);
}

Result<marlin_weights*> pack(marlin_context& context, const marlin_pack_desc* const* parts,
                             uint32_t part_count, uint32_t expert_count) {
  if (parts == nullptr || part_count == 0)
    return Status::error(MARLIN_E_ARGUMENT, "there are no parts");
  expert_count = std::max(expert_count, 1u);
  if (part_count % expert_count != 0)
    return Status::error(MARLIN_E_SHAPE,
                         "part_count is %u, expected a multiple of expert_count = %u", part_count,
                         expert_count);
  marlin_layout first_layout = MARLIN_LAYOUT_ROWS;
  const auto read_part = [&](size_t i) -> Result<std::unique_ptr<WeightSource>> {
    marlin_layout layout = MARLIN_LAYOUT_ROWS;
    auto source = part_source(parts[i], context, layout);
    if (!source.ok()) return prefixed("parts", static_cast<uint32_t>(i), source.status());
    if (i == 0) first_layout = layout;
    warn(context, *source.value());
    return source;
  };
  MARLIN_ASSIGN(const Sources experts,
                make_experts(*context.backend, part_count, expert_count, read_part));
  MARLIN_ASSIGN(ExpertStack packed, context.backend->pack_experts(experts));
  return new marlin_weights(context, std::move(packed), first_layout, "");
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_weights_pack(marlin_context* context, const marlin_pack_desc* const* parts,
                                  uint32_t part_count, uint32_t expert_count, marlin_weights** out,
                                  marlin_error* err) {
  return api::boundary_create(out, err, [&]() -> Result<marlin_weights*> {
    MARLIN_RETURN_IF_ERROR(api::check_handle(context, "context"));
    return api::pack(*context, parts, part_count, expert_count);
  });
}

marlin_status marlin_weights_info(const marlin_weights* weights, marlin_layer_info* out,
                                  marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_handle(weights, "weights"));
    MARLIN_RETURN_IF_ERROR(api::check_output(out, "out"));
    const WeightMeta& meta = weights->experts.front()->meta();
    marlin_layer_info info{};
    info.status = MARLIN_OK;
    double squared_norm = 0, kept_norm = 0;
    for (const auto& expert : weights->experts) {
      info.flags |= layer_flags(expert->meta());
      info.bytes += expert->bytes();
      squared_norm += expert->meta().squared_norm;
      kept_norm += expert->meta().kept_norm;
    }
    info.name = weights->name.c_str();
    info.n = meta.n;
    info.k = meta.k;
    info.experts = static_cast<uint32_t>(weights->experts.size());
    info.group_size = api::saturate_u32(meta.group_size);
    info.format = meta.format;
    info.layout = weights->layout;
    const marlin_dtype floats = float_dtype(meta.format);
    info.dtype = floats != 0 ? floats : scale_dtype(meta.scale_type);
    const double share = squared_norm != 0 ? kept_norm / squared_norm : 1;
    info.kept_share = share >= 0 && share <= 1 ? share : 1;  // a file may say anything
    return api::write_descriptor(out, info, "out");
  });
}

void marlin_weights_destroy(marlin_weights* weights) { delete api::take_for_destroy(weights); }
