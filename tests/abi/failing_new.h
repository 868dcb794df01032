// A test linked with failing_new.cc counts what `new` gives in the whole program, and can make the n-th allocation fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace failing_new {

/// Allocations until one fails; negative: none will.
extern std::atomic<int64_t> until_failure;
extern std::atomic<int64_t> live;  ///< allocations that were not given back

/// As `new` allocates, but null where memory runs out.
void* allocate(size_t size, size_t align);
void release(void* p);

}  // namespace failing_new
