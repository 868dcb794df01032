// Softmax, and reductions of everything.
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

Arguments softmax_arguments(const Type& type, int rows, int columns, uint32_t threads) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  return Arguments()
      .input(0, random_values(type, count, 7, -6, 2))
      .output(1, count * type.bytes)
      .value(2, columns)
      .groups(static_cast<uint32_t>(rows))
      .threads(threads);
}

Group softmax() {
  Group g{"softmax", {"utils.h", "softmax.h"}, {}};
  for (const Type& t : {kF16, kF32}) {
    g.cases.push_back({std::string("block_softmax_") + t.wheel, std::string("softmax_single_row<") + t.msl + ">",
                       [t] { return softmax_arguments(t, 5, 1001, 256); }});
  }
  g.cases.push_back(
      {"block_softmax_bfloat16", "softmax_single_row<bfloat>", [] { return softmax_arguments(kBF16, 5, 515, 160); }});
  g.cases.push_back({"block_softmax_precise_float16", "softmax_single_row<half, float>",
                     [] { return softmax_arguments(kF16, 3, 700, 192); }});
  return g;
}

Group all_reduce() {
  Group g{"all_reduce", {"utils.h", "atomic.h", "reduction/ops.h", "reduce.h"}, {}};
  const auto add = [&](const std::string& operation, const std::string& functor, const Type& t) {
    const std::string type = t.msl;
    g.cases.push_back(
        {"all_reduce_" + operation + t.wheel, "all_reduce<" + type + ", " + type + ", " + functor + "<" + type + ">>", [t] {
           constexpr uint64_t kRows = 3, kColumns = 5003;
           return Arguments()
               .input(0, random_values(t, kRows * kColumns, 7))
               .output(1, kRows * t.bytes)
               .value(2, kRows * kColumns)
               .value(3, kColumns)
               .groups(1, kRows)
               .threads(256);
         }});
  };
  add("sum", "Sum", kF32);
  add("min", "Min", kF32);
  add("max", "Max", kF32);
  add("sum", "Sum", kI32);
  return g;
}

}  // namespace

std::vector<Group> reduce_groups() { return {softmax(), all_reduce()}; }

}  // namespace metal_on_cpu::differential
