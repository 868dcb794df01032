// Products keep everything in registers. A thread of an Apple GPU has 128 of them; what is beyond them is memory, and so is an
// array that is indexed at run time. Apple's compiler cannot be asked here. That of LLVM for another GPU is
// (Kernel::registers).
#include <string>
#include <vector>

#include "kinds.h"

namespace shaders {
namespace {

struct Asked {
  Kind kind;
  const KernelRow* row;
  marlin_dtype a_type = MARLIN_F16;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  problem::Case spec() const {
    problem::Case c = case_of(kind, row->m_min, 64, 512);
    c.a_type = a_type, c.compute = compute, c.suffix = row->suffix;
    return c;
  }
  metal_marlin::gpu::ActivationKind activation() const {
    using metal_marlin::gpu::ActivationKind;
    if (compute == MARLIN_COMPUTE_INT8) return ActivationKind::i8;
    if (a_type == MARLIN_F32) return ActivationKind::f32;
    return a_type == MARLIN_F16 ? ActivationKind::f16 : ActivationKind::bf16;
  }
};
void PrintTo(const Asked& asked, std::ostream* out) { *out << asked.kind.name << " " << asked.row->suffix; }

/// Every kernel that a plan takes, for every kind and type of activations.
std::vector<Asked> asked() {
  std::vector<Asked> all;
  for (const KernelRow& row : kernel_rows()) {
    if (row.tensor() && !row.nax()) continue;
    for (const Kind& kind : kKinds) {
      for (const marlin_dtype a_type : {MARLIN_F16, MARLIN_BF16, MARLIN_F32}) all.push_back({kind, &row, a_type});
      if (!is_float(kind)) all.push_back({kind, &row, MARLIN_F32, MARLIN_COMPUTE_INT8});
    }
  }
  std::erase_if(all, [](const Asked& one) {
    Problem problem(one.spec());
    return !problem.pack() || !one.row->takes(one.activation(), problem.plan.layout) ||
           !is_choice(*one.row, problem.plan.layout, one.activation());
  });
  return all;
}

class Registers : public testing::TestWithParam<Asked> {};

TEST_P(Registers, HoldAllOfAProduct) {
  Problem problem(GetParam().spec());
  ASSERT_TRUE(problem.pack());
  std::string name;
  const auto registers = problem.kernel({}, &name).registers();
  ASSERT_TRUE(registers.ok()) << name << ": " << registers.message();
  RecordProperty("registers", static_cast<int>(registers.value().used));
  EXPECT_EQ(registers.value().memory, 0u) << name << ": bytes for what is in no register";
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

const auto name_of = [](const auto& i) {
  const char* const a = i.param.compute == MARLIN_COMPUTE_INT8 ? "_i8"
                        : i.param.a_type == MARLIN_F32         ? "_f32"
                        : i.param.a_type == MARLIN_BF16        ? "_bf16"
                                                               : "";
  return std::string(i.param.kind.name) + "_" + i.param.row->suffix + a;
};
INSTANTIATE_TEST_SUITE_P(Kernels, Registers, testing::ValuesIn(asked()), name_of);

}  // namespace
}  // namespace shaders
