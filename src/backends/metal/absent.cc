// Stands in for the Metal backend in a library that is built without it.
#include <cstdio>

#include "backends/metal/metal_backend.h"

namespace metal_marlin::metal {
namespace {

constexpr char kWhyNot[] = "not built into this library";

}  // namespace

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) {
  std::snprintf(out.name, sizeof out.name, "Apple GPU");
  std::snprintf(out.why_not, sizeof out.why_not, "%s", kWhyNot);
}

bool has_kernel(std::string_view) { return false; }

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions&) {
  return Status::error(MARLIN_E_NO_DEVICE, "Metal: %s", kWhyNot);
}

}  // namespace metal_marlin::metal
