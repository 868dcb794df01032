// The one integer type for sizes that come from a file or a caller. It remembers that a product or
// sum wrapped, and never returns the wrapped value.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace metal_marlin {

/// An unsigned 64-bit size that turns invalid on overflow, underflow, a negative operand or an
/// inexact division, and stays so.
class Checked {
 public:
  constexpr Checked() = default;
  template <std::integral T>
  constexpr Checked(T v) noexcept : value_(static_cast<uint64_t>(v)), valid_(v >= T{0}) {}

  friend constexpr Checked operator+(Checked a, Checked b) noexcept {
    Checked r;
    r.valid_ = !__builtin_add_overflow(a.value_, b.value_, &r.value_) && a.valid_ && b.valid_;
    return r;
  }
  friend constexpr Checked operator-(Checked a, Checked b) noexcept {
    Checked r;
    r.valid_ = !__builtin_sub_overflow(a.value_, b.value_, &r.value_) && a.valid_ && b.valid_;
    return r;
  }
  friend constexpr Checked operator*(Checked a, Checked b) noexcept {
    Checked r;
    r.valid_ = !__builtin_mul_overflow(a.value_, b.value_, &r.value_) && a.valid_ && b.valid_;
    return r;
  }
  /// Rounds up to a multiple of `unit` (> 0).
  constexpr Checked round_up(uint64_t unit) const noexcept {
    return ceil_div(unit) * Checked(unit);
  }
  constexpr Checked ceil_div(uint64_t unit) const noexcept {
    Checked r = *this;
    r.value_ = value_ / unit + (value_ % unit != 0);
    return r;
  }
  constexpr bool valid() const noexcept { return valid_; }
  constexpr std::optional<uint64_t> get() const noexcept {
    return valid_ ? std::optional(value_) : std::nullopt;
  }
  /// The value when it is valid and at most `limit`.
  constexpr std::optional<uint64_t> at_most(uint64_t limit) const noexcept {
    return valid_ && value_ <= limit ? std::optional(value_) : std::nullopt;
  }

 private:
  uint64_t value_ = 0;
  bool valid_ = true;
};

}  // namespace metal_marlin
