// The end of a call: its Status becomes the return value and the caller's marlin_error, and no
// exception leaves it.
#pragma once

#include "api/descriptor.h"
#include "base/status.h"
#include "core/fp_environment.h"

namespace metal_marlin::api {

/// Fills `err` (may be NULL) if `status` is an error. Returns the code.
marlin_status report(const Status& status, marlin_error* err) noexcept;
/// Call it inside a catch block: returns the error for the current exception.
Status status_of_exception() noexcept;
/// The same error with "where: " before its message, or "array[index]: ".
Status prefixed(const char* where, const Status& status) noexcept;
Status prefixed(const char* array, uint32_t index, const Status& status) noexcept;

/// This is a separate function because compilers may move arithmetic past a change of the modes,
/// but not out of a function.
template <class F>
[[gnu::noinline]] Status run_body(F& body) {
  return body();
}

/// Runs `body`, a Status(), as one call of the C ABI, in the default floating-point modes. Refuses
/// an `err` that cannot be filled before it does any work.
template <class F>
marlin_status boundary(marlin_error* err, F&& body) noexcept {
  if (err != nullptr && !check_output(err, "err").ok()) return MARLIN_E_STRUCT_SIZE;
  const FpEnvironment environment;
  try {
    return report(run_body(body), err);
  } catch (...) {
    return report(status_of_exception(), err);
  }
}

/// The same for calls that make a handle: `body` is a Result<T*>(), and *out is NULL unless `body`
/// succeeds.
template <class T, class F>
marlin_status boundary_create(T** out, marlin_error* err, F&& body) noexcept {
  if (out != nullptr) *out = nullptr;
  return boundary(err, [&]() -> Status {
    if (out == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out is NULL");
    MARLIN_ASSIGN(*out, body());
    return {};
  });
}

}  // namespace metal_marlin::api
