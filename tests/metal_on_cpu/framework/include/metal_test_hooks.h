// What tests ask of the framework, and the faults they plant. All of it may be used from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace metal_test {

enum class Fault {
  allocation,     ///< newBuffer... returns nil
  compile,        ///< newLibrary... returns an error
  pipeline,       ///< newComputePipelineState... returns an error
  queue,          ///< newCommandQueue... returns nil
  commands,       ///< commandBuffer... returns nil
  encoder,        ///< computeCommandEncoder..., blitCommandEncoder return nil
  event,          ///< newFence returns nil
  residency_set,  ///< newResidencySet... returns an error
  archive         ///< making, adding to and serializing a binary archive, one after another
};

/// What a test sets, until metal_test_reset().
struct Settings {
  /// The n-th from now on fails, once: 1 is the very next.
  std::map<Fault, size_t> fail;
  /// The n-th command buffer to run ends with this MTLCommandBufferError: before its first command, or after its last.
  struct {
    size_t nth = 0;
    long code = 0;
    bool late = false;
  } command_buffer;
  /// Every command buffer that runs ends with this MTLCommandBufferError before its first command, as those of an app in the
  /// background do; 0: none.
  long refusal = 0;
  /// Called once, amid the next newComputePipelineState..., on its thread.
  std::function<void()> in_pipeline;
  bool removed = false;             ///< nothing can be made, and command buffers end with MTLCommandBufferErrorDeviceRemoved
  size_t working_set_quarters = 3;  ///< of the memory, that are the recommended working set
  bool lists_devices = true;        ///< false: MTLCopyAllDevices lists none, as in a session without a window server
  bool captures = false;            ///< what the capture manager says
  double completion_delay = 0;      ///< seconds by which a command buffer completes later than its last command
  double compile_seconds = 0;       ///< by which each compilation by completion handler takes longer
  double wait_timeout = 5;          ///< seconds that a queue waits for room for one more command buffer
  /// Whether compiling a source without MTLMathModeSafe and MTLMathFloatingPointFunctionsPrecise (or fastMathEnabled = NO,
  /// which is both) is a finding of kind "fast-math". The shader is compiled as with safe math all the same.
  bool requires_safe_math = false;
  int apple_family = 9;  ///< the newest MTLGPUFamilyApple<n> that the device belongs to: of an M3
  int macos = 1 << 20;   ///< the macOS that @available asks for, as 14: one that has everything
  std::string os_version = "Version 15.0 (simulated)";  ///< the operatingSystemVersionString of NSProcessInfo

  // What the framework counts.
  size_t resident = 0;   ///< allocations that the residency sets held that the last committed command buffer uses
  size_t requested = 0;  ///< of these, those of which requestResidency was called before the command buffer was committed
  /// Which of its wirings the system has taken back, as after a pause: what was requested under another number is not resident.
  size_t wired_since = 1;
  size_t compiled = 0, compiling = 0, most_compiling = 0;  ///< texts; those at work, and how many at once at most
  size_t debug_groups = 0;                                 ///< that were pushed
  size_t fence_waits = 0;                                  ///< that have run
};

/// The settings, for the rest of the expression; other threads wait.
class Locked {
 public:
  Locked();
  Settings* operator->() const { return settings_; }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  Settings* settings_;
};
inline Locked settings() { return {}; }

}  // namespace metal_test

/* Findings: misuse of the API, and what the shader checker reports. Equal ones are counted, not repeated. */
size_t metal_test_finding_count(void);
/* How many findings are of this kind. README.md lists the kinds. */
size_t metal_test_findings_of(const char* kind);

/* Live objects of one class ("MTLBuffer", "NSString"); with NULL, of all classes of Metal. Devices live for ever and do not
   count. Objects that wait for an autorelease pool do. */
long metal_test_live_objects(const char* class_name);
/* Adds one finding of kind "leak" for each class of Metal with live objects. Returns how many. */
size_t metal_test_check_leaks(void);
/* All findings and all live objects, one a line. Writes at most `capacity` bytes with the final 0; returns the size it needs.
 */
size_t metal_test_report(char* text, size_t capacity);

/* Forgets findings and settings; the device is back. Not while command buffers are in flight. */
void metal_test_reset(void);

/* Runs what dispatch_after was given for the time until then, on this thread; no time passes else. */
void metal_test_pass_time(double seconds);
/* How much of that is still to be run. */
size_t metal_test_later_blocks(void);

/* A library as newLibraryWithData: takes it, made of source text: what stands in for a .metallib. Writes
   at most `capacity` bytes; returns the size it needs. */
size_t metal_test_make_library(const char* source, char* data, size_t capacity);
