// Products keep everything in registers. A thread of an Apple GPU has 128 of them; what is beyond them is memory, and so is an
// array that is indexed at run time. Apple's compiler cannot be asked here. That of LLVM for another GPU is
// (Kernel::registers).
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kinds.h"

namespace shaders {
namespace {

struct Asked {
  Kind kind;
  int64_t m;
  marlin_dtype a_type = MARLIN_F16;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
};
void PrintTo(const Asked& asked, std::ostream* out) { *out << asked.kind.name << " M " << asked.m; }

/// The most bytes that are accepted: none but of vectors of eight rows for what most files have, and some for other kinds,
/// whose zeros, planes or positions of sparse codes take as many registers as sums do.
uint32_t accepted(const Asked& asked) {
  static const std::set<std::string> kOfMostFiles = {"int4", "int4_zeros", "mxfp4", "nvfp4", "int8",
                                                     "q4_k", "q6_k",       "fp8",   "f16",   "bf16"};
  if (asked.m == 7) return asked.compute == MARLIN_COMPUTE_INT8 ? 320 : 224;
  if (asked.compute != MARLIN_COMPUTE_INT8 && kOfMostFiles.contains(asked.kind.name)) return 0;
  static const std::map<int64_t, uint32_t> kOthers = {{3, 16}, {5, 192}, {17, 56}};
  const auto found = kOthers.find(asked.m);
  return found == kOthers.end() ? 0 : found->second;
}

std::vector<Asked> asked() {
  std::vector<Asked> all;
  for (const KernelRow& row : kernel_rows()) {
    if (row.tensor()) continue;
    for (const Kind& kind : kKinds) {
      all.push_back({kind, row.m_min});
      if (!is_float(kind)) all.push_back({kind, row.m_min, MARLIN_F32, MARLIN_COMPUTE_INT8});
    }
    for (const marlin_dtype a_type : {MARLIN_F32, MARLIN_BF16}) all.push_back({kKinds[0], row.m_min, a_type});
  }
  return all;
}

class Registers : public testing::TestWithParam<Asked> {};

TEST_P(Registers, HoldAllOfAProduct) {
  const Asked& asked = GetParam();
  Case spec = case_of(asked.kind, asked.m, 64, 512);
  spec.a_type = asked.a_type, spec.compute = asked.compute;
  Problem problem(spec);
  ASSERT_TRUE(problem.pack());
  std::string name;
  const auto registers = problem.kernel({}, &name).registers();
  ASSERT_TRUE(registers.ok()) << name << ": " << registers.message();
  RecordProperty("registers", static_cast<int>(registers.value().used));
  EXPECT_LE(registers.value().memory, accepted(asked)) << name << ": bytes for what is in no register";
}

/// Arrays of fragments that a loop indexes are memory, even where this compiler would unroll the loop unasked.
TEST(RegistersOfMistakes, AreSeen) {
  for (const char* const loop : {"i < 4; i++) {\n    float2 value", "t = 0; t < 4; t++) {\n    simdgroup"}) {
    const std::string from = std::string("UNROLL for (ushort ") + (*loop == 'i' ? "i = 0; " : "") + loop;
    Setting setting;
    setting.changes = {{"metal/regdecode.metal", from, from.substr(from.find("for"))}};
    Problem problem(case_of(kKinds[0], 17, 64, 512));
    ASSERT_TRUE(problem.pack());
    const auto registers = problem.kernel(setting).registers();
    ASSERT_TRUE(registers.ok()) << registers.message();
    EXPECT_GT(registers.value().memory, 0u) << from;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Registers, testing::ValuesIn(asked()), [](const auto& i) {
  const char* const a = i.param.compute == MARLIN_COMPUTE_INT8 ? "_i8"
                        : i.param.a_type == MARLIN_F32         ? "_f32"
                        : i.param.a_type == MARLIN_BF16        ? "_bf16"
                                                               : "";
  return std::string(i.param.kind.name) + "_m" + std::to_string(i.param.m) + a;
});

}  // namespace
}  // namespace shaders
