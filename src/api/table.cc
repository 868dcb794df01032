#include "metal_marlin/metal_marlin.h"

namespace {

constexpr uint32_t kVersion =
    MARLIN_VERSION_MAJOR << 16 | MARLIN_VERSION_MINOR << 8 | MARLIN_VERSION_PATCH;

constexpr marlin_api kApi = {
    sizeof(marlin_api),       MARLIN_ABI_MAJOR,
    MARLIN_ABI_MINOR,         kVersion,
    marlin_device_get,        marlin_context_create,
    marlin_context_destroy,   marlin_stream_create,
    marlin_stream_flush,      marlin_stream_wait,
    marlin_stream_destroy,    marlin_buffer_create,
    marlin_buffer_host,       marlin_buffer_destroy,
    marlin_weights_pack,      marlin_weights_unpack,
    marlin_weights_info,      marlin_weights_destroy,
    marlin_checkpoint_open,   marlin_checkpoint_layer,
    marlin_checkpoint_tensor, marlin_checkpoint_destroy,
    marlin_weights_load,      marlin_gemm,
    marlin_gemm_many,         marlin_prepare,
    marlin_explain,           marlin_version,
    marlin_status_name,       marlin_checkpoint_convert,
    marlin_checkpoint_value,  marlin_checkpoint_value_at,
    marlin_value_next_string, marlin_checkpoint_save,
    marlin_stream_notify,
};

}  // namespace

uint32_t marlin_version() { return kVersion; }

const char* marlin_status_name(marlin_status status) {
  switch (status) {
    case MARLIN_OK:
      return "MARLIN_OK";
    case MARLIN_E_ARGUMENT:
      return "MARLIN_E_ARGUMENT";
    case MARLIN_E_STRUCT_SIZE:
      return "MARLIN_E_STRUCT_SIZE";
    case MARLIN_E_SHAPE:
      return "MARLIN_E_SHAPE";
    case MARLIN_E_UNSUPPORTED:
      return "MARLIN_E_UNSUPPORTED";
    case MARLIN_E_NOT_PREPARED:
      return "MARLIN_E_NOT_PREPARED";
    case MARLIN_E_FILE:
      return "MARLIN_E_FILE";
    case MARLIN_E_FORMAT:
      return "MARLIN_E_FORMAT";
    case MARLIN_E_NOT_FOUND:
      return "MARLIN_E_NOT_FOUND";
    case MARLIN_E_NO_DEVICE:
      return "MARLIN_E_NO_DEVICE";
    case MARLIN_E_DEVICE:
      return "MARLIN_E_DEVICE";
    case MARLIN_E_TIMEOUT:
      return "MARLIN_E_TIMEOUT";
    case MARLIN_E_CANCELLED:
      return "MARLIN_E_CANCELLED";
    case MARLIN_E_MEMORY:
      return "MARLIN_E_MEMORY";
    case MARLIN_E_INTERNAL:
      return "MARLIN_E_INTERNAL";
    default:
      return "unknown status";
  }
}

const marlin_api* marlin_get_api(uint32_t abi_major) {
  return abi_major == MARLIN_ABI_MAJOR ? &kApi : nullptr;
}
