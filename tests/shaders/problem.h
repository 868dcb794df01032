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
#include "core/backend.h"
#include "kernel_rows.h"
#include "metal_on_cpu/metal_on_cpu.h"
#include "problem/weights.h"

namespace shaders {

using problem::Case;
using problem::case_of;
using problem::Kind;
using problem::Order;
using problem::ScaleType;
using problem::Strides;
using problem::Tensor;
using problem::ZeroKind;

const KernelRow& kernel_row(const Case& spec);

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
/// The library's packer, or one with a planted mistake.
struct Packer {
  decltype(&metal_marlin::gpu::plan_packing) plan = metal_marlin::gpu::plan_packing;
  decltype(&metal_marlin::gpu::pack_weights) pack = metal_marlin::gpu::pack_weights;
};

/// Members, and the source of the weights, may be changed before pack().
class Problem : public problem::Weights, public problem::Operands {
 public:
  explicit Problem(const Case& spec) : problem::Weights(spec), problem::Operands(spec) {}

  /// Packs the source (again); weights may have been changed in between.
  testing::AssertionResult pack(const Packer& packer = {});
  testing::AssertionResult run(const Setting& setting = {});
  /// The kernel of the product, with its function constants.
  metal_on_cpu::Kernel kernel(const Setting& setting = {}, std::string* name = nullptr) const;
  /// Every element of C against the oracle's bound, and the gaps between its rows.
  testing::AssertionResult check();
  /// unpack of these rows (empty: of all), bit for bit against the oracle, in this type.
  testing::AssertionResult check_unpack(marlin_dtype type, const std::vector<int32_t>& rows = {}, const Setting& setting = {});

  metal_marlin::gpu::PackPlan plan;
  std::vector<std::byte> packed;
  metal_on_cpu::Counters counters;  ///< of the last product kernel, when setting.count
  double worst = 0;

  oracle::Weights expected() const;
  double c_at(int64_t m, int64_t n) const { return oracle::read(spec.c_type, c_memory_.data(), m * ldc_ + n); }
  int64_t columns() const { return spec.columns(); }

 private:
  testing::AssertionResult prepare_activations(const Setting& setting);
  testing::AssertionResult multiply(const Setting& setting);
  testing::AssertionResult finish(const Setting& setting);
  Constants constants() const;
  void bind_part(metal_on_cpu::Dispatch& dispatch, int index, uint64_t from, uint64_t end) const;
  void bind_weights(metal_on_cpu::Dispatch& dispatch) const;
  /// As kernels have it.
  metal_marlin::GemmProblem epilogue() const;
  ProductArgs product_args() const;
  bool is_partial() const;
  /// Of K; and whether more simdgroups of a threadgroup share it instead.
  int64_t splits() const { return is_wide() ? 1 : spec.splits; }
  bool is_wide() const { return spec.splits > 1 && kernel_row(spec).wide_threads != 0; }
  bool int8() const { return spec.compute == MARLIN_COMPUTE_INT8; }

  std::vector<uint8_t> a_memory_, prepared_, bias_memory_, c_memory_;
  std::vector<float> a_scales_, partials_;
  int64_t lda_ = 0, ldc_ = 0;
};

/// pack, run, check: a failure says which spec.
testing::AssertionResult holds(const Case& spec, const Setting& setting = {});

}  // namespace shaders
