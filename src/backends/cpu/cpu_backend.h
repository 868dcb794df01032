// The CPU as a backend: always there.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/backend.h"

namespace metal_marlin::cpu {

/// One device: all processors together.
uint32_t device_count();
/// Fills name, isa_or_arch, memory_bytes and why_not of device 0.
void describe_device(uint32_t index, marlin_device_info& out);
/// Whether METAL_MARLIN_KERNEL may name it.
bool has_kernel(std::string_view name);
/// What a container of this form says of one matrix, without its bytes and the entries of its group
/// index: whether they can be adopted. OK for the forms of others.
Status check_packed(const PackedForm& form, const PackedMatrix& matrix, uint64_t bytes,
                    bool has_index);
/// Reads METAL_MARLIN_ISA; starts no thread. MARLIN_E_NO_DEVICE for another index than 0.
Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options);

}  // namespace metal_marlin::cpu
