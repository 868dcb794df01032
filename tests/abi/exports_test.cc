// Every export, called through libffi by the signature that the header gives it: once with good arguments, then with every bad
// value in every position. The header, the version script and marlin_api must name the same functions in the same order.
#include <dlfcn.h>
#include <ffi.h>

#include "exports_signatures.h"
#include "test.h"

namespace abi_test {
namespace {

class Exports : public testing::TestWithParam<Export> {
 protected:
  static void* library() {
    static void* const handle = dlopen(MARLIN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return handle;
  }
  void* const function_ = dlsym(library(), GetParam().name.c_str());
};

TEST_P(Exports, GoodArgumentsSucceed) {
  const Export& signature = GetParam();
  ASSERT_NE(function_, nullptr);
  World world;
  const uint64_t result = call_in(world, function_, signature);
  if (signature.fails()) {
    EXPECT_EQ(static_cast<marlin_status>(result), MARLIN_OK) << world.error().message;
  } else if (signature.returns != Kind::nothing) {
    EXPECT_NE(result, 0u);
  }
}

TEST_P(Exports, EveryBadValueInEveryPositionIsATypedErrorAndTheNextCallWorks) {
  const Export& signature = GetParam();
  for (size_t position = 0; position < signature.args.size(); ++position)
    for (size_t i = 0; i < World().bad(signature.args[position]).size(); ++i) {
      World world;
      const Bad bad = world.bad(signature.args[position])[i];
      SCOPED_TRACE(signature.name + " argument " + std::to_string(position) + ": " + bad.what);
      const uint64_t result = call_in(world, function_, signature, position, &bad);
      if (signature.fails()) {
        const auto status = static_cast<marlin_status>(result);
        EXPECT_TRUE(bad.expected == kAny || bad.expected == status)
            << marlin_status_name(status) << " and not " << marlin_status_name(bad.expected) << ": " << world.error().message;
        EXPECT_TRUE(status == MARLIN_OK || world.created_nothing());
        EXPECT_TRUE(signature.args[position] == Arg::err || world.error().status == status);
        EXPECT_EQ(static_cast<marlin_status>(call_in(world, function_, signature)), MARLIN_OK) << world.error().message;
      } else if (signature.returns == Kind::nothing) {
        call_in(world, function_, signature);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Exports, testing::ValuesIn(signatures()), [](const auto& info) { return info.param.name; });

/// The names in the version script, in its order.
std::vector<std::string> exported_names() {
  std::ifstream map(MARLIN_EXPORTS_MAP);
  std::vector<std::string> names;
  for (std::string line; std::getline(map, line);) {
    const size_t first = line.find_first_not_of(' '), end = line.find(';');
    if (first != 0 && first != std::string::npos && line.compare(first, 7, "marlin_") == 0 && end != std::string::npos)
      names.push_back(line.substr(first, end - first));
  }
  return names;
}

TEST(ExportsTable, TheSignaturesAreThoseOfTheVersionScriptInItsOrder) {
  std::vector<std::string> names;
  names.reserve(kFunctions.size());
  for (const Signature& signature : kFunctions) names.push_back(signature.name);
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
    std::memcpy(static_cast<void*>(&member), reinterpret_cast<const char*>(api) + 16 + 8 * i, sizeof member);
    EXPECT_EQ(member, dlsym(RTLD_DEFAULT, names[i].c_str())) << names[i];
  }
}

}  // namespace
}  // namespace abi_test
