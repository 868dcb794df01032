#include "backends/gpu/gemm.h"

#include <algorithm>

#include "backends/gpu/variants.h"
#include "formats/codecs.h"

namespace metal_marlin::gpu {
namespace {

constexpr uint32_t kHelperThreads = 256;

/// Whether every row of A begins at a multiple of 16 bytes.
bool is_aligned(const GemmProblem& problem, const Matrix& a) {
  return a.place.address() % 16 == 0 && a.row(1, float_bytes(problem.a.dtype)).address() % 16 == 0;
}

/// Whether rows of A may all begin at multiples of 16 bytes, or may not, as far as a product tells
/// that is not run yet.
bool may_be(bool aligned, const GemmProblem& problem) {
  const MatrixView& a = problem.a;
  const bool rows = static_cast<uint64_t>(a.stride) * float_bytes(a.dtype) % 16 == 0;
  if (a.memory == MARLIN_MEM_HOST) return aligned || !rows;  // it is copied, or begins at a page
  if (rows && a.data == nullptr && a.buffer == nullptr && a.native == nullptr) return true;
  const uint64_t at = a.memory == MARLIN_MEM_CUDA ? reinterpret_cast<uintptr_t>(a.data) : a.offset;
  return aligned == (rows && at % 16 == 0);
}

/// All kernels of a product.
std::vector<Variant> variants(const GemmProblem& problem, const GemmPlan& plan) {
  std::vector<Variant> all;
  if (plan.partial) all.push_back(finish_variant(problem));
  if (plan.routes == Routes::before) all.push_back(route_variant(problem));
  if (plan.kernel->expands()) all.push_back(expand_variant(problem, plan));
  for (const bool aligned : {true, false}) {
    if (!may_be(aligned, problem)) continue;
    if (plan.dispatches(plan.prepared)) all.push_back(prepare_variant(problem, plan, aligned));
    if (plan.dispatches(plan.sums_groups))
      all.push_back(group_sums_variant(problem, plan, aligned));
    all.push_back(multiply_variant(problem, plan, aligned));
  }
  return all;
}

uint64_t prepared_element(const GemmProblem& problem, const GemmPlan& plan) {
  if (are_bytes(plan.activation)) return 1;
  return float_bytes(problem.compute == MARLIN_COMPUTE_FP8 ? MARLIN_BF16 : problem.a.dtype);
}

/// A kernel cannot run if its registers leave room for fewer threads than its tile needs, or if the
/// device has simdgroups of another size.
Status check_kernel(const device::Kernel& compiled, const GemmPlan& plan) {
  if (compiled.max_threads() >= plan.threads() && compiled.simd_width() == kLanes) return {};
  return Status::error(
      MARLIN_E_UNSUPPORTED,
      "it runs with up to %u threads in simdgroups of %u, expected %u in simdgroups of %d",
      compiled.max_threads(), compiled.simd_width(), plan.threads(), kLanes);
}

}  // namespace

uint32_t helper_threads(const device::Kernel& kernel) {
  return std::min(kHelperThreads, kernel.max_threads());
}

void bind_weights(Bindings& bindings, const GpuWeights& weights) {
  const RowBlockLayout& layout = weights.layout;
  bindings.buffer(MARLIN_BUFFER_CODES, weights.part(0))
      .buffer(MARLIN_BUFFER_SCALES, weights.part(layout.scales_at));
  if (layout.zero_constant() != kZeroNone)
    bindings.buffer(MARLIN_BUFFER_ZEROS, weights.part(layout.zeros_at));
}

device::Size3 helper_grid(const HelperKernel& helper, int64_t columns, int64_t rows,
                          uint32_t threads) {
  return {static_cast<uint32_t>(ceil_div(ceil_div(columns, helper.columns), threads)),
          static_cast<uint32_t>(rows), 1};
}

bool GemmCall::share_activations(const Product& one, const Product& other) {
  const MatrixView &a = one.problem->a, &b = other.problem->a;
  const GpuWeights &v = weights_of(*one.problem), &w = weights_of(*other.problem);
  return !one.plan.gathers && !other.plan.gathers && one.plan.activation == other.plan.activation &&
         one.problem->compute == other.problem->compute &&
         one.problem->activation_group == other.problem->activation_group &&
         one.plan.quantizes_for_tiles() == other.plan.quantizes_for_tiles() &&
         one.operands.a.place.address() == other.operands.a.place.address() &&
         one.operands.a.stride == other.operands.a.stride && a.dtype == b.dtype &&
         a.rows == b.rows && a.cols == b.cols && v.layout.slots == w.layout.slots &&
         v.slot_to_k == w.slot_to_k;
}

/// Whether the tables of both are the same, in each block of rows.
bool GemmCall::share_routes(const Product& one, const Product& other) {
  const Routing &r = one.problem->routing, &s = other.problem->routing;
  const auto same = [](const Matrix& x, const Matrix& y) {
    return x.place.address() == y.place.address() && x.stride == y.stride;
  };
  return one.plan.routes == other.plan.routes && one.plan.items == other.plan.items &&
         one.plan.m_block == other.plan.m_block &&
         one.plan.kernel->rows == other.plan.kernel->rows && r.stack->size() == s.stack->size() &&
         r.ids.rows == s.ids.rows && r.ids.cols == s.ids.cols &&
         same(one.operands.ids, other.operands.ids) && r.scales.dtype == s.scales.dtype &&
         (!r.scales.present() || same(one.operands.scales, other.operands.scales));
}

Status GemmCall::add(const GemmProblem& problem, const GemmPlan& plan,
                     const ProductOperands& operands) {
  Product product{.problem = &problem, .plan = plan, .operands = operands};
  const bool aligned = is_aligned(problem, operands.a);
  const auto area = [&](uint64_t bytes) {
    const uint64_t at = scratch_;
    scratch_ += bytes;
    return at;
  };
  if (plan.prepared) {
    const auto same = std::find_if(products_.begin(), products_.end(), [&](const Product& earlier) {
      return earlier.plan.prepared && share_activations(earlier, product);
    });
    product.prepares = same == products_.end();
    product.activations_at = product.prepares ? area(plan.activation_bytes) : same->activations_at;
    product.scales_at = product.prepares ? area(plan.activation_scale_bytes) : same->scales_at;
    if (plan.routes != Routes::in_launch) {
      MARLIN_ASSIGN(product.prepare, kernels_.get(prepare_variant(problem, plan, aligned)));
    }
  }
  product.partials_at = area(plan.partial_bytes);
  product.shared_at = area(plan.shared_bytes);
  const auto sorted = std::ranges::find_if(products_, [&](const Product& earlier) {
    return plan.routes == Routes::before && share_routes(earlier, product);
  });
  product.sorts = plan.routes == Routes::before && sorted == products_.end();
  product.routes_at = sorted == products_.end() ? area(plan.route_bytes) : sorted->routes_at;
  product.group_sums_at = area(plan.group_sum_bytes);
  product.expanded_at = area(plan.expanded_bytes);
  if (plan.kernel->expands()) {
    MARLIN_ASSIGN(product.expand, kernels_.get(expand_variant(problem, plan)));
  }
  if (plan.dispatches(plan.sums_groups)) {
    MARLIN_ASSIGN(product.sum_groups, kernels_.get(group_sums_variant(problem, plan, aligned)));
  }
  MARLIN_ASSIGN(product.multiply, kernels_.get(multiply_variant(problem, plan, aligned)));
  MARLIN_RETURN_IF_ERROR(check_kernel(*product.multiply, plan));
  if (plan.partial) {
    MARLIN_ASSIGN(product.finish, kernels_.get(finish_variant(problem)));
  }
  if (product.sorts) {
    MARLIN_ASSIGN(product.route, kernels_.get(route_variant(problem)));
  }
  products_.push_back(std::move(product));
  return {};
}

Status GemmCall::compile(KernelCache& kernels, const GemmProblem& problem, const GemmPlan& plan) {
  for (const Variant& variant : variants(problem, plan))
    MARLIN_RETURN_IF_ERROR(kernels.get(variant).status());
  return {};
}

void GemmCall::expect(KernelCache& kernels, const GemmProblem& problem, const GemmPlan& plan) {
  for (const Variant& variant : variants(problem, plan)) kernels.expect(variant);
}

Result<device::KernelRef> GemmCall::multiply_kernel(KernelCache& kernels,
                                                    const GemmProblem& problem,
                                                    const GemmPlan& plan) {
  return kernels.get(multiply_variant(problem, plan, true));
}

TracedStep GemmCall::step_of(const char* step, std::string_view kernel, const GemmProblem& problem,
                             Rows rows) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  return {step, kernel, rows.count, layout.n, layout.k};
}

/// The first of the prepared rows of A that a product of these rows has.
int64_t GemmCall::row_of_a(const Product& product, Rows rows) {
  if (product.plan.gathers) return 0;  // of this block alone
  return product.problem->routing.present() ? rows.first / rows_of_a(*product.problem) : rows.first;
}

Matrix GemmCall::prepared(const Target& to, const Product& product) {
  return {to.scratch.at(product.activations_at), weights_of(*product.problem).layout.slots};
}

/// The scales of a row of INT8 activations.
DevicePointer GemmCall::scales_of(const Target& to, const Product& product, int64_t row) {
  const int64_t slots = weights_of(*product.problem).layout.slots;
  const int64_t of_row = product.plan.quantizes_for_tiles() ? 1 : slots / kActivationBlock;
  return Matrix{to.scratch.at(product.scales_at), of_row}.row(row, sizeof(float));
}

/// The rows of A, of 16 or 32 bits, that a product of these rows reads.
DevicePointer GemmCall::activations_of(const Target& to, const Product& product, Rows rows) {
  const int64_t row = row_of_a(product, rows);
  if (product.plan.prepared)
    return prepared(to, product).row(row, prepared_element(*product.problem, product.plan));
  return product.operands.a.row(row, float_bytes(product.problem->a.dtype));
}

/// The caller's rows of A of these routed rows.
DevicePointer GemmCall::source_rows(const Product& product, Rows rows) {
  return product.operands.a.row(rows.first / rows_of_a(*product.problem),
                                float_bytes(product.problem->a.dtype));
}

/// Prepares rows of A, or a row for each of these routed rows, which have just been sorted.
Status GemmCall::record_prepare(const Target& to, const Product& product, Rows rows) {
  const GemmProblem& problem = *product.problem;
  const GpuWeights& weights = weights_of(problem);
  const int64_t slots = weights.layout.slots;
  const uint32_t threads = helper_threads(*product.prepare);
  PrepareArgs args{};
  args.m = static_cast<marlin_int>(rows.count);
  args.k = static_cast<marlin_int>(weights.layout.k);
  args.slots = static_cast<marlin_int>(slots);
  args.lda = product.operands.a.stride;
  if (problem.activation_group != kWholeRow)
    args.group = static_cast<marlin_int>(problem.activation_group);
  args.for_tiles = product.plan.quantizes_for_tiles() ? 1 : 0;
  int64_t row = rows.first;  // of what is prepared
  Bindings bindings;
  if (product.plan.gathers) {
    args.items = static_cast<marlin_int>(product.plan.items);
    args.rows_of_a = static_cast<marlin_int>(rows_of_a(problem));
    args.expert_stride = static_cast<int64_t>(weights.expert_stride);
    row = 0;
    bindings.buffer(MARLIN_BUFFER_SOURCE, source_rows(product, rows))
        .buffer(MARLIN_BUFFER_ROUTES, to.scratch.at(product.routes_at));
  } else {
    bindings.buffer(MARLIN_BUFFER_SOURCE,
                    product.operands.a.row(rows.first, float_bytes(problem.a.dtype)));
  }
  bindings.buffer(MARLIN_BUFFER_QUANTIZED,
                  prepared(to, product).row(row, prepared_element(problem, product.plan)));
  if (are_bytes(product.plan.activation))
    bindings.buffer(MARLIN_BUFFER_QUANT_SCALES, scales_of(to, product, row));
  if (weights.layout.permuted)
    bindings.buffer(MARLIN_BUFFER_SOURCE_SLOTS, weights.part(weights.layout.slot_to_k_at));
  bindings.value(MARLIN_BUFFER_PREPARE_ARGS, args);
  const HelperKernel helper = prepare_kernel(problem, product.plan);
  return to.stream.dispatch(product.prepare, bindings,
                            helper_grid(helper, slots, rows.count, threads), threads,
                            step_of("prepare A", helper.name, problem, rows));
}

/// Binds the ids and scales of the tokens whose routed rows these are.
void GemmCall::bind_ids(Bindings& bindings, uint32_t to_ids, uint32_t to_scales,
                        const Product& product, Rows rows) {
  const Routing& routing = product.problem->routing;
  const Matrix &ids = product.operands.ids, &scales = product.operands.scales;
  const int64_t first_token = rows.first / routing.ids.cols;
  bindings.buffer(to_ids, ids.row(first_token, sizeof(int32_t)));
  if (routing.scales.present())
    bindings.buffer(to_scales, scales.row(first_token, float_bytes(routing.scales.dtype)));
}

/// Sorts the routed rows of some tokens.
Status GemmCall::record_route(const Target& to, const Product& product, Rows rows) {
  const Routing& routing = product.problem->routing;
  const int64_t top_k = routing.ids.cols;
  RouteArgs args{};
  args.tokens = static_cast<marlin_int>(rows.count / top_k);
  args.top_k = static_cast<marlin_int>(top_k);
  args.experts = static_cast<marlin_int>(routing.stack->size());
  args.tile_rows = static_cast<marlin_int>(product.plan.kernel->rows);
  args.items = static_cast<marlin_int>(product.plan.items);
  args.id_stride = product.operands.ids.stride;
  args.scale_stride = product.operands.scales.stride;
  Bindings bindings;
  bind_ids(bindings, MARLIN_BUFFER_IDS, MARLIN_BUFFER_ID_SCALES, product, rows);
  bindings.buffer(MARLIN_BUFFER_ROUTES, to.scratch.at(product.routes_at))
      .value(MARLIN_BUFFER_ROUTE_ARGS, args);
  const uint32_t threads = std::min<uint32_t>(kRouteThreads, product.route->max_threads());
  return to.stream.dispatch(product.route, bindings, {1, 1, 1}, threads,
                            step_of("sort experts", route_kernel(), *product.problem, rows));
}

/// Adds up the rows of A of a product over the groups of its weights.
Status GemmCall::record_group_sums(const Target& to, const Product& product, Rows rows) {
  const RowBlockLayout& layout = weights_of(*product.problem).layout;
  const HelperKernel helper = group_sums_kernel(product.problem->a.dtype);
  const uint32_t threads = helper_threads(*product.sum_groups);
  PrepareArgs args{};
  args.m = static_cast<marlin_int>(rows.count);
  args.k = static_cast<marlin_int>(product.plan.prepared ? layout.slots : layout.k);
  args.slots = static_cast<marlin_int>(slots_of_sums(layout));
  args.lda = product.plan.prepared ? layout.slots : product.operands.a.stride;
  Bindings bindings;
  bindings.buffer(MARLIN_BUFFER_SOURCE, activations_of(to, product, rows))
      .buffer(MARLIN_BUFFER_GROUP_SUMS_OUT, to.scratch.at(product.group_sums_at));
  if (product.plan.gathers) bindings.buffer(MARLIN_BUFFER_ROUTES, to.scratch.at(product.routes_at));
  bindings.value(MARLIN_BUFFER_PREPARE_ARGS, args);
  return to.stream.dispatch(
      product.sum_groups, bindings,
      helper_grid(helper, args.slots, round_up(rows.count, kSumsAtOnce), threads), threads,
      step_of("sum A over groups", helper.name, *product.problem, rows));
}

/// Makes floats of 16 bits of the weights.
Status GemmCall::record_expand(const Target& to, const Product& product, Rows rows) {
  const GpuWeights& weights = weights_of(*product.problem);
  const ProductArgs args =
      product_args(*product.problem, product.plan, product.operands, rows.count);
  Bindings bindings;
  bind_weights(bindings, weights);
  bindings.buffer(MARLIN_BUFFER_EXPANDED, to.scratch.at(product.expanded_at))
      .value(MARLIN_BUFFER_ARGS, args);
  const int64_t chunks = weights.layout.slots / kMmaSlots;
  const device::Size3 grid{
      static_cast<uint32_t>(ceil_div(chunks, int64_t{kExpandWarps} * kExpandChunks)),
      static_cast<uint32_t>(weights.layout.row_blocks()), 1};
  return to.stream.dispatch(
      product.expand, bindings, grid, uint32_t{kExpandWarps} * kLanes,
      step_of("expand weights", expand_kernel(weights.layout.codes, product.plan.activation),
              *product.problem, rows));
}

Status GemmCall::record_multiply(const Target& to, const Product& product, Rows rows) {
  const GemmProblem& problem = *product.problem;
  const GemmPlan& plan = product.plan;
  const GpuWeights& weights = weights_of(problem);
  const RowBlockLayout& layout = weights.layout;
  const ProductArgs args = product_args(problem, plan, product.operands, rows.count);
  MARLIN_RETURN_IF_ERROR(to.stream.make_room(slow_seconds(problem, rows.count)));
  Bindings bindings;
  if (plan.kernel->expands())
    bindings.buffer(MARLIN_BUFFER_CODES, to.scratch.at(product.expanded_at));
  else
    bind_weights(bindings, weights);
  if (!plan.partial && layout.row_factor != kRowFactorNone)
    bindings.buffer(MARLIN_BUFFER_ROWS, weights.part(layout.factors_at));
  bindings.buffer(MARLIN_BUFFER_A, activations_of(to, product, rows));
  if (plan.sums_groups)
    bindings.buffer(MARLIN_BUFFER_GROUP_SUMS, to.scratch.at(product.group_sums_at));
  if (are_bytes(plan.activation))
    bindings.buffer(MARLIN_BUFFER_A_SCALES, scales_of(to, product, row_of_a(product, rows)));
  if (plan.partial) {
    bindings.buffer(MARLIN_BUFFER_PARTIALS, to.scratch.at(product.partials_at));
  } else {
    if (problem.bias.present()) bindings.buffer(MARLIN_BUFFER_BIAS, product.operands.bias.place);
    bindings.buffer(MARLIN_BUFFER_C,
                    product.operands.c.row(rows.first, float_bytes(problem.c.dtype)));
  }
  if (plan.kernel->shares_tiles())
    bindings.buffer(MARLIN_BUFFER_SHARED, to.scratch.at(product.shared_at))
        .buffer(MARLIN_BUFFER_FLAGS, to.flags);
  if (product.problem->routing.present())
    bindings.buffer(MARLIN_BUFFER_ROUTES, to.scratch.at(product.routes_at));
  if (product.problem->routing.present() && plan.routes != Routes::before)
    bind_ids(bindings, MARLIN_BUFFER_ROUTED_IDS, MARLIN_BUFFER_ROUTED_SCALES, product, rows);
  if (plan.routes == Routes::in_launch && plan.gathers) {
    bindings.buffer(MARLIN_BUFFER_GATHER_FROM, source_rows(product, rows));
    if (layout.permuted)
      bindings.buffer(MARLIN_BUFFER_GATHER_SLOTS, weights.part(layout.slot_to_k_at));
  }
  bindings.value(MARLIN_BUFFER_ARGS, args);
  return to.stream.dispatch(
      product.multiply, bindings, plan.grid(rows.count, layout.n), plan.threads(),
      step_of("multiply", plan.kernel->multiplies(layout.codes, plan.activation), problem, rows));
}

Status GemmCall::record_finish(const Target& to, const Product& product, Rows rows) {
  const GemmProblem& problem = *product.problem;
  const GpuWeights& weights = weights_of(problem);
  const bool sums = problem.routing.scales.present();
  const int64_t of_row = sums ? problem.routing.ids.cols : 1;  // routed rows of a row of C
  const ProductArgs args =
      product_args(problem, product.plan, product.operands, rows.count / of_row);
  Bindings bindings;
  if (weights.layout.row_factor != kRowFactorNone)
    bindings.buffer(MARLIN_BUFFER_ROWS, weights.part(weights.layout.factors_at));
  if (problem.bias.present()) bindings.buffer(MARLIN_BUFFER_BIAS, product.operands.bias.place);
  if (product.problem->routing.present())
    bindings.buffer(MARLIN_BUFFER_ROUTES, to.scratch.at(product.routes_at));
  bindings
      .buffer(MARLIN_BUFFER_C,
              product.operands.c.row(rows.first / of_row, float_bytes(problem.c.dtype)))
      .buffer(MARLIN_BUFFER_PARTIALS, to.scratch.at(product.partials_at))
      .value(MARLIN_BUFFER_ARGS, args);
  const uint32_t threads = helper_threads(*product.finish);
  return to.stream.dispatch(
      product.finish, bindings,
      helper_grid(finish_kernel(), problem.c.cols, rows.count / of_row, threads), threads,
      step_of("finish", finish_kernel().name, problem, rows));
}

/// Records a step of block number `round` of the rows of every product that `does` it and has this
/// many blocks.
Status GemmCall::record_step(const Target& to, int64_t round, bool (*does)(const Product& product),
                             Record record, bool& recorded) const {
  for (const Product& product : products_) {
    const int64_t first = round * product.plan.m_block;
    const int64_t left = product_rows(*product.problem, problem_size(*product.problem)) - first;
    if (left <= 0 || !does(product)) continue;
    MARLIN_RETURN_IF_ERROR(record(to, product, {first, std::min(left, product.plan.m_block)}));
    recorded = true;
  }
  return {};
}

/// Records block number `round` of the rows of every product that has this many blocks. True if
/// some have more.
Result<bool> GemmCall::record_round(const Target& to, int64_t round) const {
  bool recorded = false;
  for (const Product& product : products_) {
    if (round != 0 || !product.plan.kernel->expands()) continue;
    MARLIN_RETURN_IF_ERROR(record_expand(to, product, {0, product.problem->a.rows}));
    recorded = true;
  }
  for (const Product& product : products_) {
    if (round != 0 || !product.prepares || product.plan.gathers) continue;
    const int64_t all = product.problem->a.rows, most = product.plan.prepare_block;
    for (int64_t first = 0; first < all; first += most)
      MARLIN_RETURN_IF_ERROR(record_prepare(to, product, {first, std::min(most, all - first)}));
    recorded = true;
  }
  // The steps before a product. What waits for a step waits at a barrier.
  struct Step {
    bool (*does)(const Product& product);
    Record record;
  };
  constexpr Step kSteps[] = {
      {[](const Product& product) { return product.sorts; }, record_route},
      {[](const Product& product) { return product.plan.dispatches(product.plan.gathers); },
       record_prepare},
      {[](const Product& product) { return product.plan.dispatches(product.plan.sums_groups); },
       record_group_sums},
  };
  for (const Step& step : kSteps) {
    MARLIN_RETURN_IF_ERROR(record_step(to, round, step.does, step.record, recorded));
    if (recorded) MARLIN_RETURN_IF_ERROR(to.stream.barrier());
    recorded = false;
  }
  const auto every = [](const Product&) { return true; };
  MARLIN_RETURN_IF_ERROR(record_step(to, round, every, record_multiply, recorded));
  bool more = false, partial = false;
  for (const Product& product : products_) {
    const int64_t blocks = ceil_div(product_rows(*product.problem, problem_size(*product.problem)),
                                    product.plan.m_block);
    partial = partial || (product.plan.partial && round < blocks);
    more = more || round + 1 < blocks;
  }
  if (!partial) return more;
  MARLIN_RETURN_IF_ERROR(to.stream.barrier());
  const auto has_partials = [](const Product& product) { return product.plan.partial; };
  MARLIN_RETURN_IF_ERROR(record_step(to, round, has_partials, record_finish, recorded));
  // The next block's partial sums take the place of these.
  if (more) MARLIN_RETURN_IF_ERROR(to.stream.barrier());
  return more;
}

Status GemmCall::record(GpuStream& stream, Memory& memory) const {
  if (products_.empty()) return {};
  Target to{stream, {}, {}};
  if (scratch_ != 0) {
    MARLIN_ASSIGN(to.scratch, stream.scratch(memory, scratch_));
  }
  const auto shares = [](const Product& product) { return product.plan.kernel->shares_tiles(); };
  if (std::ranges::any_of(products_, shares)) {
    MARLIN_ASSIGN(to.flags, stream.flags(memory));
  }
  MARLIN_RETURN_IF_ERROR(stream.begin());
  bool more = true;
  for (int64_t round = 0; more; ++round) {
    MARLIN_ASSIGN(more, record_round(to, round));
  }
  return stream.end();
}

}  // namespace metal_marlin::gpu
