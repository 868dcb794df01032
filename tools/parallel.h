// A loop over independent pieces on several threads, for the command's own float64 arithmetic.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "threads.h"

namespace metal_marlin::tools {

/// Runs body(i) once for each i in [0, count), on up to `threads` threads (the caller is one).
/// Rethrows the first exception.
template <class Body>
void parallel_for(int64_t count, unsigned threads, const Body& body) {
  std::atomic<int64_t> next = 0;
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    Threads helpers;
    for (int64_t t = 1; t < std::min<int64_t>(threads, count); ++t) helpers.start(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace metal_marlin::tools
