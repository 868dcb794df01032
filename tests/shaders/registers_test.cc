// Products keep everything in registers. A thread of an Apple GPU has 128 of them; what is beyond them is memory, and so is an
// array that is indexed at run time. Apple's compiler cannot be asked here. That of LLVM for another GPU is
// (Kernel::registers).
#include <string>
#include <vector>

#include "campaigns.h"
#include "kinds.h"

namespace shaders {
namespace {

/// Who sorts the rows of experts, if the product has any.
enum class Routed : uint8_t { no, before, by_groups };
/// Rows and weights at addresses of their own have been seen to take up to 24 registers more.
constexpr uint32_t kOfExperts = 32;

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
           !is_choice(*one.row, problem.plan.layout, one.activation(), false);
  });
  return all;
}

metal_on_cpu::Registers registers_of(const Problem& problem, Routed routed, const Setting& setting = {}) {
  std::string name;
  auto kernel = problem.kernel(setting, &name);
  if (routed != Routed::no) {
    kernel.constant(MARLIN_CONSTANT_ROUTING, uint64_t{kRoutingSums});
    kernel.constant(MARLIN_CONSTANT_PARTIAL, true);
    kernel.constant(MARLIN_CONSTANT_SORTS_ROWS, routed == Routed::by_groups);
    kernel.constant(MARLIN_CONSTANT_BIAS_TYPE, uint64_t{routed == Routed::by_groups ? kFloat32 : kFloatNone});
  }
  const auto registers = kernel.registers();
  EXPECT_TRUE(registers.ok()) << name << ": " << registers.message();
  return registers.ok() ? registers.value() : metal_on_cpu::Registers{};
}

class Registers : public testing::TestWithParam<Asked> {};

TEST_P(Registers, HoldAllOfAProduct) {
  Problem problem(GetParam().spec());
  ASSERT_TRUE(problem.pack());
  const metal_on_cpu::Registers dense = registers_of(problem, Routed::no);
  RecordProperty("registers", static_cast<int>(dense.used));
  EXPECT_EQ(dense.memory, 0u) << "bytes for what is in no register";
  const KernelRow& row = *GetParam().row;
  if (!is_choice(row, problem.plan.layout, GetParam().activation(), true)) return;
  // In the short form, those that are near the limit, of each a kernel that sorts if there is one. BF16 takes what F16 does.
  const bool near = dense.used + kOfExperts > 128 && GetParam().a_type != MARLIN_BF16;
  for (const Routed routed : {Routed::before, Routed::by_groups}) {
    const bool sorts = routed == Routed::by_groups;
    if (sorts && row.sorts == nullptr) continue;
    if (!whole_campaigns() && (!near || sorts != (row.sorts != nullptr))) continue;
    const metal_on_cpu::Registers registers = registers_of(problem, routed);
    RecordProperty(sorts ? "sorts" : "routed", static_cast<int>(registers.used));
    EXPECT_EQ(registers.memory, 0u) << "of experts, sorted " << (sorts ? "by the kernel" : "before");
  }
}

/// Arrays of fragments that a loop indexes are memory, even where this compiler would unroll the loop unasked; and decoded
/// tiles that wait for branches are too many.
TEST(RegistersOfMistakes, AreSeen) {
  constexpr const char* kLoops[] = {
      "for (ushort m = 0; m < TILES; m++) {\n        if (ends_before(rows, m)) break;\n        mul",
      "for (ushort t = 0; t < 4; t++) {\n    simdgroup"};
  for (const auto& [from, to, routed] : {std::tuple{std::string("UNROLL ") + kLoops[0], kLoops[0], Routed::no},
                                         {std::string("UNROLL ") + kLoops[1], kLoops[1], Routed::no},
                                         {std::string("add_tiles<2>"), "add_tiles<4>", Routed::before}}) {
    Setting setting;
    setting.changes = {{"metal/regdecode.metal", from, to}};
    Problem problem(case_of(kKinds[0], 17, 64, 512));
    ASSERT_TRUE(problem.pack());
    EXPECT_GT(registers_of(problem, routed, setting).memory, 0u) << from;
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
