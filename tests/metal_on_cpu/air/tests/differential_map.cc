// What computes each element by itself: copies, unary, binary and ternary operations, ranges.
#include <algorithm>
#include <array>

#include "differential.h"

namespace metal_on_cpu::differential {
namespace {

constexpr size_t kElements = 1000;

constexpr const char* kReadOnce =
    "Apple's compiler may take buffers as distinct: a scalar operand is read once a thread, by ours once an element";
constexpr const char* kHalves =
    "a complex number comes in one register of the host, which is read whole where one half would do";

// How a kernel of contiguous operands covers them; the ending of the prefix in its name.
struct Cover {
  const char* ending;
  bool many;   // 8 bytes a thread, not one element
  bool plane;  // a grid of two dimensions and a size of 64 bits
};
constexpr Cover kOne{"", false, false}, kMany{"n", true, false}, kPlane{"2", true, true};

// Inputs of the general kernels: transposed, broadcast, with gaps.
struct Strided {
  const char* ending;
  std::vector<int> shape;
  std::vector<std::vector<int64_t>> strides;  // of the operands
  uint32_t work;                              // elements a thread; 0: shape is in the kernel's name
  bool large;                                 // indices of 64 bits
};
const Strided& strided(const std::string& ending) {
  static const std::vector<Strided> all = {
      {"1", {211}, {{3}, {1}, {2}}, 0, false},
      {"1large", {97}, {{2}, {0}, {1}}, 0, true},
      {"2", {13, 17}, {{1, 13}, {17, 1}, {0, 1}}, 0, false},
      {"2large", {5, 33}, {{1, 5}, {0, 2}, {33, 1}}, 0, true},
      {"3", {3, 5, 7}, {{1, 3, 15}, {0, 7, 1}, {35, 0, 2}}, 0, false},
      {"3large", {4, 3, 9}, {{27, 1, 3}, {0, 9, 1}, {1, 4, 12}}, 0, true},
      {"n1", {2, 3, 5, 7}, {{1, 2, 6, 30}}, 1, false},
      {"n2", {2, 3, 5, 7}, {{1, 2, 6, 30}, {0, 7, 0, 1}, {105, 35, 7, 1}}, 2, false},
      {"n4large", {2, 3, 4, 5, 6}, {{1, 2, 6, 24, 120}, {0, 30, 0, 6, 1}, {360, 120, 30, 0, 2}}, 4, true}};
  return *std::find_if(all.begin(), all.end(), [&](const Strided& s) { return s.ending == ending; });
}
size_t count(const std::vector<int>& shape) {
  size_t n = 1;
  for (const int d : shape) n *= static_cast<size_t>(d);
  return n;
}
size_t extent(const Strided& s, size_t operand) {
  int64_t last = 0;
  for (size_t i = 0; i < s.shape.size(); ++i) last += (s.shape[i] - 1) * s.strides[operand][i];
  return static_cast<size_t>(last) + 1;
}
// _g_nd2<..., int> and _g<..., 4>, as the wheel's own sources instantiate them.
std::string strided_suffix(const Strided& s) { return s.work ? "_g<" : "_g_nd" + std::to_string(s.shape.size()) + "<"; }
std::string strided_arguments(const Strided& s) {
  return (s.work ? ", " + std::to_string(s.work) : std::string()) + (s.large ? "" : ", int") + ">";
}
void set_grid(Arguments& a, const Strided& s) {
  const auto dim = [&](size_t i) { return i < s.shape.size() ? static_cast<uint32_t>(s.shape[s.shape.size() - 1 - i]) : 1; };
  if (!s.work)
    a.grid(dim(0), dim(1), dim(2)).threads(8, 4, 1);
  else
    a.grid((dim(0) + s.work - 1) / s.work, dim(1), static_cast<uint32_t>(count(s.shape)) / dim(0) / dim(1)).threads(4, 2, 2);
}

uint32_t work_of(const Cover& cover, const Type& type) {
  return cover.many ? static_cast<uint32_t>(std::max<size_t>(1, 8 / type.bytes)) : 1;
}
// The size at `index`, and a grid of it. With one element a thread there is no check against the size.
void set_cover(Arguments& a, const Cover& cover, const Type& type, int index) {
  const uint32_t work = work_of(cover, type), size = work > 1 ? kElements - 3 : kElements;
  if (cover.plane)
    a.value(index, int64_t{size}).grid(25, 40 / work).threads(16, 4);
  else
    a.value(index, size).grid((size + work - 1) / work).threads(64);
}

// Values on which an operation is defined.
enum class Domain { kAll, kNotZero, kShift };
Bytes operand(const Type& type, size_t elements, uint32_t seed, Domain domain = Domain::kAll) {
  Bytes all = random_values(type, elements, seed, -8, 4);
  if (type.exponent_bits || domain == Domain::kAll) return all;
  for (size_t i = 0; i < all.size(); i += type.bytes) {
    if (domain == Domain::kNotZero) {
      all[i] |= 1;
    } else {
      all[i] %= 8 * type.bytes;
      std::fill_n(&all[i] + 1, type.bytes - 1, 0);
    }
  }
  return all;
}

std::string name_of(const std::string& prefix, const std::string& operation, const std::string& types) {
  return prefix + "_" + operation + types;
}
std::string pair(const Type& t, const Type& u) { return std::string(t.msl) + ", " + u.msl; }

// --- copies
// ---------------------------------------------------------------------------------------------------------------------

void add_copy(Group& g, const char* from, const Cover& cover, const Type& t, const Type& u) {
  const bool scalar = from[0] == 's';
  g.cases.push_back({name_of(from + std::string(cover.ending), "copy", std::string(t.wheel) + u.wheel),
                     std::string("copy_") + from + (cover.plane ? "2" : "") + "<" + pair(t, u) + (cover.many ? ">" : ", 1>"),
                     [=] {
                       Arguments a;
                       a.input(0, operand(t, scalar ? 1 : kElements, 3)).output(1, kElements * u.bytes);
                       set_cover(a, cover, u, 2);
                       return a;
                     }});
}

void add_strided_copy(Group& g, const std::string& ending, const Type& t, const Type& u) {
  const Strided& s = strided(ending);
  g.cases.push_back({name_of("g" + ending, "copy", std::string(t.wheel) + u.wheel),
                     "copy" + strided_suffix(s) + pair(t, u) + strided_arguments(s), [&s, t, u] {
                       Arguments a;
                       a.input(0, operand(t, extent(s, 0), 3)).output(1, count(s.shape) * u.bytes).values(3, s.strides[0]);
                       if (s.work) a.values(2, s.shape).value(5, static_cast<int>(s.shape.size()));
                       set_grid(a, s);
                       return a;
                     }});
}

// To strided places as well, which may begin behind offsets that are read on the device.
void add_strided_copy_to(Group& g, const std::string& ending, bool dynamic, const Type& t) {
  const Strided& s = strided(ending);
  const std::string infix = dynamic ? "_dynamic" : "";
  g.cases.push_back({name_of("gg" + ending + infix, "copy", std::string(t.wheel) + t.wheel),
                     "copy_gg" + infix + strided_suffix(s).substr(2) + pair(t, t) + strided_arguments(s), [&s, t, dynamic] {
                       constexpr int64_t kFrom = 5, kTo = 9;
                       const size_t places = extent(s, 0);  // no two elements have the same
                       Arguments a;
                       a.input(0, operand(t, places + kFrom, 3)).in_out(1, random_bits((places + kTo) * t.bytes));
                       a.values(3, s.strides[0]).values(4, s.strides[0]);
                       if (s.work) a.values(2, s.shape).value(5, static_cast<int>(s.shape.size()));
                       if (dynamic) a.value(6, kFrom).value(7, kTo);
                       set_grid(a, s);
                       return a;
                     }});
}

Group copies() {
  Group g{"copy", {"utils.h", "copy.h"}, {}};
  for (const auto& [t, u] : {std::pair{kF32, kBF16},
                             {kF32, kF16},
                             {kF16, kF32},
                             {kBF16, kF32},
                             {kF32, kI8},
                             {kF32, kU64},
                             {kF16, kI32},
                             {kBF16, kU8},
                             {kI64, kF32},
                             {kU64, kBF16},
                             {kI32, kF16},
                             {kI16, kBool},
                             {kF32, kBool},
                             {kBF16, kBool},
                             {kComplex64, kBool},
                             {kComplex64, kF16},
                             {kF32, kComplex64}}) {
    add_copy(g, "v", kOne, t, u);
  }
  for (const Type& t : {kF32, kF16, kI8, kU64}) add_copy(g, "s", kOne, t, kF32);
  add_copy(g, "v", kMany, kF32, kF16);
  add_copy(g, "s", kMany, kI32, kU8);
  add_copy(g, "v", kPlane, kU8, kBF16);
  add_copy(g, "s", kPlane, kBF16, kComplex64);
  for (const char* const ending : {"1", "1large", "2", "2large", "3", "3large", "n2", "n4large"}) {
    add_strided_copy(g, ending, kF32, kBF16);
    add_strided_copy_to(g, ending, false, kF16);
    add_strided_copy_to(g, ending, true, kI64);
  }
  g.known = {{"s[n2]_copy*", "bytes read of buffer 0", kReadOnce},
             {"v_copycomplex64float16", "*bytes read of buffer 0", kHalves}};
  return g;
}

// --- unary
// ----------------------------------------------------------------------------------------------------------------------

void add_unary(Group& g, const char* operation, const Cover& cover, const Type& t, const Type& u) {
  g.cases.push_back(
      {name_of(std::string("v") + cover.ending, operation, std::string(t.wheel) + u.wheel),
       std::string("unary_v") + (cover.plane ? "2" : "") + "<" + pair(t, u) + ", " + operation + (cover.many ? ">" : ", 1>"),
       [=] {
         Arguments a;
         a.input(0, operand(t, kElements, 5)).output(1, kElements * u.bytes);
         set_cover(a, cover, t, 2);
         return a;
       }});
}

void add_strided_unary(Group& g, const char* operation, const std::string& ending, const Type& t) {
  const Strided& s = strided(ending);
  g.cases.push_back({name_of("g" + ending, operation, std::string(t.wheel) + t.wheel),
                     "unary_g<" + pair(t, t) + ", " + operation + strided_arguments(s), [&s, t] {
                       Arguments a;
                       a.input(0, operand(t, extent(s, 0), 5)).output(1, count(s.shape) * t.bytes);
                       a.values(2, s.shape).values(3, s.strides[0]).value(4, static_cast<int>(s.shape.size()));
                       set_grid(a, s);
                       return a;
                     }});
}

constexpr const char* kOfComplex[] = {"Sin",  "Abs",  "ArcCos", "ArcSin", "ArcTan", "Conjugate", "Cos",   "Cosh",
                                      "Exp",  "Log",  "Log10",  "Log1p",  "Log2",   "Negative",  "Round", "Rsqrt",
                                      "Sign", "Sinh", "Sqrt",   "Square", "Tan",    "Tanh"};
constexpr const char* kOfFloats[] = {"Exp",   "Abs",   "ArcCos", "ArcCosh",  "ArcSin", "ArcSinh", "ArcTan",  "ArcTanh",
                                     "Ceil",  "Cos",   "Cosh",   "Erf",      "ErfInv", "Expm1",   "Floor",   "Log",
                                     "Log10", "Log1p", "Log2",   "Negative", "Round",  "Rsqrt",   "Sigmoid", "Sign",
                                     "Sin",   "Sinh",  "Sqrt",   "Square",   "Tan",    "Tanh"};

Group unary_floats() {
  Group g{"unary_floats", {"utils.h", "unary_ops.h", "unary.h"}, {}};
  for (const char* const operation : kOfFloats) {
    for (const Type& t : {kF32, kF16, kBF16}) add_unary(g, operation, kOne, t, t);
  }
  add_unary(g, "Cos", kMany, kF16, kF16);
  add_unary(g, "Sigmoid", kMany, kBF16, kBF16);
  add_unary(g, "Erf", kPlane, kF32, kF32);
  add_strided_unary(g, "Tanh", "n1", kF32);
  add_strided_unary(g, "Exp", "n4large", kF16);
  for (const Type& t : {kF32, kF16, kBF16}) {
    add_unary(g, "ToFP8", kOne, t, kU8);
    add_unary(g, "FromFP8", kOne, kU8, t);
  }
  return g;
}

Group unary_others() {
  Group g{"unary_others", {"utils.h", "unary_ops.h", "unary.h"}, {}};
  for (const char* const operation : kOfComplex) add_unary(g, operation, kOne, kComplex64, kComplex64);
  add_unary(g, "Real", kOne, kComplex64, kF32);
  add_unary(g, "Imag", kOne, kComplex64, kF32);
  for (const char* const operation : {"Abs", "Ceil", "Floor", "Negative", "Sign", "Square"}) {
    for (const Type& t : {kI8, kU16, kI32, kI64, kU64, kBool}) add_unary(g, operation, kOne, t, t);
  }
  for (const Type& t : {kU8, kI16, kU32, kI64}) add_unary(g, "BitwiseInvert", kOne, t, t);
  add_unary(g, "LogicalNot", kOne, kBool, kBool);
  add_unary(g, "Abs", kMany, kI16, kI16);
  add_unary(g, "Square", kPlane, kU8, kU8);
  add_strided_unary(g, "Negative", "n1", kI64);
  add_strided_unary(g, "Conjugate", "n4large", kComplex64);
  g.known = {{"v_Realcomplex64float32", "*bytes read of buffer 0", kHalves}};
  return g;
}

// --- binary
// ---------------------------------------------------------------------------------------------------------------------

struct Binary {
  const char* name;
  bool compares = false;  // gives a bool
  Domain right = Domain::kAll;
};
constexpr Binary kAdd{"Add"}, kDivide{"Divide", false, Domain::kNotZero}, kRemainder{"Remainder", false, Domain::kNotZero},
    kFloorDivide{"FloorDivide", false, Domain::kNotZero}, kDivMod{"DivMod", false, Domain::kNotZero}, kLess{"Less", true},
    kLeftShift{"LeftShift", false, Domain::kShift}, kRightShift{"RightShift", false, Domain::kShift};

// The binary kernels have one result, those of binary_two.h two. `scalars`: vv, sv, vs or ss.
void add_binary(Group& g, const Binary& op, const std::string& scalars, const Cover& cover, const Type& t, int results = 1) {
  const Type u = op.compares ? kBool : t;
  const bool single = scalars == "ss";
  const std::string types = results == 1 ? pair(t, u) : pair(t, t);
  g.cases.push_back(
      {name_of(scalars + cover.ending, op.name, t.wheel),
       "binary_" + scalars + (cover.plane ? "2" : "") + "<" + types + ", " + op.name + (cover.many || single ? ">" : ", 1>"),
       [=] {
         Arguments a;
         a.input(0, operand(t, scalars[0] == 's' ? 1 : kElements, 11));
         a.input(1, operand(t, scalars[1] == 's' ? 1 : kElements, 12, op.right));
         for (int i = 0; i < results; ++i) a.output(2 + i, (single ? 1 : kElements) * u.bytes);
         if (single)
           a.grid(1).threads(1);
         else
           set_cover(a, cover, t, 2 + results);
         return a;
       }});
}

void add_strided_binary(Group& g, const Binary& op, const std::string& ending, const Type& t, int results = 1) {
  const Type u = op.compares ? kBool : t;
  const Strided& s = strided(ending);
  g.cases.push_back({name_of("g" + ending, op.name, t.wheel),
                     "binary" + strided_suffix(s) + pair(t, u) + ", " + op.name + strided_arguments(s),
                     [&s, op, t, u, results] {
                       Arguments a;
                       a.input(0, operand(t, extent(s, 0), 11)).input(1, operand(t, extent(s, 1), 12, op.right));
                       for (int i = 0; i < results; ++i) a.output(2 + i, count(s.shape) * u.bytes);
                       int next = 2 + results;
                       if (s.work) a.values(next++, s.shape);
                       a.values(next, s.strides[0]).values(next + 1, s.strides[1]);
                       if (s.work) a.value(next + 2, static_cast<int>(s.shape.size()));
                       set_grid(a, s);
                       return a;
                     }});
}

const std::vector<std::string> kHeadersOfBinary = {"utils.h", "binary_ops.h", "binary.h"};

Group binary_floats() {
  Group g{"binary_floats", kHeadersOfBinary, {}};
  for (const Binary& op : {kAdd, Binary{"Subtract"}, Binary{"Multiply"}, kDivide, kRemainder, kFloorDivide, Binary{"Maximum"},
                           Binary{"Minimum"}, Binary{"Power"}, Binary{"LogAddExp"}, kLess, Binary{"NaNEqual", true}}) {
    for (const Type& t : {kF32, kF16, kBF16, kComplex64}) add_binary(g, op, "vv", kOne, t);
  }
  for (const Type& t : {kF32, kF16, kBF16}) add_binary(g, {"ArcTan2"}, "vv", kOne, t);
  add_binary(g, kAdd, "ss", kOne, kF32);
  add_binary(g, kDivide, "sv", kOne, kF16);
  add_binary(g, kRemainder, "vs", kOne, kBF16);
  add_binary(g, {"Multiply"}, "vv", kMany, kF16);
  add_binary(g, {"Power"}, "sv", kMany, kBF16);
  add_binary(g, {"Maximum"}, "vs", kMany, kF32);
  add_binary(g, {"Subtract"}, "vv", kPlane, kF16);
  add_binary(g, kAdd, "sv", kPlane, kComplex64);
  add_binary(g, kLess, "vs", kPlane, kBF16);
  for (const char* const ending : {"1", "1large", "2", "2large", "3", "3large", "n2", "n4large"})
    add_strided_binary(g, kAdd, ending, kF32);
  add_strided_binary(g, {"Multiply"}, "n2", kComplex64);
  g.known = {{"sv[n2]_*", "bytes read of buffer 0", kReadOnce},
             {"vs[n2]_*", "bytes read of buffer 1", kReadOnce},
             {"vv_Lesscomplex64", "*bytes read of buffer [01]", kHalves}};
  return g;
}

Group binary_integers() {
  Group g{"binary_integers", kHeadersOfBinary, {}};
  for (const Binary& op : {kAdd, Binary{"Multiply"}, kDivide, kRemainder, kFloorDivide, Binary{"Maximum"}, Binary{"Power"},
                           Binary{"GreaterEqual", true}}) {
    for (const Type& t : {kI32, kI8, kU16, kI64, kU64}) add_binary(g, op, "vv", kOne, t);
  }
  for (const Binary& op : {kLeftShift, kRightShift, Binary{"BitwiseAnd"}, Binary{"BitwiseOr"}, Binary{"BitwiseXor"}}) {
    for (const Type& t : {kU8, kI16, kI32, kU64}) add_binary(g, op, "vv", kOne, t);
  }
  for (const Binary& op : {kAdd, Binary{"Multiply"}, Binary{"Maximum"}, Binary{"NotEqual", true}, Binary{"LogicalAnd"},
                           Binary{"LogicalOr"}, Binary{"BitwiseXor"}}) {
    add_binary(g, op, "vv", kOne, kBool);
  }
  add_binary(g, {"Equal", true}, "ss", kOne, kI16);
  add_binary(g, {"Minimum"}, "sv", kMany, kU8);
  add_binary(g, kFloorDivide, "vv", kPlane, kI16);
  add_strided_binary(g, kLeftShift, "2", kI32);
  add_strided_binary(g, {"NotEqual", true}, "n4large", kU16);
  g.known = {{"svn_*", "bytes read of buffer 0", kReadOnce}};
  return g;
}

Group two_results() {
  Group g{"binary_two", {"utils.h", "binary_ops.h", "binary_two.h"}, {}};
  for (const Type& t : {kF32, kF16, kBF16, kI8, kI32, kU64}) add_binary(g, kDivMod, "vv", kOne, t, 2);
  add_binary(g, kDivMod, "ss", kOne, kI16, 2);
  add_binary(g, kDivMod, "sv", kMany, kU8, 2);
  add_binary(g, kDivMod, "vs", kPlane, kF16, 2);
  for (const char* const ending : {"1", "2large", "3", "n2", "n4large"}) add_strided_binary(g, kDivMod, ending, kI16, 2);
  g.known = {{"svn_*", "bytes read of buffer 0", kReadOnce}, {"vs2_*", "bytes read of buffer 1", kReadOnce}};
  return g;
}

// --- ternary, ranges
// ------------------------------------------------------------------------------------------------------------

void add_select(Group& g, const std::string& scalars, const Cover& cover, const Type& t) {
  const bool left = scalars == "sv", right = scalars == "vs";
  g.cases.push_back({name_of(scalars + cover.ending, "Select", t.wheel),
                     std::string("ternary_v") + (cover.plane ? "2" : "") + "<" + t.msl + ", Select, " +
                         (left ? "true" : "false") + ", " + (right ? "true" : "false") + (cover.many ? ">" : ", 1>"),
                     [=] {
                       Arguments a;
                       a.input(0, operand(kBool, kElements, 21)).input(1, operand(t, left ? 1 : kElements, 22));
                       a.input(2, operand(t, right ? 1 : kElements, 23)).output(3, kElements * t.bytes);
                       set_cover(a, cover, t, 4);
                       return a;
                     }});
}

void add_strided_select(Group& g, const std::string& ending, const Type& t) {
  const Strided& s = strided(ending);
  g.cases.push_back({name_of("g" + ending, "Select", t.wheel),
                     "ternary" + strided_suffix(s) + t.msl + ", Select" + strided_arguments(s), [&s, t] {
                       Arguments a;
                       a.input(0, operand(kBool, extent(s, 0), 21)).input(1, operand(t, extent(s, 1), 22));
                       a.input(2, operand(t, extent(s, 2), 23)).output(3, count(s.shape) * t.bytes);
                       if (s.work) a.values(4, s.shape).value(8, static_cast<int>(s.shape.size()));
                       for (int i = 0; i < 3; ++i) a.values((s.work ? 5 : 4) + i, s.strides[static_cast<size_t>(i)]);
                       set_grid(a, s);
                       return a;
                     }});
}

Group ternary() {
  Group g{"select", {"utils.h", "ternary_ops.h", "ternary.h"}, {}};
  for (const Type& t : {kF32, kBF16, kU8, kI64, kComplex64}) add_select(g, "v", kOne, t);
  add_select(g, "sv", kOne, kF16);
  add_select(g, "vs", kMany, kI8);
  add_select(g, "v", kMany, kF16);
  add_select(g, "sv", kPlane, kI16);
  for (const char* const ending : {"1", "2", "3large", "n2", "n4large"}) add_strided_select(g, ending, kF32);
  g.known = {{"vsn_*", "bytes read of buffer 2", kReadOnce}, {"sv2_*", "bytes read of buffer 1", kReadOnce}};
  return g;
}

template <class T>
Case range(const Type& t, T start, T step) {
  return {std::string("arange") + t.wheel, std::string("arange<") + t.msl + ">", [=] {
            return Arguments().value(0, start).value(1, step).output(2, kElements * t.bytes).grid(kElements).threads(64);
          }};
}

Group ranges() {
  Group g{"arange", {"utils.h", "arange.h"}, {}};
  g.cases = {range<float>(kF32, -3.25f, 0.1f),
             range<uint16_t>(kF16, 0xc240, 0x2e66),
             range<uint16_t>(kBF16, 0xc050, 0x3dcd),
             range<int8_t>(kI8, -100, 3),
             range<uint8_t>(kU8, 7, 5),
             range<int16_t>(kI16, -9, -2),
             range<uint16_t>(kU16, 1, 70),
             range<int32_t>(kI32, -1000, 77),
             range<uint32_t>(kU32, 5, 4000000),
             range<int64_t>(kI64, -1, 1 << 30),
             range<uint64_t>(kU64, 3, 1ull << 50)};
  return g;
}

}  // namespace

std::vector<Group> map_groups() {
  return {copies(), unary_floats(), unary_others(), binary_floats(), binary_integers(), two_results(), ternary(), ranges()};
}

}  // namespace metal_on_cpu::differential
