#include "api/stream.h"

#include <cinttypes>

#include "api/context.h"
#include "api/errors.h"
#include "api/operand.h"

namespace metal_marlin::api {

StreamShells::~StreamShells() {
  while (oldest_ != nullptr) delete std::exchange(oldest_, oldest_->next_shell);
}

std::unique_ptr<marlin_stream> StreamShells::take() {
  const std::lock_guard lock(mutex_);
  if (count_ <= kKept) return std::make_unique<marlin_stream>();
  std::unique_ptr<marlin_stream> shell(std::exchange(oldest_, oldest_->next_shell));
  shell->next_shell = nullptr;
  --count_;
  return shell;
}

void StreamShells::put(std::unique_ptr<marlin_stream> shell) noexcept {
  const std::lock_guard lock(mutex_);
  marlin_stream* const last = std::exchange(newest_, shell.release());
  (count_++ == 0 ? oldest_ : last->next_shell) = newest_;
}

namespace {

Status check_native(const marlin_stream_desc& desc, marlin_backend backend) {
  switch (desc.kind) {
    case MARLIN_NATIVE_NONE:
      if (desc.native == nullptr) return {};
      return Status::error(MARLIN_E_ARGUMENT, "desc->native is given, but desc->kind is NONE (0)");
    case MARLIN_NATIVE_CUDA_STREAM:
      if (backend == MARLIN_BACKEND_CUDA) return {};
      break;
    case MARLIN_NATIVE_METAL_QUEUE:
    case MARLIN_NATIVE_METAL_COMMAND_BUFFER:
    case MARLIN_NATIVE_METAL_ENCODER:
      if (backend == MARLIN_BACKEND_METAL) return {};
      break;
    default:
      return Status::error(MARLIN_E_ARGUMENT, "desc->kind is %d, expected 0..4", desc.kind);
  }
  return Status::error(MARLIN_E_ARGUMENT,
                       "desc->kind is %d, which the context's backend %d does not have", desc.kind,
                       backend);
}

Status check_fences(const marlin_stream_desc& desc) {
  if (desc.wait_fence == nullptr && desc.update_fence == nullptr) return {};
  if (desc.kind != MARLIN_NATIVE_METAL_QUEUE && desc.kind != MARLIN_NATIVE_METAL_COMMAND_BUFFER)
    return Status::error(MARLIN_E_ARGUMENT,
                         "desc->update_fence is given, but desc->kind is %d, expected 2 or 3: a "
                         "queue or a command buffer of Metal",
                         desc.kind);
  if (desc.update_fence != nullptr) return {};
  return Status::error(MARLIN_E_ARGUMENT, "desc->wait_fence is given without desc->update_fence");
}

/// The host's scratch, which may be absent.
Result<Operand> check_scratch(const marlin_matrix& m, const marlin_context& context) {
  if (m.data == nullptr) return Operand();
  MARLIN_ASSIGN(const Operand scratch, resolve(m, "desc->scratch", context));
  if (m.dtype != MARLIN_U8)
    return Status::error(MARLIN_E_ARGUMENT, "desc->scratch.dtype is %d, expected U8 (%d)", m.dtype,
                         MARLIN_U8);
  if (scratch.stride != scratch.cols)
    return Status::error(MARLIN_E_SHAPE,
                         "desc->scratch.row_stride is %" PRId64 ", expected cols = %" PRId64
                         ": no gaps",
                         scratch.stride, scratch.cols);
  if (scratch.bytes == 0)
    return Status::error(MARLIN_E_SHAPE, "desc->scratch is given but holds no bytes");
  return scratch;
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_stream_create(marlin_context* context, const marlin_stream_desc* desc,
                                   marlin_stream** out, marlin_error* err) {
  return api::boundary_create(out, err, [&]() -> Result<marlin_stream*> {
    MARLIN_RETURN_IF_ERROR(api::check_handle(context, "context"));
    MARLIN_ASSIGN(const marlin_stream_desc d, api::read_optional_descriptor(desc, "desc"));
    MARLIN_RETURN_IF_ERROR(api::check_native(d, context->backend_kind));
    MARLIN_RETURN_IF_ERROR(api::check_fences(d));
    MARLIN_ASSIGN(const auto scratch, api::check_scratch(d.scratch, *context));
    auto stream = context->stream_shells.take();
    auto backend_stream = context->backend->create_stream(
        {d.kind, d.native, scratch, d.wait_fence, d.update_fence, stream.get()});
    if (!backend_stream.ok()) {
      context->stream_shells.put(std::move(stream));
      return backend_stream.status();
    }
    stream->backend = std::move(backend_stream.value());
    stream->scratch = scratch;
    stream->context = api::ContextRef(*context);
    stream->revive(marlin_stream::kKind);
    return stream.release();
  });
}

marlin_status marlin_stream_flush(marlin_stream* stream, marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_handle(stream, "stream"));
    return stream->context->backend->flush(*stream->backend);
  });
}

marlin_status marlin_stream_wait(marlin_stream* stream, uint64_t timeout_ns, marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_handle(stream, "stream"));
    return stream->context->backend->wait(*stream->backend, timeout_ns);
  });
}

marlin_status marlin_stream_notify(marlin_stream* stream,
                                   void (*done)(void* user, marlin_status status), void* user,
                                   marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_handle(stream, "stream"));
    if (done == nullptr) return Status::error(MARLIN_E_ARGUMENT, "done is NULL");
    return stream->context->backend->notify(*stream->backend, done, user);
  });
}

void marlin_stream_destroy(marlin_stream* stream) {
  if (api::take_for_destroy(stream) == nullptr) return;
  // The context must live until it has the shell. This stream may have been its last child.
  const api::ContextRef context = std::move(stream->context);
  stream->backend.reset();
  stream->scratch = {};
  stream->products = {};
  stream->independence = {};
  context->stream_shells.put(std::unique_ptr<marlin_stream>(stream));
}
