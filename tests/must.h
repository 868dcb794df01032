// must(result) is its value. Where there is none, the test fails with the message and ends.
#pragma once

#include <gtest/gtest.h>

#include <source_location>
#include <stdexcept>

#include "base/status.h"

namespace metal_marlin {

inline void must(const Status& status, std::source_location place = std::source_location::current()) {
  if (status.ok()) return;
  ADD_FAILURE_AT(place.file_name(), static_cast<int>(place.line())) << status.message();
  throw std::runtime_error("nothing to go on with");
}

template <class T>
T must(Result<T> made, std::source_location place = std::source_location::current()) {
  must(made.status(), place);
  return made.take();
}

}  // namespace metal_marlin
