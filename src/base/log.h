// The host's logger, or none. Nothing is ever printed.
#pragma once

#include <cstdint>

namespace metal_marlin {

enum class LogLevel : int32_t { error = 1, warning = 2, info = 3 };

struct Logger {
  void (*log)(void* user, int32_t level, const char* message) = nullptr;
  void* user = nullptr;
  void operator()(LogLevel level, const char* message) const {
    if (log != nullptr) log(user, static_cast<int32_t>(level), message);
  }
};

}  // namespace metal_marlin
