// Fourier transforms whose size has no prime factor above 13.
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

// A size as a product of radices; a thread holds `elements` of a transform, a threadgroup `batch` transforms.
struct Plan {
  int size, elements;
  uint32_t batch;
  std::map<int, int64_t> steps;  // of each radix
};
const std::vector<Plan> kPowersOfTwo = {{64, 8, 4, {{8, 2}}}, {256, 8, 1, {{4, 1}, {8, 2}}}, {128, 8, 2, {{2, 1}, {8, 2}}}},
                        kComposites = {{60, 5, 4, {{3, 1}, {4, 1}, {5, 1}}},
                                       {42, 7, 6, {{6, 1}, {7, 1}}},
                                       {121, 11, 2, {{11, 2}}},
                                       {169, 13, 1, {{13, 2}}}};

std::map<uint32_t, ConstantValue> constants(const Plan& plan, bool inverse) {
  std::map<uint32_t, ConstantValue> all = {
      {0, inverse}, {1, (plan.size & (plan.size - 1)) == 0}, {2, int64_t{plan.elements}}, {3, int64_t{0}}, {22, false}};
  uint32_t index = 4;
  for (const int radix : {13, 11, 8, 7, 6, 5, 4, 3, 2}) {
    const auto found = plan.steps.find(radix);
    all[index] = found == plan.steps.end() ? int64_t{0} : found->second;
    all[index + 9] = int64_t{0};  // of Rader's algorithm
    ++index;
  }
  return all;
}

// Of complex numbers; or of real ones, two rows of which are one transform, to the half of the result that is not its mirror.
struct Kind {
  const char *in, *out;
  Type number;
  bool real_in = false, real_out = false;
};

void add(Group& g, const Kind& kind, const Plan& plan, int memory, bool inverse) {
  const std::string of = std::string(kind.in) + "_" + kind.out, size = std::to_string(memory);
  g.cases.push_back({"fft_mem_" + size + "_" + of, "fft<" + size + ", " + kind.in + ", " + kind.out + ">",
                     [=] {
                       constexpr uint32_t kGroups = 2;
                       const bool packed = kind.real_in || kind.real_out;
                       const uint32_t rows = kGroups * plan.batch * (packed ? 2 : 1);
                       const auto row = [&](bool real, bool other_real) {  // in numbers
                         const int length = real ? plan.size : other_real ? 2 * (plan.size / 2 + 1) : 2 * plan.size;
                         return static_cast<size_t>(length) * rows;
                       };
                       return Arguments()
                           .input(0, random_values(kind.number, row(kind.real_in, kind.real_out), 7, -4, 0))
                           .output(1, row(kind.real_out, kind.real_in) * kind.number.bytes)
                           .value(2, plan.size)
                           .value(3, static_cast<int>(rows))
                           .grid(kGroups, plan.batch, static_cast<uint32_t>(plan.size / plan.elements))
                           .threads(1, plan.batch, static_cast<uint32_t>(plan.size / plan.elements));
                     },
                     constants(plan, inverse)});
}

}  // namespace

std::vector<Group> fft_groups() {
  const std::vector<std::string> headers = {"utils.h", "fft.h"};
  const Kind complex{"float2", "float2", kF32}, halves{"complex32_t", "complex32_t", kF16};
  Group powers{"fft", headers, {}}, composites{"fft_composite", headers, {}};
  for (auto& [g, plans] : {std::pair{&powers, &kPowersOfTwo}, {&composites, &kComposites}}) {
    for (const Plan& plan : *plans) {
      for (const bool inverse : {false, true}) add(*g, complex, plan, 256, inverse);
      add(*g, halves, plan, 256, false);
    }
  }
  for (const int memory : {512, 1024, 2048}) {
    for (const Kind& kind : {complex, halves}) add(powers, kind, kPowersOfTwo[0], memory, true);
  }
  add(powers, {"float", "float2", kF32, true, false}, kPowersOfTwo[0], 256, false);
  add(powers, {"float2", "float", kF32, false, true}, kPowersOfTwo[0], 256, true);
  constexpr const char* kSame = "threads at the end of a row write the same number to the same place";
  powers.known = {{"fft_mem_256_float_float2", "device-race of buffer 1", kSame},
                  {"fft_mem_256_float2_float", "threadgroup-race", kSame},
                  {"fft_mem_256_float2_float", "threadgroup bytes written", "a component that is written again at once"}};
  return {powers, composites};
}

}  // namespace metal_on_cpu::differential
