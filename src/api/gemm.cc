#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "api/errors.h"
#include "api/operand.h"
#include "api/stream.h"
#include "api/weights.h"
#include "core/independent.h"
#include "core/shapes.h"

namespace metal_marlin::api {
namespace {

/// C and the host's scratch must be apart, and so must be the inputs: scratch is written while they
/// are read.
Status check_scratch(const marlin_stream* stream, const Operand& operand, const char* name) {
  if (stream == nullptr || !ranges_overlap(stream->scratch, operand)) return {};
  return Status::error(MARLIN_E_ARGUMENT, "%s overlaps the scratch memory of the stream", name);
}

/// One call: where its products run and whether their operands are touched.
struct Call {
  Call(marlin_stream* on, Pointers touched)
      : stream(on), context(on != nullptr ? on->context.get() : nullptr), pointers(touched) {}

  marlin_stream* const stream;  ///< may be null
  marlin_context* context;      ///< null until the first weights say it
  const Pointers pointers;
};

Result<MatrixView> read_operand(const marlin_matrix& m, const char* name, const Call& call) {
  MARLIN_ASSIGN(const Operand operand, resolve(m, name, *call.context, call.pointers));
  if (call.pointers == Pointers::read)
    MARLIN_RETURN_IF_ERROR(check_scratch(call.stream, operand, name));
  return static_cast<const MatrixView&>(operand);
}

constexpr uint32_t kGemmFlags = MARLIN_GEMM_ACCUMULATE | MARLIN_GEMM_ROW_INVARIANT;

/// Who multiplies what, when the weights are several experts or the caller names experts of one.
Result<Routing> read_routing(const marlin_gemm_desc& d, const Call& call) {
  const ExpertStack& stack = d.weights->experts;
  Routing routing;
  if (stack.size() == 1 && d.expert_ids.data == nullptr) {
    if (d.expert_scales.data == nullptr) return routing;
    return Status::error(MARLIN_E_ARGUMENT, "expert_scales are given without expert_ids");
  }
  if (d.expert_ids.data == nullptr && d.expert_ids.cols == 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "expert_ids are absent, but the weights are %zu experts", stack.size());
  routing.stack = &stack;
  MARLIN_ASSIGN(routing.ids, read_operand(d.expert_ids, "expert_ids", call));
  if (d.expert_scales.data != nullptr) {
    MARLIN_ASSIGN(routing.scales, read_operand(d.expert_scales, "expert_scales", call));
  }
  return routing;
}

/// The epilogue with its numbers.
Status read_epilogue(const marlin_gemm_desc& d, GemmProblem& problem) {
  struct Number {
    const char* name;
    float value;
    bool taken, is_limit;
  };
  const bool swiglu = d.epilogue == MARLIN_EPILOGUE_SWIGLU,
             situ = d.epilogue == MARLIN_EPILOGUE_SITU;
  for (const Number& number : {Number{"gate_limit", d.gate_limit, swiglu || situ, true},
                               Number{"up_limit", d.up_limit, swiglu || situ, true},
                               Number{"gate_alpha", d.gate_alpha, swiglu, false},
                               Number{"up_offset", d.up_offset, swiglu, false}}) {
    const double value = double{number.value};
    if (!number.taken && value != 0)
      return Status::error(MARLIN_E_UNSUPPORTED, "%s is %g, expected 0: epilogue %d has none",
                           number.name, value, d.epilogue);
    const bool needed = situ && number.is_limit;
    if (!std::isfinite(value) || (number.is_limit && value < 0) || (needed && value == 0))
      return Status::error(MARLIN_E_ARGUMENT, "%s is %g, expected a finite number%s", number.name,
                           value, needed ? " above 0" : "");
  }
  set_epilogue(problem, d.epilogue, {d.gate_limit, d.up_limit, d.gate_alpha, d.up_offset});
  return {};
}

/// A checked product with the plan of the call's backend for it.
Result<PlannedGemm> read_product(const marlin_gemm_desc* desc, Call& call) {
  if (desc == nullptr) return Status::error(MARLIN_E_ARGUMENT, "desc is NULL");
  MARLIN_ASSIGN(const marlin_gemm_desc d, read_descriptor(desc, "desc"));
  MARLIN_RETURN_IF_ERROR(check_weights(d.weights, call.context));
  call.context = d.weights->context.get();
  if ((d.flags & ~kGemmFlags) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "flags has unknown bits 0x%x",
                         d.flags & ~kGemmFlags);
  PlannedGemm product;
  GemmProblem& problem = product.problem;
  problem.weights = d.weights->experts.front().get();
  problem.compute = d.compute;
  if (d.activation_group != 0) problem.activation_group = d.activation_group;
  MARLIN_RETURN_IF_ERROR(read_epilogue(d, problem));
  problem.accumulate = (d.flags & MARLIN_GEMM_ACCUMULATE) != 0;
  problem.row_invariant = (d.flags & MARLIN_GEMM_ROW_INVARIANT) != 0;
  MARLIN_ASSIGN(problem.a, read_operand(d.a, "a", call));
  MARLIN_ASSIGN(problem.c, read_operand(d.c, "c", call));
  if (d.bias.data != nullptr) {
    MARLIN_ASSIGN(problem.bias, read_operand(d.bias, "bias", call));
  }
  MARLIN_ASSIGN(problem.routing, read_routing(d, call));
  MARLIN_RETURN_IF_ERROR(check_gemm(problem, call.pointers));
  const int64_t group = problem.activation_group;
  if (group > kLeastActivationGroup && group >= problem.weights->meta().k)
    problem.activation_group = kWholeRow;
  MARLIN_ASSIGN(product.plan, call.context->backend->plan(problem));
  return product;
}

/// The products of one call. A few live here, on the caller's stack; more in the stream, where
/// marlin_prepare has made room, or on the heap when there is no stream: a prepared call does not
/// allocate.
class Products {
 public:
  explicit Products(const Call& call)
      : many_(call.stream != nullptr ? call.stream->products : own_) {
    many_.clear();
  }

  /// `count` is 1 or more. Returns the context of all.
  Result<marlin_context*> read(const marlin_gemm_desc* const* descs, uint32_t count, Call& call) {
    if (descs == nullptr)
      return Status::error(MARLIN_E_ARGUMENT, "descs is NULL, expected %u descriptors", count);
    for (uint32_t i = 0; i < count; ++i) {
      auto product = read_product(descs[i], call);
      if (!product.ok()) return prefixed("descs", i, product.status());
      add(product.value());
    }
    return call.context;
  }
  std::span<const PlannedGemm> all() const {
    return many_.empty() ? std::span(few_, few_count_) : std::span(many_);
  }

 private:
  static constexpr size_t kFew = 8;

  void add(const PlannedGemm& product) {
    if (few_count_ < kFew) {
      few_[few_count_++] = product;
      return;
    }
    if (many_.empty()) many_.assign(few_, few_ + kFew);
    many_.push_back(product);
  }

  PlannedGemm few_[kFew];
  size_t few_count_ = 0;
  std::vector<PlannedGemm> own_;
  std::vector<PlannedGemm>& many_;
};

Status check_stream(const marlin_stream* stream) {
  return stream != nullptr ? check_handle(stream, "stream") : Status();
}
BackendStream* backend_stream(marlin_stream* stream) {
  return stream != nullptr ? stream->backend.get() : nullptr;
}

Status gemm(marlin_stream* stream, const marlin_gemm_desc* desc) {
  MARLIN_RETURN_IF_ERROR(check_stream(stream));
  Call call(stream, Pointers::read);
  MARLIN_ASSIGN(const PlannedGemm product, read_product(desc, call));
  if (product.problem.a.rows == 0) return {};
  return call.context->backend->gemm(backend_stream(stream), {&product, 1});
}

Status gemm_many(marlin_stream* stream, const marlin_gemm_desc* const* descs, uint32_t count) {
  MARLIN_RETURN_IF_ERROR(check_stream(stream));
  if (count == 0) return {};
  Call call(stream, Pointers::read);
  Products products(call);
  MARLIN_ASSIGN(marlin_context* const context, products.read(descs, count, call));
  Independence own;
  MARLIN_RETURN_IF_ERROR((stream != nullptr ? stream->independence : own).check(products.all()));
  return context->backend->gemm(backend_stream(stream), products.all());
}

/// That A and C of max_m rows (with routing: tokens) would fit the address space, so that no size a
/// backend forms of them wraps.
Status check_max_m(const GemmProblem& problem, int64_t max_m) {
  int64_t rows = max_m;
  if (problem.routing.present()) {
    const int64_t top_k = problem.routing.ids.cols;
    if (max_m > INT32_MAX / top_k)
      return Status::error(MARLIN_E_SHAPE,
                           "max_m is %" PRId64 " tokens of %" PRId64
                           " experts, expected 2^31 - 1 ids or fewer",
                           max_m, top_k);
    rows = max_m * top_k;
  }
  for (const MatrixView& m : {problem.a, problem.c}) {
    if (!rows_fit(m, rows))
      return Status::error(MARLIN_E_SHAPE,
                           "max_m is %" PRId64 ", and rows of %" PRId64
                           " do not fit the address space",
                           max_m, m.stride);
  }
  return {};
}

Status prepare(marlin_stream* stream, const marlin_gemm_desc* const* descs, uint32_t count,
               int64_t max_m, uint64_t* scratch_bytes) {
  MARLIN_RETURN_IF_ERROR(check_stream(stream));
  if (max_m < 0)
    return Status::error(MARLIN_E_ARGUMENT, "max_m is %" PRId64 ", expected 0 or more", max_m);
  uint64_t unwanted = 0;
  uint64_t& bytes = scratch_bytes != nullptr ? *scratch_bytes : unwanted;
  if (count == 0) {
    bytes = 0;
    return {};
  }
  Call call(stream, Pointers::unread);
  Products products(call);
  MARLIN_ASSIGN(marlin_context* const context, products.read(descs, count, call));
  for (const PlannedGemm& product : products.all())
    MARLIN_RETURN_IF_ERROR(check_max_m(product.problem, max_m));
  if (stream != nullptr) stream->independence.reserve(count);
  MARLIN_ASSIGN(bytes, context->backend->prepare(backend_stream(stream), products.all(), max_m));
  return {};
}

Status explain(const marlin_gemm_desc* desc, char* text, size_t capacity, size_t* needed) {
  if (text == nullptr && capacity != 0)
    return Status::error(MARLIN_E_ARGUMENT, "text is NULL, but capacity is %zu, expected 0",
                         capacity);
  Call call(nullptr, Pointers::unread);
  MARLIN_ASSIGN(const PlannedGemm product, read_product(desc, call));
  MARLIN_ASSIGN(const std::string full, call.context->backend->explain(product));
  if (capacity != 0) {
    const size_t length = std::min(full.size(), capacity - 1);
    std::memcpy(text, full.data(), length);
    text[length] = '\0';
  }
  if (needed != nullptr) *needed = full.size() + 1;
  return {};
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_gemm(marlin_stream* stream, const marlin_gemm_desc* desc, marlin_error* err) {
  return api::boundary(err, [&] { return api::gemm(stream, desc); });
}

marlin_status marlin_gemm_many(marlin_stream* stream, const marlin_gemm_desc* const* descs,
                               uint32_t count, marlin_error* err) {
  return api::boundary(err, [&] { return api::gemm_many(stream, descs, count); });
}

marlin_status marlin_prepare(marlin_stream* stream, const marlin_gemm_desc* const* descs,
                             uint32_t count, int64_t max_m, uint64_t* scratch_bytes,
                             marlin_error* err) {
  return api::boundary(err,
                       [&] { return api::prepare(stream, descs, count, max_m, scratch_bytes); });
}

marlin_status marlin_explain(const marlin_gemm_desc* desc, char* text, size_t capacity,
                             size_t* needed, marlin_error* err) {
  return api::boundary(err, [&] { return api::explain(desc, text, capacity, needed); });
}
