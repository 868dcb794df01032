// Errors as values. A Status is OK, or it carries a pinned code of the C ABI and a message that
// says what was expected, what was found and where. A Status never allocates, so that reporting
// "out of memory" cannot fail. What cannot throw says so, here and in the functions that return a
// Status without allocating: a compiler then adds no paths for exceptions behind each call.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin {

class [[nodiscard]] Status {
 public:
  Status() noexcept { message_[0] = '\0'; }
  /// Formats the message as printf does, and cuts it at the size of marlin_error::message.
  [[gnu::format(printf, 2, 3)]] static Status error(marlin_status code, const char* format,
                                                    ...) noexcept;
  /// Attaches errno, CUresult or NSError.code.
  Status with_native(int32_t native) const noexcept {
    Status s = *this;
    s.native_ = native;
    return s;
  }
  bool ok() const noexcept { return code_ == MARLIN_OK; }
  marlin_status code() const noexcept { return code_; }
  int32_t native_code() const noexcept { return native_; }
  const char* message() const noexcept { return message_; }

 private:
  marlin_status code_ = MARLIN_OK;
  int32_t native_ = 0;
  char message_[240];
};

/// A value, or the Status that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept(kMovesFreely) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(const Status& error) noexcept : v_(std::in_place_index<1>, error) {}
  bool ok() const noexcept { return v_.index() == 0; }
  /// Precondition: ok().
  T& value() noexcept { return *std::get_if<0>(&v_); }
  const T& value() const noexcept { return *std::get_if<0>(&v_); }
  T take() noexcept(kMovesFreely) { return std::move(*std::get_if<0>(&v_)); }
  Status status() const noexcept { return ok() ? Status() : *std::get_if<1>(&v_); }

 private:
  static constexpr bool kMovesFreely = std::is_nothrow_move_constructible_v<T>;

  std::variant<T, Status> v_;
};

}  // namespace metal_marlin

/// Returns the Status of `expr` from the enclosing function if it is an error.
#define MARLIN_RETURN_IF_ERROR(expr)                                          \
  do {                                                                        \
    if (::metal_marlin::Status marlin_status_ = (expr); !marlin_status_.ok()) \
      return marlin_status_;                                                  \
  } while (0)
#define MARLIN_CONCAT_(a, b) a##b
#define MARLIN_CONCAT(a, b) MARLIN_CONCAT_(a, b)
/// MARLIN_ASSIGN(auto x, f()) declares x = the value of the Result, or returns its Status.
#define MARLIN_ASSIGN(lhs, expr) MARLIN_ASSIGN_(MARLIN_CONCAT(marlin_result_, __LINE__), lhs, expr)
#define MARLIN_ASSIGN_(tmp, lhs, expr) \
  auto tmp = (expr);                   \
  if (!tmp.ok()) return tmp.status();  \
  lhs = tmp.take()
