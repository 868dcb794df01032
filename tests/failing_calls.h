// Calls of the system that fail when a test wants it. A program that links failing_calls.cc calls these functions in place of
// the C library's, and they call those.
#pragma once

#include <sys/types.h>

#include <utility>
#include <vector>

namespace metal_marlin::testing {

/// While it lives, call number `at` (from 0) of one function of the system fails with this errno. pwrite() that fails with 0
/// writes nothing and says so.
class FailingCall {
 public:
  FailingCall(const char* function, int at, int number);
  FailingCall(const FailingCall&) = delete;
  ~FailingCall();
  /// The calls of the function so far, that which failed included.
  int calls() const { return calls_; }
  /// Counts a call. Whether it is to fail; errno is then set.
  bool fails(const char* function);
  FailingCall* older() const { return older_; }

 private:
  const char* function_;
  int at_, number_, calls_ = 0;
  FailingCall* const older_;  // those that are alive end in the reverse of their order
};

/// What fsync() was called on; a test may clear it.
std::vector<std::pair<dev_t, ino_t>>& synced();

}  // namespace metal_marlin::testing
