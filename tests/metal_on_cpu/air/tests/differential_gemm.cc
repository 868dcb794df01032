// Dense products: matrix by vector (also transposed, gathered), and matrix by matrix (fused, split along K).
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

std::string list(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (const uint32_t n : numbers) text += ", " + std::to_string(n);
  return text;
}
// --- matrix by vector -------------------------------------------------------------------------------------------------------

struct VectorTile {  // simdgroups of a threadgroup, lanes of a simdgroup, elements of a lane: each rows by columns
  uint32_t bm, bn, sm, sn, tm, tn;
  std::string name() const {
    return "_bm" + std::to_string(bm) + "_bn" + std::to_string(bn) + "_sm" + std::to_string(sm) + "_sn" + std::to_string(sn) +
           "_tm" + std::to_string(tm) + "_tn" + std::to_string(tn);
  }
  std::string parameters() const { return list({bm, bn, sm, sn, tm, tn}); }
};

// Buffers 0 to 8, which gemv and its like begin with: `out` results of `in` products each.
Arguments vector_arguments(const VectorTile& tile, const Type& t, bool transposed, int out, int in, uint32_t matrices,
                           uint32_t vectors, uint32_t problems) {
  const int ld = (transposed ? out : in) + 3;  // rows of the matrix are longer than the problem
  const auto rows = static_cast<size_t>(transposed ? in : out), outputs = static_cast<size_t>(out);
  const uint32_t each = transposed ? tile.bn * tile.sn * tile.tn : tile.bm * tile.sm * tile.tm;
  return Arguments()
      .input(0, random_values(t, matrices * rows * static_cast<size_t>(ld), 1))
      .input(1, random_values(t, vectors * static_cast<size_t>(in), 2))
      .input(2, random_values(t, problems * outputs, 3))
      .output(3, problems * outputs * t.bytes)
      .value(4, in)
      .value(5, out)
      .value(6, ld)
      .value(7, 1.5F)
      .value(8, -0.75F)
      .groups(tiles(static_cast<uint32_t>(out), each), 1, problems)
      .threads(32, tile.bn, tile.bm);
}

Case gemv(const VectorTile& tile, const Type& t, bool transposed, bool batched, bool axpby, int out, int in) {
  const std::string function = transposed ? "gemv_t" : "gemv";
  return {function + "_" + t.wheel + tile.name() + "_nc" + (batched ? "1" : "0") + "_axpby" + (axpby ? "1" : "0"),
          function + "<" + t.msl + tile.parameters() + ", " + word(batched) + ", " + word(axpby) + ">", [=] {
            const uint32_t batch = batched ? 2 : 1;
            Arguments a = vector_arguments(tile, t, transposed, out, in, batch, batch, batch);
            const int64_t matrix = int64_t{transposed ? in : out} * ((transposed ? out : in) + 3);
            return a.value(9, 2)
                .values(10, std::vector<int>{static_cast<int>(batch), 1})
                .values(11, std::vector<int64_t>{in, in})
                .values(12, std::vector<int64_t>{matrix, matrix})
                .values(13, std::vector<int64_t>{out, out})
                .value(14, 1);
          }};
}

Case gemv_gather(const VectorTile& tile, const Type& t, bool transposed, int out, int in) {
  const std::string function = transposed ? "gemv_t_gather" : "gemv_gather";
  return {function + "_" + t.wheel + tile.name(), function + "<" + t.msl + tile.parameters() + ">", [=] {
            Arguments a = vector_arguments(tile, t, transposed, out, in, 3, 2, 3);
            const int64_t matrix = int64_t{transposed ? in : out} * ((transposed ? out : in) + 3);
            return a.value(9, 1)
                .value(10, 3)
                .values(11, std::vector<int64_t>{1, 1})
                .value(12, 1)
                .value(13, 2)
                .value(14, int64_t{in})
                .value(15, 1)
                .value(16, 3)
                .value(17, matrix)
                .values(18, std::vector<uint32_t>{1, 0, 1})
                .values(19, std::vector<uint32_t>{2, 0, 1});
          }};
}

Group gemm_vectors() {
  Group g{"gemv", {"utils.h", "gemv.h"}, {}};
  g.known = {{"gemv_*_bm1_bn8_*", "divergent-barrier", "a barrier inside 'if (thrN == 0)': one lane of a simdgroup reaches it"},
             {"gemv_gather_*", "device-race of buffer 3", "the last rows are computed by two simdgroups: the same values"}};
  for (const Type& t : {kF16, kF32, kBF16}) {
    g.cases.push_back(gemv({8, 1, 1, 32, 4, 4}, t, false, true, false, 64, 515));
    g.cases.push_back(gemv({1, 1, 8, 4, 4, 4}, t, false, true, true, 64, 30));
    g.cases.push_back(gemv({4, 1, 1, 32, 4, 4}, t, false, false, false, 40, 260));
    g.cases.push_back(gemv({1, 8, 1, 32, 4, 4}, t, false, false, true, 27, 515));
    g.cases.push_back(gemv({1, 2, 8, 4, 4, 4}, t, true, false, true, 64, 133));
    g.cases.push_back(gemv({1, 2, 8, 4, 4, 1}, t, true, true, false, 16, 64));
    g.cases.push_back(gemv({1, 16, 4, 8, 4, 4}, t, true, true, true, 512, 35));
    g.cases.push_back(gemv_gather({4, 1, 1, 32, 4, 4}, t, false, 33, 140));
    g.cases.push_back(gemv_gather({1, 4, 8, 4, 4, 4}, t, true, 128, 40));
  }
  return g;
}

// --- matrix by matrix -------------------------------------------------------------------------------------------------------

// The wheel's parameters of a kernel, as its headers declare them.
struct GemmParameters {
  int m, n, k, lda, ldb, ldd, tiles_n, tiles_m;
  int64_t batch_stride_a, batch_stride_b, batch_stride_d;
  int swizzle_log, k_iterations, batch_ndim;
};
struct SplitParameters {
  int m, n, k, lda, ldb, ldc, tiles_n, tiles_m, partitions, partition_stride, partition_size, swizzle_log, k_iterations;
};
struct AddParameters {
  int ldc, fdc;
  int64_t batch_stride_c;
  float alpha, beta;
};

struct MatrixTile {
  uint32_t bm, bn, bk, wm, wn;
  std::string name() const {
    return "_bm" + std::to_string(bm) + "_bn" + std::to_string(bn) + "_bk" + std::to_string(bk) + "_wm" + std::to_string(wm) +
           "_wn" + std::to_string(wn);
  }
  std::string parameters() const { return list({bm, bn, bk, wm, wn}); }
};

// A (M x K) times B (K x N), each possibly stored transposed.
struct Problem {
  uint32_t m, n, k;
  bool transposed_a, transposed_b;
  int lda() const { return static_cast<int>(transposed_a ? m : k); }
  int ldb() const { return static_cast<int>(transposed_b ? k : n); }
  std::string layout() const { return std::string(transposed_a ? "t" : "n") + (transposed_b ? "t" : "n"); }
  std::string parameters() const { return ", " + word(transposed_a) + ", " + word(transposed_b); }

  Arguments arguments(const MatrixTile& tile, const Type& t, uint32_t batch, size_t output_bytes, int output) const {
    return Arguments()
        .input(0, random_values(t, size_t{batch} * m * k, 1))
        .input(1, random_values(t, size_t{batch} * n * k, 2))
        .output(output, output_bytes)
        .threads(32, tile.wn, tile.wm);
  }
  GemmParameters parameters_of(const MatrixTile& tile) const {
    const auto i = [](uint64_t x) { return static_cast<int>(x); };
    return {
        i(m),           i(n),           i(k),           lda(), ldb(),          i(n), i(tiles(n, tile.bn)), i(tiles(m, tile.bm)),
        int64_t{m} * k, int64_t{n} * k, int64_t{m} * n, 0,     i(k / tile.bk), 1};
  }
};

Case fused(const MatrixTile& tile, const Type& t, const Problem& p, uint32_t batch, bool add, bool axpby) {
  return {"steel_gemm_fused_" + p.layout() + "_" + t.wheel + "_" + t.wheel + tile.name(),
          std::string("gemm<") + t.msl + tile.parameters() + p.parameters() + ", float>",
          [=] {
            Arguments a = p.arguments(tile, t, batch, size_t{batch} * p.m * p.n * t.bytes, 3);
            a.value(4, p.parameters_of(tile));
            if (add) {
              // The wheel's kernels read C below its last row, as far as their tile reaches: here it has those rows.
              a.input(2, random_values(t, (size_t{batch} * p.m + tile.bm) * p.n, 3));
              a.value(5, AddParameters{static_cast<int>(p.n), 1, int64_t{p.m} * p.n, 1.25F, -0.5F});
            }
            if (batch > 1) {
              a.value(6, static_cast<int>(batch));
              a.values(7, std::vector<int64_t>{int64_t{p.m} * p.k, int64_t{p.n} * p.k, int64_t{p.m} * p.n});
            }
            return a.groups(tiles(p.n, tile.bn), tiles(p.m, tile.bm), batch);
          },
          {{10, batch > 1},
           {100, add},
           {110, axpby},
           {200, p.m % tile.bm == 0},
           {201, p.n % tile.bn == 0},
           {202, p.k % tile.bk == 0}}};
}

Group fused_products() {
  Group g{"gemm_fused", {"utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_fused.h"}, {}};
  // With the same constants, several kernels are one image.
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Type& t = ta == tb ? kF16 : ta ? kBF16 : kF32;
      g.cases.push_back(fused({64, 64, 16, 2, 2}, t, {64, 128, 48, ta, tb}, 1, false, false));
      g.cases.push_back(fused({32, 32, 16, 2, 2}, t, {35, 50, 39, ta, tb}, 2, true, true));
      g.cases.push_back(fused({64, 32, 32, 2, 2}, t, {70, 40, 40, ta, tb}, 1, true, false));
      g.cases.push_back(fused({64, 32, 8, 4, 1}, kF32, {64, 32, 24, ta, tb}, 1, false, false));
    }
  }
  return g;
}

std::string aligned(bool mn, bool k) {
  return std::string("_MN_") + (mn ? "t" : "n") + "aligned_K_" + (k ? "t" : "n") + "aligned";
}

Case split(const MatrixTile& tile, const Type& t, const Problem& p, uint32_t parts) {
  const uint32_t part = p.k / parts / tile.bk * tile.bk;  // the last one takes the rest, too
  const bool mn = p.m % tile.bm == 0 && p.n % tile.bn == 0, k = p.k % tile.bk == 0;
  return {
      "steel_gemm_splitk_" + p.layout() + "_" + t.wheel + "_float32" + tile.name() + aligned(mn, k),
      std::string("gemm_splitk<") + t.msl + ", float" + tile.parameters() + p.parameters() + ", " + word(mn) + ", " + word(k) +
          ">",
      [=] {
        const auto i = [](uint32_t x) { return static_cast<int>(x); };
        const SplitParameters parameters{
            i(p.m),   i(p.n),       i(p.k),  p.lda(), p.ldb(),          i(p.n), i(tiles(p.n, tile.bn)), i(tiles(p.m, tile.bm)),
            i(parts), i(p.m * p.n), i(part), 0,       i(part / tile.bk)};
        return p.arguments(tile, t, 1, size_t{parts} * p.m * p.n * 4, 2)
            .value(3, parameters)
            .groups(tiles(p.n, tile.bn), tiles(p.m, tile.bm), parts);
      }};
}

Case accumulate(const Type& t, bool axpby) {
  return {std::string("steel_gemm_splitk_accum_") + t.wheel + "_float32" + (axpby ? "_axbpy" : ""),
          std::string(axpby ? "gemm_splitk_accum_axpby<float, " : "gemm_splitk_accum<float, ") + t.msl + ">", [=] {
            constexpr uint32_t kM = 13, kN = 37, kParts = 5;
            Arguments a;
            a.input(0, random_values(kF32, size_t{kParts} * kM * kN, 1)).output(1, size_t{kM} * kN * t.bytes);
            a.value(2, int{kParts}).value(3, int{kM * kN}).value(4, int{kN}).grid(kN, kM).threads(16, 8);
            if (axpby) {
              a.input(5, random_values(t, size_t{kM} * kN, 2)).value(6, int{kN}).value(7, 1);
              a.value(8, 1.5F).value(9, 0.3F);
            }
            return a;
          }};
}

Group split_products() {
  Group g{"gemm_splitk", {"utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_splitk.h"}, {}};
  for (const Type& t : {kF16, kBF16, kF32}) {
    g.cases.push_back(split({16, 32, 16, 2, 2}, t, {32, 64, 96, false, true}, 3));
    g.cases.push_back(split({32, 16, 16, 2, 2}, t, {33, 20, 70, true, false}, 2));
    g.cases.push_back(split({32, 32, 16, 2, 2}, t, {32, 32, 75, true, true}, 2));
    g.cases.push_back(accumulate(t, false));
    g.cases.push_back(accumulate(t, true));
  }
  return g;
}

}  // namespace

std::vector<Group> gemm_groups() { return {gemm_vectors(), fused_products(), split_products()}; }

}  // namespace metal_on_cpu::differential
