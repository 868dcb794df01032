// The same kernel by two compilers, Apple's (AIR of the wheel) and this project's front-end (the wheel's own headers): what a
// family of kernels states of itself, and how one of them is run and compared.
#pragma once

#include <metal_on_cpu/metal_on_cpu.h>

#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace metal_on_cpu::differential {

using Bytes = std::vector<unsigned char>;

/// An element's type, by the name that Metal has for it.
struct Type {
  const char* msl;    // "half"
  const char* wheel;  // "float16": in names of the wheel's kernels
  size_t bytes;
  int exponent_bits = 0;  // of a float; 0: an integer
  int mantissa_bits = 0;
};
inline constexpr Type kF32{"float", "float32", 4, 8, 23}, kF16{"half", "float16", 2, 5, 10},
    kBF16{"bfloat", "bfloat16", 2, 8, 7};
inline constexpr Type kComplex64{"complex64_t", "complex64", 8, 8, 23}, kBool{"bool", "bool_", 1};
inline constexpr Type kI8{"int8_t", "int8", 1}, kI16{"int16_t", "int16", 2}, kI32{"int32_t", "int32", 4},
    kI64{"int64_t", "int64", 8};
inline constexpr Type kU8{"uint8_t", "uint8", 1}, kU16{"uint16_t", "uint16", 2}, kU32{"uint32_t", "uint32", 4},
    kU64{"uint64_t", "uint64", 8};

/// Any bits: codes, integers of all magnitudes.
Bytes random_bits(size_t bytes, uint32_t seed = 1);
/// Integers of all magnitudes, bools of 0 and 1, floats of both signs with exponents from `least` to `most`.
Bytes random_values(const Type& type, size_t count, uint32_t seed = 1, int least = -6, int most = 1);
/// The bits of these values, one after another.
template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const first = reinterpret_cast<const unsigned char*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

struct Case;

/// What one dispatch gets. Each route runs with a copy.
class Arguments {
 public:
  Arguments& input(int index, Bytes bytes);
  Arguments& output(int index, size_t bytes);  // reading it before it is written is a finding
  Arguments& in_out(int index, Bytes bytes);
  /// A value in constant memory, as setBytes makes it.
  template <class T>
  Arguments& value(int index, const T& v) {
    const auto* const first = reinterpret_cast<const unsigned char*>(&v);
    return value_bytes(index, {first, first + sizeof v});
  }
  template <class T>
  Arguments& values(int index, const std::vector<T>& all) {
    return value_bytes(index, bytes_of(all));
  }
  size_t size(int index) const { return buffers_.at(index).bytes.size(); }
  /// Takes the last bytes of a buffer away.
  Arguments& shorten(int index, size_t bytes);
  Arguments& threadgroup_memory(int index, size_t bytes);
  Arguments& groups(uint32_t x, uint32_t y = 1, uint32_t z = 1);
  Arguments& grid(uint32_t x, uint32_t y = 1, uint32_t z = 1);
  Arguments& threads(uint32_t x, uint32_t y = 1, uint32_t z = 1);
  Arguments& flush_to_zero(bool on = true);

 private:
  friend struct Route;
  friend Bytes output(const Case& c, const Library& library, int buffer);
  enum class Kind { kInput, kOutput, kInOut, kValue };
  struct Buffer {
    Kind kind;
    Bytes bytes;
  };
  Arguments& value_bytes(int index, Bytes bytes);
  std::map<int, Buffer> buffers_;
  std::map<int, size_t> threadgroup_memory_;
  Size3 groups_{0, 0, 0}, grid_{0, 0, 0}, threads_;
  bool flush_to_zero_ = false;
};

struct Case {
  std::string kernel;    // its name in the wheel
  std::string instance;  // what the source instantiates under that name: "softmax_single_row<half, float>"
  std::function<Arguments()> arguments;
  std::map<uint32_t, ConstantValue> constants = {};
};

/// A difference that has an explanation. It has to appear: an entry that no kernel needs fails.
struct Known {
  std::string kernels;  // a pattern of the shell
  std::string what;     // as in Difference, a pattern too
  std::string reason;
};

/// Kernels whose source is compiled as one: a test. In the short form only the first kernel is run.
struct Group {
  std::string name;
  std::vector<std::string> headers;  // below mlx/backend/metal/kernels
  std::vector<Case> cases;
  std::vector<Known> known = {};
};
std::ostream& operator<<(std::ostream& out, const Group& group);  // for GoogleTest

struct Difference {
  std::string what;  // "output buffer 1", "bytes read of buffer 0", "threadgroup barriers", "device-race of buffer 4", ...
  std::string text;  // what each compiler's kernel gave
};

/// A case by both routes; what the checker finds is in the list, too. An Error: one of them does not compile or is refused.
Result<std::vector<Difference>> compare(const Case& c, const Library& apple, const Library& ours);

/// A case by one route, checked.
Result<Report> run(const Case& c, const Library& library);
/// What it leaves in a buffer; empty when it does not run.
Bytes output(const Case& c, const Library& library, int buffer);

/// The kernels as Apple's compiler made them.
Result<Library> wheel_library();
/// The cases that have the constants of the first, by our front-end.
Result<Library> source_library(const Group& group, const std::vector<Case>& cases);

// What names of kernels and launches are made of.
inline const char* short_name(const Type& t) {
  if (t.bytes == 4) return "float";
  return t.exponent_bits == 5 ? "float16_t" : "bfloat16_t";
}
inline std::string word(bool b) { return b ? "true" : "false"; }
inline uint32_t tiles(uint32_t n, uint32_t tile) { return (n + tile - 1) / tile; }

std::vector<Group> all_groups();
// The families, each in a file of its own.
std::vector<Group> map_groups();
std::vector<Group> order_groups();
std::vector<Group> reduce_groups();
std::vector<Group> fft_groups();
std::vector<Group> row_groups();
std::vector<Group> quantized_groups();
std::vector<Group> gemm_groups();
std::vector<Group> attention_groups();

}  // namespace metal_on_cpu::differential
