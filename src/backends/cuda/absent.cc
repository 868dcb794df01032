// Stands in for the CUDA backend in a library that is built without it.
#include <cstdio>

#include "backends/cuda/cuda_backend.h"

namespace metal_marlin::cuda {
namespace {

constexpr char kWhyNot[] = "not built into this library";

}  // namespace

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) {
  std::snprintf(out.name, sizeof out.name, "NVIDIA GPU");
  std::snprintf(out.why_not, sizeof out.why_not, "%s", kWhyNot);
}

bool has_kernel(std::string_view) { return false; }

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions&) {
  return Status::error(MARLIN_E_NO_DEVICE, "CUDA: %s", kWhyNot);
}

}  // namespace metal_marlin::cuda
