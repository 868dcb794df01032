// The kernels of a GPU: their table (kernels.inc), the constants that are compiled into them, and a
// cache of compiled kernels.
#pragma once

#include <algorithm>
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

/// The form in which a product kernel reads A.
enum class ActivationKind : uint8_t { f32, f16, bf16, i8, e4m3 };
inline constexpr int kActivationKinds = 5;
constexpr bool are_halves(ActivationKind kind) {
  return kind == ActivationKind::f16 || kind == ActivationKind::bf16;
}
/// Of a byte, with scales of their own.
constexpr bool are_bytes(ActivationKind kind) { return kind >= ActivationKind::i8; }

/// Weights by the time that a tile takes for 64 slots of them: decoding depends on the codes, and
/// sums are multiplied by a scale once a group. Long groups have 128 slots and more, short ones of
/// bytes 16 or 32. Halves are floats of 16 bits.
enum class ChunkKind : uint8_t { fp4, u4_long, u4_64, u4_32, i8_long, i8_short, halves };
inline constexpr int kChunkKinds = 7;

/// Whether the kernels of a row are compiled for codes and activations.
using CompiledFor = bool (*)(KernelCodes codes, ActivationKind activation);

/// The names of the kernels of a row, by codes and activation.
class KernelNames {
 public:
  /// The `*` of a pattern stands for the codes and the activation: gemv_*_m8 is gemv_u4_f16_m8, ...
  constexpr KernelNames(std::string_view pattern, CompiledFor compiled_for) {
    constexpr const char* kActivations[kActivationKinds] = {"_f32", "_f16", "_bf16", "_i8",
                                                            "_e4m3"};
    const size_t star = pattern.find('*');
    const std::string_view begin = pattern.substr(0, star), end = pattern.substr(star + 1);
    for (int c = 0; c < kKernelCodes; ++c)
      for (int a = 0; a < kActivationKinds; ++a)
        if (compiled_for(static_cast<KernelCodes>(c), static_cast<ActivationKind>(a)))
          for (const std::string_view part : {begin, std::string_view(kKernelCodesNames[c]),
                                              std::string_view(kActivations[a]), end})
            for (const char letter : part) names_[c][a].append(letter);
  }
  /// "" if there is no such kernel.
  constexpr std::string_view of(KernelCodes codes, ActivationKind activation) const {
    return names_[static_cast<int>(codes)][static_cast<int>(activation)].view();
  }
  constexpr bool contain(std::string_view name) const {
    for (const auto& of_codes : names_)
      for (const Name& one : of_codes)
        if (one.length != 0 && one.view() == name) return true;
    return false;
  }

 private:
  struct Name {
    char text[47] = {};
    uint8_t length = 0;
    constexpr void append(char letter) { text[length++] = letter; }
    constexpr std::string_view view() const { return {text, length}; }
  };
  Name names_[kKernelCodes][kActivationKinds];
};

/// Features of a device that a kernel needs.
enum KernelFeature : uint32_t {
  kSimdgroupMatrix = 1,
  kBfloat = 2,
  kTensor = 4,  ///< of Metal 4, or of Hopper
};

/// How the threadgroups of a kernel share out the tiles of C. The last two have as many of them as
/// the device runs at once, and make C of whole sums for every epilogue and for rows of experts.
/// (Others leave epilogues that take a gate and an up row, and experts, to `finish`.)
enum class Schedule : uint8_t {
  one_tile,  ///< each makes one
  /// Each has A in shared memory and a ring of weights, and takes row blocks in turn, of experts
  /// those of all items.
  ring,
  /// Each takes tiles in turn; they share the last ones, each a part of K, through a workspace. Of
  /// several such kernels the one runs that is estimated to take the least time.
  shared_tiles,
};

/// The routed rows that the threadgroups of a kernel sort themselves, without the kernel that sorts
/// them: none, up to kFewRoutedRows, or as many as their table has room for (own_table_bytes).
enum class SortedRows : uint8_t { none, few, many };

/// The contract of a row of kernels: one tile. kernels.inc names the fields that differ from these
/// defaults.
struct ProductKernel {
  std::string_view pattern;            ///< of its names
  CompiledFor compiled_for = nullptr;  ///< never null
  /// The weights and activations that it serves, of those that it is compiled for; null: all.
  bool (*serves)(const ProductKernel& kernel, const RowBlockLayout& layout,
                 ActivationKind activation) = nullptr;
  SortedRows (*sorts)(const RowBlockLayout& layout) = nullptr;  ///< null: none
  bool rounds = false;  ///< weights to 16 bits, and serves MARLIN_COMPUTE_W16 alone
  /// `expand` makes floats of 16 bits of the weights first, and these kernels multiply them: by
  /// float16 and by bfloat16 activations. "": weights are read as they are.
  std::string_view halves_by_f16 = "", halves_by_bf16 = "";
  uint32_t features = 0;  ///< of KernelFeature, all needed
  Schedule schedule = Schedule::one_tile;
  /// It serves row-invariant products: all such kernels of a policy add the products of an element
  /// of C in one order, whatever their tile.
  bool row_invariant = false;
  int64_t groups_wanted = 1;  ///< K is split when a product has fewer threadgroups than this
  /// Instead, a threadgroup has so many threads, whose simdgroups share K; 0: K is split.
  uint32_t wide_threads = 0;
  int64_t m_min = 1;              ///< the fewest rows of A for which it is chosen; any number works
  int64_t m_max = 0;              ///< the most; 0: no limit
  int64_t rows = 0, columns = 0;  ///< of a tile of C
  uint32_t threads = 128;         ///< of a threadgroup
  /// Threadgroups that make a tile together; they are launched together.
  int64_t groups_of_tile = 1;
  /// K is split so that 16-bit activations of a tile take no more bytes than this; 0: no limit.
  int64_t activation_bytes = 0;
  /// Nanoseconds that a threadgroup takes for 64 slots of a shared tile, by ChunkKind; 0: it does
  /// not serve such weights.
  std::array<int64_t, kChunkKinds> chunk_ns{};
  /// The weights and activations for which it is chosen if none is forced; null: all.
  bool (*is_chosen_for)(const RowBlockLayout&, ActivationKind, bool routed) = nullptr;
  KernelNames names{pattern, compiled_for};

  constexpr bool has_ring() const { return schedule == Schedule::ring; }
  constexpr bool shares_tiles() const { return schedule == Schedule::shared_tiles; }
  constexpr bool expands() const { return !halves_by_f16.empty(); }
  SortedRows sorts_of(const RowBlockLayout& layout) const {
    return sorts == nullptr ? SortedRows::none : sorts(layout);
  }
  /// Whether it finds the rows of A of experts by index, in the order of columns of the weights.
  bool finds_rows(const RowBlockLayout& layout) const {
    return !shares_tiles() || sorts_of(layout) != SortedRows::none;
  }
  std::string_view name(KernelCodes codes, ActivationKind activation) const {
    return names.of(codes, activation);
  }
  /// The name of the kernel that multiplies.
  std::string_view multiplies(KernelCodes codes, ActivationKind activation) const {
    if (!expands()) return name(codes, activation);
    return activation == ActivationKind::f16 ? halves_by_f16 : halves_by_bf16;
  }
  bool takes(ActivationKind activation, const RowBlockLayout& layout) const {
    return compiled_for(layout.codes, activation) &&
           (serves == nullptr || serves(*this, layout, activation));
  }
};
/// Whether nothing is against the choice of a kernel.
inline bool is_choice(const ProductKernel& kernel, const RowBlockLayout& layout,
                      ActivationKind activation, bool routed) {
  return kernel.is_chosen_for == nullptr || kernel.is_chosen_for(layout, activation, routed);
}
inline constexpr size_t kMostProductKernels = 32;
/// Elements that a threadgroup makes of the largest tile that is shared, and rows of the smallest.
inline constexpr int64_t kLargestSharedTile = 256 * 128, kLeastTileRows = 16;

// The relations that must hold between the fields of a row.
constexpr bool has_names(const ProductKernel& row) {
  return std::ranges::count(row.pattern, '*') == 1 && row.compiled_for != nullptr;
}
constexpr bool serves_some_m(const ProductKernel& row) {
  return row.m_min >= 1 && (row.m_max == 0 || row.m_max >= row.m_min);
}
constexpr bool makes_row_blocks(const ProductKernel& row) {
  return row.rows > 0 && row.columns > 0 && row.columns % kRowBlock == 0 && row.threads > 0 &&
         row.threads % kLanes == 0 && row.wide_threads % kLanes == 0;
}
constexpr bool shares_tiles_that_fit(const ProductKernel& row) {
  const bool has_times = std::ranges::count(row.chunk_ns, 0) < kChunkKinds;
  if (!row.shares_tiles()) return !has_times && row.groups_of_tile == 1;
  return has_times && row.rows % kLeastTileRows == 0 &&
         row.rows * row.columns <= kLargestSharedTile * row.groups_of_tile;
}
constexpr bool keeps_activations_in_rings(const ProductKernel& row) {
  return row.has_ring() == (row.activation_bytes != 0);
}
constexpr bool expands_what_it_rounds(const ProductKernel& row) {
  return !row.expands() || (row.rounds && row.shares_tiles() && !row.halves_by_bf16.empty());
}
/// Shared tiles add in the order of the parts of K that threadgroups happen to have.
constexpr bool keeps_one_order(const ProductKernel& row) {
  return !row.row_invariant || row.schedule == Schedule::one_tile;
}
/// The rows of a table, which are checked while they are compiled.
template <const auto& kRows>
consteval std::span<const ProductKernel> checked_rows() {
  static_assert(std::size(kRows) <= kMostProductKernels);
  static_assert(std::ranges::all_of(kRows, has_names));
  static_assert(std::ranges::all_of(kRows, serves_some_m));
  static_assert(std::ranges::all_of(kRows, makes_row_blocks));
  static_assert(std::ranges::all_of(kRows, shares_tiles_that_fit));
  static_assert(std::ranges::all_of(kRows, keeps_activations_in_rings));
  static_assert(std::ranges::all_of(kRows, expands_what_it_rounds));
  static_assert(std::ranges::all_of(kRows, keeps_one_order));
  return kRows;
}

/// What a family of GPUs has of its own: the order of packed codes and the kernels that read it.
struct Policy {
  std::span<const ProductKernel> kernels;  ///< best first; at most kMostProductKernels
  SlotOrder order = SlotOrder::simdgroup;
  /// Whether the kernels read a matrix as it is. Narrow matrices that they do not read are widened
  /// (formats/widen.h).
  bool (*reads)(const WeightMeta& meta) = nullptr;
  /// A can be rounded to E4M3 (MARLIN_COMPUTE_FP8), for kernels that take bfloat16 or E4M3.
  bool rounds_to_e4m3 = false;
};
/// Whether weights need no widening (formats/widen.h).
bool is_wide(const WeightMeta& meta);
/// Of GPUs with simdgroup matrices: Metal's. The kernels are those of kernels.inc.
const Policy& simdgroup_policy();
/// The row of the kernel of this name, or null.
const ProductKernel* product_kernel(const Policy& policy, std::string_view name);

/// A kernel with one thread for each piece of work.
struct HelperKernel {
  std::string_view name;
  int64_t columns;  ///< that a thread works on
};
HelperKernel unpack_kernel(KernelCodes codes);
/// The kernel that quantizes F32, F16 or BF16 to INT8.
HelperKernel quantize_kernel(marlin_dtype from, SlotOrder order);
/// The kernel that rounds rows of F32, F16 or BF16 to E4M3 times a scale: to bfloat16 or, for tiles
/// of E4M3, to bytes.
HelperKernel round_kernel(marlin_dtype from);
HelperKernel gather_kernel(marlin_dtype dtype);
/// The kernel that adds up A over groups of K, in a GPU whose tiles take additive zeros so.
HelperKernel group_sums_kernel(marlin_dtype dtype);
/// The kernel that makes floats of 16 bits, those of the activations, of dense weights.
std::string_view expand_kernel(KernelCodes codes, ActivationKind activation);
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
  static constexpr uint32_t kConstants = 18;

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
