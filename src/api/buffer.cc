#include "api/buffer.h"

#include <cinttypes>

#include "api/errors.h"

using namespace metal_marlin;

marlin_status marlin_buffer_create(marlin_context* context, uint64_t bytes, marlin_buffer** out,
                                   marlin_error* err) {
  return api::boundary_create(out, err, [&]() -> Result<marlin_buffer*> {
    MARLIN_RETURN_IF_ERROR(api::check_handle(context, "context"));
    if (bytes == 0) return Status::error(MARLIN_E_ARGUMENT, "bytes is 0, expected 1 or more");
    if (bytes > PTRDIFF_MAX)
      return Status::error(MARLIN_E_MEMORY, "%" PRIu64 " bytes exceed the address space", bytes);
    MARLIN_ASSIGN(auto memory, context->backend->allocate(bytes));
    return new marlin_buffer(*context, std::move(memory), bytes);
  });
}

void* marlin_buffer_host(marlin_buffer* buffer) {
  return api::check_handle(buffer, "buffer").ok() ? buffer->memory->host() : nullptr;
}

void marlin_buffer_destroy(marlin_buffer* buffer) { delete api::take_for_destroy(buffer); }
