// Stands in for the CUDA backend in a library that is built without it.
#include <cstring>

#include "backends/cuda/cuda_backend.h"

namespace metal_marlin::cuda {
namespace {

constexpr char kWhyNot[] = "not built into this library";

}  // namespace

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) {
  std::strcpy(out.name, "NVIDIA GPU");
  std::strcpy(out.why_not, kWhyNot);
}

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions&) {
  return Status::error(MARLIN_E_NO_DEVICE, "CUDA: %s", kWhyNot);
}

}  // namespace metal_marlin::cuda
