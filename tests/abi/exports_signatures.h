// Every export with its signature and what its parameters mean, and how to call it.
#pragma once

#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "abi_table.h"
#include "exports_world.h"

namespace abi_test {

struct Export : Signature {
  std::vector<Arg> args;

  /// Whether what it returns is a marlin_status.
  bool fails() const { return returns == Kind::i32; }
};
inline void PrintTo(const Export& e, std::ostream* out) { *out << e.name; }  // NOLINT: GoogleTest's name

/// Of parameters that one function treats in its own way.
inline const std::map<std::string, Arg>& meanings_in_one_function() {
  static const std::map<std::string, Arg> meanings = {
      {"marlin_context_destroy context", Arg::context_gone},
      {"marlin_stream_destroy stream", Arg::stream_gone},
      {"marlin_buffer_destroy buffer", Arg::buffer_gone},
      {"marlin_weights_destroy weights", Arg::weights_gone},
      {"marlin_checkpoint_destroy checkpoint", Arg::checkpoint_gone},
      {"marlin_stream_flush stream", Arg::stream},
      {"marlin_stream_wait stream", Arg::stream},
      {"marlin_stream_notify stream", Arg::stream},
  };
  return meanings;
}

/// What a parameter is for, which its type and name tell everywhere in the header.
inline Arg meaning(const Signature& function, const Parameter& parameter) {
  static const std::map<std::string, Arg> meanings = {
      {"marlin_context* context", Arg::context},
      {"marlin_stream* stream", Arg::stream_or_null},
      {"marlin_buffer* buffer", Arg::buffer},
      {"const marlin_weights* weights", Arg::weights},
      {"const marlin_checkpoint* checkpoint", Arg::checkpoint},
      {"marlin_context** out", Arg::context_out},
      {"marlin_stream** out", Arg::stream_out},
      {"marlin_buffer** out", Arg::buffer_out},
      {"marlin_weights** out", Arg::weights_out},
      {"marlin_checkpoint** out", Arg::checkpoint_out},
      {"const marlin_context_desc* desc", Arg::context_desc},
      {"const marlin_stream_desc* desc", Arg::stream_desc},
      {"const marlin_gemm_desc* desc", Arg::gemm_desc},
      {"const marlin_load_desc* desc", Arg::load_desc},
      {"const marlin_open_desc* desc", Arg::open_desc},
      {"const marlin_convert_desc* desc", Arg::convert_desc},
      {"const marlin_save_desc* desc", Arg::save_desc},
      {"const marlin_pack_desc* const* parts", Arg::parts},
      {"const marlin_gemm_desc* const* descs", Arg::products},
      {"const marlin_matrix* row_ids", Arg::row_ids},
      {"const marlin_matrix* out", Arg::rows_out},
      {"const char* path", Arg::path},
      {"const char* out_path", Arg::out_path},
      {"const char* name", Arg::name},
      {"const char* key", Arg::key},
      {"const marlin_value* array", Arg::value_array},
      {"marlin_device_info* out", Arg::device_info},
      {"marlin_layer_info* out", Arg::layer_info},
      {"marlin_matrix* out", Arg::matrix_out},
      {"marlin_value* out", Arg::value_out},
      {"const char** text", Arg::next_text},
      {"uint64_t* bytes", Arg::next_bytes},
      {"char* text", Arg::text},
      {"size_t* needed", Arg::needed},
      {"uint64_t* scratch_bytes", Arg::scratch_bytes},
      {"marlin_error* err", Arg::err},
      {"uint32_t part_count", Arg::part_count},
      {"uint32_t expert_count", Arg::expert_count},
      {"uint32_t count", Arg::product_count},
      {"int64_t first_row", Arg::first_row},
      {"uint32_t index", Arg::index},
      {"uint64_t index", Arg::layer_index},
      {"uint64_t bytes", Arg::bytes},
      {"uint64_t timeout_ns", Arg::timeout},
      {"int64_t max_m", Arg::max_m},
      {"size_t capacity", Arg::capacity},
      {"marlin_status status", Arg::status},
      {"uint32_t abi_major", Arg::major},
      {"function done", Arg::done},
      {"void* user", Arg::user},
  };
  const auto special = meanings_in_one_function().find(function.name + " " + parameter.name);
  if (special != meanings_in_one_function().end()) return special->second;
  const auto found = meanings.find(parameter.type + " " + parameter.name);
  if (found == meanings.end())
    throw std::logic_error(function.name + ": nothing is known of `" + parameter.type + " " + parameter.name + "`");
  return found->second;
}

inline const std::vector<Export>& signatures() {
  static const std::vector<Export> table = [] {
    std::vector<Export> exports;
    for (const Signature& function : kFunctions) {
      exports.push_back({function, {}});
      for (const Parameter& parameter : function.params) exports.back().args.push_back(meaning(function, parameter));
    }
    return exports;
  }();
  return table;
}

/// The bits that a function returned. `just_before` runs when all is ready for the call.
template <class JustBefore>
uint64_t call_with(void* function, const Signature& signature, std::vector<Value> values, JustBefore just_before) {
  std::vector<ffi_type*> types = ffi_types_of(signature);
  std::vector<void*> pointers;
  pointers.reserve(values.size());
  for (Value& v : values) pointers.push_back(&v);
  ffi_cif cif;
  ffi_arg result = 0;
  if (function == nullptr || ffi_prep_cif(&cif, FFI_DEFAULT_ABI, static_cast<unsigned>(types.size()),
                                          ffi_type_of(signature.returns), types.data()) != FFI_OK)
    return ~uint64_t{0};
  just_before();
  ffi_call(&cif, FFI_FN(function), &result, pointers.data());
  return result;
}

/// A call with good arguments, but `bad` at `position`.
inline uint64_t call_in(World& world, void* function, const Export& e, size_t position = SIZE_MAX, const Bad* bad = nullptr) {
  std::vector<Value> values;
  for (size_t i = 0; i < e.args.size(); ++i) {
    values.push_back(i == position ? bad->value : world.good(e.args[i]));
    if (i != position) world.destroyed(e.args[i]);
  }
  return call_with(function, e, std::move(values), [] {});
}

}  // namespace abi_test
