// What decoding costs: operations of a decoder alone, for eight weights of one tile, as LLVM instructions behind clang's
// optimizer; of vectors each element counts. Not counted is what Apple's operands do themselves: to take half of a register,
// and to widen half to float. METAL_MARLIN_SHADER_TABLE=1 prints them as a table.
#include <cstdio>
#include <cstdlib>

#include "kinds.h"

namespace shaders {
namespace {

struct Decoder {
  const char *name, *codes;
  uint32_t scale_type;
  double most, most_with_scale;  // operations a weight
  uint32_t code_form = kFormOwn;
};
void PrintTo(const Decoder& d, std::ostream* out) { *out << d.name; }

constexpr Decoder kDecoders[] = {
    {"mxfp4", "Fp4", kScaleE8m0, 1.625, 2.625},
    {"nvfp4", "Fp4", kScaleE4m3, 1.625, 2.625},
    {"u4b8", "U4", kScaleF16, 1.625, 1.75},
    {"u4b8_bf16", "U4", kScaleBf16, 1.625, 2.625},
    {"int8", "I8", kScaleF16, 2.25, 3.25},
    {"mxfp4_sparse", "Fp4Sparse", kScaleE8m0, 5.125, 6.125},
    {"u4b8_sparse", "U4Sparse", kScaleF16, 5.75, 5.875},
    {"uint8", "I8", kScaleF16, 3.25, 3.25, kFormUnsigned},
    {"fp8", "I8", kScaleF32, 3.25, 4.25, kFormE4m3},
    {"int2", "Planes", kScaleF16, 3.25, 3.375, kForm2Bits},
    {"int3", "Planes", kScaleF16, 3.25, 3.375, kForm3Bits},
    {"int5", "Planes", kScaleF16, 2.875, 3, kForm5Bits},
    {"int6", "Planes", kScaleF16, 2.875, 3, kForm6Bits},
    {"lut4", "Lut4", kScaleF32, 1.875, 2.875},
    {"f32", "Floats", kScaleE8m0, 0, 0.3, kFormF32},
    {"f16", "Floats", kScaleE8m0, 0.3, 0.6, kFormF16},
    {"bf16", "Floats", kScaleE8m0, 0.3, 0.6, kFormBf16},
};

constexpr const char* kSource = R"(
#include "shaders/metal/product.h"
struct Pairs { CODES::Pair pair[4]; };
struct Weights { float2 pair[4]; };

kernel void bits(const device CODES::Span::Unit* units [[buffer(0)]], device Pairs* out [[buffer(1)]],
                 uint at [[thread_position_in_grid]]) {
  Pairs h;
  decode_pairs<CODES>(units[at], 0, TableInLanes{float(at)}, h.pair);
  out[at] = h;
}

kernel void codes(const device CODES::Span::Unit* units [[buffer(0)]], device Weights* out [[buffer(1)]],
                  const device float* scales [[buffer(2)]], constant ProductArgs& args [[buffer(3)]],
                  uint at [[thread_position_in_grid]]) {
  GroupScales<CODES> group(scales, scales, args, 0, 0);
  group.code_zero[0] = scales[at];
  Weights q;
  decode_codes<CODES>(units[at], 0, group, q.pair);
  out[at] = q;
}

kernel void weights(const device CODES::Span::Unit* units [[buffer(0)]], device Weights* out [[buffer(1)]],
                    const device float* scales [[buffer(2)]], constant ProductArgs& args [[buffer(3)]],
                    uint at [[thread_position_in_grid]]) {
  GroupScales<CODES> group(scales, scales, args, 0, 0);
  group.code_zero[0] = group.weight_zero[0] = group.scale[0] = scales[at];
  Weights w;
  decode_weights<CODES>(units[at], 0, group, w.pair);
  out[at] = w;
}
)";

class DecodingWork : public testing::TestWithParam<Decoder> {};

/// Operations a weight of a kernel of kSource, by class.
std::map<std::string, double> operations(const Decoder& decoder, const char* kernel_name) {
  metal_on_cpu::CompileOptions options;
  options.include_folders = {MARLIN_SHADERS "/.."};
  options.defines = {std::string("CODES=") + decoder.codes};
  auto library = metal_on_cpu::Library::from_source(kSource, options);
  EXPECT_TRUE(library.ok()) << library.message();
  auto kernel = library.value().kernel(kernel_name);
  kernel.constant(MARLIN_CONSTANT_SCALE_TYPE, int64_t{decoder.scale_type});
  kernel.constant(MARLIN_CONSTANT_CODE_FORM, int64_t{decoder.code_form});
  constexpr int kThreads = 32;
  const std::vector<uint32_t> units(kThreads * 8, 0x44444444u);
  const std::vector<float> numbers(kThreads, 1.0f);
  std::vector<float> out(kThreads * kUnitSlots);
  auto dispatch = kernel.dispatch();
  dispatch.buffer(0, units).output(1, out);
  if (std::string(kernel_name) != "bits") dispatch.buffer(2, numbers).value(3, ProductArgs{});
  const auto report = dispatch.groups(1).threads(kThreads).count().run();
  EXPECT_TRUE(report.ok()) << report.message();
  std::map<std::string, double> a_weight;
  for (const auto& [name, count] : report.value().counters.operations)
    a_weight[name] = static_cast<double>(count) / (kThreads * static_cast<int>(kUnitSlots));
  return a_weight;
}

TEST_P(DecodingWork, IsBelowItsLimit) {
  const auto sum = [](const std::map<std::string, double>& counts, bool floats) {
    double all = 0;
    for (const auto& [name, count] : counts)
      if (floats == name.starts_with("float ")) all += count;
    return all;
  };
  // Behind the bits all is float; what else there is takes halves of words apart.
  const double bits = sum(operations(GetParam(), "bits"), false);
  const double codes = bits + sum(operations(GetParam(), "codes"), true),
               weights = bits + sum(operations(GetParam(), "weights"), true);
  EXPECT_LE(codes, GetParam().most);
  EXPECT_LE(weights, GetParam().most_with_scale);
  if (std::getenv("METAL_MARLIN_SHADER_TABLE") != nullptr)
    std::printf("| %s | %.3f | %.3f | %.3f |\n", GetParam().name, bits, codes, weights);
}

INSTANTIATE_TEST_SUITE_P(Decoders, DecodingWork, testing::ValuesIn(kDecoders),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace shaders
