// Every export, called through libffi from a table of signatures: once with good arguments, then with every bad value in every
// position. The table, the version script and marlin_api must name the same functions in the same order.
#include <dlfcn.h>
#include <ffi.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "exports_world.h"

namespace abi_test {
namespace {

enum class Returns { status, nothing, pointer, number };

struct Signature {
  const char* name;
  Returns returns;
  std::vector<Arg> args;
};
void PrintTo(const Signature& signature, std::ostream* out) { *out << signature.name; }

const std::vector<Signature>& signatures() {
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
      {"marlin_get_api", Returns::pointer, {major}},
  };
  return table;
}

class Exports : public testing::TestWithParam<Signature> {
 protected:
  static void* library() {
    static void* const handle = dlopen(MARLIN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return handle;
  }
  /// The bits that the function returned.
  static uint64_t call_with(const Signature& signature, std::vector<Value> values) {
    void* const function = dlsym(library(), signature.name);
    if (function == nullptr) return ~uint64_t{0};
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
    if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, static_cast<unsigned>(types.size()), returned, types.data()) != FFI_OK)
      return ~uint64_t{0};
    ffi_call(&cif, FFI_FN(function), &result, pointers.data());
    return result;
  }
  /// A call with good arguments, but `bad` at `position`.
  static uint64_t call_in(World& world, const Signature& signature, size_t position = SIZE_MAX, const Bad* bad = nullptr) {
    std::vector<Value> values;
    for (size_t i = 0; i < signature.args.size(); ++i) {
      values.push_back(i == position ? bad->value : world.good(signature.args[i]));
      if (i != position) world.destroyed(signature.args[i]);
    }
    return call_with(signature, values);
  }
};

TEST_P(Exports, GoodArgumentsSucceed) {
  const Signature& signature = GetParam();
  ASSERT_NE(dlsym(library(), signature.name), nullptr);
  World world;
  const uint64_t result = call_in(world, signature);
  if (signature.returns == Returns::status) {
    EXPECT_EQ(static_cast<marlin_status>(result), MARLIN_OK) << world.error().message;
  } else if (signature.returns != Returns::nothing) {
    EXPECT_NE(result, 0u);
  }
}

TEST_P(Exports, EveryBadValueInEveryPositionIsATypedErrorAndTheNextCallWorks) {
  const Signature& signature = GetParam();
  for (size_t position = 0; position < signature.args.size(); ++position)
    for (size_t i = 0; i < World().bad(signature.args[position]).size(); ++i) {
      World world;
      const Bad bad = world.bad(signature.args[position])[i];
      SCOPED_TRACE(std::string(signature.name) + " argument " + std::to_string(position) + ": " + bad.what);
      const uint64_t result = call_in(world, signature, position, &bad);
      if (signature.returns == Returns::status) {
        const auto status = static_cast<marlin_status>(result);
        EXPECT_TRUE(bad.expected == kAny || bad.expected == status)
            << marlin_status_name(status) << " and not " << marlin_status_name(bad.expected) << ": " << world.error().message;
        EXPECT_TRUE(status == MARLIN_OK || world.created_nothing());
        EXPECT_TRUE(signature.args[position] == Arg::err || world.error().status == status);
        EXPECT_EQ(static_cast<marlin_status>(call_in(world, signature)), MARLIN_OK) << world.error().message;
      } else if (signature.returns == Returns::nothing) {
        call_in(world, signature);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Exports, testing::ValuesIn(signatures()),
                         [](const auto& info) { return std::string(info.param.name); });

/// The names in the version script, in its order.
std::vector<std::string> exported_names() {
  std::ifstream map(MARLIN_EXPORTS_MAP);
  std::vector<std::string> names;
  const std::regex symbol("^ +(marlin_[a-z_]+);$");
  std::smatch match;
  for (std::string line; std::getline(map, line);)
    if (std::regex_match(line, match, symbol)) names.push_back(match[1]);
  return names;
}

TEST(ExportsTable, TheSignaturesAreThoseOfTheVersionScriptInItsOrder) {
  std::vector<std::string> names;
  for (const Signature& signature : signatures()) names.push_back(signature.name);
  EXPECT_EQ(names, exported_names());
}

TEST(ExportsTable, MarlinApiHoldsThemInThatOrder) {
  const marlin_api* api = marlin_get_api(MARLIN_ABI_MAJOR);
  ASSERT_NE(api, nullptr);
  EXPECT_EQ(api->struct_size, sizeof(marlin_api));
  EXPECT_EQ(api->abi_major, uint32_t{MARLIN_ABI_MAJOR});
  EXPECT_EQ(api->abi_minor, uint32_t{MARLIN_ABI_MINOR});
  std::vector<std::string> names = exported_names();
  ASSERT_EQ(names.back(), "marlin_get_api");
  names.pop_back();
  ASSERT_EQ(sizeof(marlin_api), 16 + 8 * names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    void* member;
    std::memcpy(&member, reinterpret_cast<const char*>(api) + 16 + 8 * i, sizeof member);
    EXPECT_EQ(member, dlsym(RTLD_DEFAULT, names[i].c_str())) << names[i];
  }
}

}  // namespace
}  // namespace abi_test
