// Which kernel runs a product on a GPU, in which grid, with how much scratch memory. Pure: nothing
// is allocated, compiled or run.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/kernels.h"
#include "backends/gpu/weights.h"
#include "core/backend.h"

namespace metal_marlin::gpu {

/// Begins of scratch areas, and the strides of prepared activations.
inline constexpr uint64_t kScratchAlign = 256;

/// The slots of K that threadgroups share at least, so that their sums pay.
inline constexpr int64_t kLeastSharedSlots = 256;

/// Groups of K, and rows of A, whose sums of A are together in memory.
inline constexpr int64_t kSumsAtOnce = 8;

/// Rows of one dispatch: without partial sums its sizes are the only limit.
inline constexpr int64_t kMostRows = 1 << 20;

/// The seconds that so many multiply-adds, and reading or writing so many bytes, take at rates well
/// below those of the slowest GPU that the kernels serve.
double slow_seconds(double multiply_adds, double bytes);

/// A kernel with what it must decode: the unit in which kernels are found good or bad on a device.
struct Decoder {
  std::string_view kernel;
  uint32_t scale_type = 0, zero_kind = 0, group_shift = 0, code_form = 0;
  auto operator<=>(const Decoder&) const = default;
};
Decoder decoder_of(const ProductKernel& kernel, ActivationKind activation,
                   const RowBlockLayout& layout);

/// What is known of kernels on the device at hand. Any thread; asking costs no allocation.
class KernelHealth {
 public:
  enum State : uint8_t { unknown, good, bad };
  /// Asks many questions with one lock, which it holds while it lives.
  class Reader {
   public:
    explicit Reader(const KernelHealth& health) : lock_(health.mutex_), states_(health.states_) {}
    State of(const Decoder& decoder) const;

   private:
    const std::lock_guard<std::mutex> lock_;
    const std::map<Decoder, State>& states_;
  };

  void set(const Decoder& decoder, State state);
  /// Names of those found bad, each once, with a comma between; "" when there are none.
  std::string bad_ones() const;

 private:
  mutable std::mutex mutex_;
  std::map<Decoder, State> states_;
};

/// What the choice depends on besides the problem.
struct PlanRules {
  const device::Capabilities& device;
  const KernelHealth& health;
  const Policy& policy;
  std::string_view forced;        ///< the kernel to take, or empty
  int64_t most_rows = kMostRows;  ///< of A, of one dispatch, in whole tiles
};

/// Who sorts the routed rows of experts.
enum class Routes : uint8_t {
  none,       ///< there are none
  by_groups,  ///< each threadgroup of the product, for itself
  /// A threadgroup of the product, into memory. The launch then also does what else comes before a
  /// product of experts: it gathers rows of A, and adds them up over groups.
  in_launch,
  before,  ///< the kernel `route`, into memory
};

/// How one product will run. Depends on the device, the problem's types and shape, and M only.
struct GemmPlan {
  const ProductKernel* kernel = nullptr;
  ActivationKind activation = ActivationKind::f32;
  KernelHealth::State health = KernelHealth::unknown;  ///< of the kernel, when it was chosen
  Routes routes = Routes::none;
  uint8_t team_shift = 0;    ///< log2 of the warps that share a row block, in kernels with teams
  bool prepared = false;     ///< A is quantized, rounded or gathered into scratch first
  bool gathers = false;      ///< of experts: A is prepared for each routed row, with its block
  bool sums_groups = false;  ///< A is added up over groups first, for additive zeros
  bool partial : 1 = false;  ///< FP32 sums go to scratch, and `finish` makes C of them
  bool wide : 1 = false;     ///< threadgroups have the kernel's wide_threads
  /// Parts of K, in threadgroups of their own, and the blocks of a part.
  int64_t splits = 1, split_blocks = 1;
  int64_t groups = 0;  ///< threadgroups along x that take tiles in turn; 0: one for each tile
  /// Rows of A of one dispatch; of experts: routed rows, of whole tokens.
  int64_t m_block = 0;
  int64_t prepare_block = 0;  ///< the same of a dispatch that prepares activations
  int64_t ring_rows = 0;      ///< of experts: rows of A that are in shared memory at once
  int64_t items = 0;          ///< of experts: the most tiles of rows of one dispatch
  // Scratch, each a multiple of kScratchAlign.
  uint64_t activation_bytes = 0, activation_scale_bytes = 0, partial_bytes = 0, shared_bytes = 0;
  uint64_t route_bytes = 0, group_sum_bytes = 0, expanded_bytes = 0;
  uint64_t scratch_bytes() const {
    return activation_bytes + activation_scale_bytes + partial_bytes + shared_bytes + route_bytes +
           group_sum_bytes + expanded_bytes;
  }
  /// Whether a step that comes before the product has dispatches of its own.
  bool dispatches(bool step) const { return step && routes != Routes::in_launch; }
  /// Whether A is quantized for tiles (PrepareArgs::for_tiles).
  bool quantizes_for_tiles() const { return kernel->shares_tiles() && are_bytes(activation); }
  /// Of a threadgroup.
  uint32_t threads() const { return wide ? kernel->wide_threads : kernel->threads; }
  /// The grid of `rows` rows of A and n rows of W.
  device::Size3 grid(int64_t rows, int64_t n) const;
};

const GpuWeights& weights_of(const GemmProblem& problem);
/// Whether the epilogue takes gate and up rows, and they alternate.
bool interleaves(const GemmProblem& problem);
/// The rows that `m` rows of A, or the routed rows that `m` tokens, make of the product.
int64_t product_rows(const GemmProblem& problem, int64_t m);
/// The routed rows of experts that share a row of A: those of a token, or 1.
int64_t rows_of_a(const GemmProblem& problem);
/// The slots over whose groups A is added up: those of whole eights of groups.
int64_t slots_of_sums(const RowBlockLayout& layout);
/// slow_seconds of the multiplication of so many rows of the product, which reads all weights.
double slow_seconds(const GemmProblem& problem, int64_t rows);
/// Of a problem: the rows of A or, with routing, the tokens.
int64_t problem_size(const GemmProblem& problem);
/// MARLIN_E_UNSUPPORTED with the reason, or a plan for M (with routing: T) = max(m, 1).
Result<GemmPlan> plan_gemm(const GemmProblem& problem, int64_t m, const PlanRules& rules);
/// A plan with this kernel, whatever else there is.
Result<GemmPlan> plan_with(const ProductKernel& kernel, const GemmProblem& problem, int64_t m,
                           const device::Capabilities& device, int64_t most_rows = kMostRows);
/// Values of M (with routing: T) up to max_m among whose plans are all variants of kernels, and the
/// most scratch.
Result<std::vector<int64_t>> plan_breakpoints(const GemmProblem& problem, int64_t max_m,
                                              const PlanRules& rules);
/// "kernel: NAME\n" and then "key: value\n" lines with the reason for the choice.
std::string explain_gemm(const GemmPlan& plan, const GemmProblem& problem, const PlanRules& rules);
/// Appends a line with the limits of a compiled kernel. Fewer threads than the device has mean that
/// the kernel takes many registers.
void append_limits(std::string& text, const device::Kernel& kernel);

}  // namespace metal_marlin::gpu
