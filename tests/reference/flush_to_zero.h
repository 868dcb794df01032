// What a host may have done to the floating-point environment before it calls: flush subnormal results and operands to zero.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <cstdint>

namespace oracle {

/// The control register of floating-point arithmetic: MXCSR, FPCR.
inline uint64_t float_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t v;
  asm volatile("mrs %0, fpcr" : "=r"(v));
  return v;
#else
  return 0;
#endif
}

inline void set_float_control(uint64_t v) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(v));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(v));
#else
  (void)v;
#endif
}

/// Flushes while it lives, when asked to.
class FlushToZero {
 public:
  explicit FlushToZero(bool on) : saved_(float_control()) {
#if defined(__x86_64__)
    constexpr uint64_t kFlush = 0x8040;  // FTZ, DAZ
#else
    constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ
#endif
    if (on) set_float_control(saved_ | kFlush);
  }
  ~FlushToZero() { set_float_control(saved_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace oracle
