// The worked kernel of docs/adding-a-kernel.md: it stands there as it stands here, and it is right.
#include "backends/cpu/epilogue.h"
#include "kernels_problem.h"
#include "test.h"

namespace metal_marlin::cpu {
namespace {

// clang-format off
// the page begins here
/// Dense INT8 weights with float16 scales times float32 activations, a row at a time.
void cpu_generic_gemv_i8_f32(const PanelArgs& args) {
  const PanelLayout& layout = *args.layout;
  const ActivationLayout& act = args.activations;
  float* sums = args.sums;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile, sums += kPanelColumns) {
    std::fill_n(sums, kPanelColumns, 0.0f);
    for (int64_t block = 0; block < act.blocks; ++block) {
      const uint8_t* super = args.panel + block / kBlocksPerSuper * layout.super_bytes();
      const float* x = reinterpret_cast<const float*>(args.packed_a + act.offset(tile, block));
      for (int column = 0; column < kPanelColumns; ++column) {
        const uint8_t* codes = args.panel + layout.block_offset(column, block);
        for (int step = 0; step < kBlockSlots; ++step) {
          const int slot = act.slot(step);  // which slot of the block this activation multiplies
          const auto q = static_cast<int8_t>(codes[slot / 4 * 64 + 4 * (column % 16) + slot % 4]);
          const int64_t group = (block % kBlocksPerSuper * kBlockSlots + slot) / layout.slot_group;
          const uint8_t* scale = super + layout.scales_offset() + 2 * (group * kPanelColumns + column);
          sums[column] += x[step] * (q * f16_to_f32(load<uint16_t>(scale)));
        }
      }
    }
  }
}
// the page ends here
// clang-format on

constexpr KernelRow kRow{.name = "cpu_generic_gemv_i8_f32",
                         .multiply = cpu_generic_gemv_i8_f32,
                         .codes = bit(CodeKind::i8),
                         .scales = bit(ScaleType::f16),
                         .m_max = 1,
                         .tile_rows = 1,
                         .steps = {prepare_activations, finish_panel, finish_pair_sums}};

TEST(WorkedKernel, AgreesWithScalarSums) {
  std::mt19937 rng(std::random_device{}());
  for (const int group : {16, 32, 64, 128}) {
    const int64_t m = 1 + rng() % 3, n = 1 + rng() % 150, k = 1 + rng() % 500;
    const TestWeights w = random_weights({MARLIN_FORMAT_INT8, ScaleType::f16, ZeroKind::none, group}, n, k, rng);
    Operands o = make_operands(w, m, MARLIN_F32, MARLIN_F32, rng);
    const ActivationLayout act = activation_layout(kRow, *w.packed, m);
    std::vector<uint32_t> packed(act.bytes() / 4);
    prepare_activations({&o.problem.a, 0, m, nullptr, nullptr, act, packed.data()}, 0, act.tiles);
    std::vector<float> sums(static_cast<size_t>(act.tiles * kPanelColumns));
    for (int64_t panel = 0; panel < w->layout.panels(); ++panel) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(w->data.data()) + panel * w->layout.panel_bytes();
      kRow.multiply({&w->layout, CodeKind::i8, bytes, act, packed.data(), 0, act.tiles, false, sums.data()});
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = panel * kPanelColumns; c < std::min(n, (panel + 1) * kPanelColumns); ++c) {
          float* const to = reinterpret_cast<float*>(o.c.data()) + r * o.problem.c.stride + c;
          *to = sums[static_cast<size_t>(r * kPanelColumns + c % kPanelColumns)];
        }
    }
    EXPECT_TRUE(check(o, w)) << "group " << group;
  }
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WorkedKernel, StandsOnThePage) {
  const std::string root = MARLIN_SOURCE_ROOT, source = read(root + "/tests/unit/kernels_worked_test.cc");
  const std::string begin = "// the page begins here\n";
  const size_t first = source.find(begin) + begin.size(), end = source.find("// the page ends here\n");
  ASSERT_LT(first, end);
  const std::string kernel = source.substr(first, end - first);
  EXPECT_NE(read(root + "/docs/adding-a-kernel.md").find("```c++\n" + kernel + "```\n"), std::string::npos)
      << "docs/adding-a-kernel.md has another kernel";
}

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

/// The row at the head of the page is the one that compiles.
TEST(WorkedKernel, RowStandsOnThePage) {
  const std::string root = MARLIN_SOURCE_ROOT, page = read(root + "/docs/adding-a-kernel.md");
  const size_t first = page.find("    MARLIN_CPU_KERNEL("), end = page.find("\n\n", first);
  ASSERT_LT(first, end);
  const std::string row = without_spaces(page.substr(first, end - first));
  EXPECT_NE(without_spaces(read(root + "/src/backends/cpu/x86/kernels.inc")).find(row), std::string::npos) << row;
}

}  // namespace
}  // namespace metal_marlin::cpu
