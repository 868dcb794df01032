// How long campaigns run: suites run a short form of them, `./dev test whole` the long one, and `./dev soak` as long as it is
// told.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

/// Whether METAL_MARLIN_WHOLE asks for the long forms.
inline bool whole_campaigns() { return std::getenv("METAL_MARLIN_WHOLE") != nullptr; }
/// Whether METAL_MARLIN_EMULATED says that an emulator runs the tests, which then take a third of their cases, by chance. Each
/// step costs an emulator ten times as much.
inline bool is_emulated() { return std::getenv("METAL_MARLIN_EMULATED") != nullptr && !whole_campaigns(); }

/// A campaign that METAL_MARLIN_SOAK_SECONDS may give a time instead of a number of cases. METAL_MARLIN_SOAK_SEED repeats a
/// run.
class Soak {
 public:
  Soak() : seconds_(std::getenv("METAL_MARLIN_SOAK_SECONDS")), begin_(Clock::now()) {}

  bool asked() const { return seconds_ != nullptr; }
  /// Whether there is another case after this many; without a time, there are `usual` cases.
  bool goes_on(int64_t done, int64_t usual) const {
    return asked() ? Clock::now() - begin_ < std::chrono::seconds(std::atoi(seconds_)) : done < usual;
  }
  /// Of this run, which prints it.
  static uint32_t seed() {
    const char* const chosen = std::getenv("METAL_MARLIN_SOAK_SEED");
    const auto seed = chosen != nullptr ? static_cast<uint32_t>(std::strtoul(chosen, nullptr, 10)) : std::random_device()();
    std::printf("METAL_MARLIN_SOAK_SEED=%u\n", seed);
    return seed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const char* const seconds_;
  const Clock::time_point begin_;
};
