// Products with quantized weights: affine codes of 1 to 8 bits, and the microscaled floats mxfp4, nvfp4 and mxfp8.
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

struct Mode {
  const char* name;      // "affine", "mxfp4"
  const char* function;  // what templates of it are called: "affine", "fp"
  int group, bits;
  bool affine() const { return function[0] == 'a'; }
};
constexpr Mode kMxfp4{"mxfp4", "fp", 32, 4}, kNvfp4{"nvfp4", "fp", 16, 4}, kMxfp8{"mxfp8", "fp", 32, 8};

// x (M x K) times weights (K x N), as one kernel does it.
struct Form {
  const char* name;
  std::string suffix, parameters;  // of the kernel's name; of the template after type, group and bits
  uint32_t m, n, k;
  uint32_t tile_m, tile_n;  // of a threadgroup
  Size3 threads;
  bool columns_first = false;  // the grid is N by M, not M by N
  bool takes_m = false;        // M is an argument
  bool global_scale = false;   // and so is a scale of all weights, in the forms for floats
  uint32_t batch = 1;          // problems of a batch
  uint32_t gathered = 0;       // problems that choose their x and weights out of the batch; 0: none
  uint32_t split = 1;          // parts of K, summed by another kernel
};

// Arguments in the order in which all these kernels take them.
class Binding {
 public:
  Binding(const Mode& mode, const Type& type) : mode_(mode), type_(type) {}
  Arguments a;

  void weights(size_t count, bool global_scale) {
    Bytes codes = random_bits(count * static_cast<size_t>(mode_.bits) / 8, 1);
    if (mode_.bits == 8 && !mode_.affine()) {
      for (unsigned char& code : codes) code &= 0xfe;  // 0x7f is not a number
    }
    a.input(at_++, std::move(codes));
    const size_t groups = count / static_cast<size_t>(mode_.group);
    if (mode_.affine()) {
      input(random_values(type_, groups, 2, -8, -4));
      input(random_values(type_, groups, 3, -6, -2));
      return;
    }
    Bytes scales = random_bits(groups, 2);
    for (unsigned char& scale : scales) scale = mode_.group == 16 ? 0x28 | (scale & 15) : 118 + scale % 8;
    a.input(at_++, std::move(scales));
    if (global_scale) a.input(at_++, bytes_of(std::vector<float>{700.0F, 300.0F, 900.0F, 500.0F}));
  }
  void input(Bytes bytes) { a.input(at_++, std::move(bytes)); }
  void output(size_t bytes) { a.output(at_++, bytes); }
  template <class T>
  void value(const T& v) {
    a.value(at_++, v);
  }
  // Shapes and strides of the batch: two dimensions of which the second has length 1.
  void batch(const Form& f) {
    const auto matrix = int64_t{f.m} * f.k, weights = int64_t{f.n} * f.k;
    shape(f.batch, f.m, f.k);
    strides(matrix);
    shape(f.batch, f.n, f.k);
    strides(weights * mode_.bits / 32);
    strides(weights / mode_.group);
    if (mode_.affine()) strides(weights / mode_.group);
  }
  // The parts of K are a batch of one dimension.
  void parts(const Form& f, uint32_t part) {
    const auto weights = int64_t{part} * f.n;
    value(int{1});
    a.values(at_++, std::vector<int>{static_cast<int>(f.split), static_cast<int>(f.m)});
    a.values(at_++, std::vector<int64_t>{part});
    value(int{1});
    a.values(at_++, std::vector<int>{static_cast<int>(f.split)});
    a.values(at_++, std::vector<int64_t>{weights * mode_.bits / 32});
    a.values(at_++, std::vector<int64_t>{weights / mode_.group});
    if (mode_.affine()) a.values(at_++, std::vector<int64_t>{weights / mode_.group});
  }
  void gather(const Form& f) {
    value(int{1});
    a.values(at_++, std::vector<int>{static_cast<int>(f.gathered)});
    a.values(at_++, std::vector<int64_t>{1});
    a.values(at_++, std::vector<int64_t>{1});
  }

 private:
  void shape(uint32_t batch, uint32_t rows, uint32_t columns) {
    value(int{2});
    a.values(at_++, std::vector<int>{static_cast<int>(batch), 1, static_cast<int>(rows), static_cast<int>(columns)});
  }
  void strides(int64_t matrix) { a.values(at_++, std::vector<int64_t>{matrix, matrix}); }

  const Mode mode_;
  const Type type_;
  int at_ = 0;
};

Arguments product(const Form& f, const Mode& mode, const Type& type) {
  Binding b(mode, type);
  b.weights(size_t{f.batch} * f.n * f.k, f.global_scale);
  b.input(random_values(type, size_t{f.batch} * f.m * f.k, 4));
  const uint32_t problems = f.gathered ? f.gathered : f.batch * f.split;
  if (f.gathered) {
    std::vector<uint32_t> left(f.gathered), right(f.gathered);
    for (uint32_t i = 0; i < f.gathered; ++i) left[i] = (i + 1) % f.batch, right[i] = (2 * i + 1) % f.batch;
    b.input(bytes_of(left));
    b.input(bytes_of(right));
  }
  b.output(size_t{problems} * f.m * f.n * (f.name == std::string("qmm_t_splitk") ? 4 : type.bytes));
  const uint32_t part = tiles(f.k, f.split);
  const bool vector_parts = f.split > 1 && !f.columns_first;
  b.value(static_cast<int>(vector_parts ? part : f.k));
  b.value(static_cast<int>(f.n));
  if (f.takes_m) b.value(static_cast<int>(f.m));
  if (vector_parts) {
    b.parts(f, part);
    b.value(static_cast<int>(f.k - part * (f.split - 1)));
  } else if (f.split > 1) {
    b.value(static_cast<int>(part));
    b.value(static_cast<int>(f.m * f.n));
  } else {
    b.batch(f);
  }
  if (f.gathered) b.gather(f);
  const uint32_t rows = tiles(f.m, f.tile_m), columns = tiles(f.n, f.tile_n);
  b.a.groups(f.columns_first ? columns : rows, f.columns_first ? rows : columns, problems);
  b.a.threads(f.threads.x, f.threads.y, f.threads.z);
  return b.a;
}

Case multiply(const Form& f, const Mode& mode, const Type& type) {
  const std::string group = std::to_string(mode.group), bits = std::to_string(mode.bits);
  return {std::string(mode.name) + "_" + f.name + "_" + short_name(type) + "_gs_" + group + "_b_" + bits + f.suffix,
          std::string(mode.function) + "_" + f.name + "<" + type.msl + ", " + group + ", " + bits + f.parameters + ">",
          [=] { return product(f, mode, type); }};
}

std::string flag(bool b) { return b ? "1" : "0"; }

Form qmv(const char* name, bool batched, bool partial_rows, uint32_t n, uint32_t k) {
  return {.name = name,
          .suffix = "_batch_" + flag(batched) + "_pr_" + flag(partial_rows) + "_hgs_0_r_4",
          .parameters = ", " + word(batched) + ", " + word(partial_rows) + ", false, 4",
          .m = 2,
          .n = n,
          .k = k,
          .tile_m = 1,
          .tile_n = 8,
          .threads = {32, 2, 1},
          .global_scale = true,
          .batch = batched ? 2U : 1U};
}
Form qmv_quad(uint32_t d, bool batched) {
  return {.name = "qmv_quad",
          .suffix = "_d_" + std::to_string(d) + "_batch_" + flag(batched),
          .parameters = ", " + std::to_string(d) + ", " + word(batched),
          .m = 2,
          .n = 64,
          .k = d,
          .tile_m = 1,
          .tile_n = 64,
          .threads = {32, 1, 1},
          .batch = batched ? 2U : 1U};
}
Form qmv_wide(const Mode& mode, uint32_t vectors, bool batched) {
  const uint32_t lanes = mode.affine() ? 8 : 16;
  return {.name = "qmv_wide",
          .suffix = "_nv_" + std::to_string(vectors) + "_kl_" + std::to_string(lanes) + "_batch_" + flag(batched),
          .parameters = ", " + std::to_string(vectors) + ", " + std::to_string(lanes) + ", " + word(batched),
          .m = 7,
          .n = 11,
          .k = 384,
          .tile_m = vectors,
          .tile_n = 64 / lanes,
          .threads = {32, 2, 1},
          .takes_m = true,
          .batch = batched ? 2U : 1U};
}
Form qvm(const Mode& mode, bool batched) {
  return {.name = "qvm",
          .suffix = "_batch_" + flag(batched),
          .parameters = ", " + word(batched),
          .m = 2,
          .n = 128,
          .k = 45,
          .tile_m = 1,
          .tile_n = mode.group == 16 ? 32U : 64U,
          .threads = {32, 2, 1},
          .global_scale = true,
          .batch = batched ? 2U : 1U};
}
Form qvm_split_k(const Mode& mode) {
  return {.name = "qvm_split_k",
          .suffix = "_spk_8",
          .parameters = ", 8",
          .m = 1,
          .n = 128,
          .k = 8 * 32 - 13,
          .tile_m = 1,
          .tile_n = mode.group == 16 ? 32U : 64U,
          .threads = {32, 2, 1},
          .split = 8};
}
Form qmm_t(bool aligned, bool batched) {
  return {.name = "qmm_t",
          .suffix = "_alN_" + word(aligned) + "_batch_" + flag(batched),
          .parameters = ", " + word(aligned) + ", " + word(batched),
          .m = 39,
          .n = aligned ? 64U : 50U,
          .k = 128,
          .tile_m = 32,
          .tile_n = 32,
          .threads = {32, 2, 2},
          .columns_first = true,
          .takes_m = true,
          .global_scale = true,
          .batch = batched ? 2U : 1U};
}
Form qmm_t_splitk(bool aligned) {
  return {.name = "qmm_t_splitk",
          .suffix = "_alN_" + word(aligned),
          .parameters = ", " + word(aligned),
          .m = 20,
          .n = aligned ? 64U : 50U,
          .k = 256,
          .tile_m = 32,
          .tile_n = 32,
          .threads = {32, 2, 2},
          .columns_first = true,
          .takes_m = true,
          .split = 2};
}
Form qmm_n(bool batched) {
  return {.name = "qmm_n",
          .suffix = "_batch_" + flag(batched),
          .parameters = ", " + word(batched),
          .m = 39,
          .n = 128,
          .k = 80,
          .tile_m = 32,
          .tile_n = 32,
          .threads = {32, 2, 2},
          .columns_first = true,
          .takes_m = true,
          .batch = batched ? 2U : 1U};
}
Form gather(const char* name, uint32_t n, uint32_t k) {
  return {.name = name,
          .suffix = "",
          .parameters = "",
          .m = 1,
          .n = n,
          .k = k,
          .tile_m = 1,
          .tile_n = 8,
          .threads = {32, 2, 1},
          .global_scale = true,
          .batch = 3,
          .gathered = 4};
}
Form gather_qvm(const Mode& mode) {
  Form f = gather("gather_qvm", 128, 45);
  f.tile_n = mode.group == 16 ? 32 : 64;
  return f;
}
Form gather_qmm(const char* name, const std::string& suffix, const std::string& parameters, uint32_t n, uint32_t k) {
  Form f = gather(name, n, k);
  f.suffix = suffix, f.parameters = parameters;
  f.m = 18, f.tile_m = f.tile_n = 32, f.threads = {32, 2, 2}, f.columns_first = f.takes_m = true, f.gathered = 2;
  return f;
}

// Modes and types in turn, so that a family sees all of them without all combinations.
class Turns {
 public:
  explicit Turns(std::vector<Mode> modes) : modes_(std::move(modes)) {}
  template <class MakeForm>
  void add(Group& to, const MakeForm& make) {
    for (const Mode& mode : modes_) {
      constexpr Type kTypes[] = {kF16, kBF16, kF32};
      Mode m = mode;
      if (m.affine()) m.group = 32 << (turn_ / 2 % 3);
      to.cases.push_back(multiply(make(m), m, kTypes[turn_ % 3]));
      ++turn_;
    }
    ++turn_;  // so that the next form does not begin with the same type
  }

 private:
  const std::vector<Mode> modes_;
  size_t turn_ = 0;
};

constexpr const char* kReadAgain =
    "which repeated reads become one is the optimizers' choice; ours has no address spaces that tell codes from decoded values";
constexpr const char* kNoValue =
    "lanes beyond the end of the last part multiply codes without a value by 0; Apple's compiler has removed what would show "
    "it";
constexpr const char* kLastRows =
    "the last four rows are computed by two simdgroups where N is no multiple of 4: the same values";

std::vector<Group> products(const std::string& prefix, const std::vector<std::string>& headers, const std::vector<Mode>& modes,
                            const std::vector<Mode>& of_quad) {
  Group vectors{prefix + "_qmv", headers, {}}, outer{prefix + "_qvm", headers, {}}, matrices{prefix + "_qmm", headers, {}},
      gathers{prefix + "_gather", headers, {}};
  Turns all(modes), quad(of_quad);
  all.add(vectors, [](const Mode&) { return qmv("qmv_fast", false, false, 24, 512); });
  all.add(vectors, [](const Mode&) { return qmv("qmv_fast", true, true, 13, 512); });
  all.add(vectors, [](const Mode&) { return qmv("qmv", false, false, 13, 640); });
  all.add(vectors, [](const Mode&) { return qmv("qmv", true, false, 7, 384); });
  quad.add(vectors, [](const Mode&) { return qmv_quad(64, true); });
  quad.add(vectors, [](const Mode&) { return qmv_quad(128, false); });
  all.add(vectors, [](const Mode& m) { return qmv_wide(m, 3, true); });
  all.add(outer, [](const Mode& m) { return qvm(m, false); });
  all.add(outer, [](const Mode& m) { return qvm(m, true); });
  all.add(outer, [](const Mode& m) { return qvm_split_k(m); });
  all.add(matrices, [](const Mode&) { return qmm_t(true, false); });
  all.add(matrices, [](const Mode&) { return qmm_t(false, true); });
  all.add(matrices, [](const Mode&) { return qmm_t_splitk(false); });
  all.add(matrices, [](const Mode&) { return qmm_n(true); });
  all.add(gathers, [](const Mode&) { return gather("gather_qmv_fast", 16, 512); });
  all.add(gathers, [](const Mode&) { return gather("gather_qmv", 13, 384); });
  all.add(gathers, [](const Mode& m) { return gather_qvm(m); });
  all.add(gathers, [](const Mode&) { return gather_qmm("gather_qmm_t", "_alN_false", ", false", 50, 128); });
  all.add(gathers, [](const Mode&) { return gather_qmm("gather_qmm_n", "", "", 128, 40); });
  for (Group* g : {&vectors, &gathers}) g->known.push_back({"*qmv_*", "device-race of buffer [46]", kLastRows});
  outer.known.push_back({"*_qvm_split_k_*", "uninitialized-variable", kNoValue});
  if (prefix == "affine") {
    vectors.known.push_back({"affine_qmv_*", "bytes read of buffer 3", kReadAgain});
    matrices.known.push_back({"*", "bytes read of buffer 0", kReadAgain});
    gathers.known.push_back({"*_gather_qmm_*", "bytes read of buffer 0", kReadAgain});
    gathers.known.push_back({"*_gather_qmv_*", "bytes read of buffer 3", kReadAgain});
  }
  return {vectors, outer, matrices, gathers};
}

// --- weights alone ----------------------------------------------------------------------------------------------------------

constexpr uint32_t kWeights = 128 * 37;

Case quantize(const Mode& mode, const Type& t) {
  const std::string group = std::to_string(mode.group), bits = std::to_string(mode.bits),
                    common = "_gs_" + group + "_b_" + bits;
  const bool affine = mode.affine();
  return {std::string(mode.name) + "_quantize_" + short_name(t) + common + (affine ? "" : "_hgs_false"),
          std::string(mode.function) + "_quantize<" + t.msl + ", " + group + ", " + bits + (affine ? ">" : ", false>"), [=] {
            const auto groups = kWeights / static_cast<size_t>(mode.group);
            Arguments a;
            a.input(0, random_values(t, kWeights)).output(1, kWeights * static_cast<size_t>(mode.bits) / 8);
            a.output(2, groups * (affine ? t.bytes : 1));
            if (affine) a.output(3, groups * t.bytes);
            if (!affine) a.input(3, bytes_of(std::vector<float>{1}));
            return a.grid(affine ? kWeights * 32 / static_cast<uint32_t>(mode.group) : kWeights).threads(256);
          }};
}

Case dequantize(const Mode& mode, const Type& t) {
  const std::string group = std::to_string(mode.group), bits = std::to_string(mode.bits),
                    common = "_gs_" + group + "_b_" + bits;
  const bool affine = mode.affine();
  return {
      std::string(mode.name) + "_dequantize_" + short_name(t) + common + (affine ? "" : "_hgs_false"),
      std::string(mode.function) + "_dequantize<" + t.msl + ", " + group + ", " + bits + (affine ? ">" : ", false>"), [=] {
        Binding b(mode, t);
        b.weights(kWeights, true);
        b.output(kWeights * t.bytes);
        const uint32_t pack = mode.bits == 3 || mode.bits == 5 ? 8 : mode.bits == 6 ? 4 : 8 / static_cast<uint32_t>(mode.bits);
        return b.a.grid(kWeights / pack).threads(256);
      }};
}

Group weights(const std::string& prefix, const std::vector<std::string>& headers, const std::vector<Mode>& modes) {
  Group g{prefix + "_quantize", headers, {}};
  if (prefix == "affine")
    g.known.push_back({"affine_dequantize_*", "bytes read of buffer 0",
                       "Apple's compiler takes buffers as distinct: writes do not end reads"});
  uint32_t turn = 0;
  for (const Mode& mode : modes) {
    for (const Type& t : {kF16, kBF16, kF32}) {
      Mode m = mode;
      if (m.affine()) m.group = 32 << turn++ % 3;
      g.cases.push_back(dequantize(m, t));
      if (t.bytes == 2) g.cases.push_back(quantize(m, t));
    }
  }
  return g;
}

}  // namespace

std::vector<Group> quantized_groups() {
  std::vector<Mode> affine, power_of_two;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    affine.push_back({"affine", "affine", 0, bits});
    if ((bits & (bits - 1)) == 0 && bits > 1) power_of_two.push_back(affine.back());
  }
  const std::vector<Mode> floats = {kMxfp4, kNvfp4, kMxfp8};
  const std::vector<std::string> base = {"utils.h", "steel/gemm/gemm.h", "quantized_utils.h"};
  auto with = [&](const char* header) {
    std::vector<std::string> all = base;
    all.emplace_back(header);
    return all;
  };
  std::vector<Group> all = products("affine", with("quantized.h"), affine, power_of_two);
  all.push_back(weights("affine", with("quantized.h"), affine));
  all.push_back(weights("fp", with("fp_quantized.h"), floats));
  for (Group& g : products("fp", with("fp_quantized.h"), floats, floats)) all.push_back(std::move(g));
  return all;
}

}  // namespace metal_on_cpu::differential
