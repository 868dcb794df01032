// Every export with its signature, and how to call it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "exports_world.h"

namespace abi_test {

enum class Returns { status, nothing, pointer, number };

struct Signature {
  const char* name;
  Returns returns;
  std::vector<Arg> args;
};
inline void PrintTo(const Signature& signature, std::ostream* out) { *out << signature.name; }  // NOLINT: GoogleTest's name

inline const std::vector<Signature>& signatures() {
  using enum Arg;
  static const std::vector<Signature> table = {
      {"marlin_device_get", Returns::status, {index, device_info, err}},
      {"marlin_context_create", Returns::status, {context_desc, context_out, err}},
      {"marlin_context_destroy", Returns::nothing, {context_gone}},
      {"marlin_stream_create", Returns::status, {context, stream_desc, stream_out, err}},
      {"marlin_stream_flush", Returns::status, {stream, err}},
      {"marlin_stream_wait", Returns::status, {stream, timeout, err}},
      {"marlin_stream_destroy", Returns::nothing, {stream_gone}},
      {"marlin_buffer_create", Returns::status, {context, bytes, buffer_out, err}},
      {"marlin_buffer_host", Returns::pointer, {buffer}},
      {"marlin_buffer_destroy", Returns::nothing, {buffer_gone}},
      {"marlin_weights_pack", Returns::status, {context, parts, part_count, expert_count, weights_out, err}},
      {"marlin_weights_unpack", Returns::status, {stream_or_null, weights, row_ids, first_row, rows_out, err}},
      {"marlin_weights_info", Returns::status, {weights, layer_info, err}},
      {"marlin_weights_destroy", Returns::nothing, {weights_gone}},
      {"marlin_checkpoint_open", Returns::status, {path, open_desc, checkpoint_out, err}},
      {"marlin_checkpoint_layer", Returns::status, {checkpoint, layer_index, layer_info, err}},
      {"marlin_checkpoint_tensor", Returns::status, {checkpoint, name, matrix_out, err}},
      {"marlin_checkpoint_destroy", Returns::nothing, {checkpoint_gone}},
      {"marlin_weights_load", Returns::status, {context, checkpoint, load_desc, weights_out, err}},
      {"marlin_gemm", Returns::status, {stream_or_null, gemm_desc, err}},
      {"marlin_gemm_many", Returns::status, {stream_or_null, products, product_count, err}},
      {"marlin_prepare", Returns::status, {stream_or_null, products, product_count, max_m, scratch_bytes, err}},
      {"marlin_explain", Returns::status, {gemm_desc, text, capacity, needed, err}},
      {"marlin_version", Returns::number, {}},
      {"marlin_status_name", Returns::pointer, {status}},
      {"marlin_checkpoint_convert", Returns::status, {checkpoint, out_path, convert_desc, err}},
      {"marlin_get_api", Returns::pointer, {major}},
  };
  return table;
}

/// The bits that a function returned. `just_before` runs when all is ready for the call.
template <class JustBefore>
uint64_t call_with(void* function, const Signature& signature, std::vector<Value> values, JustBefore just_before) {
  std::vector<ffi_type*> types;
  std::vector<void*> pointers;
  for (Value& v : values) {
    types.push_back(v.type);
    pointers.push_back(&v.bits);
  }
  ffi_type* const returned = signature.returns == Returns::status    ? &ffi_type_sint32
                             : signature.returns == Returns::nothing ? &ffi_type_void
                             : signature.returns == Returns::number  ? &ffi_type_uint32
                                                                     : &ffi_type_pointer;
  ffi_cif cif;
  ffi_arg result = 0;
  if (function == nullptr ||
      ffi_prep_cif(&cif, FFI_DEFAULT_ABI, static_cast<unsigned>(types.size()), returned, types.data()) != FFI_OK)
    return ~uint64_t{0};
  just_before();
  ffi_call(&cif, FFI_FN(function), &result, pointers.data());
  return result;
}

/// A call with good arguments, but `bad` at `position`.
inline uint64_t call_in(World& world, void* function, const Signature& signature, size_t position = SIZE_MAX,
                        const Bad* bad = nullptr) {
  std::vector<Value> values;
  for (size_t i = 0; i < signature.args.size(); ++i) {
    values.push_back(i == position ? bad->value : world.good(signature.args[i]));
    if (i != position) world.destroyed(signature.args[i]);
  }
  return call_with(function, signature, std::move(values), [] {});
}

}  // namespace abi_test
