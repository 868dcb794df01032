// A few pinned threads that start together, do one timed thing and are gone. They live outside of
// the timed part, and nothing of them spins while the library, which has its own threads, is being
// timed.
#pragma once

#include <functional>

namespace metal_marlin::tools {

/// Runs warm_up(t) and then body(t) for t in [0, threads), each on its own CPU where the platform
/// can pin (the caller is thread 0 and gets its affinity back). Returns the seconds from the moment
/// that all have warmed up to the end of the last.
double run_team(unsigned threads, const std::function<void(unsigned)>& warm_up,
                const std::function<void(unsigned)>& body);

}  // namespace metal_marlin::tools
