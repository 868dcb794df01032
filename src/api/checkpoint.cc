#include "api/checkpoint.h"

#include <cinttypes>

#include "api/errors.h"
#include "api/load.h"
#include "api/weights.h"
#include "base/checked.h"
#include "layouts/layout_table.h"

using namespace metal_marlin;

namespace {

Result<marlin_checkpoint*> open(const char* path, const marlin_open_desc* desc) {
  if (path == nullptr) return Status::error(MARLIN_E_ARGUMENT, "path is NULL");
  MARLIN_ASSIGN(const marlin_open_desc d, api::read_optional_descriptor(desc, "desc"));
  constexpr uint32_t kOrders = MARLIN_OPEN_OUTPUTS_FIRST | MARLIN_OPEN_INPUTS_FIRST;
  if ((d.flags & ~kOrders) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->flags has unknown bits 0x%x",
                         d.flags & ~kOrders);
  if ((d.flags & kOrders) == kOrders)
    return Status::error(MARLIN_E_ARGUMENT,
                         "desc->flags: expected one order of stacks, found OUTPUTS_FIRST and "
                         "INPUTS_FIRST");
  StackOrder order = StackOrder::unknown;
  if ((d.flags & MARLIN_OPEN_OUTPUTS_FIRST) != 0) order = StackOrder::outputs_first;
  if ((d.flags & MARLIN_OPEN_INPUTS_FIRST) != 0) order = StackOrder::inputs_first;
  if (caller_layout(d.layout) == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "desc->layout is %d, expected 0..%d", d.layout,
                         last_layout());
  if (!api::is_known(d.gptq_zero_f))
    return Status::error(MARLIN_E_ARGUMENT, "desc->gptq_zero_f is %d, expected 0..3",
                         d.gptq_zero_f);
  MARLIN_ASSIGN(auto files, Checkpoint::open(path, d.layout, d.gptq_zero_f, order,
                                             d.config != nullptr ? d.config : ""));
  return new marlin_checkpoint(std::move(files));
}

Status layer_info(const marlin_checkpoint* checkpoint, uint64_t index, marlin_layer_info* out) {
  MARLIN_RETURN_IF_ERROR(api::check_handle(checkpoint, "checkpoint"));
  MARLIN_RETURN_IF_ERROR(api::check_output(out, "out"));
  const Checkpoint& files = *checkpoint->files;
  if (index >= files.layer_count())
    return Status::error(MARLIN_E_NOT_FOUND, "layer %" PRIu64 " of %zu", index,
                         files.layer_count());
  const Layer layer = files.layer(index);
  marlin_layer_info info{};
  info.status = layer.status.code();
  if (layer.status.ok() && files.container() != nullptr)
    info.status = api::check_packed_layer(*files.container(), index).code();
  info.name = files.layer_name(index);
  info.n = layer.n;
  info.k = layer.k;
  info.experts = layer.experts;
  info.group_size = api::saturate_u32(layer.group_size);
  info.format = layer.format;
  info.layout = layer.layout;
  info.flags = layer.flags;
  info.dtype = layer.dtype;
  info.bytes = layer.bytes;
  info.kept_share = 1;
  return api::write_descriptor(out, info, "out");
}

/// All dimensions except the last are rows; a scalar is [1, 1].
Result<marlin_matrix> as_matrix(const TensorView& tensor) {
  if (tensor.dtype == 0)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "tensor %.*s has type %.*s, which marlin_dtype does not name",
                         static_cast<int>(tensor.name.size()), tensor.name.data(),
                         static_cast<int>(tensor.type_name.size()), tensor.type_name.data());
  Checked rows = 1;
  for (size_t i = 0; i + 1 < tensor.dims.size(); ++i) rows = rows * Checked(tensor.dims[i]);
  auto fitting = rows.at_most(INT64_MAX);
  if (!fitting)
    return Status::error(MARLIN_E_FORMAT, "tensor %.*s has more rows than 63 bits count",
                         static_cast<int>(tensor.name.size()), tensor.name.data());
  int64_t cols = tensor.dims.empty() ? 1 : tensor.dims.back();
  int64_t stride = tensor.dims.empty() ? 1 : tensor.row_stride;
  // Of a tensor without elements: no file bounds the other dimension, over which a host may loop.
  if (*fitting == 0 || cols == 0) {
    if (*fitting > INT32_MAX) *fitting = 0;
    if (cols > INT32_MAX) cols = 0;
    stride = cols;
  }
  marlin_matrix m{};
  // The view is read-only; marlin_matrix has one pointer for inputs and outputs.
  m.data = const_cast<std::byte*>(tensor.data);
  m.rows = static_cast<int64_t>(*fitting);
  m.cols = cols;
  m.row_stride = stride;
  m.dtype = tensor.dtype;
  m.memory = MARLIN_MEM_HOST;
  return m;
}

}  // namespace

marlin_status marlin_checkpoint_open(const char* path, const marlin_open_desc* desc,
                                     marlin_checkpoint** out, marlin_error* err) {
  return api::boundary_create(out, err, [&] { return open(path, desc); });
}

marlin_status marlin_checkpoint_layer(const marlin_checkpoint* checkpoint, uint64_t index,
                                      marlin_layer_info* out, marlin_error* err) {
  return api::boundary(err, [&] { return layer_info(checkpoint, index, out); });
}

marlin_status marlin_checkpoint_tensor(const marlin_checkpoint* checkpoint, const char* name,
                                       marlin_matrix* out, marlin_error* err) {
  if (out != nullptr) *out = {};
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_handle(checkpoint, "checkpoint"));
    if (name == nullptr) return Status::error(MARLIN_E_ARGUMENT, "name is NULL");
    if (out == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out is NULL");
    MARLIN_ASSIGN(const TensorView tensor, checkpoint->files->tensor(name));
    MARLIN_ASSIGN(*out, as_matrix(tensor));
    return {};
  });
}

void marlin_checkpoint_destroy(marlin_checkpoint* checkpoint) {
  delete api::take_for_destroy(checkpoint);
}
