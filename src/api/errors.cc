#include "api/errors.h"

#include <exception>
#include <new>
#include <stdexcept>

#include "base/printable.h"

namespace metal_marlin::api {
marlin_status report(const Status& status, marlin_error* err) noexcept {
  if (status.ok() || err == nullptr) return status.code();
  marlin_error filled{};
  filled.status = status.code();
  filled.native_code = status.native_code();
  copy_printable(status.message(), filled.message,
                 sizeof filled.message);  // it quotes names from files, and paths
  // boundary() has checked that `err` can be filled.
  (void)write_descriptor(err, filled, "err");
  return status.code();
}

Status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::error(MARLIN_E_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    // A container would have more elements than the address space holds.
    return Status::error(MARLIN_E_MEMORY, "out of memory: a size exceeds the address space");
  } catch (const std::exception& e) {
    return Status::error(MARLIN_E_INTERNAL, "unexpected exception: %s", e.what());
  } catch (...) {
    return Status::error(MARLIN_E_INTERNAL, "unexpected exception of an unknown type");
  }
}

Status prefixed(const char* where, const Status& status) noexcept {
  return Status::error(status.code(), "%s: %s", where, status.message())
      .with_native(status.native_code());
}

Status prefixed(const char* array, uint32_t index, const Status& status) noexcept {
  return Status::error(status.code(), "%s[%u]: %s", array, index, status.message())
      .with_native(status.native_code());
}

}  // namespace metal_marlin::api
