#include "api/errors.h"

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include "base/utf8.h"

namespace metal_marlin::api {
namespace {

/// Messages quote names from files and paths, which may be any bytes, and are cut at a fixed length: what is no UTF-8 becomes
/// '?'.
void make_utf8(char* text) {
  auto* p = reinterpret_cast<unsigned char*>(text);
  while (*p != 0) {
    const size_t length = utf8_length(p);
    if (length == 0) *p = '?';
    p += length == 0 ? 1 : length;
  }
}

}  // namespace

marlin_status report(const Status& status, marlin_error* err) noexcept {
  if (status.ok() || err == nullptr) return status.code();
  marlin_error filled{};
  filled.status = status.code();
  filled.native_code = status.native_code();
  std::memcpy(filled.message, status.message(), std::strlen(status.message()));
  make_utf8(filled.message);
  // boundary() has seen that it takes this.
  (void)write_descriptor(err, filled, "err");
  return status.code();
}

Status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::error(MARLIN_E_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    // A container was asked for more elements than the address space holds.
    return Status::error(MARLIN_E_MEMORY, "out of memory: a size exceeds the address space");
  } catch (const std::exception& e) {
    return Status::error(MARLIN_E_INTERNAL, "unexpected exception: %s", e.what());
  } catch (...) {
    return Status::error(MARLIN_E_INTERNAL, "unexpected exception of an unknown type");
  }
}

Status prefixed(const char* where, const Status& status) {
  return Status::error(status.code(), "%s: %s", where, status.message()).with_native(status.native_code());
}

Status prefixed(const char* array, uint32_t index, const Status& status) {
  return Status::error(status.code(), "%s[%u]: %s", array, index, status.message()).with_native(status.native_code());
}

}  // namespace metal_marlin::api
