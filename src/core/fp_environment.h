// The floating-point modes on which results rely: round to nearest, keep subnormals, no traps.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace metal_marlin {

/// Sets the default modes on this thread, and restores the old modes and exception flags at the end
/// of its scope. Hosts do set flush-to-zero, and new threads inherit it. A register is written only
/// if its value changes, because writing takes longer than reading.
///
/// Two places use this class: the boundary of the ABI, for the calling thread, and the task
/// runners, for every other thread.
class FpEnvironment {
 public:
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

#if defined(__x86_64__)
  FpEnvironment() : sse_(_mm_getcsr()) {
    __asm__ volatile("fnstcw %0" : "=m"(x87_));
    if ((sse_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
    if (x87_ != kDefaultX87) set_x87(kDefaultX87);
  }
  ~FpEnvironment() {
    if (_mm_getcsr() != sse_) _mm_setcsr(sse_);
    uint16_t x87 = 0;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    if (x87 != x87_) set_x87(x87_);
  }

 private:
  static constexpr uint32_t kDefault = 0x1f80;  // MXCSR at power-up: all exceptions are masked
  static constexpr uint32_t kFlags = 0x3f;
  // The library does not compute with x87, but the C library takes the rounding of decimal numbers
  // from the x87 control word.
  static constexpr uint16_t kDefaultX87 = 0x37f;

  static void set_x87(uint16_t word) { __asm__ volatile("fldcw %0" : : "m"(word)); }

  uint32_t sse_;
  uint16_t x87_ = 0;
#elif defined(__aarch64__)
  FpEnvironment() : modes_(modes()), flags_(flags()) {
    if (modes_ != 0) set_modes(0);
  }
  ~FpEnvironment() {
    if (flags() != flags_) __asm__ volatile("msr fpsr, %0" : : "r"(flags_) : "memory");
    if (modes() != modes_) set_modes(modes_);
  }

 private:
  static uint64_t modes() {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
  }
  static uint64_t flags() {
    uint64_t fpsr;
    __asm__ volatile("mrs %0, fpsr" : "=r"(fpsr));
    return fpsr;
  }
  static void set_modes(uint64_t fpcr) {
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr) : "memory");
  }

  uint64_t modes_, flags_;
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
