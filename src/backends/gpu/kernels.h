// The kernels of a GPU by name, and compiled: which ones there are (kernels.inc), what is compiled
// into them, and a cache of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "backends/gpu/layout.h"
#include "device/device.h"

namespace metal_marlin::gpu {

/// The form in which a product kernel reads A.
enum class ActivationKind : uint8_t { f32, f16, bf16, i8 };
inline constexpr int kCodeKinds = 5, kActivationKinds = 4;

/// A row of kernels.inc: one tile, for every kind of codes and activations.
struct ProductKernel {
  std::string_view names[kCodeKinds][kActivationKinds];
  int64_t m_min,
      m_max;  ///< the rows of A for which it is chosen; any number works. m_max 0: no limit
  int64_t rows, columns;  ///< of C, that a threadgroup makes
  uint32_t threads;       ///< of a threadgroup
  bool matrix;            ///< needs simdgroup matrices
  bool tensor;            ///< needs tensor operations

  std::string_view name(CodeKind codes, ActivationKind activation) const {
    return names[static_cast<int>(codes)][static_cast<int>(activation)];
  }
  /// Tensor operations take 16-bit activations as they are.
  bool takes(ActivationKind activation) const {
    return !tensor || activation == ActivationKind::f16 || activation == ActivationKind::bf16;
  }
};
/// Best first; at most kMostProductKernels.
inline constexpr size_t kMostProductKernels = 32;
std::span<const ProductKernel> product_kernels();
bool has_product_kernel(std::string_view name);

/// A kernel with one thread a piece of work.
struct HelperKernel {
  std::string_view name;
  int64_t columns;  ///< that a thread works on
};
HelperKernel unpack_kernel(CodeKind codes);
/// To INT8, from F32, F16 or BF16.
HelperKernel quantize_kernel(marlin_dtype from);
HelperKernel gather_kernel(marlin_dtype dtype);
HelperKernel finish_kernel();

/// The values of enum MarlinFloat; `none` when the matrix is absent.
uint32_t float_constant(marlin_dtype dtype);

/// A kernel and the values of its function constants: of all of them, since constants of the
/// shaders are made of each other. Those that do not matter to a kernel are left at one value, so
/// that they do not multiply what has to be compiled.
class Variant {
 public:
  static constexpr uint32_t kConstants = 15;

  explicit Variant(std::string_view name) : name_(name) {
    set(MARLIN_CONSTANT_BIAS_TYPE, kFloatNone);
  }
  /// `index` is of shaders/common/arguments.h, value below 16.
  Variant& set(uint32_t index, uint32_t value);
  /// What a kernel must know to decode such weights.
  Variant& set_decoder(const PackedLayout& layout);
  std::string_view name() const { return name_; }
  std::array<device::Constant, kConstants> constants() const;
  auto operator<=>(const Variant&) const = default;

 private:
  std::string_view name_;  // static storage
  uint64_t values_ = 0;    // four bits a constant
};

/// Compiled kernels. Any thread; found ones cost no allocation.
class KernelCache {
 public:
  explicit KernelCache(device::Device& device) : device_(device) {}
  Result<device::KernelRef> get(const Variant& variant);

 private:
  device::Device& device_;
  std::mutex mutex_;
  std::map<Variant, device::KernelRef> kernels_;
};

}  // namespace metal_marlin::gpu
