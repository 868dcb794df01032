// Records products on a GPU: which kernels run, with which arguments, in which order.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/kernels.h"
#include "backends/gpu/operands.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/stream.h"
#include "core/backend.h"

namespace metal_marlin::gpu {

struct ProductOperands {
  Matrix a, c, bias;
  Matrix ids, scales;  ///< of experts
};

/// What the kernels of a product are told of these rows.
ProductArgs product_args(const GemmProblem& problem, const GemmPlan& plan,
                         const ProductOperands& operands, int64_t rows);
/// Threads of a helper kernel's threadgroup, all along its columns.
uint32_t helper_threads(const device::Kernel& kernel);
/// Binds codes, scales and zeros.
void bind_weights(Bindings& bindings, const GpuWeights& weights);
/// The grid of a helper kernel for this many columns and rows of work.
device::Size3 helper_grid(const HelperKernel& helper, int64_t columns, int64_t rows,
                          uint32_t threads);

/// Independent products that are recorded together:
///
///   expand weights, quantize or gather A, sort the routed rows of experts | barrier | gather A for
///   each expert | barrier | add up A over groups | barrier | multiply | barrier | finish | barrier
///   | the next block of rows | ...
///
/// Steps and barriers that no product needs are left out. Products that share an A in the same form
/// prepare it once, and those of experts with the same ids sort once.
class GemmCall {
 public:
  explicit GemmCall(KernelCache& kernels) : kernels_(kernels) {}

  /// Compiles the kernels of a problem. The problem must outlive the call, and the operands must be
  /// at their final places.
  Status add(const GemmProblem& problem, const GemmPlan& plan, const ProductOperands& operands);
  /// Records with scratch memory of the stream, which grows from `memory`.
  Status record(GpuStream& stream, Memory& memory) const;

  /// Compiles the kernels that add() would compile for these operands, or for operands of any
  /// alignment where it is not known yet.
  static Status compile(KernelCache& kernels, const GemmProblem& problem, const GemmPlan& plan);
  /// Begins to, if that takes long, and returns at once.
  static void expect(KernelCache& kernels, const GemmProblem& problem, const GemmPlan& plan);
  /// The kernel that multiplies, compiled for aligned operands.
  static Result<device::KernelRef> multiply_kernel(KernelCache& kernels, const GemmProblem& problem,
                                                   const GemmPlan& plan);

 private:
  struct Product {
    const GemmProblem* problem;
    GemmPlan plan;
    ProductOperands operands;
    device::KernelRef prepare = nullptr, expand = nullptr, multiply = nullptr, finish = nullptr,
                      route = nullptr, sum_groups = nullptr;
    // In scratch:
    uint64_t activations_at = 0, scales_at = 0, partials_at = 0, shared_at = 0, routes_at = 0;
    uint64_t group_sums_at = 0, expanded_at = 0;
    bool prepares = false, sorts = false;  // itself, and not through another product
  };
  /// Some rows of A or, of experts, routed rows of whole tokens.
  struct Rows {
    int64_t first, count;
  };
  /// Where recorded steps go, and where they find memory of the stream.
  struct Target {
    GpuStream& stream;
    DevicePointer scratch, flags;
  };
  /// A step of some rows of a product.
  using Record = Status (*)(const Target& to, const Product& product, Rows rows);

  static TracedStep step_of(const char* step, std::string_view kernel, const GemmProblem& problem,
                            Rows rows);
  static bool share_activations(const Product& one, const Product& other);
  static bool share_routes(const Product& one, const Product& other);
  static void bind_ids(Bindings& bindings, uint32_t to_ids, uint32_t to_scales,
                       const Product& product, Rows rows);
  static DevicePointer source_rows(const Product& product, Rows rows);
  static Matrix prepared(const Target& to, const Product& product);
  static DevicePointer scales_of(const Target& to, const Product& product, int64_t row);
  static int64_t row_of_a(const Product& product, Rows rows);
  static DevicePointer activations_of(const Target& to, const Product& product, Rows rows);
  static Status record_prepare(const Target& to, const Product& product, Rows rows);
  static Status record_route(const Target& to, const Product& product, Rows rows);
  static Status record_group_sums(const Target& to, const Product& product, Rows rows);
  static Status record_expand(const Target& to, const Product& product, Rows rows);
  static Status record_multiply(const Target& to, const Product& product, Rows rows);
  static Status record_finish(const Target& to, const Product& product, Rows rows);
  Status record_step(const Target& to, int64_t round, bool (*does)(const Product& product),
                     Record record, bool& recorded) const;
  Result<bool> record_round(const Target& to, int64_t round) const;

  KernelCache& kernels_;
  std::vector<Product> products_;
  uint64_t scratch_ = 0;  // bytes of all products
};

}  // namespace metal_marlin::gpu
