#include "base/status.h"

#include <cstdarg>
#include <cstdio>

namespace metal_marlin {

static_assert(sizeof(marlin_error{}.message) == 240, "Status and marlin_error hold the same text");

Status Status::error(marlin_status code, const char* format, ...) noexcept {
  Status s;
  s.code_ = code;
  va_list args;
  va_start(args, format);
  if (std::vsnprintf(s.message_, sizeof s.message_, format, args) < 0) s.message_[0] = '\0';
  va_end(args);
  return s;
}

}  // namespace metal_marlin
