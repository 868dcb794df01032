// What the targets share. A target is a function of bytes that a fuzzer varies: it must return, and it ends the process where a
// promise of the library is broken. libFuzzer calls each target in a program of its own; replay_test.cc calls all of them with
// the inputs of tests/fuzz/kept.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::fuzz {
using Bytes = std::span<const uint8_t>;

/// Ends the process if a promise does not hold. The fuzzer keeps the input.
inline void expect(bool holds, const char* promise, const char* found = "") {
  if (holds) return;
  (void)std::fprintf(stderr, "broken: %s; found %s\n", promise, found);
  std::abort();
}

/// Checks the status of a call whose arguments are hostile: success or an error with a message, and
/// neither a bug of the library nor a size of the input that was believed.
inline void expect_typed(marlin_status status, const char* message) {
  expect(status == MARLIN_OK || (status != MARLIN_E_INTERNAL && status != MARLIN_E_MEMORY), "an error is the input's", message);
  expect((status == MARLIN_OK) == (message[0] == '\0'), "an error has a message, and success none", message);
}

}  // namespace metal_marlin::fuzz

// Absent from programs without AddressSanitizer.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t), void (*)(const volatile void*))
    __attribute__((weak));
extern "C" size_t __sanitizer_get_allocated_size(const volatile void*) __attribute__((weak));

namespace metal_marlin::fuzz {

inline double seconds_of(clockid_t clock) {
  timespec now{};
  (void)clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Runs a target, which takes a second of one processor at most. Other programs of a busy machine do not count, nor does the
/// first call, which makes what all calls share. To read the time of the process takes a system call, so only an input that
/// seems slow is run again to measure it.
inline void run_within_a_second(void (*target)(Bytes), Bytes input) {
  static bool first = true;
  const double begin = seconds_of(CLOCK_MONOTONIC);
  target(input);
  const bool slow = !first && seconds_of(CLOCK_MONOTONIC) - begin > 1;
  first = false;
  if (!slow) return;
  const double used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  target(input);
  expect(seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used <= 1, "an input takes a second");
}

/// The most bytes of heap that lived at once since it was made, beyond those of before; 0 without AddressSanitizer.
class Peak {
 public:
  Peak() {
    static const bool counting = __sanitizer_install_malloc_and_free_hooks != nullptr &&
                                 __sanitizer_install_malloc_and_free_hooks(allocated, released) != 0;
    (void)counting;
    before_ = live_;
    most_ = before_;
  }
  size_t bytes() const { return static_cast<size_t>(std::max<int64_t>(most_ - before_, 0)); }

 private:
  static void allocated(const volatile void*, size_t size) {
    const int64_t now = live_ += static_cast<int64_t>(size);
    if (now > most_) most_ = now;
  }
  static void released(const volatile void* p) {
    if (p != nullptr) live_ -= static_cast<int64_t>(__sanitizer_get_allocated_size(p));
  }
  inline static std::atomic<int64_t> live_{0}, most_{0};
  int64_t before_;
};

/// Takes the fields of a descriptor from the input. Every field costs one byte where it has its usual value, and behind the end
/// of the input all fields have theirs: short inputs are sound descriptors with a few mistakes.
class Reader {
 public:
  explicit Reader(Bytes input) : rest_(input) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t first = rest_.front();
    rest_ = rest_.subspan(1);
    return first;
  }
  /// In [0, count).
  uint32_t choice(uint32_t count) { return byte() % count; }
  uint64_t raw() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{byte()} << 8 * i;
    return value;
  }
  /// Usually `usual`; else small, extreme, near the usual value, or anything.
  int64_t number(int64_t usual) {
    static constexpr int64_t kExtremes[] = {-1,
                                            INT64_MAX,
                                            INT64_MIN,
                                            int64_t{1} << 31,
                                            (int64_t{1} << 31) - 1,
                                            int64_t{1} << 32,
                                            (int64_t{1} << 32) - 1,
                                            int64_t{1} << 62,
                                            int64_t{1} << 61,
                                            int64_t{1} << 60};
    const uint8_t kind = byte();
    if (kind < 128) return usual;
    if (kind < 224) return kind - 128;
    if (kind < 224 + std::size(kExtremes)) return kExtremes[kind - 224];
    if (kind < 240) return static_cast<int64_t>(static_cast<uint64_t>(usual) + 1);
    if (kind < 248) return static_cast<int64_t>(static_cast<uint64_t>(usual) - 1);
    return static_cast<int64_t>(raw());
  }
  int32_t number32(int32_t usual) { return static_cast<int32_t>(number(usual)); }
  uint32_t bits(uint32_t usual) { return static_cast<uint32_t>(number(usual)); }

 private:
  Bytes rest_;
};

}  // namespace metal_marlin::fuzz

#ifdef MARLIN_FUZZ_REPLAY
#define MARLIN_FUZZ_TARGET(name) void fuzz_##name(metal_marlin::fuzz::Bytes input)
#else
#define MARLIN_FUZZ_TARGET(name)                                            \
  void fuzz_##name(metal_marlin::fuzz::Bytes input);                        \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    metal_marlin::fuzz::run_within_a_second(fuzz_##name, {data, size});     \
    return 0;                                                               \
  }                                                                         \
  void fuzz_##name(metal_marlin::fuzz::Bytes input)
#endif
