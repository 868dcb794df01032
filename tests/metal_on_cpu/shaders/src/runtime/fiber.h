// Fibers: what a thread of a shader runs on. Switching saves what a function must keep for its caller, nothing else: the
// rounding mode and the exception flags are the host thread's, since no shader can set them, and storing MXCSR waits for all
// arithmetic that is under way.
#pragma once

#include <cstddef>

namespace metal_on_cpu {

/// Where a fiber that waits goes on: its stack pointer, with its registers above it.
using Context = void*;

/// A fiber that will begin with `entry`, which must not return, on the stack that ends at `top`, a multiple of 16.
Context make_context(std::byte* top, void (*entry)());

/// Leaves the running fiber, or the host thread's own stack, in `from`, and goes on with `to`.
extern "C" __attribute__((visibility("hidden"))) void metal_on_cpu_switch(Context* from, Context to);

}  // namespace metal_on_cpu
