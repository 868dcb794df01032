// An open checkpoint.
#pragma once

#include <memory>

#include "api/handle.h"
#include "checkpoints/checkpoint.h"
#include "metal_marlin/metal_marlin.h"

struct marlin_checkpoint final : metal_marlin::api::Handle {
  static constexpr auto kKind = metal_marlin::api::HandleKind::checkpoint;

  explicit marlin_checkpoint(std::unique_ptr<const metal_marlin::Checkpoint> opened)
      : Handle(kKind), files(std::move(opened)) {}

  const std::unique_ptr<const metal_marlin::Checkpoint> files;
};
