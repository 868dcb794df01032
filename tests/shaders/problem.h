// One product as the shaders do it: weights packed by the library's own packer, kernels compiled and run on the CPU, checked.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/pack.h"
#include "kernel_rows.h"
#include "metal_on_cpu/metal_on_cpu.h"
#include "oracle.h"
#include "unit/cpu_memory_source.h"

namespace shaders {

using metal_marlin::Order;
using metal_marlin::ScaleType;
using metal_marlin::ZeroKind;

struct Spec {
  marlin_format format = MARLIN_INT4;
  ZeroKind zeros = ZeroKind::none;
  ScaleType zero_type = ScaleType::f16;
  int64_t group = 32;  ///< 0: the whole row
  ScaleType scale_type = ScaleType::f16;
  Order order = Order::plain;
  bool sparse = false, interleaved = false;
  int tensor = 0;  ///< 0 none, 1 multiply, 2 divide
  int64_t m = 1, n = 32, k = 128;
  marlin_dtype a_type = MARLIN_F16, c_type = MARLIN_F32, bias_type = 0;
  marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE;
  bool int8 = false, accumulate = false, odd_strides = false, any_scales = false;
  int64_t splits = 1;
  std::string suffix;  ///< of the kernel, "m16_n32_direct"; empty: the row of kernel_rows() that serves m without tensors
  uint32_t seed = 1;

  std::string describe() const;
};

const KernelRow& kernel_row(const Spec& spec);

/// How kernels are compiled and run; changed by tests of the tests.
struct Setting {
  /// Text replaced in shader sources (file name, from, to): a planted mistake.
  struct Change {
    std::string file, from, to;
  };
  std::vector<Change> changes;
  bool count = false;
  uint64_t seed = 0;
};

using Constants = std::map<uint32_t, metal_on_cpu::ConstantValue>;

/// shaders/FILE with these macros, compiled once a process. Failure is fatal to the test.
metal_on_cpu::Library library(const std::string& file, const std::vector<std::string>& defines, const Setting& setting);
/// The one kernel of gemv.metal or regdecode.metal that serves the spec.
metal_on_cpu::Kernel product_kernel(const Spec& spec, metal_marlin::gpu::KernelCodes codes, const Setting& setting,
                                    std::string* name);

/// The library's packer, or one with a planted mistake.
struct Packer {
  decltype(&metal_marlin::gpu::plan_packing) plan = metal_marlin::gpu::plan_packing;
  decltype(&metal_marlin::gpu::pack_weights) pack = metal_marlin::gpu::pack_weights;
};

class Problem {
 public:
  explicit Problem(const Spec& spec);

  /// Scale number `index` of the source; one-byte types take `byte`, the others `value`.
  void set_scale(int64_t index, double value, uint8_t byte);
  /// Packs the source (again); weights may have been changed in between.
  testing::AssertionResult pack(const Packer& packer = {});
  testing::AssertionResult run(const Setting& setting = {});
  /// Every element of C against the oracle's bound, and the gaps between its rows.
  testing::AssertionResult check();
  /// unpack of these rows (empty: of all), bit for bit against the oracle, in this type.
  testing::AssertionResult check_unpack(marlin_dtype type, const std::vector<int32_t>& rows = {}, const Setting& setting = {});

  Spec spec;
  metal_marlin::MemorySource source;
  std::vector<double> a;  ///< [m][k]; stored by run()
  std::vector<double> bias, c_before;
  std::vector<double> tensor_scales;
  metal_marlin::gpu::PackPlan plan;
  std::vector<std::byte> packed;
  metal_on_cpu::Counters counters;  ///< of the last product kernel, when setting.count
  double worst = 0;

  oracle::Weights expected() const;
  double c_at(int64_t m, int64_t n) const { return oracle::read(spec.c_type, c_memory_.data(), m * ldc_ + n); }
  int64_t columns() const { return spec.epilogue >= MARLIN_EPILOGUE_SWIGLU ? spec.n / 2 : spec.n; }

 private:
  testing::AssertionResult prepare_activations(const Setting& setting);
  testing::AssertionResult multiply(const Setting& setting);
  testing::AssertionResult finish(const Setting& setting);
  Constants constants() const;
  void bind_part(metal_on_cpu::Dispatch& dispatch, int index, uint64_t from, uint64_t end) const;
  void bind_weights(metal_on_cpu::Dispatch& dispatch) const;
  ProductArgs product_args() const;
  bool is_partial() const;

  std::vector<uint8_t> a_memory_, prepared_, bias_memory_, c_memory_;
  std::vector<float> a_scales_, partials_;
  int64_t lda_ = 0, ldc_ = 0;
};

/// pack, run, check: a failure says which spec.
testing::AssertionResult holds(const Spec& spec, const Setting& setting = {});

}  // namespace shaders
