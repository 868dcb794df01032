// A test linked with counting_new.cc counts what `new` gives, in the whole program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace counting_new {
extern std::atomic<int64_t> calls;
extern std::atomic<size_t> live, peak;  ///< bytes; set peak = live to start a measurement
}  // namespace counting_new
