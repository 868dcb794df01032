// Apple GPUs.
#pragma once

#include <memory>
#include <string_view>

#include "core/backend.h"

namespace metal_marlin::metal {

/// Devices to list, unusable ones included; at least 1, so that there is a place to say why there
/// is none.
uint32_t device_count();
/// Fills all but struct_size and backend. `index` is below device_count().
void describe_device(uint32_t index, marlin_device_info& out);
/// Whether METAL_MARLIN_KERNEL may name it.
bool has_kernel(std::string_view name);
/// MARLIN_E_NO_DEVICE with the reason when options.device_index is not usable.
Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options);

}  // namespace metal_marlin::metal
