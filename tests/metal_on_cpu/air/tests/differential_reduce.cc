// Reductions: of everything, of rows, of columns; by sum, product, minimum, maximum, and, or.
#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

struct Reduction {
  std::string name;  // "sumfloat32"
  const char* functor;
  Type in, out;
};

std::string instance(const std::string& kernel, const Reduction& r, const std::string& more = "") {
  const std::string out = r.out.msl;
  return kernel + "<" + r.in.msl + ", " + out + ", " + r.functor + "<" + out + ">" + more + ">";
}

// Sums and products of short integers have 32 bits; and, or: bools.
Reduction reduction(const char* operation, const Type& t) {
  const std::string op = operation;
  if (op == "and" || op == "or") return {op + t.wheel, op == "and" ? "And" : "Or", t, kBool};
  if (op == "min" || op == "max") return {op + t.wheel, op == "min" ? "Min" : "Max", t, t};
  const bool small = !t.exponent_bits && t.bytes < 4;
  return {op + t.wheel, op == "sum" ? "Sum" : "Prod", t, small ? kI32 : t};
}

std::vector<Reduction> all_reductions() {
  std::vector<Reduction> all;
  for (const Type& t : {kF32, kI32, kF16, kBF16, kI8, kU8, kI16, kU32, kI64, kU64, kComplex64}) {
    for (const char* const op : {"sum", "prod", "min", "max"}) {
      all.push_back(reduction(op, t));
    }
  }
  for (const Type& t : {kBool, kI16, kI64, kF32, kF16, kBF16, kComplex64}) {
    for (const char* const op : {"and", "or"}) all.push_back(reduction(op, t));
  }
  return all;
}

// One of each kind: for the kernels that only differ in how they walk.
std::vector<Reduction> some_reductions() {
  return {reduction("sum", kF32),  reduction("max", kBF16), reduction("prod", kI64),     reduction("min", kF16),
          reduction("and", kBool), reduction("sum", kI8),   reduction("sum", kComplex64)};
}

// Products stay finite, sums of bools are no question.
Bytes elements(const Reduction& r, size_t count) { return random_values(r.in, count, 7, -2, 0); }

const std::vector<std::string> kHeaders = {"utils.h", "atomic.h", "reduction/ops.h", "reduce.h"};

Group initial_values() {
  Group g{"init_reduce", kHeaders, {}};
  for (const Reduction& r : {reduction("sum", kF32), reduction("prod", kI64), reduction("min", kF16), reduction("max", kBF16),
                             reduction("min", kI8), reduction("max", kU16), reduction("and", kBool), reduction("or", kBool),
                             reduction("sum", kComplex64), reduction("max", kComplex64), reduction("min", kU64)}) {
    const std::string out = r.out.msl;
    g.cases.push_back({"init_reduce_" + r.name, "init_reduce<" + out + ", " + r.functor + "<" + out + ">>",
                       [r] { return Arguments().output(0, 13 * 7 * r.out.bytes).grid(13, 7).threads(8, 8); }});
  }
  return g;
}

Group everything() {
  Group g{"all_reduce", kHeaders, {}};
  for (const Reduction& r : all_reductions()) {
    g.cases.push_back({"all_reduce_" + r.name, instance("all_reduce", r), [r] {
                         constexpr uint64_t kRows = 3, kColumns = 2503, kSize = kRows * kColumns - 11;
                         return Arguments()
                             .input(0, elements(r, kSize))
                             .output(1, kRows * r.out.bytes)
                             .value(2, kSize)
                             .value(3, kColumns)
                             .groups(1, kRows)
                             .threads(128);
                       }});
  }
  return g;
}

Group rows() {
  Group g{"row_reduce_simple", kHeaders, {}};
  for (const Reduction& r : all_reductions()) {
    g.cases.push_back({"row_reduce_simple_" + r.name, instance("row_reduce_simple", r), [r] {
                         constexpr uint64_t kColumns = 601;
                         constexpr int64_t kRows = 12;  // four a threadgroup
                         return Arguments()
                             .input(0, elements(r, kColumns * kRows))
                             .output(1, kRows * r.out.bytes)
                             .value(2, kColumns)
                             .value(3, kRows)
                             .groups(1, 3)
                             .threads(64);
                       }});
  }
  return g;
}

// The axes of an array that are reduced, outermost first, besides its rows or columns; and the one axis that is kept.
struct Axes {
  const char* in_name;  // "1", "large_2", "5"
  std::string more;     // the template's arguments that the name stands for
  std::vector<int> shape;
};
std::vector<Axes> axes(const char* small, const char* large) {
  const auto of = [](const char* index, const char* dims) { return std::string(", ") + index + ", " + dims; };
  return {{"1", of(small, "1"), {5}},        {"2", of(small, "2"), {3, 4}},       {"5", of(small, "5"), {3, 2, 2}},
          {"large_1", of(large, "1"), {11}}, {"large_2", of(large, "2"), {5, 2}}, {"large_5", of(large, "5"), {2, 3, 2}}};
}

// in[reduced axes..., kept, width]: strides of the reduced axes, and the kept one as its shape and strides.
struct Layout {
  std::vector<int> shape;
  std::vector<int64_t> strides;
  int64_t reductions = 1, kept, width;

  Layout(std::vector<int> reduced, int64_t kept_axis, int64_t row) : shape(std::move(reduced)), kept(kept_axis), width(row) {
    strides.resize(shape.size());
    int64_t stride = kept * width;
    for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    for (const int d : shape) reductions *= d;
  }
  size_t elements() const { return static_cast<size_t>(reductions * kept * width); }
  // Buffers 4 to 9.
  void describe(Arguments& a) const {
    a.value(4, static_cast<int>(kept)).value(5, width).value(6, 1);
    a.values(7, shape).values(8, strides).value(9, static_cast<int>(shape.size()));
  }
};

Group rows_of_several_axes() {
  Group g{"row_reduce", kHeaders, {}};
  for (const Axes& x : axes("int", "int64_t")) {
    for (const Reduction& r : some_reductions()) {
      const auto arguments = [=](int64_t kept, int64_t width) {
        const Layout l(x.shape, kept, width);
        Arguments a;
        a.input(0, elements(r, l.elements())).output(1, static_cast<size_t>(kept) * r.out.bytes);
        a.value(2, l.width).value(3, l.reductions);
        l.describe(a);
        return a;
      };
      const std::string name = std::string(x.in_name) + "_reduce_" + r.name;
      g.cases.push_back({"row_reduce_small_" + name, instance("row_reduce_small", r, x.more), [=] {
                           // Up to eight rows a thread reduces alone, more a simdgroup shares.
                           const bool alone = Layout(x.shape, 1, 1).reductions <= 8;
                           Arguments a = arguments(9, 37);
                           return alone ? a.grid(9).threads(9) : a.groups(1, 9).threads(32);
                         }});
      g.cases.push_back({"row_reduce_looped_" + name, instance("row_reduce_looped", r, x.more),
                         [=] { return arguments(3, 301).groups(1, 3).threads(64); }});
    }
  }
  return g;
}

Group columns() {
  Group g{"col_reduce", kHeaders, {}};
  for (const Axes& x : axes("int", "int64_t")) {
    for (const Reduction& r : some_reductions()) {
      // The innermost of the reduced axes is the column.
      const auto arguments = [=](std::vector<int> shape, int64_t kept, int64_t width, int64_t outputs) {
        const Layout l(std::move(shape), kept, width);
        Arguments a;
        a.input(0, elements(r, l.elements())).output(1, static_cast<size_t>(outputs) * r.out.bytes);
        a.value(2, static_cast<uint64_t>(l.shape.back())).value(3, l.width);
        l.describe(a);
        return a.value(10, static_cast<uint64_t>(l.reductions / l.shape.back()));
      };
      const std::string dims = x.in_name, name = "_reduce_" + r.name;
      std::vector<int> tall = x.shape;
      tall.back() = 61;
      g.cases.push_back({"col_reduce_small_" + dims + name, instance("col_reduce_small", r, x.more),
                         [=] { return arguments(x.shape, 3, 50, 3 * 50).groups(1, 3).threads(13, 4); }});
      g.cases.push_back({"col_reduce_longcolumn_" + dims + name, instance("col_reduce_longcolumn", r, x.more), [=] {
                           return arguments(tall, 2, 11, 2 * 2 * 11).value(11, uint64_t{2 * 11}).groups(2, 1, 2).threads(11, 8);
                         }});
      g.cases.push_back({"col_reduce_looped_" + dims + "_32_32" + name, instance("col_reduce_looped", r, x.more + ", 32, 32"),
                         [=] { return arguments(tall, 2, 71, 2 * 71).value(11, int64_t{0}).groups(3, 2).threads(256); }});
      g.cases.push_back(
          {"col_reduce_2pass_" + dims + "_32_32" + name, instance("col_reduce_2pass", r, x.more + ", 32, 32"), [=] {
             return arguments(tall, 1, 39, 32 * 39).value(11, int64_t{0}).value(12, uint64_t{1}).groups(2, 32).threads(256);
           }});
    }
  }
  return g;
}

}  // namespace

std::vector<Group> reduce_groups() { return {initial_values(), everything(), rows(), rows_of_several_axes(), columns()}; }

}  // namespace metal_on_cpu::differential
