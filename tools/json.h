// The JSON that the command and its tests write and read. No other file of them includes the
// library behind it, which takes seconds to compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace metal_marlin::tools {

/// A value of JSON. Functions that read throw an exception of the standard library where the value
/// is of another kind or has no such member.
class Json {
 public:
  using Items = std::vector<Json>;
  using Members = std::vector<std::pair<std::string, Json>>;  ///< in the order of their output

  Json(std::nullptr_t = nullptr) {}
  template <std::integral T>
  Json(T value) {
    if constexpr (std::same_as<T, bool>)
      value_ = value;
    else if constexpr (std::signed_integral<T>)
      value_ = int64_t{value};
    else
      value_ = uint64_t{value};
  }
  Json(double value) : value_(value) {}
  Json(const char* text) : Json(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(Items items) : value_(std::move(items)) {}
  Json(Members members) : value_(std::move(members)) {}
  template <class T>
  Json(const std::vector<T>& items) : Json(Items(items.begin(), items.end())) {}
  /// An object if all are pairs {"key", value}; else an array.
  Json(std::initializer_list<Json> list);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  /// null if the text is no JSON. Members are sorted by their keys.
  static Json parse(std::string_view text);
  /// Calls `use` with each key of an object, and keeps nothing. Returns whether the text is JSON.
  static bool for_each_key(std::string_view text,
                           const std::function<void(const std::string&)>& use);

  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Items>(value_); }
  bool is_object() const { return std::holds_alternative<Members>(value_); }
  const std::string& text() const { return std::get<std::string>(value_); }
  bool boolean() const { return std::get<bool>(value_); }
  double number() const;
  int64_t integer() const;
  const Items& items() const { return std::get<Items>(value_); }
  const Members& members() const { return std::get<Members>(value_); }
  size_t size() const;  ///< of an array or object
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& at(std::string_view key) const;
  const Json& at(size_t index) const { return items().at(index); }

  /// Makes null an object, and adds the member if there is none.
  Json& operator[](std::string_view key);
  /// Makes null an array.
  void push_back(Json item);

  /// On one line. Throws if a string is not UTF-8.
  std::string dump() const;
  /// Numbers are equal by their values, objects in any order of their members.
  friend bool operator==(const Json& a, const Json& b);
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  friend struct TreeMaker;
  const Json* find(std::string_view key) const;
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Items, Members> value_;
};

/// null for an empty text.
Json text_or_null(const std::string& text);
/// The text in UTF-8 that a terminal can show: U+FFFD replaces invalid bytes. On one line if
/// `indent` is negative.
std::string json_text(const Json& json, int indent = -1);

}  // namespace metal_marlin::tools
