// The [[attributes]] of the Metal Shading Language that kernels may carry, and the refusal of all others by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metal_on_cpu {

struct Attribute {
  std::string name;      // "buffer"
  std::string argument;  // "0", or empty
};

/// The comma-separated attributes of one [[...]].
std::vector<Attribute> parse_attribute(std::string_view text);
/// The enumerator of msl::Builtin for thread_position_in_grid and its like, or nullptr.
const char* builtin_of(std::string_view attribute);
/// Why an attribute cannot be used, or empty.
std::string attribute_complaint(const Attribute& attribute);
/// Strings next to each other, without quotes: "a" "b" is ab.
std::string unquoted(std::string_view text);

/// The number in 0..65535 that these digits are.
std::optional<uint32_t> number_of(std::string_view digits);

}  // namespace metal_on_cpu
