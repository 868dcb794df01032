// The host's logger, or none. The library prints nothing; every text is safe for a host to print.
#pragma once

#include <cstdint>

#include "base/printable.h"

namespace metal_marlin {

enum class LogLevel : int32_t { error = 1, warning = 2, info = 3 };

struct Logger {
  void (*log)(void* user, int32_t level, const char* message) = nullptr;
  void* user = nullptr;
  void operator()(LogLevel level, const char* message) const {
    if (log == nullptr) return;
    char text[1024];  // messages quote names from files
    copy_printable(message, text, sizeof text);
    log(user, static_cast<int32_t>(level), text);
  }
};

}  // namespace metal_marlin
