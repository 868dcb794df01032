// The float64 oracle: plain scalar code from the definitions in docs, sharing nothing with src/ but the numbers of the C ABI.
//
// It answers two questions. What is a code worth? As a real number, and rounded once to float32. What is a product worth, and
// how far may a float32 kernel be from it? Every element comes with its own bound:
//
//   |C - C64| <= gamma(K + e) * S + K * 2^-126 * max(1, max|a|, max|w|, |t|) + one rounding to C's type
//
// gamma(n) = n u / (1 - n u), u = 2^-24. S = sum |a w| + |bias|; with zero points or additive zeros, which a kernel may correct
// by sums of activations, S = sum |a| (|q s| + |z s|) + |bias|, where UINT8 counts from -128 on. K counts a product and an
// addition of a dot product, of which one is free; e counts the operations on top: group scale, zeros, activation scale, tensor
// scale t, bias. The middle term allows units that flush subnormals. An epilogue passes the bound on by its slope and adds its
// own evaluation.
#pragma once

#include <cstdint>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace oracle {

// --- number types
// --------------------------------------------------------------------------------------------------------------

double e2m1(int code);  ///< codes 0..15
int iq4(int code);      ///< codes 0..15
double nf4(int code);   ///< codes 0..15
/// Bits of a code, and whether codes are integers: of formats other than FP4, MXFP4, NVFP4, IQ4, NF4 and FP8.
int code_bits(marlin_format format);
bool has_integer_codes(marlin_format format);
/// NF4 and FP8, which any compute multiplies by the activations as given.
bool takes_float_activations(marlin_format format);
double e8m0(int byte);
double e4m3(int byte);
double f16(int bits);
double bf16(int bits);
/// Nearest, ties to even; overflow is infinity, NaN is quiet.
uint16_t to_f16(double x);
uint16_t to_bf16(double x);
/// Element `index` of F32, F16 or BF16 memory of any alignment; E8M0 and E4M3 can be read too.
double read(marlin_dtype dtype, const void* from, int64_t index);
void write(marlin_dtype dtype, void* to, int64_t index, double x);
int64_t bytes_of(marlin_dtype dtype);

// --- weights
// -------------------------------------------------------------------------------------------------------------------

struct Weights {
  marlin_format format = MARLIN_FORMAT_INT4;
  int64_t n = 0, k = 0, group_size = 0, groups = 0;
  std::vector<uint8_t> codes;        ///< [n][k]: 0..2^bits - 1, or the bits of an int8
  std::vector<double> numbers;       ///< [n][k], of codes that are floats or have a codebook of the caller; else empty
  std::vector<double> scale;         ///< [n][groups]
  std::vector<double> zero;          ///< [n][groups], or empty
  bool additive = false;             ///< q * s + zero
  std::vector<int32_t> group_index;  ///< [k], or empty: k / group_size
  int64_t slot_group = 1;            ///< with group_index and INT8 activations: see quantize_activations
  std::vector<int64_t> slots;        ///< [k], where INT8 activations stand, or empty: as quantize_activations says
  std::vector<double> tensor_scale;  ///< [n], or empty
  bool divide = false;               ///< by the tensor scale
  bool interleaved = false;          ///< rows alternate gate, up
  std::vector<bool> kept;            ///< [n][k], or empty: all. What is not kept is +0.0 and multiplies its activation as such

  int64_t group_of(int64_t column) const;
};

/// The real number, as near as a double comes.
double value(const Weights& w, int64_t row, int64_t column);
/// The real number rounded once to float32.
float value_f32(const Weights& w, int64_t row, int64_t column);

/// 2:4 pruning of scores [rows][k], k a multiple of 4: true where an element is one of the two first of its four, when sorted
/// by score, the largest first, equal ones in the order that they stand in.
std::vector<bool> keep_two_of_four(const std::vector<double>& scores);

// --- products
// ------------------------------------------------------------------------------------------------------------------

/// The numbers of epilogues of a gate and an up row, as marlin_gemm_desc has them; 0: none.
struct Gate {
  float gate_limit = 0, up_limit = 0, gate_alpha = 0, up_offset = 0;
};

struct Product {
  const Weights* weights = nullptr;
  int64_t m = 0;
  std::vector<double> a;  ///< [m][k]
  marlin_dtype a_dtype = MARLIN_F32;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  int64_t activation_group = 0;  ///< of marlin_gemm_desc
  marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE;
  Gate gate;
  std::vector<double> bias;  ///< [n], or empty
  std::vector<double> c;     ///< what C held when accumulating: [m][columns()]; or empty
  marlin_dtype c_dtype = MARLIN_F32;

  int64_t columns() const;
};

struct Element {
  enum Kind : uint8_t {
    finite,      ///< value +- bound
    non_finite,  ///< an infinity takes part: infinity or NaN, whichever the order of operations gives
    any,         ///< an infinity went through an epilogue
    nan,         ///< a NaN takes part, or activations that are not finite and are to be rounded to INT8 or E4M3
  } kind = finite;
  double value = 0, bound = 0;

  bool accepts(double got) const;
};

/// [m][columns()].
std::vector<Element> multiply(const Product& product);

/// One element of C that sums parts, each an element of float32, times their scales: of `p` only C's old value at `index` and
/// type are used.
Element weighted_sum(const Product& p, const std::vector<double>& scales, const std::vector<Element>& parts, size_t index);

/// INT8 activations: d = max|x| / 127 and q = round(x / d), ties to even, where both quotients are rounded to float32 (with
/// BF16 activations ties are common: x = max / 2). Groups of 32 along K, or as `group` says. With a group index, K is first
/// sorted by group, keeping the order inside a group, and each group is padded to a multiple of slot_group, which is the
/// packer's choice
/// (`explain` tells it).
struct Activations {
  std::vector<double> value;     ///< d * q, [m][k]
  std::vector<bool> not_finite;  ///< [m]: NaN or infinity in the row
};
Activations quantize_activations(const Weights& w, int64_t m, const std::vector<double>& a, int64_t group = 0);

/// E4M3 activations: q = x / d to nearest even, times d, which is the least power of two that leaves |q| up to 448 in a row,
/// but at least 2^-117. A q of 256 and more becomes 240 where d is 2^120, because d q would leave float32.
Activations round_activations(int64_t m, int64_t k, const std::vector<double>& a);

/// sum (got - expected)^2 / sum expected^2, over finite elements.
double nmse(const std::vector<Element>& expected, const std::vector<double>& got);

double apply_epilogue(marlin_epilogue epilogue, double gate, double up, const Gate& numbers = {});

}  // namespace oracle
