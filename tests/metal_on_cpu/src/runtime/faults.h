// Signals that a shader causes (a null pointer in fast mode, a division by zero, a stack overflow) become findings.
#pragma once

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

}  // namespace metal_on_cpu
