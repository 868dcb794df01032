#include "log.h"

#include <cstdarg>
#include <cstdio>

namespace marlin_ggml {

void log(ggml_log_level level, const char* format, ...) {
  char text[400], line[sizeof text + 20];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::snprintf(line, sizeof line, "metal-marlin: %s\n", text);
  ggml_log_callback callback = nullptr;
  void* user = nullptr;
  ggml_log_get(&callback, &user);
  if (callback != nullptr) callback(level, line, user);
}

}  // namespace marlin_ggml
