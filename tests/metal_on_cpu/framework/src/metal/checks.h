// Findings and planted faults: what include/metal_test_hooks.h reads and sets.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace metal_framework {

/// Adds a finding. A finding is never more than that: the framework goes on as well as it can.
void find(const std::string& kind, const std::string& message);

enum class Fault { kAllocation, kCompile, kPipeline, kQueue, kCommands, kEncoder, kEvent, kResidencySet, kArchive };
/// Counts one more event of this kind; true when it is the one that shall fail, or the device is gone.
bool fails(Fault kind);

/// What a test wants to happen while a pipeline is made.
void call_in_pipeline();

struct CommandBufferFault {
  long code;
  bool late;
};
std::optional<CommandBufferFault> command_buffer_fault();

bool device_removed();
bool safe_math_required();
std::string os_version();
/// Notes how many allocations the residency sets of a command buffer hold, and of how many residency was requested.
void note_resident(size_t allocations, size_t requested);
/// Drops what dispatch_after was given.
void forget_later();
/// Which of its wirings the system has taken back: what was requested under another number is not resident.
size_t wired_since();
bool devices_listed();
bool capturing();
void note_debug_group();
void note_fence_wait();
void note_compiled();  // one more text
/// Counts the compilations that run at once, and makes each take the time that a test wants.
struct Compiling {
  Compiling();
  ~Compiling();
};
int apple_family();
std::chrono::duration<double> completion_delay();
std::chrono::duration<double> wait_timeout();

}  // namespace metal_framework
