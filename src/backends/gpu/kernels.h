// The kernels of a GPU: their table (kernels.inc), the constants that are compiled into them, and a
// cache of compiled kernels.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "backends/gpu/layout.h"
#include "device/compiled_kernels.h"
#include "device/device.h"

namespace metal_marlin::gpu {

/// The four names of a product kernel in a table: one for each form of activations.
#define MARLIN_GPU_ACTIVATIONS(prefix, suffix) \
  {prefix "f32_" suffix, prefix "f16_" suffix, prefix "bf16_" suffix, prefix "i8_" suffix}

/// The form in which a product kernel reads A.
enum class ActivationKind : uint8_t { f32, f16, bf16, i8 };
inline constexpr int kActivationKinds = 4;

/// Weights by the time that a tile takes for 64 slots of them: decoding depends on the codes, and
/// sums are multiplied by a scale once a group. Long groups have 128 slots and more, short ones of
/// bytes 16 or 32. Halves are floats of 16 bits.
enum class ChunkKind : uint8_t { fp4, u4_long, u4_64, u4_32, i8_long, i8_short, halves };
inline constexpr int kChunkKinds = 7;

/// A row of kernels.inc: one tile, for every kind of codes and activations.
struct ProductKernel {
  std::string_view names[kKernelCodes][kActivationKinds];
  int64_t m_min,
      m_max;  ///< the rows of A for which it is chosen (it works for any); m_max 0: no limit
  int64_t rows, columns;  ///< of a tile of C, which a threadgroup makes, or groups_of_tile do
  uint32_t threads;       ///< of a threadgroup
  bool matrix;            ///< needs simdgroup matrices
  bool tensor;            ///< needs tensor operations, and 16-bit activations
  int64_t groups_wanted;  ///< K is split when a product has fewer threadgroups than this
  /// It serves row-invariant products: all such kernels of a policy add the products of an element
  /// of C in one order, whatever their tile.
  bool row_invariant;
  /// The weights and activations that it is compiled for; null: all of its kind of codes.
  bool (*serves)(const RowBlockLayout& layout, ActivationKind activation) = nullptr;
  /// Tiles go to as many threadgroups as the device runs at once, each of which takes one after
  /// another.
  bool persistent = false;
  /// Such threadgroups also share tiles, each a part of K, through a workspace. Of several such
  /// kernels the one runs that is estimated to take the least time.
  bool shares_tiles = false;
  /// Threadgroups that make a tile together; they are launched together.
  int64_t groups_of_tile = 1;
  /// Nanoseconds that a threadgroup takes for 64 slots of a shared tile, by ChunkKind; 0: it does
  /// not serve such weights.
  std::array<int64_t, kChunkKinds> chunk_ns{};
  /// K is split so that 16-bit activations of a tile take no more bytes than this; 0: no limit.
  int64_t activation_bytes = 0;
  /// The routed rows that its threadgroups sort themselves, without the kernel that sorts them:
  /// none, up to kFewRoutedRows, or as many as its table has room for (own_table_bytes).
  enum class Sorts : uint8_t { none, few, many };
  Sorts (*sorts)(const RowBlockLayout& layout) = nullptr;  ///< null: none
  /// It makes C of whole sums for every epilogue and for rows of experts. (Others leave epilogues
  /// that take a gate and an up row, and experts, to `finish`.)
  bool finishes = false;
  /// It rounds weights to 16 bits, and serves MARLIN_COMPUTE_W16 alone.
  bool rounds = false;

  /// Its threadgroups have A in shared memory and a ring of weights, and take row blocks in turn,
  /// of experts those of all items.
  bool has_ring() const { return persistent && !shares_tiles; }
  Sorts sorts_of(const RowBlockLayout& layout) const {
    return sorts == nullptr ? Sorts::none : sorts(layout);
  }
  /// Whether it finds the rows of A of experts by index, in the order of columns of the weights.
  bool finds_rows(const RowBlockLayout& layout) const {
    return !shares_tiles || sorts_of(layout) != Sorts::none;
  }
  std::string_view name(KernelCodes codes, ActivationKind activation) const {
    return names[static_cast<int>(codes)][static_cast<int>(activation)];
  }
  /// Tensor operations take 16-bit activations without conversion, and codes that 16 bits hold.
  bool takes(ActivationKind activation, const RowBlockLayout& layout) const {
    const bool halves = (!is_real(layout.codes) || holds_halves(layout.codes)) &&
                        (activation == ActivationKind::f16 || activation == ActivationKind::bf16);
    return (!tensor || halves) && (serves == nullptr || serves(layout, activation));
  }
};
inline constexpr size_t kMostProductKernels = 32;

/// What a family of GPUs has of its own: the order of packed codes and the kernels that read it.
struct Policy {
  std::span<const ProductKernel> kernels;  ///< best first; at most kMostProductKernels
  SlotOrder order = SlotOrder::simdgroup;
  /// Whether the kernels read a matrix as it is. Narrow matrices that they do not read are widened
  /// (formats/widen.h).
  bool (*reads)(const WeightMeta& meta) = nullptr;
  /// A can be rounded to E4M3 (MARLIN_COMPUTE_FP8), for kernels that take bfloat16.
  bool rounds_to_e4m3 = false;
};
/// Whether weights need no widening (formats/widen.h).
bool is_wide(const WeightMeta& meta);
/// Of GPUs with simdgroup matrices: Metal's. The kernels are those of kernels.inc.
const Policy& simdgroup_policy();
bool has_product_kernel(const Policy& policy, std::string_view name);

/// A kernel with one thread for each piece of work.
struct HelperKernel {
  std::string_view name;
  int64_t columns;  ///< that a thread works on
};
HelperKernel unpack_kernel(KernelCodes codes);
/// The kernel that quantizes F32, F16 or BF16 to INT8.
HelperKernel quantize_kernel(marlin_dtype from);
/// The kernel that rounds rows of F32, F16 or BF16 to E4M3 times a scale, as bfloat16.
HelperKernel round_kernel(marlin_dtype from);
HelperKernel gather_kernel(marlin_dtype dtype);
/// The kernel that adds up A over groups of K, in a GPU whose tiles take additive zeros so.
HelperKernel group_sums_kernel(marlin_dtype dtype);
HelperKernel finish_kernel();
/// The kernel that sorts the routed rows of experts, in one threadgroup.
std::string_view route_kernel();

/// The value of enum MarlinFloat; `none` if the matrix is absent.
uint32_t float_constant(marlin_dtype dtype);

/// A kernel and the values of all function constants. All are needed, because constants of the
/// shaders depend on each other. Constants that do not matter to a kernel keep one value, so that
/// they do not multiply the number of compiled kernels.
class Variant {
 public:
  static constexpr uint32_t kConstants = 17;

  explicit Variant(std::string_view name) : name_(name) {
    set(MARLIN_CONSTANT_BIAS_TYPE, kFloatNone);
  }
  /// `index` is an index of shaders/common/arguments.h; `value` is below 256.
  Variant& set(uint32_t index, uint32_t value);
  /// Sets the constants that a kernel needs to decode weights of this layout.
  Variant& set_decoder(const RowBlockLayout& layout);
  std::string_view name() const { return name_; }
  std::array<device::Constant, kConstants> constants() const;
  auto operator<=>(const Variant&) const = default;

 private:
  std::string_view name_;  // static storage
  std::array<uint8_t, kConstants> values_{};
};

/// Compiles each variant once. Any thread may use it; finding a kernel does not allocate.
class KernelCache {
 public:
  explicit KernelCache(device::Device& device) : device_(device) {}
  Result<device::KernelRef> get(const Variant& variant);
  /// get() will be asked for it.
  void expect(const Variant& variant) { device_.expect(variant.name(), variant.constants()); }

 private:
  device::Device& device_;
  device::CompiledKernels<Variant> kernels_;
};

}  // namespace metal_marlin::gpu
