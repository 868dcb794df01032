// Names of kernels: one grammar (shaders/common/arguments.h), nothing missing, nothing twice.
#include <regex>
#include <set>

#include "kinds.h"

namespace shaders {
namespace {

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const char* file :
       {"metal/gemv.metal", "metal/regdecode.metal", "metal/unpack.metal", "metal/prepare.metal", "metal/finish.metal",
        "metal/route.metal", "metal4/regdecode_nax.metal", "metal4/regdecode_tensor.metal"}) {
    const auto of_file = library(file, {}, {}).kernel_names();
    names.insert(names.end(), of_file.begin(), of_file.end());
  }
  return names;
}

TEST(Names, FollowTheGrammar) {
  const std::string codes = "(fp4|u4|i8|fp4_sparse|u4_sparse|planes|lut4|floats)", real = "(f32|f16|bf16)",
                    activation = "(f32|f16|bf16|i8)";
  const std::regex grammar("gemv_" + codes + "_" + activation + "_m[1-6]|regdecode_" + codes + "_" + activation +
                           "_m(8|16|32|64)_n(32|64|128)_(direct|threadgroup|tensor|nax)|unpack_" + codes + "|quantize_" + real +
                           "|gather_(b2|b4)|finish|route");
  std::set<std::string> seen;
  for (const std::string& name : shipped_names()) {
    EXPECT_TRUE(std::regex_match(name, grammar)) << name;
    EXPECT_TRUE(seen.insert(name).second) << name << " is there twice";
  }
  EXPECT_LE(seen.size(), 540u);  // of which a program compiles those that it uses
}

TEST(Names, CoverEveryRowOfTheTableForAllCodesAndActivations) {
  const std::vector<std::string> all = shipped_names();
  std::set<std::string> missing;
  for (const KernelRow& row : kernel_rows())
    for (const std::string codes : {"fp4", "u4", "i8", "fp4_sparse", "u4_sparse", "planes", "lut4", "floats"})
      for (const std::string activation : {"f32", "f16", "bf16", "i8"})
        if ((!row.tensor() || (activation.ends_with("f16") && codes != "lut4" && codes != "floats")) &&
            (!row.nax() || codes == "fp4" || codes == "u4" || codes == "i8") && (codes != "floats" || activation != "i8"))
          missing.insert(std::string(row.family) + "_" + codes + "_" + activation + "_" + row.suffix);
  const size_t products = missing.size();
  for (const std::string& name : all) missing.erase(name);
  EXPECT_TRUE(missing.empty()) << *missing.begin();
  EXPECT_EQ(all.size(), products + 15);  // unpack 8, quantize 3, gather 2, finish, route
}

}  // namespace
}  // namespace shaders
