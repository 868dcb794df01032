// A few pinned threads that start together, do one timed piece of work, and end. They start and end
// outside the timed part, and none of them spins while the library, which has its own threads, is
// being timed.
#pragma once

#include <functional>

namespace metal_marlin::tools {

/// Runs warm_up(t) and then body(t) for t in [0, threads), each on its own CPU if the platform can
/// pin threads (the caller is thread 0, and its affinity is restored). Returns the seconds from the
/// end of all warm-ups to the end of the last body.
double run_team(unsigned threads, const std::function<void(unsigned)>& warm_up,
                const std::function<void(unsigned)>& body);

}  // namespace metal_marlin::tools
