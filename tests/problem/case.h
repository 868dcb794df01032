// Everything that makes a product in a test: the weights, the operands, how they are multiplied.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "oracle.h"
#include "problem/memory_source.h"

namespace problem {

using metal_marlin::Order;
using metal_marlin::ScaleType;
using metal_marlin::ZeroKind;

enum class Strides : uint8_t { contiguous, padded, odd };  ///< odd: rows one element apart from contiguous, unaligned starts
/// A factor of the whole matrix, which multiplies or divides; or one for each of two parts, or of each row.
enum class Tensor : uint8_t { none, multiply, divide, two_parts, two_divide, rows };
/// Of codes that are floats, scales, factors and zeros. ordinary: sums are about 1 for every K, so that epilogues are exercised
/// where they bend, and F16 does not overflow. wide: any finite E4M3, E8M0 from 2^-17 to 2^2, and floats of ten bits and either
/// sign. bits: any, NaN and infinity too.
enum class Range : uint8_t { ordinary, wide, bits };

/// What a kernel decodes, and the scales of it.
struct Kind {
  const char* name = "";
  marlin_format format = MARLIN_FORMAT_INT4;
  ZeroKind zeros = ZeroKind::none;
  ScaleType scale_type = ScaleType::f16;
  bool sparse = false;
  ScaleType zero_type = ScaleType::f16;  ///< of additive zeros
  int64_t group = 32;                    ///< 0: the whole row
  Tensor tensor = Tensor::none;
};
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

struct Case {
  marlin_format format = MARLIN_FORMAT_INT4;
  ZeroKind zeros = ZeroKind::none;
  ScaleType scale_type = ScaleType::f16, zero_type = ScaleType::f16;
  int64_t group = 32;   ///< 0: the whole row
  bool sparse = false;  ///< 2:4; k is a multiple of 4
  Tensor tensor = Tensor::none;
  Order order = Order::plain;
  bool interleaved = false;
  Range range = Range::ordinary;
  int64_t m = 1, n = 1, k = 1;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  int64_t activation_group = 0;                                          ///< of marlin_gemm_desc
  marlin_dtype a_type = MARLIN_F16, c_type = MARLIN_F32, bias_type = 0;  ///< bias 0: none
  marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE;
  bool accumulate = false;
  Strides strides = Strides::contiguous;
  uint32_t seed = 1;
  // Of the C ABI.
  bool row_invariant = false;
  uint32_t threads = 1;
  bool together = false;  ///< in one marlin_gemm_many with a product of other weights and the same A
  // Of the shaders.
  int64_t splits = 1;
  std::string suffix;  ///< of the kernel, "m16_n32_direct"; empty: the row of kernel_rows() that serves m without tensors

  std::string describe() const;
  uint32_t gate_seed = 0;  ///< of the numbers of an epilogue; 0: seed
  /// The numbers of an epilogue that has some, drawn by their seed. SWIGLU has any of them, or none.
  oracle::Gate gate() const;
  int64_t columns() const { return epilogue >= MARLIN_EPILOGUE_SWIGLU ? n / 2 : n; }
  /// GGUF's K-quant of the format: k is a multiple of 256, and group and types are its own.
  bool k_quant() const { return metal_marlin::is_two_level(scale_type); }
};

/// A product of such weights; what else a test varies, it sets. K of sparse weights is rounded up to whole blocks of 4.
Case case_of(const Kind& kind, int64_t m, int64_t n, int64_t k);

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Numbers are a large part of the time
/// of these tests, and std::mt19937 takes five times as long for them.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint32_t seed) : state_(seed * 0xd1342543de82ef95u) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((*this)() >> 32) * n >> 32); }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>((*this)() >> 11) * 0x1p-53; }
  /// The sum of twelve uniform numbers, of 16 bits each and one of them of more.
  double normal() {
    uint64_t sum = 0;
    for (int i = 0; i < 3; ++i)
      for (uint64_t x = (*this)(); x != 0; x >>= 16) sum += x & 0xffff;
    return static_cast<double>(sum) * 0x1p-16 - 6 + uniform(0, 0x1p-16);
  }

 private:
  uint64_t state_;
};

}  // namespace problem
