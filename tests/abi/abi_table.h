// The signatures of all exports and callbacks, as abi_table.py read them from the header, and libffi's types for them.
#pragma once

#include <ffi.h>

#include <string>
#include <vector>

namespace abi_test {

/// How a value is passed.
enum class Kind { nothing, pointer, i32, u32, i64, u64 };

struct Parameter {
  std::string type, name;
  Kind kind;
};

struct Signature {
  std::string name;  // of a callback: "struct.field"
  Kind returns;
  std::vector<Parameter> params;
};

#include <abi_table.inc>  // kFunctions, kCallbacks; written by the build

inline ffi_type* ffi_type_of(Kind kind) {
  switch (kind) {
    case Kind::nothing:
      return &ffi_type_void;
    case Kind::pointer:
      return &ffi_type_pointer;
    case Kind::i32:
      return &ffi_type_sint32;
    case Kind::u32:
      return &ffi_type_uint32;
    case Kind::i64:
      return &ffi_type_sint64;
    default:
      return &ffi_type_uint64;
  }
}

inline std::vector<ffi_type*> ffi_types_of(const Signature& signature) {
  std::vector<ffi_type*> types;
  types.reserve(signature.params.size());
  for (const Parameter& parameter : signature.params) types.push_back(ffi_type_of(parameter.kind));
  return types;
}

}  // namespace abi_test
