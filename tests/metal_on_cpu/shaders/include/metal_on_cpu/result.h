// Errors as values: what failed, as text that names the place ("shader.metal:12: error: ...").
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace metal_on_cpu {

struct Error {
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }
  /// Precondition: ok().
  T& value() { return std::get<0>(v_); }
  const T& value() const { return std::get<0>(v_); }
  T take() { return std::move(std::get<0>(v_)); }
  /// Precondition: !ok().
  const Error& error() const { return std::get<1>(v_); }
  /// The message, or empty.
  std::string message() const { return ok() ? std::string() : error().message; }

 private:
  std::variant<T, Error> v_;
};

}  // namespace metal_on_cpu
