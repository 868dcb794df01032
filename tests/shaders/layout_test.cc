// The drawings of decision 0004 place every bit by functions of docs/metal.py; here they are held against the packer.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "kinds.h"
#include "must.h"

namespace shaders {
namespace {

constexpr const char* kScript = "python3 -B '" MARLIN_SHADERS "/../docs/metal.py' --layout";

/// Lines "kind row index word bits...": where the code of a row's slot, or of its kept element for 2:4, lies.
std::vector<std::string> drawn_layout() {
  std::vector<std::string> lines;
  std::FILE* pipe = popen(kScript, "r");
  if (pipe == nullptr) return lines;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) lines.emplace_back(line.data());
  if (pclose(pipe) != 0) lines.clear();
  return lines;
}

struct Packed {
  explicit Packed(const Kind& kind) : problem(case_of(kind, 1, kRowBlock, kBlockSlots)) {}
  uint32_t bits(std::istringstream& line, int count) const {
    size_t word = 0;
    line >> word;
    uint32_t all = 0, value = 0;
    std::memcpy(&all, problem.packed.data() + 4 * word, 4);
    for (int i = 0, bit = 0; i < count && line >> bit; ++i) value = value << 1 | (all >> bit & 1);
    return value;
  }
  Problem problem;
};

/// k of the kept element `index` of a row, two in each four.
int64_t kept_k(const std::vector<uint8_t>& kept, int64_t row, int64_t index) {
  const uint32_t mask = kept[static_cast<size_t>(row * kBlockSlots / 4 + index / 2)];
  return index / 2 * 4 + (index % 2 == 0 ? std::countr_zero(mask) : std::bit_width(mask) - 1);
}

TEST(Layout, IsDrawnAsThePackerWritesIt) {
  if (std::system("python3 -c 'import pathlib' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3 here";
  std::map<std::string, Packed> packed;
  packed.emplace("fp4", kKinds[4]);
  packed.emplace("u4", kKinds[0]);
  packed.emplace("i8", kKinds[6]);
  packed.emplace("u4_sparse", kKinds[8]);
  for (auto& [name, weights] : packed) ASSERT_TRUE(weights.problem.pack());
  const std::vector<std::string> lines = drawn_layout();
  EXPECT_EQ(lines.size(), size_t{kRowBlock} * kBlockSlots * 7 / 2);
  for (const std::string& text : lines) {
    std::istringstream line(text);
    std::string kind;
    int64_t row = 0, index = 0;
    line >> kind >> row >> index;
    const Packed& weights = packed.at(kind);
    const bool sparse = kind == "u4_sparse", bytes = kind == "i8";
    const auto& all = weights.problem.source.all();
    const int64_t k = sparse ? kept_k(all.kept, row, index) : index;
    const uint32_t code = all.codes[static_cast<size_t>(row * kBlockSlots + k)];
    ASSERT_EQ(weights.bits(line, bytes ? 8 : 4), bytes ? code ^ 0x80u : code) << text;
    if (sparse) {
      ASSERT_EQ(weights.bits(line, 2), k % 4) << text;
    }
  }
}

/// The bytes of packed K-quants; docs/decisions/0004-metal-kernels.md has them as a table.
TEST(Layout, OfKQuantsIsNearTheFilesSize) {
  struct {
    const char* name;
    int64_t file, packed;  // bytes of 256 weights of a row
  } constexpr kBytes[] = {{"q2_k", 84, 84},   {"q3_k", 110, 114},   {"q4_k", 144, 148},   {"q5_k", 176, 180},
                          {"q6_k", 210, 210}, {"iq4_nl", 144, 144}, {"iq4_xs", 136, 138}, {"nf4", 160, 160}};
  for (const auto& bytes : kBytes) {
    const Kind* const kind =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == std::string(bytes.name); });
    Problem problem(case_of(*kind, 1, 256, 2048));
    const auto plan = must(metal_marlin::gpu::plan_packing(problem.source.meta()));
    const bool codebook = plan.layout.codes == metal_marlin::gpu::KernelCodes::lut4;
    EXPECT_EQ(plan.layout.bytes, static_cast<uint64_t>(256 * 8 * bytes.packed + (codebook ? metal_marlin::gpu::kPartAlign : 0)))
        << bytes.name;
    if (bytes.name != std::string("q3_k")) {
      EXPECT_LE(bytes.packed * 100, bytes.file * 103) << bytes.name;
    }
  }
}

/// Blocks of 64, whose scales have a factor for 256 of them: the file has a byte for each block.
TEST(Layout, OfNestedScalesIsNearTheFilesSize) {
  const Kind* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [](const Kind& k) { return k.scale_type == ScaleType::nested; });
  problem::Case spec = case_of(*kind, 1, 256, 4096);
  spec.group = 64;
  Problem problem(spec);
  problem.source.mutable_meta().factor_groups = 64;
  const auto plan = must(metal_marlin::gpu::plan_packing(problem.source.meta()));
  constexpr uint64_t kElements = 256 * 4096, kFile = kElements / 2 + kElements / 64 + kElements / 16384 * 4 + 256 * 4;
  EXPECT_LE(plan.layout.bytes * 100, kFile * 101);
}

/// Floats have a byte of scale, a row factor and a row origin for each row besides: 21 bytes.
TEST(Layout, OfFloatsIsNearTheFilesSize) {
  for (const Kind& kind : kKinds) {
    if (!is_float(kind)) continue;
    Problem problem(case_of(kind, 1, 256, 2048));
    const auto plan = must(metal_marlin::gpu::plan_packing(problem.source.meta()));
    EXPECT_EQ(plan.layout.bytes, problem.source.all().codes.size() + 256 * 21) << kind.name;
  }
}

}  // namespace
}  // namespace shaders
