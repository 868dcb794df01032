// Memory that both the host and the device reach.
#pragma once

#include "api/context.h"
#include "api/handle.h"
#include "core/backend.h"

struct marlin_buffer final : metal_marlin::api::Handle {
  static constexpr auto kKind = metal_marlin::api::HandleKind::buffer;

  marlin_buffer(marlin_context& of, std::unique_ptr<metal_marlin::SharedMemory> made, uint64_t size)
      : Handle(kKind), context(of), memory(std::move(made)), bytes(size) {}

  const metal_marlin::api::ContextRef context;  ///< first: released after the memory
  const std::unique_ptr<metal_marlin::SharedMemory> memory;
  const uint64_t bytes;  ///< that the caller requested
};
