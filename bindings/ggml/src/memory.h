// How much memory of the host a model may take.
#pragma once

#include <cstddef>

namespace marlin_ggml {

struct HostMemory {
  size_t free, total;  // bytes
};

/// `memory`, with the bytes that programs may still take without swapping, and no more of either
/// than the control group of the process may have. Where the system tells neither, as it is: ggml's
/// CPU device calls all memory free.
HostMemory usable_memory(HostMemory memory);

}  // namespace marlin_ggml
