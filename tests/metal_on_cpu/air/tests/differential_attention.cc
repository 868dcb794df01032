// Attention: of single queries, in one pass and in two, and of blocks of queries.
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

enum class Masking { kNone, kCausal, kBool, kFloat };

// The shape of a problem: `heads` of queries share the keys and values of heads / shared.
struct Shape {
  uint32_t heads, shared, queries, keys;
  uint32_t d, v;  // of a query or key, and of a value
  Masking masking;
  bool sinks, transposed;
};

std::map<uint32_t, ConstantValue> constants_of(const Shape& s) {
  const bool masked = s.masking == Masking::kBool || s.masking == Masking::kFloat;
  return {{20, masked},
          {21, s.transposed},
          {22, s.masking == Masking::kCausal},
          {23, s.masking == Masking::kBool},
          {24, s.masking == Masking::kFloat},
          {25, s.sinks}};
}

// Queries, keys and values, which all kernels begin with.
Arguments inputs(const Shape& s, const Type& t) {
  const size_t kv_heads = s.heads / s.shared;
  return Arguments()
      .input(0, random_values(t, size_t{s.heads} * s.queries * s.d, 1, -4, 0))
      .input(1, random_values(t, kv_heads * s.keys * s.d, 2, -4, 0))
      .input(2, random_values(t, kv_heads * s.keys * s.v, 3, -4, 0));
}

// Strides of keys and values, the scale, the masks and the sinks, from buffer `at` on.
int strides_and_masks(Arguments& a, const Shape& s, const Type& t, int at) {
  a.value(at, size_t{s.keys} * s.d).value(at + 1, size_t{s.d});
  a.value(at + 2, size_t{s.keys} * s.v).value(at + 3, size_t{s.v}).value(at + 4, 0.25F);
  const size_t scores = size_t{s.heads} * s.queries * s.keys;
  if (s.masking == Masking::kBool) a.input(at + 5, random_values(kBool, scores, 4));
  if (s.masking == Masking::kFloat) a.input(at + 6, random_values(t, scores, 4, -4, 1));
  if (s.masking == Masking::kBool || s.masking == Masking::kFloat) {
    a.value(at + 7, 1).value(at + 8, static_cast<int>(s.keys)).value(at + 9, static_cast<int>(s.queries * s.keys));
  }
  if (s.sinks) a.input(at + 10, random_values(t, s.heads, 5, -3, 0));
  return at + 11;
}

std::string sizes(const Type& t, const Shape& s) {
  return std::string(short_name(t)) + "_" + std::to_string(s.d) + "_" + std::to_string(s.v);
}
std::string parameters(const Type& t, const Shape& s) {
  return std::string(t.msl) + ", " + std::to_string(s.d) + ", " + std::to_string(s.v);
}

Case one_pass(const Type& t, const Shape& s) {
  return {"sdpa_vector_" + sizes(t, s), "sdpa_vector<" + parameters(t, s) + ">",
          [=] {
            Arguments a = inputs(s, t);
            a.output(3, size_t{s.heads} * s.queries * s.v * t.bytes);
            a.value(4, static_cast<int>(s.shared)).value(5, static_cast<int>(s.keys));
            const int next = strides_and_masks(a, s, t, 6);
            if (s.sinks) a.value(next, static_cast<int>(s.heads));
            return a.groups(s.heads, s.queries).threads(1024);
          },
          constants_of(s)};
}

Case first_pass(const Type& t, const Shape& s, uint32_t blocks) {
  auto constants = constants_of(s);
  constants[26] = int64_t{blocks};
  return {"sdpa_vector_2pass_1_" + sizes(t, s), "sdpa_vector_2pass_1<" + parameters(t, s) + ">",
          [=] {
            Arguments a = inputs(s, t);
            const size_t rows = size_t{s.heads} * s.queries * blocks;
            a.output(3, rows * s.v * t.bytes).output(4, rows * 4).output(5, rows * 4).value(7, static_cast<int>(s.keys));
            strides_and_masks(a, s, t, 8);
            return a.groups(s.heads / s.shared, 1, blocks).threads(32, s.shared, s.queries);
          },
          constants};
}

Case second_pass(const Type& t, uint32_t d, uint32_t blocks) {
  return {"sdpa_vector_2pass_2_" + std::string(short_name(t)) + "_" + std::to_string(d),
          std::string("sdpa_vector_2pass_2<") + t.msl + ", " + std::to_string(d) + ">",
          [=] {
            constexpr uint32_t kHeads = 3;
            return Arguments()
                .input(0, random_values(t, size_t{kHeads} * blocks * d, 1))
                .input(1, random_values({"float", "float32", 4, 8, 22}, size_t{kHeads} * blocks, 2, 0, 0))
                .input(2, random_values(kF32, size_t{kHeads} * blocks, 3, -3, 1))
                .output(3, size_t{kHeads} * d * t.bytes)
                .value(4, static_cast<int>(blocks))
                .groups(kHeads)
                .threads(1024);
          },
          {{20, false}, {21, false}, {22, false}, {23, false}, {24, false}, {25, false}, {26, int64_t{32}}}};
}

Group attention_vectors() {
  Group g{"sdpa_vector", {"utils.h", "sdpa_vector.h"}, {}};
  for (const Type& t : {kF16, kF32, kBF16}) {
    g.cases.push_back(one_pass(t, {4, 2, 2, 70, 64, 64, Masking::kBool, true, false}));
    g.cases.push_back(one_pass(t, {4, 1, 2, 70, 96, 96, Masking::kBool, true, false}));
    g.cases.push_back(one_pass(t, {2, 1, 3, 45, 128, 128, Masking::kCausal, false, true}));
    g.cases.push_back(one_pass(t, {2, 2, 1, 40, 192, 128, Masking::kFloat, false, false}));
    g.cases.push_back(first_pass(t, {4, 2, 2, 75, 64, 64, Masking::kFloat, true, false}, 8));
    g.cases.push_back(first_pass(t, {2, 2, 1, 75, 128, 128, Masking::kCausal, false, false}, 8));
    g.cases.push_back(second_pass(t, 64, 64));
    g.cases.push_back(second_pass(t, 128, 32));
  }
  return g;
}

// --- blocks of queries ------------------------------------------------------------------------------------------------------

// The wheel's parameters, as its headers declare them.
struct Parameters {
  int b, h, d, ql, kl, shared;
  float scale;
  int nq, nk, nq_aligned, nk_aligned, ql_rest, kl_rest, ql_offset;
  int64_t q[3], k[3], v[3], o[3];
};

Case blocks(const Type& t, const Type& mask, uint32_t bk, const Shape& s) {
  constexpr uint32_t kRows = 32;
  const bool masked = s.masking == Masking::kBool || s.masking == Masking::kFloat;
  const std::string d = std::to_string(s.d), k = std::to_string(bk);
  return {std::string("steel_attention_") + t.wheel + "_bq32_bk" + k + "_bd" + d + "_bv" + d + "_wm4_wn1_mask" + mask.wheel,
          std::string("attention<") + t.msl + ", 32, " + k + ", " + d + ", " + d + ", 4, 1, " + mask.msl + ", float>",
          [=] {
            const auto i = [](uint32_t x) { return static_cast<int>(x); };
            const auto strides = [&](uint32_t heads, uint32_t rows) { return int64_t{heads} * rows * s.d; };
            Parameters p{1,
                         i(s.heads),
                         i(s.d),
                         i(s.queries),
                         i(s.keys),
                         i(s.shared),
                         0.25F,
                         i((s.queries + kRows - 1) / kRows),
                         i((s.keys + bk - 1) / bk),
                         i(s.queries / kRows),
                         i(s.keys / bk),
                         i(s.queries % kRows),
                         i(s.keys % bk),
                         i(s.keys - s.queries),
                         {},
                         {},
                         {},
                         {}};
            for (int64_t* of : {p.q, p.o}) of[0] = strides(s.heads, s.queries), of[1] = strides(1, s.queries), of[2] = s.d;
            for (int64_t* of : {p.k, p.v}) of[0] = strides(s.heads / s.shared, s.keys), of[1] = strides(1, s.keys), of[2] = s.d;
            Arguments a = inputs(s, t);
            a.output(3, size_t{s.heads} * s.queries * s.d * t.bytes).value(4, p);
            if (masked) {
              const int64_t scores = int64_t{s.queries} * s.keys;
              a.values(5, std::vector<int64_t>{scores * s.heads, scores, s.keys});
              a.input(6, random_values(mask, static_cast<size_t>(scores) * s.heads, 4, -4, 1));
            }
            if (s.sinks) a.input(7, random_values(t, s.heads, 5, -3, 0));
            return a.groups(static_cast<uint32_t>(p.nq), s.heads).threads(32, 4);
          },
          {{200, s.queries % kRows == 0},
           {201, s.keys % bk == 0},
           {300, masked},
           {301, s.masking == Masking::kCausal},
           {302, s.sinks},
           {303, false}}};
}

Group matrices() {
  Group g{"steel_attention", {"utils.h", "steel/attn/kernels/steel_attention.h"}, {}};
  for (const Type& t : {kF16, kF32, kBF16}) {
    g.cases.push_back(blocks(t, kBool, 32, {2, 2, 64, 64, 64, 64, Masking::kCausal, false, false}));
    g.cases.push_back(blocks(t, t, 32, {2, 1, 41, 70, 80, 80, Masking::kFloat, true, false}));
    g.cases.push_back(blocks(t, kBool, 16, {2, 1, 41, 70, 128, 128, Masking::kBool, true, false}));
  }
  return g;
}

}  // namespace

std::vector<Group> attention_groups() { return {attention_vectors(), matrices()}; }

}  // namespace metal_on_cpu::differential
