#include "api/backends.h"
#include "api/errors.h"

using namespace metal_marlin;

marlin_status marlin_device_get(uint32_t index, marlin_device_info* out, marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_output(out, "out"));
    marlin_device_info info{};
    MARLIN_RETURN_IF_ERROR(api::describe_device(index, info));
    return api::write_descriptor(out, info, "out");
  });
}
