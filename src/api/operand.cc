#include "api/operand.h"

#include <algorithm>
#include <cinttypes>

#include "api/buffer.h"
#include "api/context.h"
#include "base/checked.h"

namespace metal_marlin::api {
namespace {

/// 0 for an unknown dtype.
constexpr uint64_t dtype_bits(marlin_dtype dtype) {
  switch (dtype) {
    case MARLIN_U4:
      return 4;
    case MARLIN_I8:
    case MARLIN_U8:
    case MARLIN_E8M0:
    case MARLIN_E4M3:
      return 8;
    case MARLIN_F16:
    case MARLIN_BF16:
    case MARLIN_I16:
      return 16;
    case MARLIN_F32:
    case MARLIN_I32:
    case MARLIN_U32:
      return 32;
    case MARLIN_I64:
      return 64;
    default:
      return 0;
  }
}

Status check_memory(marlin_memory memory, const char* name, marlin_backend backend) {
  switch (memory) {
    case MARLIN_MEM_HOST:
    case MARLIN_MEM_BUFFER:
      return {};
    case MARLIN_MEM_CUDA:
      if (backend == MARLIN_BACKEND_CUDA) return {};
      return Status::error(
          MARLIN_E_ARGUMENT,
          "%s.memory is CUDA (1), but the context's backend is %d, expected CUDA (3)", name,
          backend);
    case MARLIN_MEM_METAL:
      if (backend == MARLIN_BACKEND_METAL) return {};
      return Status::error(
          MARLIN_E_ARGUMENT,
          "%s.memory is METAL (2), but the context's backend is %d, expected Metal (2)", name,
          backend);
    default:
      return Status::error(MARLIN_E_ARGUMENT,
                           "%s.memory is %d, expected 0 (host), 1 (CUDA), 2 (Metal) or 3 (buffer)",
                           name, memory);
  }
}

/// Checks sizes, stride and dtype. Fills everything in the result except data and bytes.
Result<Operand> check_shape(const marlin_matrix& m, const char* name) {
  if (dtype_bits(m.dtype) == 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s.dtype is %d, expected 1..12 (floats: F32 is 1, F16 is 2, BF16 is 3)",
                         name, m.dtype);
  if (m.rows < 0 || m.cols < 0)
    return Status::error(MARLIN_E_SHAPE,
                         "%s is [%" PRId64 ", %" PRId64 "], expected sizes of 0 or more", name,
                         m.rows, m.cols);
  if (m.row_stride < 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s.row_stride is %" PRId64 ", expected 0 (cols) or more", name,
                         m.row_stride);
  if (m.row_stride != 0 && m.row_stride < m.cols)
    return Status::error(MARLIN_E_SHAPE,
                         "%s.row_stride is %" PRId64 ", expected at least cols = %" PRId64, name,
                         m.row_stride, m.cols);
  const int64_t stride = m.row_stride == 0 || m.rows <= 1 ? m.cols : m.row_stride;
  if (m.dtype == MARLIN_U4 && (m.cols % 2 != 0 || stride % 2 != 0))
    return Status::error(MARLIN_E_SHAPE,
                         "%s is U4 [%" PRId64 ", %" PRId64 "] of stride %" PRId64
                         ", expected even cols and stride",
                         name, m.rows, m.cols, stride);
  Operand o;
  o.rows = m.rows;
  o.cols = m.cols;
  o.stride = stride;
  o.dtype = m.dtype;
  o.memory = m.memory;
  return o;
}

/// The bytes from the first to the last, inclusive.
Result<uint64_t> byte_length(const Operand& o, const char* name) {
  if (!rows_fit(o, o.rows))
    return Status::error(MARLIN_E_SHAPE,
                         "%s: %" PRId64 " rows of stride %" PRId64 " do not fit the address space",
                         name, o.rows, o.stride);
  if (o.rows == 0 || o.cols == 0) return uint64_t{0};
  return static_cast<uint64_t>((o.rows - 1) * o.stride + o.cols) * dtype_bits(o.dtype) / 8;
}

/// The start and length of the memory that m.data names. The length is unknown for a plain pointer.
struct Extent {
  static constexpr uint64_t kUnknown = UINT64_MAX;
  uint64_t address = 0, bytes = kUnknown;
};

Result<Extent> extent_of(const marlin_matrix& m, const char* name, const marlin_context& context,
                         Operand& operand) {
  if (m.memory == MARLIN_MEM_METAL) {
    operand.native = m.data;
    MARLIN_ASSIGN(const NativeMemory native, context.backend->native_memory(m.data));
    return Extent{native.address, native.bytes};
  }
  if (m.memory != MARLIN_MEM_BUFFER) return Extent{uint64_t{reinterpret_cast<uintptr_t>(m.data)}};
  const auto* buffer = static_cast<const marlin_buffer*>(m.data);
  MARLIN_RETURN_IF_ERROR(check_handle(buffer, name));
  if (buffer->context.get() != &context)
    return Status::error(MARLIN_E_ARGUMENT, "%s: the buffer belongs to another context", name);
  operand.buffer = buffer->memory.get();
  return Extent{uint64_t{reinterpret_cast<uintptr_t>(buffer->memory->host())}, buffer->bytes};
}

/// Finds the start of the operand. Checks that its whole length is inside the buffer or the address
/// space, and that its data are aligned.
Status locate(const marlin_matrix& m, const char* name, const Extent& extent, Operand& operand) {
  const auto end = (Checked(m.offset_bytes) + Checked(operand.bytes)).at_most(extent.bytes);
  if (extent.bytes != Extent::kUnknown && !end)
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s needs %" PRIu64 " bytes at offset %" PRIu64
                         ", the buffer holds %" PRIu64,
                         name, operand.bytes, m.offset_bytes, extent.bytes);
  const auto begin = Checked(extent.address) + Checked(m.offset_bytes);
  if (!(begin + Checked(operand.bytes)).at_most(UINTPTR_MAX))
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s: %" PRIu64 " bytes at offset %" PRIu64
                         " wrap around the address space",
                         name, operand.bytes, m.offset_bytes);
  operand.offset = m.offset_bytes;
  operand.data = reinterpret_cast<void*>(static_cast<uintptr_t>(extent.address + m.offset_bytes));
  const uint64_t align = std::max<uint64_t>(dtype_bits(m.dtype) / 8, 1);
  if (operand.bytes != 0 && reinterpret_cast<uintptr_t>(operand.data) % align != 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s is at %p, expected a multiple of its element's %" PRIu64 " bytes",
                         name, operand.data, align);
  return {};
}

/// Everything about the operand except the place of its memory.
Result<Operand> measured(const marlin_matrix& m, const char* name, Pointers pointers) {
  MARLIN_ASSIGN(Operand operand, check_shape(m, name));
  MARLIN_ASSIGN(operand.bytes, byte_length(operand, name));
  operand.data = m.data;
  if (pointers == Pointers::read && m.data == nullptr && m.rows != 0)
    return Status::error(MARLIN_E_ARGUMENT, "%s.data is NULL, expected %" PRId64 " rows", name,
                         m.rows);
  return operand;
}

}  // namespace

Result<Operand> resolve(const marlin_matrix& m, const char* name, const marlin_context& context,
                        Pointers pointers) {
  MARLIN_RETURN_IF_ERROR(check_memory(m.memory, name, context.backend_kind));
  MARLIN_ASSIGN(Operand operand, measured(m, name, pointers));
  if (pointers == Pointers::unread || m.data == nullptr) return operand;
  MARLIN_ASSIGN(const Extent extent, extent_of(m, name, context, operand));
  MARLIN_RETURN_IF_ERROR(locate(m, name, extent, operand));
  return operand;
}

Result<Operand> resolve_host(const marlin_matrix& m, const char* name) {
  if (m.memory != MARLIN_MEM_HOST)
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s.memory is %d, expected 0 (host): the call has no context", name,
                         m.memory);
  MARLIN_ASSIGN(Operand operand, measured(m, name, Pointers::read));
  if (m.data == nullptr) return operand;
  MARLIN_RETURN_IF_ERROR(locate(m, name, {uint64_t{reinterpret_cast<uintptr_t>(m.data)}}, operand));
  return operand;
}

bool rows_fit(const MatrixView& m, int64_t rows) {
  const auto bits = (Checked(rows) * Checked(m.stride) * Checked(dtype_bits(m.dtype))).get();
  return bits && *bits / 8 <= PTRDIFF_MAX;
}

Status Operand::check_host_reads(const char* name) const {
  if (memory == MARLIN_MEM_HOST || memory == MARLIN_MEM_BUFFER) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "%s.memory is %d, expected 0 (host) or 3 (buffer): it is read by the host",
                       name, memory);
}

bool ranges_overlap(const Operand& a, const Operand& b) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data),
             b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a.bytes != 0 && b.bytes != 0 && a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes;
}

}  // namespace metal_marlin::api
