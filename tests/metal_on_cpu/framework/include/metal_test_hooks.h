// What tests ask of the framework, and the faults they plant. Plain C; all functions may be called from any thread.
//
// "The n-th" counts from the call of the hook: 1 is the very next. A fault happens once and is then gone, but a removed device
// stays removed until metal_test_reset().
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* Forgets findings and planted faults; the device is back. Not while command buffers are in flight. */
void metal_test_reset(void);

void metal_test_fail_allocation(size_t nth);              /* newBuffer... returns nil */
void metal_test_fail_compile(size_t nth);                 /* newLibrary... returns an error */
void metal_test_fail_pipeline(size_t nth);                /* newComputePipelineState... returns an error */
void metal_test_fail_queue(size_t nth);                   /* newCommandQueue... returns nil */
void metal_test_fail_command_buffer_creation(size_t nth); /* commandBuffer... returns nil */
void metal_test_fail_encoder(size_t nth);                 /* computeCommandEncoder..., blitCommandEncoder return nil */
void metal_test_fail_event(size_t nth);                   /* newFence returns nil */
void metal_test_fail_residency_set(size_t nth);           /* newResidencySet... returns an error */
void metal_test_fail_archive(size_t nth); /* making, adding to and serializing a binary archive, one after another */
/* The n-th command buffer to run ends with this MTLCommandBufferError: before its first command, or after its last. */
void metal_test_fail_command_buffer(size_t nth, long code, bool late);
/* From now on every command buffer that runs ends with this MTLCommandBufferError before its first command, as those of an app
   in the background do; 0: no longer. */
void metal_test_refuse_command_buffers(long code);
/* Calls `call` once, amid the next newComputePipelineState..., on its thread. */
void metal_test_call_in_pipeline(void (*call)(void* user), void* user);
/* From now on nothing can be made, and every command buffer ends with MTLCommandBufferErrorDeviceRemoved. */
void metal_test_remove_device(void);
/* Each command buffer completes so much later than its last command. */
void metal_test_slow_completion(double seconds);
/* How long a queue waits for room for one more command buffer. 5 seconds unless set. */
void metal_test_wait_timeout(double seconds);

/* Whether compiling a source without MTLMathModeSafe and MTLMathFloatingPointFunctionsPrecise (or fastMathEnabled = NO, which
   is both) is a finding of kind "fast-math". Off unless set: it is Metal's default. The shader is compiled as with safe math
   all the same. */
void metal_test_require_safe_math(bool on);

/* How many allocations the residency sets held that the last committed command buffer uses. */
size_t metal_test_resident_allocations(void);
/* Of how many of these requestResidency was called, after they were committed and before the command buffer was. */
size_t metal_test_requested_allocations(void);
/* The system takes the memory back that it had made resident, as after a pause, until residency is requested again. */
void metal_test_unwire(void);
/* Runs what dispatch_after was given for the time until then, on this thread; no time passes else. */
void metal_test_pass_time(double seconds);
/* How much of that is still to be run. */
size_t metal_test_later_blocks(void);
/* How many texts were compiled, and how many at once at most. */
size_t metal_test_compiled(void);
size_t metal_test_most_compiling(void);
/* Each compilation by completion handler takes so much longer. */
void metal_test_slow_compile(double seconds);
/* From now on MTLCopyAllDevices lists none, as in a session without a window server. */
void metal_test_list_no_devices(void);
/* How many debug groups were pushed, and whether the capture manager says that it is capturing. */
size_t metal_test_debug_groups(void);
void metal_test_capture(bool on);
/* How many waits for fences have run. */
size_t metal_test_fence_waits(void);

/* The newest MTLGPUFamilyApple<n> that the device belongs to. 9 unless set. */
void metal_test_apple_family(int newest);
/* The operatingSystemVersionString of NSProcessInfo. "Version 15.0 (simulated)" unless set. */
void metal_test_os_version(const char* text);

/* The macOS that @available asks for, as 14. One that has everything unless set. */
void metal_test_system(int macos);

/* A library as newLibraryWithData: takes it, made of source text: what stands in for a .metallib. Writes
   at most `capacity` bytes; returns the size it needs. */
size_t metal_test_make_library(const char* source, char* data, size_t capacity);

#ifdef __cplusplus
}
#endif
