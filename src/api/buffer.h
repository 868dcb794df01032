// Memory that host and device both reach.
#pragma once

#include "api/context.h"
#include "api/handle.h"
#include "base/memory.h"

struct marlin_buffer final : metal_marlin::api::Handle {
  static constexpr auto kKind = metal_marlin::api::HandleKind::buffer;

  marlin_buffer(marlin_context& of, metal_marlin::Block block, uint64_t size)
      : Handle(kKind), context(of), memory(std::move(block)), bytes(size) {}

  const metal_marlin::api::ContextRef context;  ///< first: released after the memory
  const metal_marlin::Block memory;
  const uint64_t bytes;  ///< what the caller asked for
};
