// ggml's logger, which the host may have replaced.
#pragma once

#include <ggml.h>

namespace marlin_ggml {

/// One line of at most 400 bytes; its end is added here.
[[gnu::format(printf, 2, 3)]] void log(ggml_log_level level, const char* format, ...);

}  // namespace marlin_ggml
