// Packs for a GPU without one.
#pragma once

#include <memory>

#include "backends/gpu/kernels.h"
#include "core/backend.h"

namespace metal_marlin::gpu {

/// A backend that packs into memory of the host's allocator as the GPU of this policy does, and
/// multiplies nothing.
Result<std::unique_ptr<Backend>> make_packer(const BackendOptions& options, const Policy& policy);

}  // namespace metal_marlin::gpu
