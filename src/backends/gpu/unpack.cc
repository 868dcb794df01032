#include "backends/gpu/unpack.h"

#include <algorithm>

#include "backends/gpu/gemm.h"
#include "core/shapes.h"
#include "formats/codecs.h"

namespace metal_marlin::gpu {
namespace {

Variant unpack_variant(const RowBlockLayout& layout, const RowSelection& rows, marlin_dtype dtype) {
  Variant v(unpack_kernel(layout.codes).name);
  v.set_decoder(layout)
      .set(MARLIN_CONSTANT_ROW_FACTOR, layout.row_factor)
      .set(MARLIN_CONSTANT_OUTPUT_TYPE, float_constant(dtype))
      .set(MARLIN_CONSTANT_SLOT_TO_K, layout.permuted)
      .set(MARLIN_CONSTANT_ROW_LIST, rows.ids.present());
  return v;
}

}  // namespace

Status check_ids(device::Device& device, const RowSelection& rows, int64_t count, int64_t n) {
  if (!rows.ids.present()) return {};
  RowSelection readable = rows;
  if (rows.ids.memory != MARLIN_MEM_HOST && rows.ids.memory != MARLIN_MEM_BUFFER) {
    MARLIN_ASSIGN(const DevicePointer place, place_on_device(device, rows.ids));
    if (place.buffer->host() == nullptr) return {};
    readable.ids.data = place.buffer->host() + place.offset;
  }
  return check_rows(readable, count, n);
}

Status record_unpack(KernelCache& kernels, GpuStream& stream, const GpuWeights& weights,
                     const RowSelection& rows, const Matrix& ids, const MatrixView& out,
                     const Matrix& to) {
  const RowBlockLayout& layout = weights.layout;
  const HelperKernel helper = unpack_kernel(layout.codes);
  MARLIN_ASSIGN(const device::KernelRef kernel,
                kernels.get(unpack_variant(layout, rows, out.dtype)));
  const uint32_t threads = helper_threads(*kernel);
  MARLIN_RETURN_IF_ERROR(stream.begin());
  const double row_bytes =
      static_cast<double>(layout.slots) * static_cast<double>(float_bytes(out.dtype));
  for (int64_t first = 0; first < out.rows; first += kMostRows) {
    const int64_t count = std::min(kMostRows, out.rows - first);
    MARLIN_RETURN_IF_ERROR(
        stream.make_room(slow_seconds(0, static_cast<double>(count) * row_bytes)));
    UnpackArgs args{};
    args.n = static_cast<marlin_int>(layout.n);
    args.k = static_cast<marlin_int>(layout.k);
    args.slots = static_cast<marlin_int>(layout.slots);
    args.quads = static_cast<marlin_int>(layout.quads);
    args.quad_blocks = static_cast<marlin_int>(layout.quad_blocks);
    args.count = static_cast<marlin_int>(count);
    args.first_row = rows.first + first;
    args.id_stride = ids.stride;
    args.ld = to.stride;
    Bindings bindings;
    bind_weights(bindings, weights);
    if (layout.has_row_records())
      bindings.buffer(MARLIN_BUFFER_ROWS, weights.part(layout.origins_at));
    bindings.buffer(MARLIN_BUFFER_OUT, to.row(first, float_bytes(out.dtype)));
    if (rows.ids.present())
      bindings.buffer(MARLIN_BUFFER_ROW_LIST, ids.row(first, sizeof(int32_t)));
    if (layout.permuted)
      bindings.buffer(MARLIN_BUFFER_SLOT_TO_K, weights.part(layout.slot_to_k_at));
    bindings.value(MARLIN_BUFFER_UNPACK_ARGS, args);
    MARLIN_RETURN_IF_ERROR(
        stream.dispatch(kernel, bindings, helper_grid(helper, layout.slots, count, threads),
                        threads, {"unpack", helper.name, count, layout.n, layout.k}));
  }
  return stream.end();
}

}  // namespace metal_marlin::gpu
