// The backends by name, in the order in which MARLIN_BACKEND_AUTO tries them.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "core/backend.h"

namespace metal_marlin::api {

/// Describes device `index` over all backends and does not change struct_size. MARLIN_E_NOT_FOUND
/// past the end.
Status describe_device(uint32_t index, marlin_device_info& out);

struct NamedBackend {
  marlin_backend kind;
  std::unique_ptr<Backend> backend;
};
/// `which` may be AUTO: the first backend that has a usable device. MARLIN_E_NO_DEVICE with the
/// reason if there is none. Reads METAL_MARLIN_KERNEL.
Result<NamedBackend> create_backend(marlin_backend which, BackendOptions options);

/// A backend that packs as the devices of `which` do, on a machine that need not have one.
Result<std::unique_ptr<Backend>> create_packer(marlin_backend which, BackendOptions options);

/// What a container says of one matrix, without its bytes and the entries of its group index:
/// whether the backend of this form can adopt it. OK for a form of no backend.
Status check_packed(const PackedForm& form, const PackedMatrix& matrix, uint64_t bytes,
                    bool has_index);

}  // namespace metal_marlin::api
