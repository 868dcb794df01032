// Reader of Apple's .metallib container: the compiled functions of one library, each an LLVM bitcode module of its own.
//
// All numbers are little endian. The header is 88 bytes:
//   0x00 "MTLB"   0x04 platform and versions   0x10 u64 size of the file
//   0x18 four times (u64 offset, u64 size): function list, public metadata, private metadata, bitcode
// The function list is a u32 count, then for each function a u32 size (its own 4 bytes included) and tags until "ENDT". A tag
// is 4 characters, a u16 length and a payload:
//   NAME text ended by 0   TYPE u8   HASH SHA-256 of the module   MDSZ u64 size of the module
//   OFFT 3 u64 (offset in public metadata, private metadata, bitcode)   VERS 4 u16 (AIR, language)
// The size of the function list's section leaves out the count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace metal_on_cpu::air {

/// What is wrong with a file, and at which of its bytes.
struct ReadError {
  enum class Kind {
    kUnreadable,  // the file system refuses
    kTruncated,   // ends before what it announces
    kForeign,     // no metallib, or a module that is no LLVM bitcode
    kMalformed,   // contradicts itself
    kChecksum,    // a module is not the one that was hashed
    kAbsent,      // no function of that name
  };
  Kind kind = Kind::kUnreadable;
  uint64_t offset = 0;
  std::string message;  // what was expected and what was found

  /// "byte 24: ..."
  std::string text() const;
};

enum class FunctionType : uint8_t {
  kVertex = 0,
  kFragment = 1,
  kKernel = 2,
  kUnqualified = 3,
  kVisible = 4,
  kExtern = 5,
  kIntersection = 6
};

struct Function {
  std::string name;
  FunctionType type = FunctionType::kUnqualified;
  uint64_t offset = 0, size = 0;    // of the module in the file, in bytes
  std::span<const std::byte> hash;  // 32 bytes, or empty when the file has none
  uint16_t air_major = 0, air_minor = 0, language_major = 0, language_minor = 0;
};

using Bytes = std::span<const std::byte>;

/// Threads may share one. Spans refer to the file's bytes and live as long as the Metallib or a copy of it.
class Metallib {
 public:
  /// Reads bytes that the caller keeps alive.
  static std::variant<Metallib, ReadError> parse(Bytes bytes);
  /// Maps a file.
  static std::variant<Metallib, ReadError> open(const std::string& path);

  /// In the order of the file.
  const std::vector<Function>& functions() const { return functions_; }
  const Function* find(std::string_view name) const;
  /// The bitcode of one function, checked against its hash and without its wrapper.
  std::variant<Bytes, ReadError> module(const Function& function) const;
  std::variant<Bytes, ReadError> module(std::string_view name) const;

 private:
  Metallib() = default;
  Bytes bytes_;
  std::shared_ptr<const void> mapping_;
  std::vector<Function> functions_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace metal_on_cpu::air
