// Findings as they are made: by address of code or by place, merged by both, and brought to lines of the shader at the end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "../../include/metal_on_cpu/metal_on_cpu.h"

namespace metal_on_cpu {

/// Where in the shader: a return address inside an image, or a place known by name; with both, the place is for an address that
/// has no line.
struct Where {
  uintptr_t pc = 0;
  const char* file = nullptr;
  uint32_t line = 0;

  static Where address(const void* pc) { return {reinterpret_cast<uintptr_t>(pc), nullptr, 0}; }
  static Where place(const char* file, uint32_t line) { return {0, file, line}; }
};

class FindingLog {
 public:
  /// True when this is the first of its kind there; then `finding` is kept, and should have its message.
  bool add(const char* kind, const Where& where, int buffer);
  /// The finding that add() has just made.
  Finding& last() { return *last_; }
  bool empty() const { return found_.empty(); }
  /// With file and line. `image` is the path of the code.
  std::vector<Finding> take(const std::string& image);

 private:
  using Key = std::tuple<std::string, uintptr_t, std::string, uint32_t, int>;
  std::map<Key, Finding> found_;
  Finding* last_ = nullptr;
};

}  // namespace metal_on_cpu
