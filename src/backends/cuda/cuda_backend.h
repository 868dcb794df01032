// NVIDIA GPUs.
#pragma once

#include <memory>
#include <string_view>

#include "core/backend.h"

namespace metal_marlin::cuda {

/// The number of devices to list, including unusable ones. It is at least 1, so that there is a
/// place for the reason if there is no device.
uint32_t device_count();
/// Fills everything except struct_size and backend. `index` must be below device_count().
void describe_device(uint32_t index, marlin_device_info& out);
/// Whether METAL_MARLIN_KERNEL may name it.
bool has_kernel(std::string_view name);
/// MARLIN_E_NO_DEVICE with the reason if options.device_index is not usable.
Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options);

}  // namespace metal_marlin::cuda
