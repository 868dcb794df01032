#include "references.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace metal_on_cpu::air {
namespace {

using Real = long double;

// --- numbers in memory ----------------------------------------------------------------------------------------------------

struct Format {
  int precision, least;  // bits of the significand, exponent of the smallest normal number
  Real largest;
};
const Format& format_of(const std::string& type) {
  static const Format f32{24, -126, 3.40282346638528859812e38L}, f16{11, -14, 65504}, bf16{8, -126, 3.38953138925153547590e38L};
  return type == "half" ? f16 : type == "bfloat" ? bf16 : f32;
}
bool is_float(const std::string& type) { return type[0] != 'i'; }
int bits_of(const std::string& type) { return is_float(type) ? (type == "float" ? 32 : 16) : std::stoi(type.substr(1)); }
size_t bytes_of(const std::string& type) { return std::max<size_t>(1, static_cast<size_t>(bits_of(type)) / 8); }

int quantum(const Format& f, Real x) { return std::max(x == 0 ? f.least : std::ilogb(x), f.least) - (f.precision - 1); }

// To nearest, ties to even.
Real rounded(const std::string& type, Real x) {
  const Format& f = format_of(type);
  if (!std::isfinite(x)) return x;
  const int q = quantum(f, x);
  const Real r = std::ldexp(std::rint(std::ldexp(x, -q)), q);
  return std::fabs(r) > f.largest ? std::copysign(std::numeric_limits<Real>::infinity(), x) : r;
}

Real decode_half(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  Real x = exponent == 0 ? std::ldexp(Real(fraction), -24) : std::ldexp(Real(1024 + fraction), exponent - 25);
  if (exponent == 31) x = fraction ? std::numeric_limits<Real>::quiet_NaN() : std::numeric_limits<Real>::infinity();
  return h & 0x8000 ? -x : x;
}
uint16_t encode_half(Real x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  x = std::fabs(rounded("half", x));
  if (std::isinf(x)) return sign | 0x7c00;
  if (x < std::ldexp(Real(1), -14)) return sign | static_cast<uint16_t>(std::ldexp(x, 24));
  const int e = std::ilogb(x);
  return sign | static_cast<uint16_t>(((e + 15) << 10) + (static_cast<int>(std::ldexp(x, 10 - e)) - 1024));
}

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
Real real_at(const std::byte* p, const std::string& type) {
  if (type == "float") return load<float>(p);
  if (type == "half") return decode_half(load<uint16_t>(p));
  const uint32_t bits = uint32_t{load<uint16_t>(p)} << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
void put_real(std::byte* p, const std::string& type, Real x) {
  if (type == "half") {
    const uint16_t h = encode_half(x);
    std::memcpy(p, &h, 2);
    return;
  }
  const auto f = static_cast<float>(rounded(type, x));
  const auto* bytes = reinterpret_cast<const std::byte*>(&f);
  std::copy(type == "float" ? bytes : bytes + 2, bytes + 4, p);
}
uint64_t bits_at(const std::byte* p, const std::string& type) {
  uint64_t v = 0;
  std::memcpy(&v, p, bytes_of(type));
  return type == "i1" ? v & 1 : v;
}
uint64_t cut(uint64_t v, int bits) { return bits == 64 ? v : v & ((uint64_t{1} << bits) - 1); }
int64_t extended(uint64_t v, int bits) { return static_cast<int64_t>(v << (64 - bits)) >> (64 - bits); }

// --- names ----------------------------------------------------------------------------------------------------------------

std::string part(const std::string& name, size_t n) {
  size_t at = 0;
  for (size_t i = 0; i < n && at != std::string::npos; ++i)
    at = name.find('.', at + (i > 0)) == std::string::npos ? std::string::npos : name.find('.', at) + 1;
  if (at == std::string::npos) return "";
  return name.substr(at, name.find('.', at) - at);
}
// "air.fast_exp.f32" gives "exp".
std::string operation(const Intrinsic& f) {
  std::string name = part(f.name, 1);
  return name.starts_with("fast_") ? name.substr(5) : name;
}
bool starts(const std::string& text, const char* with) { return text.starts_with(with); }
bool collective(const std::string& op) { return starts(op, "simd") || starts(op, "quad"); }
bool is_signed(const Intrinsic& f) { return std::string(f.name).find(".s.") != std::string::npos; }

std::string text_of(Real x) { return std::to_string(static_cast<double>(x)); }

// --- comparing ------------------------------------------------------------------------------------------------------------

// Within `ulps` of the rounded reference; 0: exactly it.
std::string compare(const std::string& type, Real got, Real expected, Real ulps) {
  const Real want = rounded(type, expected);
  if (std::isnan(want) && std::isnan(got)) return "";
  if (got == want && (want != 0 || ulps > 0 || std::signbit(got) == std::signbit(want))) return "";
  const Real allowed = ulps * std::ldexp(Real(1), quantum(format_of(type), std::isfinite(want) ? want : Real(0)));
  if (std::isfinite(got) && std::isfinite(expected) && std::fabs(got - expected) <= allowed) return "";
  return "got " + text_of(got) + ", expected " + text_of(expected);
}
std::string compare(uint64_t got, uint64_t expected) {
  return got == expected ? "" : "got " + std::to_string(got) + ", expected " + std::to_string(expected);
}

struct MathFunction {
  Real (*f)(Real, Real);
  Real low, high, low2, high2;  // of ordinary operands
  Real ulps;                    // that the host's library and one more rounding may err
};
#define UNARY(name) [](Real x, Real) -> Real { return name(x); }
const std::map<std::string, MathFunction>& functions() {
  static const std::map<std::string, MathFunction> table = {
      {"exp", {UNARY(std::exp), -20, 20, 0, 0, 2}},
      {"exp2", {UNARY(std::exp2), -20, 20, 0, 0, 2}},
      {"log", {UNARY(std::log), 0, 1000, 0, 0, 2}},
      {"log2", {UNARY(std::log2), 0, 1000, 0, 0, 2}},
      {"log10", {UNARY(std::log10), 0, 1000, 0, 0, 3}},
      {"sqrt", {UNARY(std::sqrt), 0, 1000, 0, 0, 0}},
      {"rsqrt", {[](Real x, Real) { return 1 / std::sqrt(x); }, 0, 1000, 0, 0, 2}},
      {"sin", {UNARY(std::sin), -100, 100, 0, 0, 2}},
      {"cos", {UNARY(std::cos), -100, 100, 0, 0, 2}},
      {"tan", {UNARY(std::tan), -100, 100, 0, 0, 2}},
      {"sinh", {UNARY(std::sinh), -10, 10, 0, 0, 3}},
      {"cosh", {UNARY(std::cosh), -10, 10, 0, 0, 3}},
      {"tanh", {UNARY(std::tanh), -10, 10, 0, 0, 3}},
      {"asin", {UNARY(std::asin), -1, 1, 0, 0, 2}},
      {"acos", {UNARY(std::acos), -1, 1, 0, 0, 2}},
      {"atan", {UNARY(std::atan), -10, 10, 0, 0, 2}},
      {"asinh", {UNARY(std::asinh), -10, 10, 0, 0, 3}},
      {"acosh", {UNARY(std::acosh), 1, 50, 0, 0, 3}},
      {"atanh", {UNARY(std::atanh), -1, 1, 0, 0, 3}},
      {"fabs", {UNARY(std::fabs), -10, 10, 0, 0, 0}},
      {"floor", {UNARY(std::floor), -10, 10, 0, 0, 0}},
      {"ceil", {UNARY(std::ceil), -10, 10, 0, 0, 0}},
      {"rint", {UNARY(std::rint), -10, 10, 0, 0, 0}},
      {"round", {UNARY(std::round), -10, 10, 0, 0, 0}},
      {"pow", {[](Real x, Real y) { return std::pow(x, y); }, 0, 10, -5, 5, 2}},
      {"atan2", {[](Real x, Real y) { return std::atan2(x, y); }, -10, 10, -10, 10, 2}},
      {"fmod", {[](Real x, Real y) { return std::fmod(x, y); }, -100, 100, -10, 10, 0}},
      {"fmax", {[](Real x, Real y) { return std::fmax(x, y); }, -10, 10, -10, 10, 0.01L}},  // either zero of two
      {"fmin", {[](Real x, Real y) { return std::fmin(x, y); }, -10, 10, -10, 10, 0.01L}}};
  return table;
}
#undef UNARY

Real uniform(std::mt19937_64& random, Real low, Real high) {
  return low + (high - low) * static_cast<Real>(std::uniform_real_distribution<double>()(random));
}
Real special(std::mt19937_64& random, const std::string& type) {
  const Format& f = format_of(type);
  const Real infinity = std::numeric_limits<Real>::infinity();
  const Real values[] = {0,
                         -Real(0),
                         1,
                         -1,
                         0.5L,
                         2.5L,
                         -1.5L,
                         infinity,
                         -infinity,
                         std::numeric_limits<Real>::quiet_NaN(),
                         f.largest,
                         -f.largest,
                         std::ldexp(Real(1), f.least),
                         std::ldexp(Real(3), f.least - 2)};
  return values[random() % std::size(values)];
}

// --- one lane alone -------------------------------------------------------------------------------------------------------

std::string check_convert(const Intrinsic& f, const std::byte* x, const std::byte* result) {
  const Prototype p = parse_prototype(f.type);
  const Type from = parse_type(p.arguments[0]), to = parse_type(p.result);
  const char to_kind = part(f.name, 2)[0], from_kind = part(f.name, 4)[0];
  for (int i = 0; i < to.count; ++i) {
    const std::byte* source = x + static_cast<size_t>(i) * bytes_of(from.element);
    const std::byte* target = result + static_cast<size_t>(i) * bytes_of(to.element);
    std::string difference;
    if (to_kind == 'f') {
      const uint64_t bits = is_float(from.element) ? 0 : bits_at(source, from.element);
      Real value = is_float(from.element) ? real_at(source, from.element)
                   : from_kind == 's'     ? static_cast<Real>(extended(bits, bits_of(from.element)))
                                          : static_cast<Real>(bits);
      if (!is_float(from.element)) value = rounded("float", value);  // on the way to half and bfloat, as the source route does
      difference = compare(to.element, real_at(target, to.element), value, 0);
    } else {
      const Real value = real_at(source, from.element);
      const int bits = bits_of(to.element);
      uint64_t expected = 0;
      if (bits == 1) {
        expected = value != 0;
      } else if (!std::isnan(value)) {
        const Real high = std::ldexp(Real(1), to_kind == 's' ? bits - 1 : bits) - 1, low = to_kind == 's' ? -high - 1 : 0;
        const Real whole = std::min(std::max(std::trunc(value), low), high);
        expected =
            to_kind == 's' ? cut(static_cast<uint64_t>(static_cast<int64_t>(whole)), bits) : static_cast<uint64_t>(whole);
      }
      difference = compare(bits_at(target, to.element), expected);
    }
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string check_integer(const Intrinsic& f, const std::string& op, const std::byte* const* x, const std::byte* result) {
  const std::string type = parse_prototype(f.type).result;
  const int bits = bits_of(type);
  const auto at = [&](int k) { return bits_at(x[k], type); };
  const auto less = [&](uint64_t a, uint64_t b) { return is_signed(f) ? extended(a, bits) < extended(b, bits) : a < b; };
  uint64_t expected = at(0);
  if (op == "abs")
    expected = extended(at(0), bits) < 0 ? cut(0 - at(0), bits) : at(0);
  else if (op == "min")
    expected = less(at(1), at(0)) ? at(1) : at(0);
  else if (op == "max")
    expected = less(at(0), at(1)) ? at(1) : at(0);
  else if (op == "clamp")
    expected = less(at(0), at(1)) ? at(1) : at(0), expected = less(at(2), expected) ? at(2) : expected;
  else
    return "no reference";
  return compare(bits_at(result, type), expected);
}

std::string check_alone(const Intrinsic& f, const std::byte* const* x, const std::byte* result) {
  const std::string op = operation(f);
  const std::string type = parse_prototype(f.type).result;
  if (op == "convert") return check_convert(f, x[0], result);
  if (op == "is_uniform") return compare(bits_at(result, type), 1);
  if (op == "get_simdgroup_size") return compare(bits_at(result, type), 32);
  if (op == "normalize_function_constant_predicate") return compare(bits_at(result, type), bits_at(x[0], type) != 0);
  if (!is_float(type)) return check_integer(f, op, x, result);
  const Real got = real_at(result, type);
  if (op == "fma") return compare(type, got, std::fma(load<float>(x[0]), load<float>(x[1]), load<float>(x[2])), 0);
  if (op == "ldexp") return compare(type, got, std::ldexp(real_at(x[0], type), load<int32_t>(x[1])), 0);
  if (op == "dot") {
    Real sum = 0, size = 0;
    for (size_t i = 0; i < 4; ++i) {
      const Real product = real_at(x[0] + 4 * i, type) * real_at(x[1] + 4 * i, type);
      sum += product, size += std::fabs(product);
    }
    return std::fabs(got - sum) <= std::ldexp(size, -22) ? "" : compare(type, got, sum, 0);
  }
  const auto known = functions().find(op);
  if (known == functions().end()) return "no reference";
  const bool two = parse_prototype(f.type).arguments.size() == 2;
  return compare(type, got, known->second.f(real_at(x[0], type), two ? real_at(x[1], type) : 0), known->second.ulps);
}

// --- lanes together -------------------------------------------------------------------------------------------------------

uint64_t combine(const std::string& how, uint64_t a, uint64_t b, int bits, bool with_sign) {
  if (how == "sum") return cut(a + b, bits);
  if (how == "product") return cut(a * b, bits);
  const bool less = with_sign ? extended(a, bits) < extended(b, bits) : a < b;
  return (how == "max") == less ? b : a;
}
Real combine(const std::string& how, Real a, Real b) {
  return how == "sum" ? a + b : how == "product" ? a * b : how == "max" ? std::max(a, b) : std::min(a, b);
}

// "simd_prefix_inclusive_sum", "quad_max", ...
std::string check_reduction(const Intrinsic& f, const std::string& op, const Simdgroup& s) {
  const std::string type = parse_prototype(f.type).result, how = op.substr(op.rfind('_') + 1);
  const bool prefix = op.find("prefix") != std::string::npos, inclusive = op.find("inclusive") != std::string::npos;
  const int width = starts(op, "quad") ? 4 : 32;
  for (int lane = 0; lane < 32; ++lane) {
    const int first = lane / width * width, end = prefix ? lane + inclusive : first + width;
    std::string difference;
    if (is_float(type)) {
      Real value = how == "product" ? 1 : 0;
      for (int i = first; i < end; ++i)
        value = i == first ? real_at(s.operands[i][0], type) : combine(how, value, real_at(s.operands[i][0], type));
      const bool exact = how == "max" || how == "min";
      difference = compare(type, real_at(s.results[lane], type), value, exact ? 0 : 32);
    } else {
      uint64_t value = how == "product" ? 1 : 0;
      for (int i = first; i < end; ++i) {
        const uint64_t x = bits_at(s.operands[i][0], type);
        value = i == first ? x : combine(how, value, x, bits_of(type), is_signed(f));
      }
      difference = compare(bits_at(s.results[lane], type), value);
    }
    if (!difference.empty()) return "lane " + std::to_string(lane) + ": " + difference;
  }
  return "";
}

std::string check_shuffle(const Intrinsic& f, const std::string& op, const Simdgroup& s) {
  const Type type = parse_type(parse_prototype(f.type).result);
  const size_t bytes = bytes_of(type.element) * static_cast<size_t>(type.count);
  for (int lane = 0; lane < 32; ++lane) {
    const bool fill = op == "simd_shuffle_and_fill_up";
    const int by = load<uint16_t>(s.operands[lane][fill ? 2 : 1]);
    int from = lane, k = 0;
    if (op == "simd_shuffle")
      from = by;
    else if (op == "simd_shuffle_xor")
      from = lane ^ by;
    else if (op == "simd_shuffle_down")
      from = lane + by < 32 ? lane + by : lane;
    else if (fill)
      from = lane - by < 0 ? 32 + lane - by : lane - by, k = lane - by < 0 ? 1 : 0;
    else
      return "no reference";
    if (std::memcmp(s.results[lane], s.operands[from][k], bytes) != 0)
      return "lane " + std::to_string(lane) + " did not get the value of lane " + std::to_string(from);
  }
  return "";
}

// Row and column of a lane's first element: bits 1, 2 and 4 of the lane make the row, bits 0 and 3 the pair of columns.
size_t matrix_row(size_t lane) { return (lane >> 1 & 3) | (lane >> 4 & 1) << 2; }
size_t matrix_column(size_t lane) { return ((lane & 1) | (lane >> 3 & 1) << 1) * 2; }

std::string check_multiply(const Intrinsic& f, const Simdgroup& s) {
  const Prototype p = parse_prototype(f.type);
  Real m[3][8][8];
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t k = 0; k < 3; ++k) {
      const std::string type = parse_type(p.arguments[k]).element;
      for (size_t i = 0; i < 2; ++i)
        m[k][matrix_row(lane)][matrix_column(lane) + i] = real_at(s.operands[lane][k] + i * bytes_of(type), type);
    }
  }
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t row = matrix_row(lane), column = matrix_column(lane) + i;
      Real sum = m[2][row][column];
      for (size_t k = 0; k < 8; ++k) sum += m[0][row][k] * m[1][k][column];
      const std::string difference = compare("float", real_at(s.results[lane] + 4 * i, "float"), sum, 8);
      if (!difference.empty()) return "row " + std::to_string(row) + ", column " + std::to_string(column) + ": " + difference;
    }
  }
  return "";
}

std::string check_matrix(const Intrinsic& f, const std::string& op, const Simdgroup& s) {
  if (op == "simdgroup_matrix_8x8_multiply_accumulate") return check_multiply(f, s);
  if (op == "simdgroup_matrix_8x8_store") return "";  // checked in memory
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 2; ++i) {
      Real expected = 0;
      if (op == "simdgroup_matrix_8x8_init_filled") {
        expected = load<float>(s.operands[lane][0]);
      } else {
        const auto x = load<uint64_t>(s.operands[lane][2]), y = load<uint64_t>(s.operands[lane][2] + 8);
        const size_t row = matrix_row(lane), column = matrix_column(lane) + i;
        const bool transposed = load<uint8_t>(s.operands[lane][3]);
        expected = transposed ? matrix_value(column, row) : matrix_value(y + row, x + column);
      }
      const std::string difference = compare("float", real_at(s.results[lane] + 4 * i, "float"), expected, 0);
      if (!difference.empty()) return "lane " + std::to_string(lane) + ": " + difference;
    }
  }
  return "";
}

std::string check_vote(const std::string& op, const Simdgroup& s) {
  bool all = true, any = false;
  for (const auto& operands : s.operands)
    all = all && (load<uint8_t>(operands[0]) & 1), any = any || (load<uint8_t>(operands[0]) & 1);
  for (const std::byte* result : s.results) {
    if (load<uint8_t>(result) != (op == "simd_all" ? all : any)) return "the vote is wrong";
  }
  return "";
}

}  // namespace

float matrix_value(size_t row, size_t column) { return static_cast<float>(row) * 100 + static_cast<float>(column); }

Type parse_type(const std::string& text) {
  if (text[0] != '<') return {text, 1};
  const size_t by = text.find(" x ");
  return {text.substr(by + 3, text.size() - by - 4), std::stoi(text.substr(1))};
}

Prototype parse_prototype(const std::string& text) {
  const size_t open = text.find(" (");
  Prototype p{text.substr(0, open), {}};
  std::string argument;
  int depth = 0;
  for (size_t i = open + 2; i < text.size(); ++i) {
    const char c = text[i];
    depth += (c == '<' || c == '(') - (c == '>' || c == ')');
    if ((c == ',' && depth == 0) || depth < 0) {
      if (!argument.empty()) p.arguments.push_back(argument);
      argument.clear();
    } else if (c != ' ' || !argument.empty()) {
      argument += c;
    }
  }
  return p;
}

void fill_operands(const Intrinsic& f, size_t row, std::mt19937_64& random, const std::function<std::byte*(size_t)>& at) {
  const std::string op = operation(f);
  const auto arguments = parse_prototype(f.type).arguments;
  const size_t group = row / 32;
  const auto known = functions().find(op);
  for (size_t k = 0; k < arguments.size(); ++k) {
    const Type type = parse_type(arguments[k]);
    if (arguments[k].starts_with("ptr")) continue;
    const int count = std::min(type.count, 4) == 4 && type.count == 64 ? 2 : type.count;
    for (int i = 0; i < count; ++i) {
      std::byte* p = at(k) + static_cast<size_t>(i) * bytes_of(type.element);
      if (is_float(type.element)) {
        const bool lonely = known != functions().end() || op == "convert" || op == "fma" || op == "ldexp";
        Real x = uniform(random, 0.5L, 1.5L);
        if (lonely)
          x = k == 0 && known != functions().end() ? uniform(random, known->second.low, known->second.high)
                                                   : uniform(random, -10, 10);
        if (lonely && random() % 8 == 0) x = special(random, type.element);
        if (op == "convert" && random() % 4 == 0) x *= std::ldexp(Real(1), static_cast<int>(random() % 70));
        put_real(p, type.element, op == "atomic" ? 1 : x);
      } else {
        uint64_t v = random() >> (random() % 4 == 0 ? random() % 60 : 0);
        if (type.element == "i1") v = group % 3 == 0 ? 1 : group % 3 == 1 ? 0 : random() & 1;
        std::memcpy(p, &v, bytes_of(type.element));
      }
    }
    // Operands that choose lanes or places.
    const auto put = [&](uint64_t v) { std::memcpy(at(k), &v, bytes_of(type.element)); };
    if (op == "simd_shuffle" || op == "simd_shuffle_xor")
      k == 1 ? put(random() % 32) : void();
    else if (op == "simd_shuffle_down")
      k == 1 ? put(group % 32) : void();
    else if (op == "simd_shuffle_and_fill_up")
      k == 2 ? put(group % 32) : k == 3 ? put(32) : void();
    else if (op == "ldexp" && k == 1)
      put(static_cast<uint64_t>(static_cast<int64_t>(random() % 40) - 20));
    else if (op == "simdgroup_matrix_8x8_load" || op == "simdgroup_matrix_8x8_store") {
      const bool store = op.ends_with("store"), transposed = !store && group % 2;
      const size_t which = store ? k - 1 : k;  // after the matrix
      if (store ? k == 2 : k == 1)
        put(kStride);
      else if (store ? k == 3 : k == 2) {
        const uint64_t origin[] = {transposed || store ? 0u : 4u, store ? kStoreRow : transposed ? 0u : group};
        std::memcpy(at(k), origin, sizeof origin);
      } else if (which == 3)
        put(transposed);
    }
  }
}

std::string check(const Intrinsic& f, const Simdgroup& s) {
  const std::string op = operation(f);
  if (op == "wg" || op == "simdgroup" || op == "atomic") return "";  // nothing but what they order, and memory
  if (op == "simd_all" || op == "simd_any") return check_vote(op, s);
  if (starts(op, "simdgroup_matrix")) return check_matrix(f, op, s);
  if (starts(op, "simd_shuffle")) return check_shuffle(f, op, s);
  if (collective(op)) return check_reduction(f, op, s);
  for (size_t lane = 0; lane < 32; ++lane) {
    const std::string difference = check_alone(f, s.operands[lane], s.results[lane]);
    if (!difference.empty()) return "lane " + std::to_string(lane) + ": " + difference;
  }
  return "";
}

}  // namespace metal_on_cpu::air
