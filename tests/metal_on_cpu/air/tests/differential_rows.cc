// What a threadgroup computes of a row: softmax, log of sums of exponentials, cross entropy, dot products.
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

constexpr Type kFloats[] = {kF32, kF16, kBF16};

struct Rows {
  uint32_t rows;
  int columns;
  uint32_t threads;
  size_t count() const { return rows * static_cast<size_t>(columns); }
};
// In one step: a thread has at most four elements. In several: it loops, and all 32 simdgroups are there.
constexpr Rows kBlock{5, 1001, 256}, kLooped{2, 4999, 1024};

std::string precise(const Type& t, bool of_float) { return std::string(t.msl) + (of_float ? ", float>" : ">"); }

Group softmax() {
  Group g{"softmax", {"utils.h", "softmax.h"}, {}};
  const auto add = [&](const std::string& name, const std::string& kernel, const Rows& r, const Type& t) {
    g.cases.push_back({name, kernel, [=] {
                         return Arguments()
                             .input(0, random_values(t, r.count(), 7, -6, 2))
                             .output(1, r.count() * t.bytes)
                             .value(2, r.columns)
                             .groups(r.rows)
                             .threads(r.threads);
                       }});
  };
  for (const Type& t : kFloats) {
    for (const bool of_float : {false, true}) {
      if (of_float && t.bytes == 4) continue;
      const std::string suffix = std::string(of_float ? "softmax_precise_" : "softmax_") + t.wheel;
      add("block_" + suffix, "softmax_single_row<" + precise(t, of_float), kBlock, t);
      add("looped_" + suffix, "softmax_looped<" + precise(t, of_float), kLooped, t);
    }
  }
  return g;
}

Group logsumexp() {
  Group g{"logsumexp", {"utils.h", "logsumexp.h"}, {}};
  for (const Type& t : kFloats) {
    for (const bool looped : {false, true}) {
      const Rows r = looped ? kLooped : kBlock;
      g.cases.push_back({std::string(looped ? "looped" : "block") + "_logsumexp_" + t.wheel,
                         std::string(looped ? "logsumexp_looped<" : "logsumexp<") + t.msl + ">", [=] {
                           return Arguments()
                               .input(0, random_values(t, r.count(), 7, -6, 2))
                               .output(1, r.rows * t.bytes)
                               .value(2, r.columns)
                               .groups(r.rows)
                               .threads(r.threads);
                         }});
    }
  }
  return g;
}

Group cross_entropy() {
  Group g{"cross_entropy", {"utils.h", "cross_entropy.h"}, {}};
  const Rows r{3, 1999, 96};
  const std::vector<int32_t> targets = {17, -3, 1998};  // from the end, too
  for (const Type& t : kFloats) {
    g.cases.push_back({std::string("cross_entropy_") + t.wheel, std::string("cross_entropy<") + t.msl + ">", [=] {
                         return Arguments()
                             .input(0, random_values(t, r.count(), 7, -6, 2))
                             .input(1, bytes_of(targets))
                             .output(2, r.rows * sizeof(float))
                             .value(3, r.columns)
                             .groups(r.rows)
                             .threads(r.threads);
                       }});
    g.cases.push_back({std::string("cross_entropy_vjp_") + t.wheel, std::string("cross_entropy_vjp<") + t.msl + ">", [=] {
                         return Arguments()
                             .input(0, random_values(t, r.count(), 7, -6, 2))
                             .input(1, bytes_of(targets))
                             .input(2, random_values(kF32, r.rows, 8, 1, 3))
                             .input(3, random_values(kF32, r.rows, 9, -2, 1))
                             .output(4, r.count() * t.bytes)
                             .value(5, r.columns)
                             .groups(r.rows)
                             .threads(r.threads);
                       }});
  }
  return g;
}

Group dot() {
  Group g{"dot_product", {"utils.h", "dot.h"}, {}};
  for (const Type& t : kFloats) {
    g.cases.push_back({std::string("dot_product_") + t.wheel + "_it32_tg512_sg16",
                       std::string("dot_product<") + t.msl + ", 32, 512, 16>", [=] {
                         constexpr int kCount = 3 * 16384 - 1003;  // the last of three threadgroups has less to do
                         return Arguments()
                             .input(0, random_values(t, kCount, 7))
                             .input(1, random_values(t, kCount, 8))
                             .output(2, 3 * sizeof(float))
                             .value(3, kCount)
                             .groups(3)
                             .threads(512);
                       }});
  }
  return g;
}

}  // namespace

std::vector<Group> row_groups() { return {softmax(), logsumexp(), cross_entropy(), dot()}; }

}  // namespace metal_on_cpu::differential
