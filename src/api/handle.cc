#include "api/handle.h"

namespace metal_marlin::api {
namespace {

const char* kind_name(HandleKind kind) noexcept {
  switch (kind) {
    case HandleKind::context:
      return "marlin_context";
    case HandleKind::stream:
      return "marlin_stream";
    case HandleKind::buffer:
      return "marlin_buffer";
    case HandleKind::weights:
      return "marlin_weights";
    case HandleKind::checkpoint:
      return "marlin_checkpoint";
    case HandleKind::destroyed:
      return "destroyed handle";
    case HandleKind::none:
      break;
  }
  return nullptr;
}

}  // namespace

Status check_handle(const void* handle, HandleKind kind, const char* name) noexcept {
  if (handle == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "%s is NULL, expected a %s", name, kind_name(kind));
  const bool aligned = reinterpret_cast<uintptr_t>(handle) % alignof(Handle) == 0;
  const HandleKind found = aligned ? static_cast<const Handle*>(handle)->kind() : HandleKind::none;
  if (found == kind) return {};
  const char* what = kind_name(found);
  return Status::error(MARLIN_E_ARGUMENT, "%s is a %s, expected a %s", name,
                       what ? what : "pointer to something else", kind_name(kind));
}

}  // namespace metal_marlin::api
