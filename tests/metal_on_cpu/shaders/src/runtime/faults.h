// Signals that a shader causes (a null pointer in fast mode, a division by zero, a stack overflow, a loop without end) become
// findings.
#pragma once

#include <csignal>
#include <ctime>

namespace metal_on_cpu {

/// While one exists, faults on fibers are findings; others go where they went before. Any number may exist at once.
class FaultCatcher {
 public:
  FaultCatcher();
  ~FaultCatcher();
  FaultCatcher(const FaultCatcher&) = delete;
  FaultCatcher& operator=(const FaultCatcher&) = delete;
};

/// Gives the calling host thread a stack for signal handlers, since a fiber's own may be what overflowed.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_;
};

/// While one exists, the calling host thread may spend `seconds` of CPU time in shaders; then the threadgroup that runs is
/// given up. Nothing polls: a timer of the kernel interrupts the thread, again and again until it is in the code of a shader,
/// where nothing is held that would be lost. Needs a FaultCatcher and a SignalStack.
class TimeLimit {
 public:
  /// 0: none.
  explicit TimeLimit(double seconds);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
  /// False: the system gives no timer.
  explicit operator bool() const { return good_; }

 private:
  timer_t timer_{};
  sigset_t before_{};
  bool running_ = false, good_ = true;
};

}  // namespace metal_on_cpu
