// Findings and planted faults: what include/metal_test_hooks.h reads and sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "metal_test_hooks.h"

namespace metal_framework {

/// Adds a finding. A finding is never more than that: the framework goes on as well as it can.
void find(const std::string& kind, const std::string& message);

using metal_test::Fault;
/// Counts one more event of this kind; true when it is the one that shall fail, or the device is gone.
bool fails(Fault kind);

/// What a test wants to happen while a pipeline is made.
void call_in_pipeline();

struct CommandBufferFault {
  long code;
  bool late;
};
std::optional<CommandBufferFault> command_buffer_fault();

/// Drops what dispatch_after was given.
void forget_later();
/// Counts the compilations that run at once, and makes each take the time that a test wants.
struct Compiling {
  Compiling();
  ~Compiling() { --metal_test::settings()->compiling; }
};

}  // namespace metal_framework
