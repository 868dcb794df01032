// The floating-point modes that results rely on: round to nearest, subnormals kept, no traps.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace metal_marlin {

/// Sets the default modes on this thread and puts the host's modes (and exception flags) back at the end of its scope. Hosts do
/// set flush-to-zero, and new threads inherit it.
class FpEnvironment {
 public:
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

#if defined(__x86_64__)
  FpEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FpEnvironment() { _mm_setcsr(saved_); }

 private:
  static constexpr uint32_t kDefault = 0x1f80;  // MXCSR at power-up: every exception masked, nothing else
  uint32_t saved_;
#elif defined(__aarch64__)
  FpEnvironment() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
  }
  ~FpEnvironment() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_) : "memory"); }

 private:
  uint64_t saved_;
#else
  FpEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FpEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

}  // namespace metal_marlin
